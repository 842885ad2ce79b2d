package trust

import (
	"crypto/ecdsa"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var morning = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// member makes an identity of the authority and loads it with this clock.
func member(t *testing.T, ca *CA, s Subject, now time.Time) *Identity {
	t.Helper()
	dir := t.TempDir()
	key, err := NewKey()
	require.NoError(t, err)
	cert, err := ca.Issue(s, &key.PublicKey, morning, NodeLife)
	require.NoError(t, err)
	require.NoError(t, SaveIdentity(dir, ca.Cert, cert, key))
	id, err := Load(dir, func() time.Time { return now })
	require.NoError(t, err)
	return id
}

func authority(t *testing.T) *CA {
	t.Helper()
	ca, err := NewCA("test", morning)
	require.NoError(t, err)
	return ca
}

// shake makes a TLS handshake over a pipe and returns what each end says of it.
func shake(t *testing.T, server, client *tls.Config) (atServer, atClient error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			done <- err
			return
		}
		defer c.Close()
		s := tls.Server(c, server)
		if err = s.Handshake(); err == nil {
			_, err = s.Write([]byte{1})
		}
		done <- err
	}()
	raw, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer raw.Close()
	c := tls.Client(raw, client)
	if atClient = c.Handshake(); atClient == nil {
		_, atClient = c.Read(make([]byte, 1)) // in TLS 1.3 a server refuses after the client is content
	}
	raw.Close()
	return <-done, atClient
}

// TestHandshakes is the table of who is let in: every refusal names its cause at one of the ends.
func TestHandshakes(t *testing.T) {
	ca, other := authority(t), authority(t)
	h1 := Subject{Name: "h1", Role: Agent}
	h2 := Subject{Name: "h2", Role: Agent}
	revoking := member(t, ca, h1, morning)
	gone := member(t, ca, h2, morning)
	leaf, err := gone.current()
	require.NoError(t, err)
	require.NoError(t, revoking.Revoke([]string{Serial(leaf.Leaf)}))
	old := member(t, ca, h2, morning).Client("h1", Agent)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, c := range []struct {
		name, want string
		server     *tls.Config
		client     *tls.Config
	}{
		{"both of one cluster", "", member(t, ca, h1, morning).Server(Agent),
			member(t, ca, h2, morning).Client("h1", Agent)},
		{"client of another cluster", "unknown authority", member(t, ca, h1, morning).Server(Agent),
			member(t, other, h2, morning).Client("h1", Agent)},
		{"server of another cluster", "unknown authority", member(t, other, h1, morning).Server(Agent),
			member(t, ca, h2, morning).Client("h1", Agent)},
		{"server of another name", "not h3", member(t, ca, h1, morning).Server(Agent),
			member(t, ca, h2, morning).Client("h3", Agent)},
		{"expired", "expired", member(t, ca, h1, morning.Add(25*time.Hour)).Server(Agent),
			member(t, ca, h2, morning).Client("h1", Agent)},
		{"a clock half an hour late", "", member(t, ca, h1, morning.Add(-30*time.Minute)).Server(Agent),
			member(t, ca, h2, morning).Client("h1", Agent)},
		{"a clock two hours late", "not yet valid", member(t, ca, h1,
			morning.Add(-2*time.Hour)).Server(Agent), member(t, ca, h2, morning).Client("h1", Agent)},
		{"a user on an edge", "role submit", member(t, ca, h1, morning).Server(Agent),
			member(t, ca, Subject{Name: "u", Role: Submit}, morning).Client("h1", Agent)},
		{"an agent in place of the head", "role agent", member(t, ca, Subject{Name: "h1", Role: Agent,
			Hosts: []string{HeadName}}, morning).Server(Agent),
			member(t, ca, h2, morning).Client(HeadName, Head)},
		{"revoked", "revoked", revoking.Server(Agent), gone.Client("h1", Agent)},
		{"TLS 1.2", "version", member(t, ca, h1, morning).Server(Agent), old},
		{"no certificate", "certificate", member(t, ca, h1, morning).Server(Agent),
			&tls.Config{InsecureSkipVerify: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, cl := shake(t, c.server, c.client)
			if c.want == "" {
				require.NoError(t, s)
				require.NoError(t, cl)
				return
			}
			require.Error(t, cl)
			text := cl.Error()
			if s != nil {
				text += " " + s.Error()
			}
			require.Contains(t, text, c.want)
			if c.want == "revoked" || c.want == "role submit" {
				require.True(t, Barred(cl), cl)
			} else {
				require.False(t, Barred(cl), cl)
			}
		})
	}
}

// TestNoResumption: a second connection shows its certificate again, which may have expired or been revoked.
func TestNoResumption(t *testing.T) {
	ca := authority(t)
	server := member(t, ca, Subject{Name: "h1", Role: Agent}, morning).Server(Agent)
	client := member(t, ca, Subject{Name: "h2", Role: Agent}, morning).Client("h1", Agent)
	client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	seen := 0
	check := client.VerifyConnection
	client.VerifyConnection = func(s tls.ConnectionState) error {
		require.False(t, s.DidResume)
		seen++
		return check(s)
	}
	for range 2 {
		s, c := shake(t, server, client)
		require.NoError(t, s)
		require.NoError(t, c)
	}
	require.Equal(t, 2, seen)
}

