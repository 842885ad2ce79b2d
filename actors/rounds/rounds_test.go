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
	for k := range int64(17) { // all that a run file may have (configs/rollout.go)
		for updates := range int64(16) {
			for span := range int64(4) {
				s := Schedule{k, updates + 1, span * 7}
				require.NoError(t, s.check(40), "%+v", s)
				for step := int64(1); step < 50; step++ {
					n := s.Round(step)
					require.True(t, s.First(n) <= step && step < s.First(n+1))
				}
			}
		}
	}
	require.Equal(t, "0:0 1:1 2:2", written(Schedule{0, 1, 0}), "draw and train in turn")
	require.Equal(t, "0:0,1,2 1:3 2:4", written(Schedule{2, 1, 0}),
		"the first publication begins as many as may lie ahead")
	require.Equal(t, "0:0,1..4,2..4 1:1+4,2+4..8,3..4 2:2+8,3+4..8,4..4", written(Schedule{2, 1, 4}),
		"a publication goes on with what earlier ones began, and ends what is trained on next")
}

// check proves what the package promises of a schedule, for so many rounds: it works all publications off in
// turn and looks at every part where it is trained on.
func (s Schedule) check(rounds int64) error {
	desk := NewDesk(s, 1, 1, 0)
	drawn := map[int64]int64{} // round -> tokens that are drawn, -1 for all
	for p := range rounds {
		for _, part := range desk.Work(p) {
			if have := drawn[part.Round]; have < 0 || have != part.From {
				return fmt.Errorf("rounds: %+v comes behind %d tokens", part, have)
			}
			if age := part.Round - part.Publication; age < 0 || age > s.Staleness {
				return fmt.Errorf("rounds: %+v has the age %d where it is trained on, and %d is allowed", part,
					age, s.Staleness)
			}
			if drawn[part.Round] = part.To; part.To == 0 {
				drawn[part.Round] = -1
			}
		}
		if drawn[p] >= 0 {
			return fmt.Errorf("rounds: round %d is trained on and not all drawn", p)
		}
		if delete(drawn, p); int64(len(drawn)) > s.Staleness {
			return fmt.Errorf("rounds: %d rounds lie between sampler and trainer", len(drawn))
		}
	}
	return nil
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
// what comes twice does not count; weights change only where nothing is under way.
func TestDesk(t *testing.T) {
	d := NewDesk(Schedule{Staleness: 1, Updates: 1}, 2, 2, 3)
	told := func(all []actors.Message) (out []string) {
		for _, m := range all {
			if m.Kind == pool.Load {
				out = append(out, fmt.Sprintf("%d loads %d", m.Epoch, PublicationOf(&m)))
				continue
			}
			x := TaskOf(&m)
			out = append(out, fmt.Sprintf("%d draws %d of round %d: task %d", m.Epoch, x.Group, x.Round, m.Step))
		}
		return out
	}
	drawn := func(n uint32, task int64) (bool, []string) {
		counts, out := d.Result(n, &actors.Message{Kind: pool.Result, Step: task})
		return counts, told(out)
	}
	require.Empty(t, d.Join(7))
	require.Equal(t, []string{"7 loads 0", "7 draws 0 of round 0: task 1", "7 draws 1 of round 0: task 2"}, told(d.Publish(0)))
	require.Equal(t, []string{"8 loads 0", "8 draws 0 of round 1: task 3", "8 draws 1 of round 1: task 4"}, told(d.Join(8)))
	counts, orders := drawn(7, 1)
	require.True(t, counts)
	require.Empty(t, orders)
	require.False(t, d.Complete(0))
	require.Empty(t, d.Lose(7, 0, &actors.Message{}), "the other has no room")
	_, orders = drawn(8, 4)
	require.Equal(t, []string{"8 draws 1 of round 0: task 2"}, orders)
	counts, _ = drawn(8, 4)
	require.False(t, counts, "it comes twice")
	drawn(8, 2)
	require.True(t, d.Complete(0))
	require.False(t, d.Worked(0))
	d.Trained(0)
	require.Empty(t, d.Publish(1), "it has other weights, and a task under way")
	require.Equal(t, int64(0), d.Needed())
	_, orders = drawn(8, 3)
	require.Equal(t, []string{"8 loads 1", "8 draws 0 of round 2: task 5", "8 draws 1 of round 2: task 6"}, orders)
	require.Equal(t, int64(1), d.Needed())
	require.True(t, d.Worked(0))
	require.Empty(t, d.Publish(1), "made before")
	require.Panics(t, func() { d.Publish(3) })
	require.Panics(t, func() { d.Publish(2) }, "round 1 is not trained on")
	require.Panics(t, func() { d.Trained(2) })
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
