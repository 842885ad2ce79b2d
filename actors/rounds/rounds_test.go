package rounds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
)

// TestSchedules: every schedule draws each token once, by weights that are not too old where it is trained
// on, and some are written out.
func TestSchedules(t *testing.T) {
	for k := range int64(6) {
		for updates := range int64(4) {
			for span := range int64(3) {
				s := Schedule{k, updates + 1, span * 7}
				require.NoError(t, s.Check(40), "%+v", s)
				for step := int64(1); step < 50; step++ {
					n := s.Round(step)
					require.True(t, s.First(n) <= step && step < s.First(n+1))
				}
			}
		}
	}
	require.Error(t, Schedule{Staleness: -1, Updates: 1}.Check(3))
	require.Error(t, Schedule{Staleness: 1}.Check(3))
	require.Equal(t, "0:0 1:1 2:2", written(Schedule{0, 1, 0}), "draw and train in turn")
	require.Equal(t, "0:0,1,2 1:3 2:4", written(Schedule{2, 1, 0}),
		"the first publication begins as many as may lie ahead")
	require.Equal(t, "0:0,1..4,2..4 1:1+4,2+4..8,3..4 2:2+8,3+4..8,4..4", written(Schedule{2, 1, 4}),
		"a publication goes on with what earlier ones began, and ends what is trained on next")
}

// written is what the first three publications draw.
func written(s Schedule) string {
	var all []string
	d := NewDesk(s, 1, 1, 0)
	for p := range int64(3) {
		var parts []string
		for _, x := range d.Work(p) {
			text := fmt.Sprint(x.Round)
			if x.From > 0 {
				text += fmt.Sprintf("+%d", x.From)
			}
			if x.To > 0 {
				text += fmt.Sprintf("..%d", x.To)
			}
			parts = append(parts, text)
		}
		all = append(all, fmt.Sprintf("%d:%s", p, strings.Join(parts, ",")))
	}
	return strings.Join(all, " ")
}

// TestDesk: tasks go to samplers with room that have the weights, those of one that is lost to another, and
// what it says afterwards does not count; weights change only where nothing is under way.
func TestDesk(t *testing.T) {
	d := NewDesk(Schedule{Staleness: 1, Updates: 1}, 2, 2, 3)
	require.Empty(t, d.Join(7))
	drawn := func(n uint32, t Task) (bool, []actors.Message) {
		m := t.order(pool.Result, n)
		return d.Result(n, &m)
	}
	task := func(p, r int64, g int) Task { return Task{Part{Publication: p, Round: r}, g} }
	require.Equal(t, []actors.Message{task(0, 0, 0).order(pool.Load, 7), task(0, 0, 0).order(pool.Task, 7), task(0, 0,
		1).order(pool.Task, 7)}, d.Publish(0))
	require.Equal(t, []actors.Message{task(0, 1, 0).order(pool.Load, 8), task(0, 1, 0).order(pool.Task, 8), task(0, 1,
		1).order(pool.Task, 8)}, d.Join(8))
	counts, orders := drawn(7, task(0, 0, 0))
	require.True(t, counts)
	require.Empty(t, orders)
	require.False(t, d.Complete(0))
	require.Empty(t, d.Lose(7, 0, nil), "the other has no room")
	counts, _ = drawn(7, task(0, 0, 1))
	require.False(t, counts, "it was taken for dead")
	_, orders = drawn(8, task(0, 1, 1))
	require.Equal(t, []actors.Message{task(0, 0, 1).order(pool.Task, 8)}, orders)
	counts, _ = drawn(8, task(0, 1, 1))
	require.False(t, counts, "it comes twice")
	drawn(8, task(0, 0, 1))
	require.True(t, d.Complete(0))
	require.False(t, d.Worked(0))
	d.Trained(0)
	require.Empty(t, d.Publish(1), "it has other weights, and a task under way")
	require.Equal(t, int64(0), d.Needed())
	_, orders = drawn(8, task(0, 1, 0))
	require.Equal(t, []actors.Message{task(1, 2, 0).order(pool.Load, 8), task(1, 2, 0).order(pool.Task, 8), task(1, 2,
		1).order(pool.Task, 8)}, orders)
	require.Equal(t, int64(1), d.Needed())
	require.True(t, d.Worked(0))
	require.Empty(t, d.Publish(1), "made before")
	require.Panics(t, func() { d.Publish(3) })
	require.Panics(t, func() { d.Publish(2) }, "round 1 is not trained on")
	require.Panics(t, func() { d.Trained(2) })
	require.Panics(t, func() { d.Join(8) })
}

// TestResume: a desk goes on with what is had, and draws what is not with the next weights.
func TestResume(t *testing.T) {
	d := NewDesk(Schedule{Staleness: 2, Updates: 1}, 1, 1, 0)
	d.Resume(3, 3, func(r int64) bool { return r == 3 })
	require.True(t, d.Complete(3))
	require.False(t, d.Complete(4))
	d.Join(0)
	d.Publish(3)
	require.Equal(t, []Part{{3, 4, 0, 0}, {3, 5, 0, 0}}, d.Work(3))
}
