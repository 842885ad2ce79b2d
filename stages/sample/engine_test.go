package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// answer is what an engine gave for a request.
type answer struct {
	ids []int32
	lp  []float32
	end End
}

// asked runs requests through an engine, some of them while others are under way, and returns the answers.
func asked(t *testing.T, e *Engine, rs []*Request, each int) []answer {
	t.Helper()
	out := make([]answer, len(rs))
	for i, r := range rs {
		r.Emit = func(k Token) bool {
			out[i].ids, out[i].lp = append(out[i].ids, k.ID), append(out[i].lp, k.LogProb)
			return true
		}
		r.Done = func(why End) { out[i].end = why }
	}
	for len(rs) > 0 || e.Busy() {
		n := min(each, len(rs))
		for _, r := range rs[:n] {
			require.NoError(t, e.Submit(r))
		}
		rs = rs[n:]
		require.NoError(t, e.Step())
	}
	require.Zero(t, e.Stats().PagesUsed)
	return out
}

// requests are prompts of which some begin alike, with every way of drawing.
func requests(n int) (out []*Request) {
	rng := rand.New(rand.NewPCG(5, uint64(n)))
	beginning := make([]int32, 37)
	for i := range beginning {
		beginning[i] = rng.Int32N(70)
	}
	for i := range n {
		var prompt []int32
		if i%3 > 0 {
			prompt = append(prompt, beginning[:20+rng.IntN(17)]...)
		}
		for range 1 + rng.IntN(20) {
			prompt = append(prompt, rng.Int32N(70))
		}
		p := Params{Max: 1 + rng.IntN(9), Seed: 7, Temperature: float64(i%3) * 0.7, TopP: 0.9}
		if i%4 == 1 {
			p.Repetition, p.Presence, p.TopK, p.MinP = 1.3, 0.2, 20, 0.05
		}
		out = append(out, &Request{Prompt: prompt, Params: p, Sample: i})
	}
	return out
}

// logProbsOf is what training computes for the answers.
func logProbsOf(t *testing.T, g *Generator, rs []*Request, as []answer) (want [][]float32) {
	t.Helper()
	var ids, targets, positions []int32
	cu := []int32{0}
	for i, r := range rs {
		text := append(append([]int32{}, r.Prompt...), as[i].ids...)
		for k, id := range text {
			ids, positions = append(ids, id), append(positions, int32(k))
			if targets = append(targets, -1); k+1 < len(text) && k+1 >= len(r.Prompt) {
				targets[len(targets)-1] = text[k+1]
			}
		}
		cu = append(cu, int32(len(ids)))
	}
	all, err := g.LogProbs(ids, targets, positions, cu)
	require.NoError(t, err)
	for i, r := range rs {
		at := int(cu[i]) + len(r.Prompt) - 1
		want = append(want, all[at:at+len(as[i].ids)])
	}
	return want
}

// TestEngine: a request's tokens do not depend on the others', on the pages that they share, on how prompts are cut
// or on giving pages up; and each token has the log-probability, to the bit, that training computes for the same text.
// On every backend, in both precisions.
func TestEngine(t *testing.T) {
	onBackends(t, func(t *testing.T, b kernels.Backend) {
		for name, s := range exact() {
			for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
				t.Run(fmt.Sprintf("%s %v", name, d), func(t *testing.T) {
					var alone []answer
					for _, r := range requests(12) {
						e, err := NewEngine(drawn(t, s, d, b), EngineOptions{Pages: 8})
						require.NoError(t, err)
						alone = append(alone, asked(t, e, []*Request{r}, 1)...)
						e.Close()
					}
					for _, o := range []EngineOptions{{Pages: 64}, {Pages: 9, Rows: 13},
						{Pages: 30, Rows: 5, Running: 3}} {
						e, err := NewEngine(drawn(t, s, d, b), o)
						require.NoError(t, err)
						rs := requests(12)
						got := asked(t, e, rs, 3)
						require.Equal(t, alone, got, "%+v", o)
						require.Positive(t, e.Stats().Shared)
						if o.Pages == 9 {
							require.Positive(t, e.Stats().Preempted)
						}
						want := logProbsOf(t, e.Generator(), rs, got)
						for i := range got {
							require.Equal(t, want[i], got[i].lp)
						}
						e.Close()
					}
				})
			}
		}
	})
}

// TestEngineBatches: log-probabilities of the sampler and of training are equal over batches of 1 to 64,
// whose largest difference is 0.
func TestEngineBatches(t *testing.T) {
	b := cpu.New(2)
	defer b.Close()
	for _, n := range []int{1, 2, 7, 16, 33, 64} {
		e, err := NewEngine(drawn(t, exact()["dense"], tensor.BF16, b), EngineOptions{})
		require.NoError(t, err)
		rs := requests(n)
		got := asked(t, e, rs, n)
		most := 0.0
		for i, want := range logProbsOf(t, e.Generator(), rs, got) {
			for k := range want {
				most = max(most, float64(want[k]-got[i].lp[k]), float64(got[i].lp[k]-want[k]))
			}
		}
		require.Zero(t, most, "%d requests", n)
		e.Close()
	}
}

