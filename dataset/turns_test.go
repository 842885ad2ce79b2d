package dataset

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// ramped are two sources whose weights change.
type ramped struct {
	weights [2]float64
	ramps   []Ramp
}

// TestRamps: weights that change by steps give each source its share of the steps on both sides, to the row where text
// is cut, and those that change evenly the share of each; a run that goes on at any step, from what a checkpoint keeps,
// reads the same; and weights that change to what they were are those that do not.
func TestRamps(t *testing.T) {
	for name, c := range map[string]ramped{
		"stepwise": {[2]float64{.8, .2}, []Ramp{{Turns: []Turn{{21, .1}}}, {Turns: []Turn{{21, .9}}}}},
		"off":      {[2]float64{1, 0}, []Ramp{{Turns: []Turn{{21, 0}}}, {Turns: []Turn{{21, 1}}}}},
		"linear":   {[2]float64{1, 0}, []Ramp{{[]Turn{{41, 0}}, true}, {[]Turn{{41, 1}}, true}}},
		"same":     {[2]float64{.7, .3}, []Ramp{{Turns: []Turn{{21, .7}}}, {}}},
	} {
		for mode, of := range map[string]func(...Weighted) LoaderConfig{"pretrain": pretrain, "sft": sft} {
			t.Run(mode+name, func(t *testing.T) {
				source := func(name string) Source {
					if mode == "sft" {
						return chatSource(name, 300)
					}
					return longSource(name, 300)
				}
				config := func(ramps []Ramp) LoaderConfig {
					cfg := of(Weighted{source("a"), c.weights[0]}, Weighted{source("b"), c.weights[1]})
					cfg.GlobalBatch, cfg.MicroBatch, cfg.Ramps, cfg.Packing = 12, 4, ramps, PackNone
					if mode == "pretrain" {
						cfg.Shuffle = 50 // the change lies within what would be shuffled together
					}
					return cfg
				}
				l := open(t, config(c.ramps))
				var all [][]Batch
				var at []string
				for range 40 {
					p, err := json.Marshal(l.Position())
					require.NoError(t, err)
					at, all = append(at, string(p)), append(all, steps(t, l, 1)...)
				}
				shared(t, c, all, mode == "pretrain")
				for i := range at {
					var p Position
					require.NoError(t, json.Unmarshal([]byte(at[i]), &p))
					resumed := open(t, config(c.ramps))
					require.NoError(t, resumed.Seek(p))
					n := min(2, len(all)-i)
					require.Equal(t, all[i:i+n], steps(t, resumed, n), "from step %d", i)
				}
				var other *OrderError
				require.ErrorAs(t, open(t, config([]Ramp{{Turns: []Turn{{22, .5}}}, {Turns: []Turn{{21, .5}}}})).Seek(l.Position()), &other, "other weights are another order")
			})
		}
	}
}

// shared holds the rows of a source, summed from the first step on, to its share of each step: within the documents or
// windows that are made at once, and of windows to the row behind the step before a change.
func shared(t *testing.T, c ramped, all [][]Batch, windows bool) {
	t.Helper()
	want, got := 0.0, 0.0
	for i, step := range all {
		rows := 0.0
		for _, b := range step {
			for k, o := range b.Origins {
				if windows && k > 0 && o.Sample == b.Origins[k-1].Sample {
					continue // a window may have several documents
				}
				if rows++; o.Source == 0 {
					got++
				}
			}
		}
		s, within := float64(i+1), 40.0
		if windows && i == 19 && !c.ramps[0].Linear {
			within = 1.1
		}
		first, second := c.ramps[0].At(c.weights[0], s), c.ramps[1].At(c.weights[1], s)
		if want += rows * first / (first + second); math.Abs(want-got) > within {
			require.Fail(t, fmt.Sprintf("behind step %d: %g rows of the first source, want %g", i+1, got, want))
		}
	}
}
