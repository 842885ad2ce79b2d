package sample

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/opaque"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

func tiny(t *testing.T, pool *tensor.Pool) *Generator { return tinyOn(t, pool, ref.New()) }

func tinyOn(t *testing.T, pool *tensor.Pool, b kernels.Backend) *Generator {
	m := family.Decoder("llama", family.Spec{Layers: 2, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4,
		Vocab: 32, Eps: 1e-6, InitStd: 0.5,
		Rope: block.Rope{Dim: 4, Theta: 10000}})
	g, err := New(m, nil, tensor.F32, b, pool,
		func(p *grad.Param, r family.Region, dst []float32) error { m.Init(3, p, r, dst); return nil })
	require.NoError(t, err)
	return g
}

// TestCache: tokens fed one by one, or in pieces, give the logits of the whole sequence at once; float32
// sums of equal terms in another order differ by less than 1e-5.
func TestCache(t *testing.T) {
	pool := tensor.NewPool("sample", 0).Poison()
	for _, g := range []*Generator{tiny(t, pool), sliding(t, pool), hybrid(t, pool, "linear_attention"),
		hybrid(t, pool, "conv")} {
		pieces(t, g)
		g.Close()
	}
	require.Zero(t, pool.Buffers())
}

// TestStates: the head's product of the states gives the logits, and a sequence that was fed before has no
// part in them.
func TestStates(t *testing.T) {
	g := tiny(t, tensor.NewPool("sample", 0).Poison())
	defer g.Close()
	ids := []int32{3, 1, 4, 1, 5}
	want, err := g.Logits(ids)
	require.NoError(t, err)
	states, err := g.States(ids, family.Images{})
	require.NoError(t, err)
	require.Len(t, states, len(ids)*16)
	head, got := g.run.Params[family.HeadName+".weight"].F32(), make([]float32, len(ids)*32)
	for i := range got {
		for k := range 16 {
			got[i] += states[i/32*16+k] * head[i%32*16+k]
		}
	}
	require.InDeltaSlice(t, want, got, 1e-5)
	again, err := g.Logits(ids)
	require.NoError(t, err)
	require.Equal(t, want, again)
}

// TestDevice: a device whose memory the host cannot read gives the bits of the reference, and gets all its memory back.
func TestDevice(t *testing.T) {
	d, pool := opaque.New(5), tensor.NewPool("device", 0)
	defer kernels.Close(d)
	host, far := tinyOn(t, tensor.NewPool("host", 0), ref.New()), tinyOn(t, pool, d)
	defer host.Close()
	for _, ids := range [][]int32{{3, 1, 4}, {1}, {5, 9}} {
		want, err := host.Logits(ids)
		require.NoError(t, err)
		got, err := far.Logits(ids)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	far.Close()
	d.Sync() // memory is given back behind the calls that use it
	require.Zero(t, pool.Buffers())
}

// sliding is a model whose first layer has a window, and which caps scores and logits.
func sliding(t *testing.T, pool *tensor.Pool) *Generator {
	m := family.Decoder("sliding", family.Spec{Layers: 2, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4,
		Vocab: 32, Eps: 1e-6, InitStd: 0.5, Mixers: []string{"sliding_attention", "full_attention"},
		Window: 3, Rope: block.Rope{Dim: 2, Theta: 10000}, Ends: family.Ends{LogitCap: 2},
		Attending: family.Attending{AttnCap: 1, LocalRope: block.Rope{Dim: 2, Theta: 10}}})
	g, err := New(m, nil, tensor.F32, ref.New(), pool,
		func(p *grad.Param, r family.Region, dst []float32) error { m.Init(3, p, r, dst); return nil })
	require.NoError(t, err)
	return g
}

// hybrid is a model of a layer with the gated delta rule and one of gated attention.
func hybrid(t *testing.T, pool *tensor.Pool, kind string) *Generator {
	m := family.Decoder("hybrid", family.Spec{
		Layers: 2, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4, Vocab: 32, Eps: 1e-6, InitStd: 0.5,
		Attending: family.Attending{AttnGate: true},
		Mixers:    []string{kind, "full_attention"}, Rope: block.Rope{Dim: 2, Theta: 10000},
		Delta: block.Delta{Hidden: 16, Keys: 2, Values: 4, KeyDim: 4, ValueDim: 6, Taps: 4, Eps: 1e-6},
	})
	g, err := New(m, nil, tensor.F32, ref.New(), pool,
		func(p *grad.Param, r family.Region, dst []float32) error {
			m.Init(3, p, r, dst)
			return nil
		})
	require.NoError(t, err)
	return g
}

func pieces(t *testing.T, g *Generator) {
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	want, err := g.Logits(ids)
	require.NoError(t, err)
	for _, pieces := range [][]int{{1, 1, 1, 1, 1, 1, 1, 1}, {3, 5}, {7, 1}} {
		g.Reset()
		var got []float32
		for at := 0; len(pieces) > 0; pieces = pieces[1:] {
			part, err := g.Logits(ids[at : at+pieces[0]])
			require.NoError(t, err)
			got, at = append(got, part...), at+pieces[0]
		}
		require.InDeltaSlice(t, want, got, 1e-5)
	}
}

// TestGenerate: greedy takes the largest logit each time; a stop token ends it; the same seed draws the same text.
func TestGenerate(t *testing.T) {
	g := tiny(t, tensor.NewPool("sample", 0))
	defer g.Close()
	draw := func(p Params) (out []int32) {
		require.NoError(t, g.Generate([]int32{1, 2}, p,
			func(id int32) bool { out = append(out, id); return true }))
		return
	}
	greedy := draw(Params{Max: 6})
	require.Len(t, greedy, 6)
	g.Reset()
	all, err := g.Logits(append([]int32{1, 2}, greedy...))
	require.NoError(t, err)
	for i, id := range greedy {
		var d drawer
		require.Equal(t, id, d.draw(all[(1+i)*32:(2+i)*32], &Params{}, &counts{}, 0))
	}
	last := greedy[5]
	require.Equal(t, greedy[:slices.Index(greedy, last)],
		append([]int32{}, draw(Params{Max: 6, Stop: []int32{last}})...))
	hot := Params{Max: 20, Temperature: 1.5, TopP: 0.9, Seed: 4}
	require.Equal(t, draw(hot), draw(hot))
	require.Error(t, g.Generate(nil, hot, nil))
}

// TestNucleus: nothing outside the smallest set with probability p is drawn, and everything in it is.
func TestNucleus(t *testing.T) {
	logits := []float32{2, 1.9, 0, -1, -2} // 0.44, 0.40, then 0.06 and less
	var d drawer
	seen := map[int32]int{}
	for i := range 500 {
		seen[d.draw(logits, &Params{Temperature: 1, TopP: 0.8}, &counts{}, Uniform(1, 0, i))]++
	}
	require.Len(t, seen, 2)
	require.InDelta(t, 0.525, float64(seen[0])/500, 0.08)
	require.Equal(t, int32(0), d.draw(logits, &Params{Temperature: 1, TopK: 1}, &counts{}, 0.9))
}
