package schedule

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/pipeline/plan"
)

// shapes is the grid on which every schedule must hold what it claims.
func shapes(s Schedule) (out []Shape) {
	for _, p := range []int{1, 2, 3, 4, 5, 8, 16, 32} {
		for _, m := range []int{1, 2, p, p + 1, 2 * p, 3*p + 1, 64, 256} {
			if m*p > 2048 && p != 32 {
				continue
			}
			loops := []int{s.Loops}
			if s.Loops == 0 {
				loops = []int{1, 2, 3}
			}
			for _, v := range loops {
				x := Shape{Ranks: p, Micro: m, Loops: v}
				out = append(out, x)
				if y := x; s.Pairs {
					y.Pairs = true
					out = append(out, y)
				}
				if s.Fits == nil || s.Loops == 2 || m > 64 {
					continue
				}
				for _, k := range []int{2, 4} {
					y := x
					for range m {
						y.Split = append(y.Split, k)
					}
					out = append(out, y)
				}
			}
		}
	}
	return
}

// equal prices a shape's passes so that each rank's share of a microbatch takes u.
func equal(s Shape, u Unit) plan.Costs {
	n := float64(s.Loops * most(s.Split))
	c := plan.Costs{}
	for range s.Ranks * s.Loops {
		c.F, c.I, c.W = append(c.F, u.F/n), append(c.I, u.I/n), append(c.W, u.W/n)
	}
	return c
}

// TestClaims holds every schedule of the registry to its claims on step time and memory over a grid of
// shapes, and its program to completeness and freedom of deadlock (Build checks).
func TestClaims(t *testing.T) {
	for _, name := range Names() {
		s, err := Get(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := 0
			for _, x := range shapes(s) {
				x, err := s.complete(x)
				if err != nil {
					continue // the schedule says itself which shapes it has none for
				}
				for _, u := range []Unit{{12, 12, 12}, {12, 12, 6}, {12, 18, 6}} {
					x.Costs = nil
					c := equal(x, u)
					x.Costs = &c
					p, err := Build(name, x)
					require.NoError(t, err)
					tried++
					require.NoError(t, s.hold(x, u, p, c), "%s %+v of %+v", name, u, x)
				}
			}
			require.Greater(t, tried, 30)
		})
	}
}

// hold compares one program with the schedule's claims.
func (s Schedule) hold(x Shape, u Unit, p *plan.Program, c plan.Costs) error {
	t, err := p.Evaluate(c)
	if err != nil {
		return err
	}
	for r, live := range t.Peak {
		if want := s.Live(x, r); live > want || live < want && !s.LiveBound {
			return fmt.Errorf("rank %d holds %d half activations, arXiv:%s says %d", r, live, s.Paper, want)
		}
	}
	if s.Time == nil || s.When != nil && !s.When(x, u) {
		return nil
	}
	got := t.Makespan
	if s.Of == Longest {
		got = t.Longest
	}
	if want := s.Time(x, u); got > want*(1+1e-9) || got < want*(1-1e-9) && !s.AtMost {
		return fmt.Errorf("takes %v (measure %d), arXiv:%s says %v", got, s.Of, s.Paper, want)
	}
	return nil
}

// TestZeroBubbleTables compares bubble rates with those published in arXiv:2401.10241, tables 5 and 9.
func TestZeroBubbleTables(t *testing.T) {
	for _, row := range []struct {
		p, m        int
		f, i, w, c  float64
		plain, a, b float64
	}{
		{8, 24, 18.522, 18.086, 9.337, .601, .2431, .1585, .0433},
		{16, 64, 11.307, 11.254, 8.101, .379, .2082, .1088, .0054},
		{32, 256, 10.402, 10.248, 7.698, .460, .1352, .0594, .0018},
	} {
		c := plan.Costs{Comm: row.c}
		for range row.p {
			c.F, c.I, c.W = append(c.F, row.f), append(c.I, row.i), append(c.W, row.w)
		}
		for name, want := range map[string]float64{"1f1b": row.plain, "zb-1p": row.a, "zb-2p": row.b} {
			p, err := Build(name, Shape{Ranks: row.p, Micro: row.m, Costs: &c})
			require.NoError(t, err)
			got, err := p.Evaluate(c)
			require.NoError(t, err)
			require.InDelta(t, want, got.BubbleLongest(), 1e-4, "%s of %d ranks and %d microbatches", name,
				row.p, row.m)
		}
	}
}

// TestDualPipeVGolden compares with the hash of torch.distributed.pipelining's table (dualpipev_4rank_10mb.csv).
func TestDualPipeVGolden(t *testing.T) {
	p, err := Build("dualpipev", Shape{Ranks: 4, Micro: 10})
	require.NoError(t, err)
	h := sha256.Sum256([]byte(p.String()))
	require.Equal(t, "16ce4a29936e4c5ad774098add32489b4937942e3f5ab0108f17d2826b184529",
		hex.EncodeToString(h[:]))
}