// TestJoiner: a joiner sends nothing to a head whose authority is not that of its token.
func TestJoiner(t *testing.T) {
	ca, other := authority(t), authority(t)
	now := time.Now()
	head := func(ca *CA, s Subject) *Identity {
		dir := t.TempDir()
		key, err := NewKey()
		require.NoError(t, err)
		cert, err := ca.Issue(s, &key.PublicKey, now, NodeLife)
		require.NoError(t, err)
		require.NoError(t, SaveIdentity(dir, ca.Cert, cert, key))
		id, err := Load(dir, nil)
		require.NoError(t, err)
		return id
	}
	tok := NewToken(ca.Hash(), "127.0.0.1:1")
	back, err := ParseToken(tok.String())
	require.NoError(t, err)
	require.Equal(t, tok, back)
	_, err = shake(t, head(ca, Subject{Name: HeadName, Role: Head}).Open(Admin), tok.Joiner())
	require.NoError(t, err)
	_, err = shake(t, head(other, Subject{Name: HeadName, Role: Head}).Open(Admin), tok.Joiner())
	require.ErrorContains(t, err, "not the cluster of this token")
	_, err = ca.Issue(Subject{Name: HeadName, Role: Agent}, nil, now, NodeLife)
	require.ErrorContains(t, err, "the name of heads")
	_, err = shake(t, head(ca, Subject{Name: "h1", Role: Agent, Hosts: []string{HeadName}}).Open(Admin),
		tok.Joiner())
	require.ErrorContains(t, err, "no head", "an agent of the cluster is no head")
}

// TestRevokedOnFullDisk: a list that is written already is not written again, and a new one counts although
// it cannot be written.
func TestRevokedOnFullDisk(t *testing.T) {
	i := member(t, authority(t), Subject{Name: "h1", Role: Agent}, morning)
	require.NoError(t, i.Revoke([]string{"1"}))
	require.NoError(t, os.Mkdir(filepath.Join(i.dir, revokedFile+".new"), 0o700)) // so that nothing can be written
	require.NoError(t, i.Revoke([]string{"1"}))
	require.Error(t, i.Revoke([]string{"1", "2"}))
	_, err := i.current()
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, i.gone)
}

// TestFiles: keys are for their owner alone, and an identity follows its files.
func TestFiles(t *testing.T) {
	ca := authority(t)
	id := member(t, ca, Subject{Name: "h1", Role: Agent}, morning)
	info, err := os.Stat(filepath.Join(id.Dir(), keyFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	first, err := id.current()
	require.NoError(t, err)
	fresh, err := ca.Issue(Subject{Name: "h1", Role: Agent}, first.Leaf.PublicKey.(*ecdsa.PublicKey),
		morning.Add(time.Hour), NodeLife)
	require.NoError(t, err)
	require.NoError(t, id.Replace(fresh))
	_, err = id.current()
	require.NoError(t, err)
	require.Equal(t, fresh.NotAfter, id.Expiry())
	require.NoError(t, os.Chmod(filepath.Join(id.Dir(), keyFile), 0o644))
	_, err = Load(id.Dir(), nil)
	require.ErrorContains(t, err, "others may read this key")
}

// FuzzParseToken: whatever the text, a token comes out as it went in, or an error.
func FuzzParseToken(f *testing.F) {
	f.Add(NewToken("00", "h:1").String())
	f.Add("lf1:::@")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := ParseToken(s)
		if err == nil {
			back, err := ParseToken(tok.String())
			require.NoError(t, err)
			require.Equal(t, tok, back)
		}
	})
}

// TestRenewal: with the clock moved on, certificates of head, agent and user are stale when half of their
// lives is over, and of no use at their ends; a head renews its own, for the same name, role, addresses and
// key, and is taken for itself by those that refused it.
func TestRenewal(t *testing.T) {
	ca := authority(t)
	for role, life := range map[Role]time.Duration{Head: HeadLife, Agent: NodeLife, Admin: UserLife} {
		name := map[Role]string{Head: HeadName, Agent: "h1", Admin: "ann"}[role]
		dir, clock := t.TempDir(), morning
		key, err := NewKey()
		require.NoError(t, err)
		cert, err := ca.Issue(Subject{Name: name, Role: role, Hosts: []string{"10.0.0.7", "box"}}, &key.PublicKey,
			morning, life)
		require.NoError(t, err)
		require.NoError(t, SaveIdentity(dir, ca.Cert, cert, key))
		id, err := Load(dir, func() time.Time { return clock })
		require.NoError(t, err)
		require.False(t, id.Stale(life), role)
		clock = morning.Add(life/2 + time.Minute)
		require.True(t, id.Stale(life), role)
		peer := func() *Identity { return member(t, ca, Subject{Name: "peer", Role: View}, clock) }
		clock = morning.Add(life + time.Minute)
		served := func() error {
			other := peer()
			young, err := ca.Issue(Subject{Name: "peer", Role: View}, publicOf(t, other), clock, time.Hour)
			require.NoError(t, err)
			require.NoError(t, other.Replace(young))
			_, err = shake(t, id.Server(View), other.Client(name, role))
			return err
		}
		require.Error(t, served(), "%s: it has ended", role)
		require.NoError(t, id.Renew(ca, clock, life))
		require.NoError(t, served(), "%s: it is renewed", role)
		require.False(t, id.Stale(life), role)
		own, err := id.current()
		require.NoError(t, err)
		require.NoError(t, own.Leaf.VerifyHostname("box"))
		require.NoError(t, own.Leaf.VerifyHostname("10.0.0.7"))
		who, err := id.Subject()
		require.NoError(t, err)
		require.Equal(t, Subject{Name: name, Role: role}, Subject{Name: who.Name, Role: who.Role})
	}
	require.Less(t, HeadLife, 60*24*time.Hour)
}

func publicOf(t *testing.T, id *Identity) *ecdsa.PublicKey {
	own, err := id.current()
	require.NoError(t, err)
	return own.PrivateKey.(*ecdsa.PrivateKey).Public().(*ecdsa.PublicKey)
}
