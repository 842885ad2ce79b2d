package host

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// latentSpec is one of latent attention.
func latentSpec() family.Spec {
	s := lowSpec()
	s.Mixers = []string{"latent_attention", "latent_attention"}
	s.Latent = block.Latent{Hidden: 64, Heads: 4, QRank: 24, KVRank: 16, Turning: 8, Still: 12, Value: 10,
		Norm: block.Norm{Eps: 1e-6}, Scale: 1 / math.Sqrt(20)}
	s.Rope.Dim, s.HeadDim, s.KV = 8, 20, 4
	return s
}

// TestQKClip: queries and keys of heads whose scores were above the limit in a step shrink behind it by the published
// powers, biases with them, and nothing else changes; numbers are worked out from the scores of the step.
func TestQKClip(t *testing.T) {
	grouped := lowSpec()
	grouped.KV, grouped.QKVBias, grouped.InitStd = 2, true, 0.3
	latent := latentSpec()
	latent.InitStd = 0.3
	one := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	for name, s := range map[string]family.Spec{"grouped": grouped, "latent": latent} {
		t.Run(name, func(t *testing.T) {
			at := map[int64]map[string][]float32{}
			w := watched{spec: s, precision: "none", peaks: block.Peaks{Keep: true, Limit: 1.5, Power: 0.3},
				steps: 2, rate: 1e-30}
			w.before = func(step int64, params map[string]*tensor.Tensor) {
				at[step] = map[string][]float32{}
				for name, p := range params {
					at[step][name] = append([]float32{}, p.F32()...)
				}
			}
			w.run(t, one, one.mesh())
			shrunk := 0
			for name, was := range at[1] {
				module, _, _ := strings.Cut(name, ".self_attn")
				peak := at[2][module+".self_attn"+grad.PeakSuffix]
				for i, x := range was {
					f := 1.0
					if heads, power := shrinks(s, name, i/(len(was)/rowsOfParam(s, name,
						len(was)))); power > 0 {
						if most := slices.Max(peak[heads[0]:heads[1]]); most > 1.5 {
							f = math.Pow(1.5/float64(most), power)
							shrunk++
						}
					}
					if !strings.HasSuffix(name, grad.PeakSuffix) {
						require.InDelta(t, f*float64(x), at[2][name][i], 1e-6, "%s %d", name, i)
					}
				}
			}
			require.Greater(t, shrunk, 1000)
		})
	}
}

// rowsOfParam is how many rows a parameter of n numbers has.
func rowsOfParam(s family.Spec, name string, n int) int {
	switch {
	case strings.HasSuffix(name, "q_proj.weight"), strings.HasSuffix(name, "k_proj.weight"):
		return n / s.Hidden
	case strings.HasSuffix(name, "q_b_proj.weight"):
		return n / s.Latent.QRank
	case strings.HasSuffix(name, "k_b_proj.weight"):
		return n / s.Latent.KVRank
	}
	return n
}

// shrinks are the heads, from one to before another, and the power of a row; power 0 is of one that stays.
func shrinks(s family.Spec, name string, row int) (heads [2]int, power float64) {
	each := s.Heads / s.KV
	of := func(group, each int) [2]int { return [2]int{group * each, (group + 1) * each} }
	switch {
	case strings.Contains(name, "q_proj"):
		return of(row/(s.HeadDim*each), each), 0.3
	case strings.Contains(name, "k_proj"):
		return of(row/s.HeadDim, each), 0.7
	case strings.Contains(name, "q_b_proj"):
		if row%20 < 8 {
			return of(row/20, 1), 1
		}
		return of(row/20, 1), 0.3
	case strings.Contains(name, "k_b_proj"):
		return of(row/12, 1), 0.7
	}
	return heads, 0
}

// TestQKClipPlans: every plan shrinks by the greatest scores of all ranks and microbatches, to the losses of one rank;
// where it changes no sum, to the same bits. Key heads may be fewer than ranks of tensor parallelism.
func TestQKClipPlans(t *testing.T) {
	for name, s := range map[string]func() family.Spec{"grouped": func() family.Spec {
		s := lowSpec()
		s.KV = 2
		return s
	}, "one key head": func() family.Spec {
		s := lowSpec()
		s.KV = 1
		return s
	}, "latent": latentSpec} {
		of := func(v variant) (*watched, map[string][]float32) {
			spec := s()
			spec.InitStd = 0.25
			w := watched{spec: spec, precision: "none", peaks: block.Peaks{Keep: true, Limit: 1, Power: 0.5},
				steps: 4}
			var mu sync.Mutex
			peaks := map[string][]float32{}
			w.before = func(step int64, params map[string]*tensor.Tensor) {
				mu.Lock()
				defer mu.Unlock()
				for name, p := range params {
					if strings.HasSuffix(name, grad.PeakSuffix) && step == w.steps {
						peaks[name] = append([]float32{}, p.F32()...)
					}
				}
			}
			w.run(t, v, v.mesh())
			return &w, peaks
		}
		want, peaks := of(variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"})
		require.Len(t, peaks, 2)
		for _, v := range []variant{{pp: 2, dp: 1, tp: 1}, {pp: 2, dp: 1, tp: 1, rc: grad.RecomputeFull},
			{pp: 2, dp: 1, tp: 1, schedule: "zb-h1"}, {pp: 1, dp: 2, tp: 1, zero: 1}, {pp: 1, dp: 2, tp: 1,
				zero: 2},
			{pp: 1, dp: 4, tp: 1, zero: 3}, {pp: 1, dp: 1, tp: 2}, {pp: 1, dp: 1, tp: 4, sp: true}, {pp: 2,
				dp: 2, tp: 2, zero: 1},
			{pp: 1, dp: 2, tp: 2, zero: 3}} {
			if v.schedule == "" {
				v.schedule = "1f1b"
			}
			t.Run(fmt.Sprint(name, " ", v), func(t *testing.T) {
				got, other := of(v)
				if v.mesh().Size() == v.pp {
					require.Equal(t, want.losses, got.losses)
					require.True(t, maps.EqualFunc(peaks, other, func(a,
						b []float32) bool {
						return fmt.Sprint(a) == fmt.Sprint(b)
					}))
					return
				}
				require.InEpsilonSlice(t, want.losses, got.losses, 2e-5)
			})
		}
	}
}
