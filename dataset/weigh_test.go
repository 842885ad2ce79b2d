package dataset

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWeigh compares the factor of every token's loss with the gradient that PyTorch's autograd finds for
// the loss as LoongForge and Megatron compute it (bench/golden/loss_weights.py): packed samples, padding, a
// sample and a microbatch with nothing to learn. Factors are rounded to float32.
func TestWeigh(t *testing.T) {
	var golden struct {
		Shares [][]struct {
			Cu, Labels []int32
			IDs        []int64
		}
		Cases []struct {
			Weight, Mean string
			Factors      [][][]float64
		}
	}
	text, err := os.ReadFile("testdata/loss_weights.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &golden))
	var shares [][]Batch
	for _, rank := range golden.Shares {
		var share []Batch
		for _, g := range rank {
			b := Batch{Rows: 1, SeqLen: len(g.Labels), Labels: g.Labels, CuSeqlens: g.Cu, SampleIDs: g.IDs}
			for _, l := range g.Labels {
				if l != IgnoreLabel {
					b.LossTokens++
				}
			}
			share = append(share, b)
		}
		shares = append(shares, share)
	}
	require.Len(t, golden.Cases, 9)
	for _, c := range golden.Cases {
		t.Run(c.Weight+" "+c.Mean, func(t *testing.T) {
			for rank, want := range c.Factors {
				got := Weighting{LossWeight(c.Weight), LossMean(c.Mean)}.Weigh(shares, rank)
				require.Len(t, got, len(want))
				for k := range want {
					require.Len(t, got[k], len(want[k]))
					for i, w := range want[k] {
						if w == 0 {
							require.Zero(t, got[k][i], "rank %d microbatch %d token %d", rank, k, i)
							continue
						}
						require.InEpsilon(t, w, got[k][i], 1e-7, "rank %d microbatch %d token %d", rank, k, i)
					}
				}
			}
		})
	}
}

// TestWeighPacked: conversations that a loader packs into one row are weighed each by its own length, cut
// ones by what is left.
func TestWeighPacked(t *testing.T) {
	l := open(t, sft(Weighted{Source: chatSource("a", 120), Weight: 1}))
	packed := 0
	for _, step := range steps(t, l, 4) {
		square := Weighting{WeightSquare, MeanToken}.Weigh([][]Batch{step}, 0)
		for m, b := range step {
			first, each := -1, map[int]float32{}
			for s := range b.SampleIDs {
				for i := b.CuSeqlens[s]; i < b.CuSeqlens[s+1]; i++ {
					if w := square[m][i]; w != 0 {
						each[s] = w
					}
				}
				if n := b.trained(s); n > 0 && first < 0 {
					first = s
				} else if n > 0 {
					packed++ // n·w² is the same for all of a step
					require.InEpsilon(t, float64(b.trained(first))*float64(each[first])*float64(each[first]),
						float64(n)*float64(each[s])*float64(each[s]), 1e-6)
				}
			}
		}
	}
	require.Greater(t, packed, 10)
}
