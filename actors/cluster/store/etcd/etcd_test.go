package etcd

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/store/storetest"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

var long = flag.Bool("long", false, "run the slow tier too")

// leading opens a store and begins a term.
func leading(t *testing.T, o store.Options) (store.Store, store.Term) {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	term, err := s.Lead("me")
	require.NoError(t, err)
	return s, term
}

// TestStore: etcd keeps the contract.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := Open(store.Options{Dir: dir, Log: filepath.Join(dir, "etcd.log")})
		require.NoError(t, err)
		require.Equal(t, "head", s.Leader())
		return s
	})
}

// put sets a key.
func put(t *testing.T, term store.Term, key, value string) int64 {
	t.Helper()
	rev, err := term.Commit([]store.Op{{Key: key, Value: []byte(value)}})
	require.NoError(t, err)
	return rev
}

// get reads a key, "" where there is none.
func get(t *testing.T, term store.Term, key string) (out string) {
	t.Helper()
	require.NoError(t, term.List(key, func(k string, v []byte) error {
		if k == "" {
			out = string(v)
		}
		return nil
	}))
	return out
}

// three are the options of the members of a store of three, with certificates of one authority.
func three(t *testing.T) (all []store.Options) {
	t.Helper()
	dir := t.TempDir()
	ca, err := trust.NewCA("test", time.Now())
	require.NoError(t, err)
	var peers []store.Peer
	for i := range 3 {
		peers = append(peers, store.Peer{Name: fmt.Sprint("head", i+1), Addr: storetest.Address(t)})
	}
	for _, p := range peers {
		o := store.Options{Dir: filepath.Join(dir, p.Name), Log: filepath.Join(dir, p.Name+".log"), Peers: peers,
			Name: p.Name, Identity: filepath.Join(dir, p.Name, "id"), Owner: trust.HeadName}
		key, err := trust.NewKey()
		require.NoError(t, err)
		cert, err := ca.Issue(trust.Subject{Name: trust.HeadName, Role: trust.Head,
			Hosts: []string{"127.0.0.1"}}, &key.PublicKey, time.Now(), time.Hour)
		require.NoError(t, err)
		require.NoError(t, trust.SaveIdentity(o.Identity, ca.Cert, cert, key))
		require.NoError(t, ca.Save(o.Dir))
		all = append(all, o)
	}
	return all
}

// openAll opens members at once, for none is there before most are.
func openAll(t *testing.T, all []store.Options) []store.Store {
	t.Helper()
	out := make([]store.Store, len(all))
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, o := range all {
		wg.Go(func() { out[i], errs[i] = Open(o) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return out
}

// leaderOf waits until one of the stores leads, and begins a term there.
func leaderOf(t *testing.T, stores []store.Store) (i int, term store.Term) {
	t.Helper()
	require.Eventually(t, func() bool {
		i = slices.IndexFunc(stores, func(s store.Store) bool { return s != nil && s.Leads() })
		return i >= 0
	}, 2*time.Minute, time.Millisecond)
	term, err := stores[i].Lead("x")
	require.NoError(t, err)
	return i, term
}

// TestThree: of three members the other two go on with all that was written when the one that leads has
// ended; it comes back to what they have written since, and one that has lost its data is refused. A backup
// gives all three one state.
func TestThree(t *testing.T) {
	if !*long {
		t.Skip("left out without -long: one of three members that ends, comes back, or loses its data; three from " +
			"one backup. TestPeers opens three")
	}
	all := three(t)
	stores := openAll(t, all)
	first, term := leaderOf(t, stores)
	put(t, term, "a", "1")
	stores[first].Close()
	stores[first] = nil
	second, term := leaderOf(t, stores)
	require.NotEqual(t, first, second)
	require.Equal(t, "1", get(t, term, "a"))
	put(t, term, "a", "2")
	back := openAll(t, all[first:first+1])[0]
	stores[first] = back
	require.Eventually(t, func() bool { return back.Leader() == all[second].Name }, 2*time.Minute,
		time.Millisecond)
	file := filepath.Join(t.TempDir(), "backup")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, term.Backup(f))
	require.NoError(t, f.Close())
	put(t, term, "a", "3")
	for i, s := range stores {
		s.Close()
		require.NoError(t, Restore(file, all[i], 0))
	}
	stores = openAll(t, all)
	_, term = leaderOf(t, stores)
	require.Equal(t, "2", get(t, term, "a"))
	for _, s := range stores {
		s.Close()
	}
	require.NoError(t, os.RemoveAll(filepath.Join(all[0].Dir, "etcd")))
	_, err = Open(all[0])
	require.ErrorContains(t, err, "may not vote")
}

// TestPeers: who has no certificate of a head's does not get into the conversation of the members.
func TestPeers(t *testing.T) {
	all := three(t)
	for _, s := range openAll(t, all) {
		defer s.Close()
	}
	ca, err := trust.NewCA("other", time.Now())
	require.NoError(t, err)
	stranger := filepath.Join(t.TempDir(), "stranger")
	key, err := trust.NewKey()
	require.NoError(t, err)
	cert, err := ca.Issue(trust.Subject{Name: trust.HeadName, Role: trust.Head}, &key.PublicKey, time.Now(),
		time.Hour)
	require.NoError(t, err)
	require.NoError(t, trust.SaveIdentity(stranger, ca.Cert, cert, key))
	ask := func(c *tls.Config) error {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: c}, Timeout: 5 * time.Second}
		r, err := client.Get("https://" + all[0].Peers[0].Addr + "/members")
		if err == nil {
			r.Body.Close()
		}
		return err
	}
	with := func(dir string) *tls.Config {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		require.NoError(t, err)
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	}
	old := with(all[1].Identity)
	require.NoError(t, ask(old), "another head")
	old.MaxVersion = tls.VersionTLS12
	require.Error(t, ask(old))
	require.Error(t, ask(&tls.Config{InsecureSkipVerify: true}), "no certificate")
	require.Error(t, ask(with(stranger)), "another authority")
	agent := filepath.Join(t.TempDir(), "agent")
	own, err := trust.LoadCA(all[0].Dir)
	require.NoError(t, err)
	cert, err = own.Issue(trust.Subject{Name: "h1", Role: trust.Agent}, &key.PublicKey, time.Now(), time.Hour)
	require.NoError(t, err)
	require.NoError(t, trust.SaveIdentity(agent, own.Cert, cert, key))
	require.Error(t, ask(with(agent)), "an agent of this cluster")
}

