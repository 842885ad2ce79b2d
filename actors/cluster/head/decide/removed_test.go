package decide

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRemovedStays: what was revoked and removed after a backup is so after its restore; who was added again
// meanwhile, or is in the backup as never removed, is there.
func TestRemovedStays(t *testing.T) {
	p := &poisoner{t: t, rng: rand.New(rand.NewPCG(1, 2)), has: kept{}, now: time.Unix(1e9, 0)}
	var known Revoked
	begin := func() {
		h, _, err := Load(Options{Term: 1 << 40, Known: known}, p.has)
		require.NoError(t, err)
		p.h = h
		p.now = p.now.Add(time.Second)
		p.step(Begin{})
		known = h.revocations()
	}
	user := func(name, serial string) { p.step(AddUser{Name: name, Role: "view", Serial: serial}) }
	begin()
	p.step(Enroll{Serials: map[string]string{"h1": "s1", "h2": "s2"}, Last: true})
	for _, name := range []string{"ann", "bob", "eve", "mia"} {
		user(name, name+"1")
	}
	p.step(DropUser{Name: "mia"})
	user("mia", "mia2")
	backup := maps.Clone(p.has)
	p.step(DropUser{Name: "eve"})
	p.step(Remove{Host: "h2"})
	p.step(DropUser{Name: "bob"})
	user("bob", "bob2") // the same name, another person
	known = p.h.revocations()
	for range 3 {
		p.has = maps.Clone(backup)
		begin()
		require.Equal(t, []string{"ann", "bob", "mia"}, slices.Sorted(maps.Keys(p.h.users)))
		require.Equal(t, []string{"h1"}, slices.Sorted(maps.Keys(p.h.agents)))
		for _, serial := range []string{"eve1", "bob1", "mia1", "s2"} {
			require.Contains(t, p.h.revoked, serial)
		}
		require.NotContains(t, p.h.revoked, "mia2")
		begin() // without the restore it is in the store
	}
	known = Revoked{}
	begin()
	require.Contains(t, p.h.revoked, "eve1")
	require.NotContains(t, p.h.users, "eve")
}
