package head

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// TestEndedCertificates: an agent whose certificate ended while its host or the head was away is let in, and gets another
// for its key. So does one whose certificate has not begun by the head's clock. One that ended too long ago is told
// what to do. A revoked one, a host that is no member and a user get nothing, and such a certificate asks for nothing
// else.
func TestEndedCertificates(t *testing.T) {
	x := newHead(t)
	agent := func(name, dir string, ago time.Duration) *trust.Identity {
		return x.identityOf(dir, trust.Subject{Name: name, Role: trust.Agent, Hosts: []string{"10.0.0.7"}}, time.Now().Add(-ago))
	}
	dial := func(id *trust.Identity) (*control.Conn, string) {
		c, err := control.Dial(context.Background(), x.addr, id, "/v1/agent")
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.Send(control.Message{Kind: control.Hello, Info: &control.Info{Name: "h1", Binary: "this", Pid: 7}}))
		m, err := c.Receive(time.Minute)
		require.NoError(t, err)
		require.Equal(t, control.Welcome, m.Kind)
		return c, m.Text
	}
	const day = 24 * time.Hour
	_, text := dial(agent("h1", "long", 40*day))
	require.Regexp(t, "ended on 20..-..-.., more than 30 days ago: `lfactor cluster add h1`, or `lfactor cluster join`", text)
	_, text = dial(agent("h2", "other", 3*day))
	require.Contains(t, text, "not a member")
	require.Contains(t, x.log.String(), "agent h1 at 127.0.0.1", "it is an event")

	id := agent("h1", "late", 3*day)
	c, text := dial(id)
	require.Empty(t, text)
	for {
		m, err := c.Receive(time.Minute)
		require.NoError(t, err)
		if m.Kind != control.Renewed {
			continue
		}
		cert, err := trust.DecodeCert(m.Text)
		require.NoError(t, err)
		require.NoError(t, cert.VerifyHostname("10.0.0.7"))
		require.NoError(t, id.Replace(cert), "it is for the key that the agent has")
		break
	}
	require.Contains(t, x.log.String(), "its certificate had ended, and it gets another")
	c.Close()
	status := control.NewClient([]string{x.addr}, id)
	require.Equal(t, http.StatusForbidden, x.status(status, "GET", "/v1/status", nil), "as any agent's that is good")

	user := x.identityOf("u", trust.Subject{Name: "u", Role: trust.Admin}, time.Now().Add(-3*day))
	require.ErrorContains(t, ask(x, user.Ended(trust.HeadName, trust.Head), "/v1/agent"), "bad certificate")
	require.ErrorContains(t, ask(x, user.Client(trust.HeadName, trust.Head), "/v1/status"), "expired certificate")
	again := agent("h1", "again", 3*day)
	require.ErrorContains(t, ask(x, again.Ended(trust.HeadName, trust.Head), "/v1/status"), "401")
	early, text := dial(agent("h1", "early", -3*day))
	require.Empty(t, text, "the head's clock was put back")
	for m, err := early.Receive(time.Minute); m.Kind != control.Renewed; m, err = early.Receive(time.Minute) {
		require.NoError(t, err)
	}
	revokes(t, x, again)
	_, err := control.Dial(context.Background(), x.addr, again, "/v1/agent")
	require.True(t, trust.Barred(err), err)
}

// ask gets something with a connection of its own, and fails where the answer is none.
func ask(x *headed, how *tls.Config, path string) error {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: how}}
	defer c.CloseIdleConnections()
	r, err := c.Get("https://" + x.addr + path)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return &control.Refused{Status: r.StatusCode, Text: r.Status}
	}
	return nil
}

// revokes has the head count an identity's certificate no more.
func revokes(t *testing.T, x *headed, id *trust.Identity) {
	t.Helper()
	own, err := id.Client(trust.HeadName, trust.Head).GetClientCertificate(&tls.CertificateRequestInfo{})
	require.NoError(t, err)
	head, err := trust.Load(filepath.Join(x.dir, "head"), nil)
	require.NoError(t, err)
	require.NoError(t, head.Revoke([]string{trust.Serial(own.Leaf)}))
}
