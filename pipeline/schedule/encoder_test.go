package schedule

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/pipeline/plan"
)

// beside is a decoder of some pipeline ranks with parts before it; giving names the decoder's stage that
// takes what each part makes.
func beside(t *testing.T, name string, x Shape, width, own int, parts []Part, takers []int,
	seed uint64) (*plan.Program, Parts) {
	t.Helper()
	dec, err := Build(name, x)
	require.NoError(t, err)
	e := Parts{Width: width, Own: own, List: parts,
		Costs: drawnCosts(len(parts)+len(dec.StageRank), seed)}
	e.Costs.Comm = 0
	for i := range parts {
		e.Edges = append(e.Edges, plan.Edge{From: i, To: len(parts) + takers[i]})
	}
	for s := 1; s < len(dec.StageRank); s++ {
		e.Edges = append(e.Edges, plan.Edge{From: len(parts) + s - 1, To: len(parts) + s})
	}
	out, err := Compose(dec, e)
	require.NoError(t, err)
	return out, e
}

// TestAhead: a part that shares its ranks with the decoder's first stage is never further ahead of it than
// it may be, comes as far ahead as that, and steps take no longer than when the part works round by round.
func TestAhead(t *testing.T) {
	for _, ahead := range []int{1, 2, 3} {
		part := Part{Groups: [][]int{{0}}, Ahead: ahead, Fill: true}
		p, e := beside(t, "1f1b", Shape{Ranks: 3, Micro: 7}, 1, 0, []Part{part}, []int{0}, 4)
		waiting, most := 0, 0
		for _, a := range p.Rows[0] {
			switch {
			case a.Kind == plan.F && a.Stage == 0:
				waiting++
			case a.Kind == plan.F:
				waiting--
			}
			most = max(most, waiting)
		}
		require.LessOrEqual(t, most, ahead)
		filled, err := p.Evaluate(e.Costs)
		require.NoError(t, err)
		part.Fill = false
		p, _ = beside(t, "1f1b", Shape{Ranks: 3, Micro: 7}, 1, 0, []Part{part}, []int{0}, 4)
		rounds, err := p.Evaluate(e.Costs)
		require.NoError(t, err)
		require.LessOrEqual(t, filled.Makespan, rounds.Makespan)
	}
}

// TestFarAhead: a part on a rank of its own, much faster than the decoder, works ahead as far as it may.
func TestFarAhead(t *testing.T) {
	for _, ahead := range []int{1, 2, 5} {
		part := Part{Groups: [][]int{{2}}, Ahead: ahead, Fill: true, Frozen: true}
		dec, err := Build("1f1b", Shape{Ranks: 2, Micro: 8})
		require.NoError(t, err)
		e := Parts{Width: 1, Own: 1, List: []Part{part}, Edges: []plan.Edge{{From: 0, To: 1},
			{From: 1, To: 2}},
			Costs: plan.Costs{F: []float64{0.1, 1, 1}, I: []float64{0, 1, 1}, W: []float64{0, 1, 1}}}
		c := newComposer(dec, e, try{fill: true, ahead: 8})
		begun, most := 0, 0
		for {
			before := len(c.out.Rows[2])
			best, ok := candidate{}, false
			for r := range dec.Rows {
				if x, can := c.decoder(r); can && (!ok || x.start < best.start) {
					best, ok = x, true
				}
			}
			if x, can := c.forward(&c.parts[0], 0); can && (!ok || x.start < best.start) {
				best, ok = x, true
			}
			if !ok {
				break
			}
			c.place(best)
			begun += len(c.out.Rows[2]) - before
			if best.entry.Kind == plan.F && best.entry.Stage == 1 {
				begun--
			}
			most = max(most, begun)
		}
		require.Equal(t, ahead, most)
		require.Len(t, c.out.Rows[2], 8)
	}
}

