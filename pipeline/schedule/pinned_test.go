package schedule

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/pipeline/plan"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew from what the schedules give now")

// drawnCosts are passes of lengths between one half and two, the same for the same seed.
func drawnCosts(stages int, seed uint64) plan.Costs {
	r, c := rand.New(rand.NewPCG(seed, 1)), plan.Costs{Comm: 0.3}
	for range stages {
		c.F = append(c.F, 0.5+1.5*r.Float64())
		c.I = append(c.I, 0.5+1.5*r.Float64())
		c.W = append(c.W, 0.5+1.5*r.Float64())
	}
	return c
}

// pinnedShapes are some shapes of so many ranks: with equal and with uneven passes, and with little memory.
func pinnedShapes(s Schedule, ranks int) (out []Shape) {
	loops := s.Loops
	if loops == 0 {
		loops = 1 + ranks%3
	}
	for _, micro := range []int{1, 2, ranks, 2 * ranks, 3*ranks + 1} {
		x := Shape{Ranks: ranks, Micro: micro, Loops: loops}
		out = append(out, x)
		for seed := range uint64(3) {
			c := drawnCosts(ranks*loops, 10*seed+uint64(ranks))
			y := x
			y.Costs = &c
			out = append(out, y)
			y.Memory = float64(1 + ranks/2)
			out = append(out, y)
			y.Group, y.Memory = ranks+1, 0
			out = append(out, y)
		}
		if s.Fits != nil {
			for m := range micro {
				x.Split = append(x.Split, 1+(m*m+ranks)%4)
			}
			out = append(out, x)
			for m := range x.Split {
				x.Split[m] = 2
			}
			out = append(out, x)
		}
	}
	return out
}

// TestPinned: the programs of every schedule are those of testdata/pinned.txt, a line for each number of
// ranks: how many shapes it serves, the sum of their steps' lengths, the most that a rank holds in any of
// them, and a hash of all programs. A change of the lengths or of the memory is a change that users see; one
// of the hash alone is another order of the same quality. After a change that is meant: go test -rewrite.
func TestPinned(t *testing.T) {
	const file = "testdata/pinned.txt"
	var b strings.Builder
	for _, name := range Names() {
		s, err := Get(name)
		require.NoError(t, err)
		for _, ranks := range []int{1, 2, 3, 4, 6, 7} {
			h, served, length, held := sha256.New(), 0, 0.0, 0
			for _, x := range pinnedShapes(s, ranks) {
				p, err := Build(name, x)
				if err != nil {
					fmt.Fprintln(h, err)
					continue
				}
				c := s.costsOf(x)
				got, err := p.Evaluate(c)
				require.NoError(t, err)
				fmt.Fprintln(h, p)
				served, length, held = served+1, length+got.Longest, max(held, slices.Max(got.Peak))
			}
			fmt.Fprintf(&b, "%-14s %d ranks: %2d programs, %9.3f long, %2d half activations, %.8x\n", name,
				ranks,
				served, length, held, h.Sum(nil))
		}
	}
	b.WriteString(composed(t))
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

func (s Schedule) costsOf(x Shape) plan.Costs {
	if x.Costs != nil {
		return *x.Costs
	}
	return equal(Shape{Ranks: x.Ranks, Loops: max(1, x.Loops), Split: x.Split}, Unit{1, 1, 1})
}

// TestBoundsReached: what a schedule says is the most that a rank holds, some rank of some shape does hold:
// a looser bound would be of no use.
func TestBoundsReached(t *testing.T) {
	for _, name := range Names() {
		s, err := Get(name)
		require.NoError(t, err)
		if !s.LiveBound {
			continue
		}
		reached := false
		for _, x := range shapes(s) {
			if x, err = s.complete(x); err != nil || x.Ranks > 8 {
				continue
			}
			p, err := s.Build(x)
			require.NoError(t, err)
			got, err := p.Evaluate(plan.Costs{})
			require.NoError(t, err)
			for r, live := range got.Peak {
				reached = reached || live == s.Live(x, r)
			}
		}
		require.True(t, reached, name)
	}
}