// TestFalseClaim: a schedule whose claim is false is found out.
func TestFalseClaim(t *testing.T) {
	x := Shape{Ranks: 4, Micro: 8, Loops: 1}
	s, err := Get("1f1b")
	require.NoError(t, err)
	p, err := s.Build(x)
	require.NoError(t, err)
	u := Unit{1, 1, 1}
	s.Live = func(Shape, int) int { return 2 }
	require.ErrorContains(t, s.hold(x, u, p, equal(x, u)), "rank 0 holds 8 half activations")
	s, err = Get("gpipe")
	require.NoError(t, err)
	s.Time = func(Shape, Unit) float64 { return 24 }
	p, err = s.Build(x)
	require.NoError(t, err)
	require.ErrorContains(t, s.hold(x, u, p, equal(x, u)), "takes 33")
}

// TestShapes: shapes that a schedule cannot serve are refused by name.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape Shape
		want  string
	}{
		{"dualpipev", Shape{Ranks: 4, Micro: 7}, "two microbatches a rank"},
		{"zb-v", Shape{Ranks: 4, Micro: 8, Loops: 1}, "wants 2 stages a rank"},
		{"1f1b", Shape{Ranks: 0, Micro: 8}, "0 ranks"},
		{"1f1b", Shape{Ranks: 2, Micro: 2, Split: []int{1, 2}}, "2 chunks of microbatch 1"},
		{"seq1f1b", Shape{Ranks: 2, Micro: 2, Split: []int{1, 2}}, "slices of different numbers"},
		{"zb-2p", Shape{Ranks: 2, Micro: 2, Costs: &plan.Costs{F: []float64{1, math.NaN()}}},
			"stage 1 takes NaN"},
		{"zb-2p", Shape{Ranks: 4, Micro: 8, Memory: 0.5}, "holds no microbatch"},
		{"nonesuch", Shape{}, "unknown, have"},
		{"1f1b", Shape{Ranks: 1 << 12, Micro: 1 << 30}, "too many actions"},
	} {
		_, err := Build(c.name, c.shape)
		require.ErrorContains(t, err, c.want)
	}
}

// TestRagged: chunk groups of different lengths, and groups of microbatches of any length, deadlock nowhere.
func TestRagged(t *testing.T) {
	for _, p := range []int{1, 2, 4, 7} {
		for _, split := range [][]int{{1, 5, 1, 2}, {8}, {4, 1, 1, 1, 1, 6}, {1, 1, 9, 1}} {
			_, err := Build("chunkpipe", Shape{Ranks: p, Micro: len(split), Split: split})
			require.NoError(t, err)
		}
		for m := 1; m < 3*p+2; m++ {
			for g := p; g <= p+3; g++ {
				_, err := Build("interleaved", Shape{Ranks: p, Micro: m, Loops: 3, Group: g})
				require.NoError(t, err, "p=%d m=%d g=%d", p, m, g)
			}
		}
	}
}

// TestClosedForms checks the claims of schedules with exact makespans over every pipeline of up to 32 ranks.
func TestClosedForms(t *testing.T) {
	u := Unit{12, 12, 12}
	for _, name := range []string{"gpipe", "1f1b", "interleaved", "breadth-first", "seq1f1b", "zb-h1",
		"zb-h2", "zb-v"} {
		s, err := Get(name)
		require.NoError(t, err)
		for p := 1; p <= 32; p++ {
			for _, m := range []int{1, 2, 5, p, 2 * p, 3*p - 1, 256} {
				x, err := s.complete(Shape{Ranks: p, Micro: m, Loops: max(s.Loops, 1)})
				if s.Loops == 0 {
					x.Loops = 2
				}
				if err != nil || m == 256 && p%8 != 0 {
					continue
				}
				if name == "seq1f1b" {
					for range m {
						x.Split = append(x.Split, 3)
					}
				}
				prog, err := s.Build(x)
				require.NoError(t, err)
				require.NoError(t, s.hold(x, u, prog, equal(x, u)), "%s p=%d m=%d", name, p, m)
			}
		}
	}
}

// TestLowered writes out the messages of every schedule of one chunk a microbatch: each value that crosses
// ranks is sent and received once, in an order without deadlock even if a send blocks until its receive is
// reached, or the error names the cycle.
func TestLowered(t *testing.T) {
	safe := 0
	for _, name := range Names() {
		p, err := Build(name, Shape{Ranks: 4, Micro: 12})
		require.NoError(t, err)
		low, err := p.Lower()
		require.NoError(t, err)
		sent, got := map[plan.Action]int{}, 0
		for _, row := range low.Rows {
			for _, e := range row {
				switch e.Kind {
				case plan.SendF, plan.SendB:
					sent[e.Action]++
				case plan.RecvF, plan.RecvB:
					got++
				}
			}
		}
		for a, n := range sent {
			require.Equal(t, 1, n, "%s %v", name, a)
		}
		require.Equal(t, len(sent), got, name)
		if err := low.CheckRendezvous(); err != nil {
			require.ErrorContains(t, err, "waits for", name)
		} else {
			safe++
		}
	}
	require.Greater(t, safe, 3)
}