// TestRounds: a part that does not fill waits works right before the stage that takes from it, all replicas
// of a round at one time, and right behind that stage's backward.
func TestRounds(t *testing.T) {
	part := Part{Groups: [][]int{{0}, {1}}}
	p, _ := beside(t, "1f1b", Shape{Ranks: 2, Micro: 5}, 2, 0, []Part{part}, []int{0}, 9)
	var rows []string
	for _, row := range p.Rows {
		var l []string
		for _, e := range row {
			l = append(l, e.Action.String())
		}
		rows = append(rows, strings.Join(l, " "))
	}
	require.Equal(t, []string{
		"0F0 1F0 1F1 1B0 0F2 1F2 1B1 0B0 1F3 1B2 0F4 1F4 1B3 0B2 1B4 0B4",
		"0F1 1F0 1F1 1B0 0F3 1F2 1B1 0B1 1F3 1B2 1F4 1B3 0B3 1B4",
	}, rows[:2])
}

// TestFrozen: a frozen part has forwards alone, says so, and no other stage does.
func TestFrozen(t *testing.T) {
	list := []Part{{Groups: [][]int{{2}}, Frozen: true, Fill: true}, {Groups: [][]int{{3}}, Fill: true}}
	p, _ := beside(t, "1f1b", Shape{Ranks: 2, Micro: 4}, 1, 2, list, []int{0, 1}, 2)
	require.Equal(t, []bool{true, false, false, false}, p.NoBack)
	require.Equal(t, []int{4, 8}, []int{len(p.Rows[2]), len(p.Rows[3])})
	list = append(list, Part{Groups: [][]int{{4}}, Frozen: true})
	p, _ = beside(t, "1f1b", Shape{Ranks: 2, Micro: 4}, 1, 3, list, []int{0, 1, 0}, 2)
	require.Equal(t, []bool{true, false, true, false, false}, p.NoBack)
	list = []Part{{Groups: [][]int{{2}}, Fill: true}}
	p, _ = beside(t, "1f1b", Shape{Ranks: 2, Micro: 4}, 1, 1, list, []int{0}, 2)
	require.Nil(t, p.NoBack)
}

// TestPartsRefused: parts without ranks, and parts that give to each other.
func TestPartsRefused(t *testing.T) {
	dec, err := Build("1f1b", Shape{Ranks: 2, Micro: 2})
	require.NoError(t, err)
	_, err = Compose(dec, Parts{Width: 1, List: []Part{{}}})
	require.ErrorContains(t, err, "without ranks")
	_, err = Compose(dec, Parts{List: []Part{{Groups: [][]int{{0}}}}})
	require.ErrorContains(t, err, "without ranks")
	_, err = Compose(dec, Parts{Width: 1, Own: 1, List: []Part{{Groups: [][]int{{2}}},
		{Groups: [][]int{{2}}}},
		Edges: []plan.Edge{{From: 0, To: 1}, {From: 1, To: 2}, {From: 2, To: 3}}})
	require.ErrorContains(t, err, "part 0 gives to part 1")
}

// composed is a line for each way of setting parts beside a pipeline, as TestPinned has of schedules.
func composed(t *testing.T) string {
	var b strings.Builder
	for _, name := range []string{"1f1b", "zb-h1", "interleaved", "dualpipev"} {
		for _, ranks := range []int{2, 3, 4} {
			h, length := sha256.New(), 0.0
			for k := range 24 {
				width, own := 1+k%2, k%3
				var groups [][]int
				for r := range own {
					groups = append(groups, []int{ranks*width + r})
				}
				for r := range width * (1 + k%ranks) {
					groups = append(groups, []int{r})
				}
				list := []Part{{Groups: groups, Fill: k%4 > 0, Frozen: k%5 == 0, Ahead: k % 3}}
				if k%6 > 2 {
					list = append(list, Part{Groups: groups[:1], Fill: true})
				}
				takers := []int{0, 1}[:len(list)]
				x := Shape{Ranks: ranks, Micro: 2*ranks + k%3}
				if name == "interleaved" {
					x.Loops = 2
				}
				p, e := beside(t, name, x, width, own, list, takers,
					uint64(k))
				got, err := p.Evaluate(e.Costs)
				require.NoError(t, err)
				length += got.Makespan
				fmt.Fprintln(h, p)
			}
			fmt.Fprintf(&b, "%-14s %d ranks with parts: %9.3f long, %.8x\n", name, ranks, length,
				h.Sum(nil))
		}
	}
	return b.String()
}