// TestRestore: a backup brings back what there was, with revisions that nobody has had; anything else
// is not a backup.
func TestRestore(t *testing.T) {
	dir := t.TempDir()
	o := store.Options{Dir: dir, Log: filepath.Join(dir, "etcd.log")}
	st, s := leading(t, o)
	put(t, s, "a", "1")
	file := filepath.Join(dir, "backup")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, s.Backup(f))
	require.NoError(t, f.Close())
	later := put(t, s, "a", "2")
	st.Close()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, bad := range [][]byte{nil, []byte("x"), text[:len(text)/2],
		append([]byte{text[0] ^ 1}, text[1:]...)} {
		require.NoError(t, os.WriteFile(file+".bad", bad, 0o600))
		require.ErrorContains(t, Restore(file+".bad", o, 0), "not a backup of a cluster")
	}
	require.NoError(t, Restore(file, o, 0))
	st, s = leading(t, o)
	defer st.Close()
	require.Equal(t, "1", get(t, s, "a"))
	next := put(t, s, "a", "3")
	require.Greater(t, next, later)
}

// TestRestoreTwice: whichever way a backup, bad ones and crashes follow each other, terms only grow, the last good
// restore counts, and one replaced state is kept.
func TestRestoreTwice(t *testing.T) {
	dir := t.TempDir()
	o := store.Options{Dir: dir, Log: filepath.Join(dir, "etcd.log")}
	st, s := leading(t, o)
	put(t, s, "a", "1")
	file := filepath.Join(dir, "backup")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, s.Backup(f))
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(file+".bad", []byte("x"), 0o600))
	last := s.Number()
	require.Equal(t, last, store.LastTerm(dir))
	for n, orders := range []string{"g", "g", "gb", "bgb", "gg", "x", "gx", "gbx", "xg", "b"} {
		put(t, s, "a", "later")
		st.Close()
		want := "later"
		for _, order := range orders {
			switch order {
			case 'g':
				require.NoError(t, Restore(file, o, store.LastTerm(dir)))
				want = "1"
			case 'b':
				require.Error(t, Restore(file+".bad", o, store.LastTerm(dir)))
			case 'x': // it ended in the middle of a restore
				require.NoError(t, os.MkdirAll(filepath.Join(dir, restored+".new", "member"), 0o700))
			}
		}
		st, s = leading(t, o)
		require.Equal(t, want, get(t, s, "a"), "%d: %s", n, orders)
		require.Greater(t, s.Number(), last, "%d: %s", n, orders)
		last = s.Number()
		kept, err := filepath.Glob(filepath.Join(dir, "etcd-before-*"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(kept), 1)
	}
	st.Close()
}
