package head

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/store/storetest"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// headed is a head that runs in the test's process, with its authority.
type headed struct {
	t    *testing.T
	dir  string
	addr string
	ca   *trust.CA
	log  *syncBuffer
	// what it has stored
	store *memory
}

// inMemory opens a part of a store in memory.
func inMemory(m *memory) func(store.Options) (store.Store, error) {
	return func(o store.Options) (store.Store, error) { return m.Open("head"), nil }
}

// bare is a head without a server, with a store in memory.
func bare(t *testing.T, dir string) *Head {
	t.Helper()
	term, err := newMemory().Open("head").Lead("head")
	require.NoError(t, err)
	s := &holder{o: Options{Dir: dir, Log: io.Discard}, ended: func() {}}
	h := s.head(term)
	h.id = nil
	go h.write()
	require.NoError(t, h.restore())
	t.Cleanup(h.leave)
	return h
}

// syncBuffer is a log that the test reads while the head writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newHead starts a head whose one member is h1.
func newHead(t *testing.T) *headed {
	t.Helper()
	x := &headed{t: t, dir: t.TempDir(), log: &syncBuffer{}, store: newMemory()}
	var err error
	x.ca, err = trust.NewCA("test", time.Now().Add(-100*24*time.Hour))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(x.dir, "head"), 0o700))
	require.NoError(t, x.ca.Save(filepath.Join(x.dir, "head")))
	x.identity("head", trust.Subject{Name: trust.HeadName, Role: trust.Head})
	id := x.identity("h1", trust.Subject{Name: "h1", Role: trust.Agent})
	require.NotNil(t, id)
	require.NoError(t, Enroll(filepath.Join(x.dir, "head"), map[string]string{"h1": "1"}))
	x.addr = storetest.Address(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Dir: filepath.Join(x.dir, "head"), Listen: x.addr, Binary: "this",
			Version: "1", Log: x.log, Open: inMemory(x.store)})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		if t.Failed() {
			t.Log(x.log.String())
		}
	})
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(x.dir, "head", control.UpFile))
		return err == nil && string(text) == strconv.Itoa(os.Getpid())
	}, 2*time.Minute, time.Millisecond)
	return x
}

// identity makes a certificate of the cluster.
func (x *headed) identity(name string, s trust.Subject) *trust.Identity {
	x.t.Helper()
	return x.identityOf(name, s, time.Now())
}

// identityOf is one that began at a time, and lives an hour.
func (x *headed) identityOf(name string, s trust.Subject, began time.Time) *trust.Identity {
	x.t.Helper()
	key, err := trust.NewKey()
	require.NoError(x.t, err)
	cert, err := x.ca.Issue(s, &key.PublicKey, began, time.Hour)
	require.NoError(x.t, err)
	dir := filepath.Join(x.dir, name)
	require.NoError(x.t, trust.SaveIdentity(dir, x.ca.Cert, cert, key))
	id, err := trust.Load(dir, nil)
	require.NoError(x.t, err)
	return id
}

// status asks as somebody and returns the answer's status, 200 for success.
func (x *headed) status(c *control.Client, method, path string, in any) int {
	err := c.Do(context.Background(), method, path, in, nil)
	var refused *control.Refused
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &refused):
		return refused.Status
	}
	require.NoError(x.t, err)
	return 0
}

