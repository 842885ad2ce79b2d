package dataset

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// grown is a data set of some generations, of which the first n are there.
type grown struct {
	n    int64
	ends bool
	gens [][]Weighted
}

func (g *grown) open(gen int64) ([]Weighted, func(), error) {
	switch {
	case gen < g.n:
		return g.gens[gen], func() {}, nil
	case g.ends:
		return nil, nil, io.EOF
	}
	g.n++ // it comes while the stream waits
	return nil, nil, ErrNotYet
}

// generations makes a data set of texts that are all different.
func generations(sizes ...int) (out *grown) {
	out = &grown{}
	for g, n := range sizes {
		m := textSource(fmt.Sprint("g", g), n)
		m.sized = true
		for i := range m.docs {
			m.docs[i].Text = fmt.Sprintf("%d-%d ", g, i) + string(make([]byte, 1+(i*7)%60))
		}
		out.gens = append(out.gens, []Weighted{{m, 1}})
	}
	return out
}

// all takes the steps of a stream to its end.
func all(t *testing.T, g *Growing, from int64) (out [][]Batch) {
	t.Helper()
	for step := from; ; step++ {
		b, err := g.Step(step)
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		out = append(out, b)
	}
}

func growing(t *testing.T, cfg LoaderConfig, d *grown) *Growing {
	t.Helper()
	g, err := OpenGrowing(cfg, &byteEncoder{}, d.open)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// Each document of each generation comes once, generations one after the other, whether they are there from
// the beginning or come while the stream waits; the numbers of samples ascend.
func TestGrowing(t *testing.T) {
	for _, mode := range []Mode{ModePretrain, ModeSFT} {
		d := generations(40, 7, 90)
		cfg := pretrain()
		cfg.Mode, cfg.Pad, cfg.SeqLen = mode, -7, 32
		d.n, d.ends = 3, true
		want := all(t, growing(t, cfg, d), 0)
		seen := map[string]bool{}
		var samples []int64
		last := 0
		for _, step := range want {
			var ids []int64
			for _, b := range step {
				for _, o := range b.Origins {
					gen := int(o.Sample / generationSamples)
					require.GreaterOrEqual(t, gen, last)
					last = gen
					seen[fmt.Sprint(gen, " ", o.Document)] = true
				}
				ids = append(ids, b.Samples()...)
			}
			samples = append(samples, ids...)
		}
		require.Len(t, seen, 40+7+90)
		n := len(samples)
		slices.Sort(samples)
		require.Len(t, slices.Compact(samples), n, "a sample came twice")
		d = generations(40, 7, 90)
		late := &grown{gens: d.gens, n: 1}
		g := growing(t, cfg, late)
		var have [][]Batch
		for i := range want {
			b, err := g.Step(int64(i))
			require.NoError(t, err)
			have = append(have, b)
		}
		require.Equal(t, want, have)
	}
}

// A stream that goes on at any position, or back to one, gives what an undisturbed one gives.
func TestGrowingResumes(t *testing.T) {
	d := generations(30, 9, 50)
	d.n, d.ends = 3, true
	cfg := pretrain()
	cfg.SeqLen = 32
	whole := growing(t, cfg, d)
	var at []Position
	var want [][]Batch
	for step := int64(0); ; step++ {
		at = append(at, whole.Position())
		b, err := whole.Step(step)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		want = append(want, b)
	}
	require.Greater(t, len(want), 10)
	require.Equal(t, int64(2), at[len(want)-1].Generation)
	for i, p := range at[:len(want)] {
		g := growing(t, cfg, d)
		require.NoError(t, g.Seek(p))
		require.Equal(t, want[i:], all(t, g, int64(i)), "from step %d", i)
		b, err := g.Step(int64(i)) // and back
		require.NoError(t, err)
		require.Equal(t, want[i], b)
	}
	other := generations(30, 9, 51)
	other.n, other.ends = 3, true
	var order *OrderError
	require.ErrorAs(t, growing(t, cfg, other).Seek(at[len(want)-1]), &order)
}
