package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
)

// TestEdgeWatch adds up looks: what was sent since the look before, also by a process that was started
// again, and who waited for whom.
func TestEdgeWatch(t *testing.T) {
	sent := func(n int64) []host.Edge {
		return []host.Edge{{From: "rank0", To: "rank1", Messages: n, Bytes: 10 * n}}
	}
	look := func(n int64, wait actors.Wait, age time.Duration) []host.Status {
		return []host.Status{
			{Ref: 2, Name: "rank 0 (pp 0)", Wait: actors.Wait{For: actors.None, Busy: true}, Sent: sent(n),
				Memory: 7},
			{Ref: 3, Name: "rank 1 (pp 1)", Wait: wait, Age: age}}
	}
	waits, busy := actors.Wait{For: 2}, actors.Wait{For: actors.None, Busy: true}
	var w EdgeWatch
	start := time.Unix(1000, 0)
	require.False(t, w.Long(start, 0), "nobody has looked")
	w.Look(start, look(5, waits, time.Second))
	w.Look(start.Add(time.Second), look(8, waits, 2*time.Second))
	w.Look(start.Add(2*time.Second), look(2, busy, 0)) // started again
	require.False(t, w.Long(start.Add(2*time.Second), 3*time.Second))
	require.True(t, w.Long(start.Add(3*time.Second), 3*time.Second))
	require.Equal(t, EdgeWindow{Time: 1003, Seconds: 3, Step: 9, Looks: 3,
		Edges:  []EdgeUse{{From: "rank0", To: "rank1", Messages: 5, Bytes: 50, Waits: 2, Longest: 2}},
		Actors: []ActorUse{{Actor: "rank0", Busy: 3, Memory: 7}, {Actor: "rank1", Busy: 1, Waits: 2}},
	}, w.End(start.Add(3*time.Second), 9))

	w.Look(start.Add(4*time.Second), look(3, busy, 0))
	require.Equal(t, []EdgeUse{{From: "rank0", To: "rank1", Messages: 1, Bytes: 10}},
		w.End(start.Add(5*time.Second), 10).Edges, "the next window begins anew, and knows what was sent")
}

// TestRecent: the newest jobs are told, older ones forgotten.
func TestRecent(t *testing.T) {
	dir := t.TempDir()
	_, err := RecentJobs(dir, time.Second)
	require.ErrorIs(t, err, ErrNotRunning)
	r := NewRecent()
	r.Began(time.Unix(1000, 0))
	for i := range recentMax + 2 {
		at := time.Duration(i) * time.Millisecond
		r.See(host.TraceEvent{Name: "loader 0.1", Job: actors.Job{Kind: actors.LoadBatch, Step: int64(i)},
			Start: at,
			End:   at + time.Millisecond})
	}
	end, err := r.Serve(dir, 0)
	require.NoError(t, err)
	defer end()
	jobs, err := RecentJobs(dir, 5*time.Second)
	require.NoError(t, err)
	require.Len(t, jobs, recentMax)
	require.Equal(t, int64(2), jobs[0].Step)
	require.Equal(t, "loader0.1", jobs[0].Actor)
	require.Equal(t, "load", jobs[0].Name)
	require.InDelta(t, 1000.002, jobs[0].Start, 1e-6)
	require.InDelta(t, 1000.003, jobs[0].End, 1e-6)
}