// TestRoles: what each role may ask for, request by request; nobody changes anything who may only look,
// and an agent's certificate is not a user's.
func TestRoles(t *testing.T) {
	x := newHead(t)
	clients := map[trust.Role]*control.Client{}
	for _, r := range []trust.Role{trust.Admin, trust.Submit, trust.View, trust.Agent} {
		clients[r] = control.NewClient([]string{x.addr}, x.identity("user-"+string(r),
			trust.Subject{Name: "u", Role: r}))
	}
	const all, use, rule = "admin submit view", "admin submit", "admin"
	for _, c := range []struct{ method, path, roles string }{
		{"GET", "/v1/status", all}, {"GET", "/v1/jobs", all}, {"GET", "/v1/jobs/1", all},
		{"GET", "/v1/jobs/1/output", all},
		{"GET", "/v1/jobs/1/why", all}, {"GET", "/v1/jobs/1/files/log.jsonl", all},
		{"GET", "/v1/jobs/1/settings", use}, {"GET", "/v1/events", all}, {"GET", "/metrics", all},
		{"POST", "/v1/jobs", use}, {"POST", "/v1/jobs/1/stop", use},
		{"POST", "/v1/tokens", rule}, {"GET", "/v1/users", rule}, {"POST", "/v1/users", rule},
		{"DELETE", "/v1/users/none", rule}, {"POST", "/v1/renew", all}, {"POST", "/v1/check", rule}, {"POST",
			"/v1/hosts/none/drain", rule},
		{"DELETE", "/v1/hosts/none", rule}, {"GET", "/v1/backup", rule},
	} {
		for role, client := range clients {
			got := x.status(client, c.method, c.path, nil)
			if strings.Contains(c.roles, string(role)) {
				require.NotEqual(t, http.StatusForbidden, got, "%s %s as %s", c.method, c.path, role)
			} else {
				require.Equal(t, http.StatusForbidden, got, "%s %s as %s", c.method, c.path, role)
			}
		}
	}
	for _, role := range []trust.Role{trust.Submit, trust.View, trust.Agent} {
		require.Equal(t, http.StatusForbidden, x.status(clients[role], "POST", "/v1/down", nil), role)
	}
	require.Equal(t, http.StatusForbidden, x.status(clients[trust.Admin], "GET", "/v1/agent", nil),
		"a user is no agent")
	for role, client := range clients {
		require.Equal(t, http.StatusForbidden, x.status(client, "GET", "/v1/head", nil),
			"%s is not a head", role)
	}
}

// TestNoCertificate: whoever has none may join with a token, and nothing else.
func TestNoCertificate(t *testing.T) {
	x := newHead(t)
	tok := trust.NewToken(x.ca.Hash(), x.addr)
	nobody := control.NewJoiner(tok)
	for _, path := range []string{"GET /v1/status", "POST /v1/jobs", "GET /v1/agent", "GET /v1/head",
		"POST /v1/down",
		"GET /v1/backup", "GET /metrics"} {
		method, path, _ := strings.Cut(path, " ")
		require.Equal(t, http.StatusUnauthorized, x.status(nobody, method, path, nil), path)
	}
	require.Equal(t, http.StatusBadRequest, x.status(nobody, "POST", "/v1/join", "no request"))
	require.Equal(t, http.StatusForbidden, x.status(nobody, "POST", "/v1/join",
		JoinRequest{Secret: tok.Secret, Name: "h2"}))
	require.NotContains(t, x.log.String(), tok.Secret)
}

// TestWrongClients: plaintext, another cluster's certificate, a request that does not end, and a body
// of any size cost the head neither its answer to others nor memory.
func TestWrongClients(t *testing.T) {
	x := newHead(t)
	raw, err := net.Dial("tcp", x.addr)
	require.NoError(t, err)
	_, err = raw.Write([]byte("GET /v1/status HTTP/1.1\r\nHost: head\r\n\r\n"))
	require.NoError(t, err)
	text, _ := io.ReadAll(raw)
	require.NotContains(t, string(text), "200", "plaintext")
	other := newHead(t)
	stranger := other.identity("stranger", trust.Subject{Name: "u", Role: trust.Admin})
	err = control.NewClient([]string{x.addr}, stranger).Do(context.Background(), "GET", "/v1/status",
		nil, nil)
	require.ErrorContains(t, err, "does not answer", "another cluster's user")
	conf := stranger.Client(trust.HeadName, trust.Head)
	conf.InsecureSkipVerify, conf.VerifyConnection = true, nil // who does not care whom it talks to
	c, err := tls.Dial("tcp", x.addr, conf)
	if err == nil { // in TLS 1.3 a client hears of its refusal with the first read
		_, err = c.Read(make([]byte, 1))
	}
	require.Error(t, err, "the head refuses another cluster's certificate")
	admin := control.NewClient([]string{x.addr},
		x.identity("admin", trust.Subject{Name: "u", Role: trust.Admin}))
	big := control.Spec{Args: []string{"train"}, Dir: "/", Procs: 1,
		Files: map[string][]byte{"x": make([]byte, maxRequest)}}
	require.Equal(t, http.StatusBadRequest, x.status(admin, "POST", "/v1/jobs", big))
}

