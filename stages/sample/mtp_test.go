package sample

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// TestFurther: with drafts by the model's own layer for further tokens answers and log-probabilities are those without,
// to the bit: greedy or drawn, under penalties, filters and guides, with pages given up and prompts cut.
func TestFurther(t *testing.T) {
	b := cpu.New(2)
	defer b.Close()
	for name, s := range exact() {
		s.MTP = 1
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(fmt.Sprintf("%s %v", name, d), func(t *testing.T) {
				e, err := NewEngine(drawn(t, s, d, b), EngineOptions{Pages: 64})
				require.NoError(t, err)
				want := asked(t, e, guidedRequests(12), 3)
				e.Close()
				for _, o := range []EngineOptions{{Pages: 64}, {Pages: 9, Rows: 13, Ahead: 2},
					{Pages: 30, Rows: 5, Running: 3}, {Pages: 20, Rows: 40, Ahead: 7, Running: 4}} {
					o.Further = true
					e, err := NewEngine(drawn(t, s, d, b), o)
					require.NoError(t, err)
					require.Equal(t, want, asked(t, e, guidedRequests(12), 3), "%+v", o)
					require.Positive(t, e.Stats().Drafted)
					e.Close()
				}
			})
		}
	}
	_, err := NewEngine(drawn(t, exact()["dense"], tensor.F32, b), EngineOptions{Further: true})
	require.ErrorContains(t, err, "no layer for further tokens")
}

// copying is a model whose layers add nothing: what follows a token depends on it alone, and its layer for
// further tokens, which passes the token's embedding on, says the same.
func copying(t *testing.T, b kernels.Backend) *Generator {
	s := exact()["dense"]
	s.MTP = 1
	m := family.Decoder("copying", s)
	g, err := New(m, nil, tensor.F32, b, tensor.NewPool("copying", 0), func(p *grad.Param, r family.Region,
		dst []float32) error {
		switch {
		case strings.Contains(p.Name, "o_proj") || strings.Contains(p.Name, "down_proj"):
			clear(dst)
		case strings.HasSuffix(p.Name, "input_proj.weight"): // [hidden, 2 hidden]: states, then tokens
			clear(dst)
			for i := range s.Hidden {
				dst[i*2*s.Hidden+s.Hidden+i] = 1
			}
		default:
			m.Init(3, p, r, dst)
		}
		return nil
	})
	require.NoError(t, err)
	return g
}

// TestFurtherAccepted: a layer that says what the model will has nearly all of its drafts accepted, each
// draft from the one before, so that an answer takes a fifth of the steps.
func TestFurtherAccepted(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	e, err := NewEngine(copying(t, b), EngineOptions{Further: true, Ahead: 4})
	require.NoError(t, err)
	defer e.Close()
	asked(t, e, []*Request{{Prompt: []int32{1, 2, 3}, Params: Params{Max: 41}}}, 1)
	require.LessOrEqual(t, e.Stats().Steps, int64(10), "41 tokens, five a step")
	require.Equal(t, e.Stats().Drafted, e.Stats().Accepted)
	drawn := &Request{Prompt: []int32{1, 2, 3}, Params: Params{Max: 41, Temperature: 1, Seed: 5}}
	before := e.Stats()
	asked(t, e, []*Request{drawn}, 1)
	after := e.Stats()
	require.Greater(t, float64(after.Accepted-before.Accepted), 0.9*float64(after.Drafted-before.Drafted))
}

// TestFurtherIsTrainings: what the layer says in an engine, of states of a prompt that came in pieces, is
// what it says in training of the same tokens.
func TestFurtherIsTrainings(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	for name, s := range exact() {
		s.MTP, s.MTPWeight = 1, 1
		g := drawn(t, s, tensor.F32, b)
		e, err := NewEngine(g, EngineOptions{Further: true, Rows: 13})
		require.NoError(t, err)
		prompt := make([]int32, 29)
		for i := range prompt {
			prompt[i] = int32(i*i+3) % 70
		}
		require.NoError(t, e.Submit(&Request{Prompt: prompt, Params: Params{Max: 9}, Done: func(End) {},
			Emit: func(Token) bool { return true }}))
		for e.Stats().Drawn == 0 {
			require.NoError(t, e.Step())
		}
		q := e.running[0]
		n := q.done
		require.Equal(t, len(prompt), n)
		require.Positive(t, q.hidden.from, "the last piece")
		_, z, err := e.ahead.(*mtpProposer).compute(e, &batch{behind: 1, parts: []part{{q, q.hidden.from, n,
			n}}})
		require.NoError(t, err)
		top, sum := float64(slices.Max(z[:s.Vocab])), 0.0
		for _, x := range z[:s.Vocab] {
			sum += math.Exp(float64(x) - top)
		}
		for _, target := range []int32{0, 33, 69} {
			loss := furtherLoss(t, g, q.tokens[:n+1], target)
			require.InDelta(t, top+math.Log(sum)-float64(z[target]), loss, 1e-4, name)
		}
		e.Close()
	}
}

// furtherLoss is minus the log-probability that training's layer gives a token behind all of some.
func furtherLoss(t *testing.T, g *Generator, tokens []int32, target int32) float64 {
	n := len(tokens) - 1
	tr := g.m.Record(grad.Options{DType: tensor.F32, NoGrad: true}, block.Rec{Shape: block.Shape{Rows: n}},
		family.Stage{To: len(g.m.Blocks)})
	positions, targets, none, one := make([]int32, n), make([]int32, n), make([]float32, n), make([]float32,
		n)
	for i := range positions {
		positions[i], targets[i] = int32(i), target
	}
	one[n-1] = 1
	cu := tensor.Of(tensor.I32, []int32{0, int32(n)}, 2)
	ints := func(v []int32) *tensor.Tensor { return tensor.Of(tensor.I32, v, n) }
	f := g.run.NewFrame(tr, map[string]*tensor.Tensor{"ids": ints(tokens[:n]), "positions": ints(positions),
		"cu_seqlens": cu, "cu_seqlens_k": cu.Retain(), "targets": ints(targets),
		"weights":   tensor.Of(tensor.F32, none, n),
		"mtp_ids.0": ints(tokens[1:]), "mtp_targets.0": ints(slices.Clone(targets)),
		"mtp_weights.0": tensor.Of(tensor.F32, one, n)}, nil, nil)
	_, err := g.run.Step(f, grad.F, 0, nil)
	require.NoError(t, err)
	loss := f.Loss()
	f.Close()
	g.run.Close()
	return loss
}