// TestEngineSame: the answers of one prompt and seed differ by their numbers, their prompt is computed once,
// and after a change of weights nothing of it is left.
func TestEngineSame(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	e, err := NewEngine(drawn(t, exact()["dense"], tensor.F32, b), EngineOptions{})
	require.NoError(t, err)
	defer e.Close()
	prompt := requests(2)[1].Prompt
	group := func() (rs []*Request) {
		for i := range 8 {
			rs = append(rs, &Request{Prompt: prompt, Sample: i,
				Params: Params{Max: 6, Temperature: 1, Seed: 3}})
		}
		return rs
	}
	first := asked(t, e, group(), 8)
	full := int64((len(prompt) - 1) / PageRows * PageRows)
	require.Positive(t, full)
	require.Equal(t, 7*full, e.Stats().Shared)
	require.NotEqual(t, first[0].ids, first[1].ids)
	for _, w := range e.Generator().run.Params {
		for i := range w.F32() {
			w.F32()[i] *= 1.1
		}
	}
	e.Flush()
	again := asked(t, e, group(), 8)
	fresh, err := NewEngine(e.Generator(), EngineOptions{})
	require.NoError(t, err)
	require.Equal(t, asked(t, fresh, group(), 8), again)
	require.NotEqual(t, first, again)
}

// TestEngineEnds: stop tokens, full contexts, cancelled requests and bad ones end as they should, and leave no page.
func TestEngineEnds(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	e, err := NewEngine(drawn(t, exact()["dense"], tensor.F32, b), EngineOptions{Pages: 4, Context: 40})
	require.NoError(t, err)
	defer e.Close()
	rs := []*Request{{Prompt: []int32{1, 2, 3}, Params: Params{Max: 9}}, {Prompt: []int32{1, 2, 3},
		Params: Params{Max: 99}}}
	got := asked(t, e, rs, 2)
	require.Equal(t, []End{EndLength, EndLength}, []End{got[0].end, got[1].end})
	require.Len(t, got[1].ids, 37)
	stop := &Request{Prompt: []int32{1, 2, 3}, Params: Params{Max: 9, Stop: []int32{got[0].ids[4]}}}
	ended := asked(t, e, []*Request{stop}, 1)[0]
	require.Equal(t, EndStop, ended.end)
	require.Equal(t, stop.Stop[0], ended.ids[len(ended.ids)-1])
	for i := range 1000 {
		r := &Request{Prompt: []int32{int32(i % 70), 2, 3}, Params: Params{Max: 20},
			Emit: func(Token) bool { return true }}
		ends := 0
		r.Done = func(End) { ends++ }
		require.NoError(t, e.Submit(r))
		for range i % 4 {
			require.NoError(t, e.Step())
		}
		e.Cancel(r)
		require.Equal(t, 1, ends)
		require.Zero(t, e.Stats().PagesUsed)
	}
	for text, r := range map[string]*Request{"no tokens": {}, "at most 40": {Prompt: make([]int32, 40)},
		"is id 70": {Prompt: []int32{70}}, "top_p": {Prompt: []int32{1}, Params: Params{TopP: 2}},
		"is of no token": {Prompt: []int32{1}, Params: Params{Bias: map[int32]float64{99: 1}}}} {
		require.ErrorContains(t, e.Submit(r), text)
	}
	require.False(t, e.Busy())
}

// TestEngineNumbers: an answer whose logits are no numbers ends by itself; others, beside it and behind it in its
// pages, are drawn as without it.
func TestEngineNumbers(t *testing.T) {
	onBackends(t, func(t *testing.T, b kernels.Backend) {
		for _, spoilt := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			m := family.Decoder("exact", exact()["dense"])
			g, err := New(m, nil, tensor.F32, b, tensor.NewPool("exact", 0), func(p *grad.Param,
				r family.Region, dst []float32) error {
				m.Init(3, p, r, dst)
				if strings.HasSuffix(p.Name, "embed_tokens.weight") {
					for i := range 48 {
						dst[5*48+i] = spoilt
					}
				}
				return nil
			})
			require.NoError(t, err)
			e, err := NewEngine(g, EngineOptions{Pages: 8})
			require.NoError(t, err)
			ask := func(id int32) *Request {
				p := make([]int32, 20)
				for i := range p {
					p[i] = id + int32(i%3)
				}
				return &Request{Prompt: p, Params: Params{Max: 6, Bias: map[int32]float64{5: -1000}}}
			}
			alone := asked(t, e, []*Request{ask(20), ask(30)}, 2)
			require.Equal(t, EndLength, alone[0].end)
			got := asked(t, e, []*Request{ask(20), ask(5), ask(4), ask(30), ask(3), ask(20), ask(30)}, 3)
			for _, i := range []int{1, 2, 4} {
				require.Equal(t, answer{end: EndNumber}, got[i])
			}
			e.Flush()
			again := asked(t, e, []*Request{ask(20), ask(30)}, 1)
			require.Equal(t, append(append(alone, alone...), alone...), []answer{got[0], got[3], got[5], got[6],
				again[0], again[1]})
			e.Close()
		}
	})
}