// TestHalfOpen: thousands of connections that say nothing hold up nobody; the oldest are dropped, which is
// counted, and said once a second.
func TestHalfOpen(t *testing.T) {
	x := newHead(t)
	admin := control.NewClient([]string{x.addr},
		x.identity("admin", trust.Subject{Name: "u", Role: trust.Admin}))
	const flood = 3000
	began := time.Now()
	var idle []net.Conn
	for range flood {
		c, err := net.Dial("tcp", x.addr)
		require.NoError(t, err)
		idle = append(idle, c)
	}
	require.Equal(t, http.StatusOK, x.status(admin, "GET", "/v1/status", nil))
	for _, c := range idle[:flood-halfOpenMost] { // the head has closed them
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	require.Equal(t, http.StatusOK, x.status(admin, "GET", "/v1/status", nil))
	seconds := int(time.Since(began).Seconds())
	require.LessOrEqual(t, strings.Count(x.log.String(), "half-open"), seconds+1)
	require.Contains(t, x.log.String(), "half-open")
	for _, c := range idle {
		c.Close()
	}
}

// TestAgents: who is let in as an agent, and what its connection may bring.
func TestAgents(t *testing.T) {
	x := newHead(t)
	info := control.Info{Name: "h1", Binary: "this", Pid: 7}
	dial := func(id *trust.Identity, info control.Info) (*control.Conn, string) {
		c, err := control.Dial(context.Background(), x.addr, id, "/v1/agent")
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.Send(control.Message{Kind: control.Hello, Info: &info}))
		m, err := c.Receive(time.Minute)
		require.NoError(t, err)
		require.Equal(t, control.Welcome, m.Kind)
		return c, m.Text
	}
	h1 := x.identity("h1b", trust.Subject{Name: "h1", Role: trust.Agent})
	_, text := dial(x.identity("h2", trust.Subject{Name: "h2", Role: trust.Agent}), info)
	require.Contains(t, text, "not a member", "the certificate's name counts, not what the hello says")
	other := info
	other.Binary = "that"
	_, text = dial(h1, other)
	require.Contains(t, text, "another binary")
	c, text := dial(h1, info)
	require.Empty(t, text)
	twin := info
	twin.Pid = 8
	_, text = dial(h1, twin)
	require.Contains(t, text, "connected already, pid 7")

	require.NoError(t, c.Send(control.Message{Kind: control.Exited, Job: "nothing", Proc: 1 << 40, Gen: -1}),
		"a word about what is not there")
	require.NoError(t, c.Send(control.Message{Kind: control.Output, Job: "../../etc", Data: []byte("x")}))
	require.NoError(t, c.Send(control.Message{Kind: control.Beat}))
	m, err := c.Receive(time.Minute)
	require.NoError(t, err)
	require.Equal(t, control.Hosts, m.Kind, "who else is there")
	m, err = c.Receive(time.Minute)
	require.NoError(t, err)
	require.Equal(t, control.Beat, m.Kind, "the agent is still heard")
	// one that says nothing is suspect and keeps its connection, since its system acknowledges what comes
	until := func(text string) {
		for end := time.Now().Add(time.Minute); !strings.Contains(x.log.String(), text); {
			require.True(t, time.Now().Before(end), "%q is not in %s", text, x.log.String())
			_, err = c.Receive(time.Minute)
			require.NoError(t, err, "instead of %q", text)
		}
	}
	until("suspect host h1: silent for ")
	require.NoError(t, c.Send(control.Message{Kind: control.Beat}))
	until("host h1 is heard again: its agent was silent for ")
	require.NotContains(t, x.log.String(), "is lost")
	// and one that goes on to say nothing is dropped
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
		_, err = c.Receive(time.Minute)
	}
	require.ErrorIs(t, err, io.EOF)
	require.Eventually(t, func() bool {
		return strings.Contains(x.log.String(),
			"host h1 is lost: silent for 3")
	},
		time.Minute, time.Millisecond)
}

// TestTokenEnds: a token ends after its time, also if nobody used it.
func TestTokenEnds(t *testing.T) {
	x := newHead(t)
	admin := control.NewClient([]string{x.addr},
		x.identity("admin", trust.Subject{Name: "u", Role: trust.Admin}))
	var made struct {
		Token string    `json:"token"`
		Until time.Time `json:"until"`
	}
	require.NoError(t, admin.Do(context.Background(), "POST", "/v1/tokens", nil, &made))
	require.InDelta(t, decide.TokenLife.Seconds(), time.Until(made.Until).Seconds(), 5)
	require.ErrorContains(t, decide.Ticket{Until: time.Now().Add(-time.Second)}.Good(time.Now()),
		"make another")
	require.NoError(t, decide.Ticket{Until: made.Until}.Good(time.Now()))
}
