// Package storetest has the suite that every implementation of package store passes.
package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/store"
)

// Run holds a store to its contract. Open opens the one member of a state, again after it was closed.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	s := open(t)
	t.Run("terms", func(t *testing.T) { terms(t, s) })
	t.Run("commits", func(t *testing.T) { commits(t, s) })
	s.Close()
	s = open(t)
	defer s.Close()
	t.Run("kept", func(t *testing.T) {
		term := lead(t, s)
		require.Equal(t, map[string]string{"1": "one", "2": "two again"}, list(t, term, "jobs/"))
		last, err := term.Commit([]store.Op{{Key: "jobs/3", Value: []byte("x")}})
		require.NoError(t, err)
		require.Greater(t, last, term.Number())
		require.NoError(t, term.Backup(&bytes.Buffer{}))
	})
}

// lead begins a term, which must succeed.
func lead(t *testing.T, s store.Store) store.Term {
	t.Helper()
	term, err := s.Lead("me")
	require.NoError(t, err)
	return term
}

// list reads all values below prefix, and checks that they come in the order of their keys.
func list(t *testing.T, term store.Term, prefix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var keys []string
	require.NoError(t, term.List(prefix, func(k string, v []byte) error {
		keys, out[k] = append(keys, k), string(v)
		return nil
	}))
	require.True(t, slices.IsSorted(keys), keys)
	return out
}

// terms: what a head writes after another has begun to lead is refused as a whole, and it hears of that; one
// that lets its term go writes nothing more.
func terms(t *testing.T, s store.Store) {
	require.True(t, s.Leads())
	require.NotEmpty(t, s.Leader())
	old := lead(t, s)
	defer old.End()
	rev, err := old.Commit([]store.Op{{Key: "a", Value: []byte("1")}})
	require.NoError(t, err)
	young := lead(t, s)
	require.Greater(t, young.Number(), old.Number())
	require.Greater(t, young.Number(), rev, "a term's number is larger than all that was written before")
	select {
	case <-old.Over():
		t.Fatal("nobody has told it yet")
	default:
	}
	for range 2 {
		_, err = old.Commit([]store.Op{{Key: "b", Value: []byte("2")}, {Key: "a"}})
		require.ErrorIs(t, err, store.ErrOver)
	}
	<-old.Over()
	require.Equal(t, map[string]string{"": "1"}, list(t, young, "a"), "the old term has changed nothing")
	require.Empty(t, list(t, young, "b"))
	_, err = young.Commit([]store.Op{{Key: "a"}})
	require.NoError(t, err)
	require.Empty(t, list(t, young, "a"))
	young.End()
	_, err = young.Commit([]store.Op{{Key: "a", Value: []byte("3")}})
	require.Error(t, err, "it was let go")
	third := lead(t, s)
	defer third.End()
	require.Empty(t, list(t, third, "a"))
}

// commits: all operations happen or none, one can be repeated, its revision is new, and a key may stand in it once.
func commits(t *testing.T, s store.Store) {
	term := lead(t, s)
	defer term.End()
	one := []store.Op{{Key: "jobs/1", Value: []byte("one")}, {Key: "jobs/2", Value: []byte("two")},
		{Key: "jobs/0", Value: []byte("zero")}, {Key: "tokens/x", Value: []byte("t")}}
	a, err := term.Commit(one)
	require.NoError(t, err)
	b, err := term.Commit(one)
	require.NoError(t, err, "again, since the answer may have been lost")
	require.Greater(t, b, a)
	_, err = term.Commit([]store.Op{{Key: "jobs/2", Value: []byte("two again")}, {Key: "jobs/0"},
		{Key: "tokens/none"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"1": "one", "2": "two again"}, list(t, term, "jobs/"))
	_, err = term.Commit([]store.Op{{Key: "jobs/1"}, {Key: "jobs/1", Value: []byte("x")}})
	require.Error(t, err, "one key twice")
	require.Equal(t, map[string]string{"1": "one", "2": "two again"}, list(t, term, "jobs/"))
	big := make([]store.Op, store.MostOps)
	for i := range big {
		big[i].Key, big[i].Value = fmt.Sprintf("big/%04d", i), make([]byte, store.MostBytes/store.MostOps-64)
	}
	_, err = term.Commit(big)
	require.NoError(t, err, "as much as goes into one")
	require.Len(t, list(t, term, "big/"), store.MostOps)
	for i := range big {
		big[i].Value = nil
	}
	_, err = term.Commit(big)
	require.NoError(t, err)
}
