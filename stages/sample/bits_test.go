package sample

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// exact are models whose layers take their sums in every way that there is: dense, with windows, with
// experts, and with linear attention.
func exact() map[string]family.Spec {
	dense := family.Spec{Layers: 2, Hidden: 48, Inter: 80, Heads: 4, KV: 2, HeadDim: 12, Vocab: 70,
		Eps:     1e-6,
		InitStd: 0.3, Rope: block.Rope{Dim: 12, Theta: 10000}}
	sliding, hybrid, experts := dense, dense, dense
	sliding.Mixers, sliding.Window = []string{"sliding_attention", "full_attention"}, 5
	hybrid.Mixers, hybrid.AttnGate = []string{"linear_attention", "full_attention"}, true
	hybrid.Delta = block.Delta{Hidden: 48, Keys: 2, Values: 4, KeyDim: 12, ValueDim: 12, Taps: 4, Eps: 1e-6}
	experts.MLPs = []string{"experts", "gated"}
	experts.Experts = block.Experts{Experts: 6, Each: 2, Inter: 40}
	return map[string]family.Spec{"dense": dense, "sliding": sliding, "hybrid": hybrid, "experts": experts}
}

// onBackends runs f with the reference and with every level of instructions that this machine has.
func onBackends(t *testing.T, f func(t *testing.T, b kernels.Backend)) {
	t.Run("ref", func(t *testing.T) { f(t, ref.New()) })
	for _, l := range cpu.Levels() {
		t.Run(l, func(t *testing.T) {
			t.Setenv("LFACTOR_CPU", l)
			b := cpu.New(2)
			defer b.Close()
			f(t, b)
		})
	}
}

// drawn is a model with random weights.
func drawn(t *testing.T, s family.Spec, d tensor.DType, b kernels.Backend) *Generator {
	m := family.Decoder("exact", s)
	g, err := New(m, nil, d, b, tensor.NewPool("exact", 0), func(p *grad.Param, r family.Region,
		dst []float32) error {
		m.Init(3, p, r, dst)
		return nil
	})
	require.NoError(t, err)
	return g
}

// TestBits: tokens that come one by one, or in pieces, have the logits of the whole text to the bit, on
// every backend and in both precisions.
func TestBits(t *testing.T) {
	ids := make([]int32, 70)
	for i := range ids {
		ids[i] = int32(i*i*7+i) % 70
	}
	onBackends(t, func(t *testing.T, b kernels.Backend) {
		for name, s := range exact() {
			for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
				t.Run(fmt.Sprintf("%s %v", name, d), func(t *testing.T) {
					g := drawn(t, s, d, b)
					defer g.Close()
					want, err := g.Logits(ids)
					require.NoError(t, err)
					for _, step := range []int{1, 2, 33} {
						g.Reset()
						var got []float32
						for part := range slices.Chunk(ids, step) {
							p, err := g.Logits(part)
							require.NoError(t, err)
							got = append(got, p...)
						}
						require.True(t, slices.Equal(want, got), "%d tokens at a time", step)
					}
				})
			}
		}
	})
}
