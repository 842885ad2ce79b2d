package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology/machine"
)

// TestWidths: a job gets as many replicas as the memory of free hosts is enough for, and says what it
// waits for where it is enough for none; a process moves to a host only if there is room beside those that
// it has.
func TestWidths(t *testing.T) {
	const full = 1000
	h := &Head{o: Options{Fill: machine.Fillable}, agents: map[string]*agent{}, jobs: map[string]*Job{}}
	for name, memory := range map[string]int64{"h1": full, "h2": full, "h3": full, "big": 4 * full, "any": 0} {
		h.agents[name] = &agent{Member: Member{Name: name}, info: control.Info{Memory: memory}, conn: 1}
	}
	room := machine.Fillable(full)
	j := &Job{ID: "1", Spec: control.Spec{Args: []string{"train"}, Procs: 4}}
	free := []string{"h1", "h2", "h3"}
	_, hosts, why := h.pick(j, free[:1])
	require.Nil(t, hosts)
	require.Equal(t, "waits for 4 hosts; 1 are free", why, "nobody knows yet what it needs")
	j.Procs = make([]Proc, 4)
	widths := []control.Width{{Replicas: 4, Procs: 4, Bytes: []int64{room, room, room, room}},
		{Replicas: 3, Procs: 3, Bytes: []int64{room, room, room}, Args: []string{"plan.dp=3"}},
		{Replicas: 1, Procs: 1, Bytes: []int64{room}, Args: []string{"plan.dp=1"}}}
	require.True(t, h.holds(widths[1], free))
	widths[1].Bytes[2]++
	require.False(t, h.holds(widths[1], free), "one byte more than a host has")
	widths[1].Bytes[2]--
	require.False(t, h.holds(widths[1], free[:2]), "two on one")
	require.True(t, h.holds(widths[0], []string{"big"}))
	require.True(t, h.holds(widths[0], []string{"any"}), "it does not say how much it has")
	j.Widths = widths
	for n, want := range map[int]int{1: 2, 2: 2, 3: 1} {
		k, hosts, why := h.pick(j, free[:n])
		require.Equal(t, want, k, n)
		require.Equal(t, free[:widths[want].Procs], hosts)
		require.Empty(t, why)
	}
	k, hosts, _ := h.pick(j, []string{"h1", "h2", "h3", "big"})
	require.Zero(t, k)
	require.Len(t, hosts, 4)
	j.Spec.Hosts = 1
	k, _, _ = h.pick(j, free)
	require.Equal(t, 2, k, "its user wants one host")
	j.Widths[2].Bytes[0] = room + 1
	_, hosts, why = h.pick(j, free)
	require.Nil(t, hosts)
	require.Equal(t, "waits for room: with 1 replica a process needs 0.0 GiB, and 3 hosts are free", why)

	j.Procs[0], j.Procs[1] = Proc{Host: "h1", Gen: 1}, Proc{Host: "big", Gen: 1, Over: true}
	require.False(t, h.hasRoom(j, 2, "h1"))
	require.True(t, h.hasRoom(j, 0, "h1"), "beside itself")
	require.True(t, h.hasRoom(j, 2, "h2"))
	require.True(t, h.hasRoom(j, 2, "big"))

	require.Equal(t, 4, j.spec().Procs)
	require.Equal(t, []string{"train"}, j.spec().Args)
	require.Empty(t, j.Narrow())
	j.Width = 1
	require.Equal(t, 3, j.spec().Procs)
	require.Equal(t, []string{"train", "plan.dp=3"}, j.spec().Args)
	require.Equal(t, []string{"train"}, j.Spec.Args)
	require.Equal(t, " with 3 replicas instead of 4", j.Narrow())
}
