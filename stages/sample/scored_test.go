package sample

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestScored: the tokens of a prompt have the log-probabilities that training computes, to the bit, once each,
// however prompts are cut, whoever gives pages up and whatever a draft model proposes; answers are those without.
func TestScored(t *testing.T) {
	b := cpu.New(2)
	defer b.Close()
	for name, s := range exact() {
		t.Run(name, func(t *testing.T) {
			e, err := NewEngine(drawn(t, s, tensor.F32, b), EngineOptions{Pages: 64})
			require.NoError(t, err)
			plain := asked(t, e, requests(12), 3)
			e.Close()
			for i, o := range []EngineOptions{{Pages: 64}, {Pages: 9, Rows: 13}, {Pages: 30, Rows: 5, Running: 3},
				{Pages: 20, Rows: 40, Ahead: 3}} {
				if i == 3 {
					o.Draft = drawn(t, s, tensor.F32, b)
				}
				e, err := NewEngine(drawn(t, s, tensor.F32, b), o)
				require.NoError(t, err)
				rs := requests(12)
				scored := make([][]Token, len(rs))
				for k, r := range rs {
					if k%4 < 3 {
						r.Further = k % 4
						r.Scored = func(x Token) { scored[k] = append(scored[k], x) }
					}
				}
				require.Equal(t, plain, asked(t, e, rs, 3), "%+v", o)
				if i == 3 {
					require.Greater(t, float64(e.Stats().Accepted), 0.8*float64(e.Stats().Drafted))
				}
				for k, r := range rs {
					if r.Scored == nil {
						continue
					}
					require.Len(t, scored[k], len(r.Prompt)-1)
					targets, positions := make([]int32, len(r.Prompt)), make([]int32, len(r.Prompt))
					for j := range r.Prompt {
						if positions[j], targets[j] = int32(j), -1; j > 0 {
							targets[j-1] = r.Prompt[j]
						}
					}
					want, err := e.Generator().LogProbs(r.Prompt, targets, positions, []int32{0, int32(len(r.Prompt))})
					require.NoError(t, err)
					for j, x := range scored[k] {
						require.Equal(t, r.Prompt[j+1], x.ID)
						require.Equal(t, want[j], x.LogProb, fmt.Sprint(o, k, j))
						require.Len(t, x.Top, r.Further)
						if r.Further > 0 {
							require.Equal(t, x.Rank == 1, x.Top[0].ID == x.ID)
						}
					}
				}
				e.Close()
			}
		})
	}
}

// TestWithheld: tokens that may not come do not: a stop before so many tokens, others than those allowed, the last of
// some in a row; where nothing is left there is no token.
func TestWithheld(t *testing.T) {
	var d drawer
	z := []float32{5, 4, 3, 2, 1}
	seen := counts{}
	draw := func(p Params) int32 {
		require.NoError(t, p.Check())
		require.False(t, p.plain())
		id, ok := d.guided(z, &p, &seen, nil, 0)
		require.Equal(t, ok, id != 0 || p.Only == nil, "nothing is drawn where nothing may be")
		return id
	}
	require.Equal(t, int32(1), draw(Params{Max: 3, Least: 1, Stop: []int32{0, 99}}))
	require.Equal(t, int32(2), draw(Params{Only: []int32{4, 2}}))
	require.Equal(t, int32(1), draw(Params{Never: [][]int32{{0}}}))
	seen.see([]int32{3, 4}, true)
	require.Equal(t, int32(0), draw(Params{Never: [][]int32{{3, 4, 0}}}), "the prompt's do not count")
	seen.see([]int32{3, 4}, false)
	require.Equal(t, int32(1), draw(Params{Never: [][]int32{{3, 4, 0}, {4, 4, 1}}}))
	require.Equal(t, int32(0), draw(Params{Max: 2, Least: 2, Stop: []int32{0}}), "two are drawn")
	_, ok := d.guided(z, &Params{Max: 3, Least: 3, Stop: []int32{0}, Only: []int32{0}}, &seen, nil, 0)
	require.False(t, ok)
	require.ErrorContains(t, (&Params{Max: 3, Least: 4}).Check(), "min_tokens is 4")
	require.Equal(t, int32(9), (&Params{Only: []int32{1, 9}}).outside(9))
	require.Equal(t, int32(-2), (&Params{Never: [][]int32{{1}, {-2}}}).outside(9))
}
