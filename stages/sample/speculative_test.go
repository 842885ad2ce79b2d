package sample

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// evens is a guide of tokens with even numbers, of which there are to be some.
type evens struct{ left int }

func (g evens) Allowed() []uint64 {
	return []uint64{0x5555555555555555, 0x5}
}
func (g evens) Ends() bool { return g.left < 3 }
func (g evens) After(int32) Guide {
	if g.left == 1 {
		return nil
	}
	return evens{g.left - 1}
}

// guidedRequests are requests of which some have a guide.
func guidedRequests(n int) []*Request {
	rs := requests(n)
	for i, r := range rs {
		if i%3 == 2 {
			r.Guide, r.Stop = evens{5}, []int32{3, 8}
		}
	}
	return rs
}

// TestAhead: whatever a draft model proposes, answers and log-probabilities are those without one, to the
// bit: greedy or drawn, under penalties, filters and guides, with pages given up and prompts cut; and a
// draft model that is the model itself is right nearly always.
func TestAhead(t *testing.T) {
	b := cpu.New(2)
	defer b.Close()
	for name, s := range exact() {
		other := exact()["sliding"]
		other.Layers, other.InitStd = 1, 0.1
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(fmt.Sprintf("%s %v", name, d), func(t *testing.T) {
				e, err := NewEngine(drawn(t, s, d, b), EngineOptions{Pages: 64})
				require.NoError(t, err)
				want := asked(t, e, guidedRequests(12), 3)
				e.Close()
				for _, o := range []EngineOptions{{Pages: 64}, {Pages: 9, Rows: 13, Ahead: 2}, {Pages: 30,
					Rows: 5, Running: 3},
					{Pages: 20, Rows: 40, Ahead: 7, Running: 4}} {
					for _, same := range []bool{true, false} {
						o.Draft = drawn(t, other, d, b)
						if same {
							o.Draft = drawn(t, s, d, b)
						}
						e, err := NewEngine(drawn(t, s, d, b), o)
						require.NoError(t, err)
						require.Equal(t, want, asked(t, e, guidedRequests(12), 3), "%+v", o)
						stats := e.Stats()
						require.Positive(t, stats.Drafted)
						if same {
							require.Greater(t, float64(stats.Accepted), 0.8*float64(stats.Drafted),
								"%d of %d",
								stats.Accepted, stats.Drafted)
						}
						x := e.ahead.(*speculator)
						require.Zero(t, x.engine.pages.used())
						require.Empty(t, x.shadows)
						e.Close()
					}
				}
			})
		}
	}
}

// TestAheadFewer: with a draft model that is right, an answer takes fewer steps, and its classes of
// microbatches are recorded once.
func TestAheadFewer(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	s := exact()["dense"]
	e, err := NewEngine(drawn(t, s, tensor.F32, b), EngineOptions{Draft: drawn(t, s, tensor.F32, b),
		Ahead: 4})
	require.NoError(t, err)
	defer e.Close()
	group := func() []*Request { return []*Request{{Prompt: []int32{1, 2, 3}, Params: Params{Max: 41}}} }
	asked(t, e, group(), 1)
	require.LessOrEqual(t, e.Stats().Steps, int64(10), "41 tokens, five a step")
	n := e.Stats().Traces
	asked(t, e, group(), 1)
	require.Equal(t, n, e.Stats().Traces)
	small := s
	small.Vocab = 60
	_, err = NewEngine(drawn(t, s, tensor.F32, b), EngineOptions{Draft: drawn(t, small, tensor.F32, b)})
	require.ErrorContains(t, err, "has 60 tokens and the model 70")
}

// TestGuide: a guide's tokens alone are drawn, an answer ends where its guide is complete or, where it may, with a stop
// token; penalties, filters and log-probabilities are as without it; and where no token is allowed the answer is stuck.
func TestGuide(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	e, err := NewEngine(drawn(t, exact()["dense"], tensor.F32, b), EngineOptions{})
	require.NoError(t, err)
	defer e.Close()
	var rs []*Request
	for i := range 30 {
		rs = append(rs, &Request{Prompt: []int32{1, 2, 3}, Sample: i, Guide: evens{5},
			Params: Params{Max: 9, Temperature: 1.5, Seed: 3, Stop: []int32{3, 8}, TopK: 40,
				Repetition: 1.1}})
	}
	got := asked(t, e, rs, 30)
	ends := map[int]int{}
	for i, a := range got {
		ends[len(a.ids)]++
		for k, id := range a.ids {
			stop := id == 3 || id == 8
			require.True(t, id%2 == 0 && !stop || stop && k >= 3, "%v", a.ids)
		}
		require.Equal(t, EndStop, a.end)
		require.Equal(t, logProbsOf(t, e.Generator(), rs[i:i+1], got[i:i+1])[0], a.lp)
	}
	require.Positive(t, ends[4]+ends[3])
	require.Positive(t, ends[5])
	stuck := &Request{Prompt: []int32{1}, Params: Params{Max: 9}, Guide: none{}}
	require.Equal(t, EndStuck, asked(t, e, []*Request{stuck}, 1)[0].end)
	require.ErrorContains(t, e.Submit(&Request{Prompt: []int32{1, 2}, Began: 1, Guide: none{}}),
		"has no guide")
	var d drawer
	z := []float32{5, 1, 2, 1}
	for u := range 10 {
		id, ok := d.guided(z, &Params{Temperature: 1, TopK: 3}, &counts{}, only(2), float64(u)/10)
		require.True(t, ok && id == 1)
	}
}

// TestAheadNaN: a draft model whose logits are no numbers proposes nothing, and answers are those without it.
func TestAheadNaN(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	s := exact()["dense"]
	r := func() []*Request {
		return []*Request{{Prompt: []int32{1, 2, 3}, Params: Params{Max: 5, Temperature: 1, MinP: 0.1}}}
	}
	e, err := NewEngine(drawn(t, s, tensor.F32, b), EngineOptions{})
	require.NoError(t, err)
	want := asked(t, e, r(), 1)
	e.Close()
	s.InitStd = math.NaN()
	draft := drawn(t, s, tensor.F32, b)
	s.InitStd = exact()["dense"].InitStd
	e, err = NewEngine(drawn(t, s, tensor.F32, b), EngineOptions{Draft: draft})
	require.NoError(t, err)
	defer e.Close()
	require.Equal(t, want, asked(t, e, r(), 1))
	require.Zero(t, e.Stats().Drafted)
}

// none allows nothing, and only the tokens of its bits.
type (
	none struct{}
	only uint64
)

func (none) Allowed() []uint64   { return nil }
func (none) Ends() bool          { return false }
func (none) After(int32) Guide   { return nil }
func (o only) Allowed() []uint64 { return []uint64{uint64(o)} }
func (only) Ends() bool          { return false }
func (only) After(int32) Guide   { return nil }
