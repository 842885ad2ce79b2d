package tenants

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	_ "github.com/lfactor/lfactor/stages/family/all"
	"github.com/lfactor/lfactor/stages/sample"
)

// specs are models whose layers take their sums in every way that adapters are trained with.
func specs() map[string]family.Spec {
	dense := family.Spec{Layers: 2, Hidden: 48, Inter: 80, Heads: 4, KV: 2, HeadDim: 12, Vocab: 70,
		Eps:     1e-6,
		InitStd: 0.3, Rope: block.Rope{Dim: 12, Theta: 10000}}
	sliding, hybrid := dense, dense
	sliding.Mixers, sliding.Window = []string{"sliding_attention", "full_attention"}, 5
	hybrid.Mixers, hybrid.AttnGate = []string{"linear_attention", "full_attention"}, true
	hybrid.Delta = block.Delta{Hidden: 48, Keys: 2, Values: 4, KeyDim: 12, ValueDim: 12, Taps: 4, Eps: 1e-6}
	return map[string]family.Spec{"dense": dense, "sliding": sliding, "hybrid": hybrid}
}

// generator is a model with random weights and slots of adapters.
func generator(t *testing.T, s family.Spec, slots int, b kernels.Backend) *sample.Generator {
	t.Helper()
	return generatorOf(t, family.Decoder("tenants", s), slots, b)
}

// generatorOf is that of any model.
func generatorOf(t *testing.T, m *family.Model, slots int, b kernels.Backend) *sample.Generator {
	t.Helper()
	lora := &block.Lora{Targets: []string{"*_proj"}, Rank: 4, Alpha: 8, Slots: slots}
	g, err := sample.New(m, lora, tensor.F32, b, tensor.NewPool("tenants", 0), func(p *grad.Param,
		r family.Region,
		dst []float32) error {
		if !adapter(p.Name) {
			m.Init(3, p, r, dst)
		}
		return nil
	})
	require.NoError(t, err)
	return g
}

// plain is the same model without adapters.
func plain(t *testing.T, m *family.Model, b kernels.Backend) *sample.Generator {
	t.Helper()
	g, err := sample.New(m, nil, tensor.F32, b, tensor.NewPool("tenants", 0), func(p *grad.Param,
		r family.Region, dst []float32) error {
		m.Init(3, p, r, dst)
		return nil
	})
	require.NoError(t, err)
	return g
}

// trainer has slots that have begun, each by a seed of its number or another.
func trainer(t *testing.T, s family.Spec, slots int, b kernels.Backend) *Trainer {
	t.Helper()
	x, err := New(generator(t, s, slots, b), 96, 1000)
	require.NoError(t, err)
	return x
}

// work is what a tenant asks for in a step: it follows from the tenant and the step alone.
func work(slot, tenant, step int) *Work {
	r := rand.New(rand.NewPCG(uint64(tenant), uint64(step)))
	w := &Work{Slot: slot, Loss: []Loss{CrossEntropy, ImportanceSampling, PPO}[tenant%3], Backward: true}
	if w.Loss == PPO {
		w.Clip = [2]float64{0.2, 0.3}
	}
	for range 1 + r.IntN(6) {
		n := 1 + r.IntN(40)
		d := Datum{Tokens: make([]int32, n), Targets: make([]int32, n)}
		for k := range n {
			d.Tokens[k], d.Targets[k] = r.Int32N(70), r.Int32N(70)
			d.Weights = append(d.Weights, r.Float32())
			if w.Loss != CrossEntropy {
				d.LogProbs, d.Advantages = append(d.LogProbs, -4-r.Float32()), append(d.Advantages,
					r.Float32()-0.5)
			}
		}
		w.Data = append(w.Data, d)
	}
	return w
}

// all runs works to their ends, several pieces at a time.
func all(t *testing.T, x *Trainer, works []*Work) {
	t.Helper()
	for _, w := range works {
		require.NoError(t, x.Check(w))
	}
	for len(works) > 0 {
		done, err := x.Run(works)
		require.NoError(t, err)
		left := works[:0:0]
		for _, w := range works {
			if w.done < len(w.pieces) && w.err == nil {
				left = append(left, w)
			}
		}
		require.Len(t, done, len(works)-len(left))
		works = left
	}
}

// weights are a slot's.
func weights(t *testing.T, x *Trainer, slot int) (out []float32) {
	t.Helper()
	for _, p := range x.params {
		v := make([]float32, tensor.Len(p.Shape)/x.lora.Slots)
		require.NoError(t, x.Read(slot, p.Name, v))
		out = append(out, v...)
	}
	return out
}

var adam = Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}

// TestAlone: log-probabilities, losses and weights of a tenant are those that it has alone in a trainer of one slot,
// to the bit, whatever slot it has, who is beside it and when, on every backend.
func TestAlone(t *testing.T) {
	backends := map[string]func() kernels.Backend{"ref": func() kernels.Backend { return ref.New() },
		"cpu": func() kernels.Backend { return cpu.New(2) }}
	for back, open := range backends {
		for name, s := range specs() {
			t.Run(back+" "+name, func(t *testing.T) {
				b := open()
				defer kernels.Close(b)
				const tenants, steps = 5, 3
				var want [tenants][]float32
				var said [tenants][steps]Result
				for k := range tenants {
					x := trainer(t, s, 1, b)
					x.Begin(0, uint64(k))
					for step := range steps {
						w := work(0, k, step)
						all(t, x, []*Work{w})
						said[k][step] = w.result
						_, n, err := x.Step(0, adam)
						require.NoError(t, err)
						require.Equal(t, int64(step+1), n)
					}
					want[k] = weights(t, x, 0)
					x.Close()
				}
				require.NotEqual(t, want[0], want[1])
				x := trainer(t, s, 8, b)
				defer x.Close()
				slots := []int{6, 0, 3, 7, 2}
				for k, slot := range slots {
					x.Begin(slot, uint64(k))
				}
				for turn := range 2 * steps { // some go on while others wait
					var works []*Work
					var who []int
					for k, slot := range slots {
						if turn%2 == k%2 {
							works, who = append(works, work(slot, k, turn/2)), append(who, k)
						}
					}
					all(t, x, works)
					for i, k := range who {
						require.Equal(t, said[k][turn/2], works[i].result, "tenant %d", k)
						_, _, err := x.Step(slots[k], adam)
						require.NoError(t, err)
					}
				}
				for k, slot := range slots {
					require.Equal(t, want[k], weights(t, x, slot), "tenant %d", k)
				}
			})
		}
	}
}

// TestGradient: what is added to a slot's gradient is the derivative of the loss that is reported.
func TestGradient(t *testing.T) {
	b := ref.New()
	for k := range 3 { // a loss each
		x := trainer(t, specs()["dense"], 2, b)
		x.Begin(1, 5)
		p := x.params[len(x.params)-1]
		for i := range x.run.Params[p.Name].F32() { // B is 0 at first, which has no gradient of A
			x.run.Params[p.Name].F32()[i] = 0.05 * float32(i%7-3)
		}
		loss := func() float64 {
			w := work(1, k, 0)
			w.Backward = false
			all(t, x, []*Work{w})
			return w.result.Loss
		}
		all(t, x, []*Work{work(1, k, 0)})
		for _, p := range x.params[len(x.params)-2:] {
			n := tensor.Len(p.Shape) / 2
			v := x.run.Params[p.Name].F32()[n:]
			for _, i := range []int{0, n / 2, n - 1} {
				was, by := v[i], float32(0.02)
				v[i] = was + by
				up := loss()
				v[i] = was - by
				down := loss()
				v[i] = was
				got := float64(x.run.Grads[p.Name].F32()[n+i])
				require.InDelta(t, (up-down)/(2*float64(by)), got, 2e-3*math.Max(1, math.Abs(got)), "%s %d",
					p.Name, i)
			}
			require.Zero(t, x.run.Grads[p.Name].F32()[0], "another slot's")
		}
		x.Close()
	}
}

// TestSampled: what is drawn with an adapter has the log-probabilities that training gives, to the bit; adapters differ
// from each other and from the model, and after a step nothing is drawn with what was before.
func TestSampled(t *testing.T) {
	b := cpu.New(2)
	defer b.Close()
	g := generator(t, specs()["dense"], 3, b)
	x, err := New(g, 96, 1000)
	require.NoError(t, err)
	e, err := sample.NewEngine(g, sample.EngineOptions{Pages: 64, Lean: true})
	require.NoError(t, err)
	defer e.Close()
	defer x.Close()
	for slot := range 3 {
		x.Begin(slot, uint64(slot))
		all(t, x, []*Work{work(slot, slot, 0)})
		_, _, err := x.Step(slot, Adam{LR: 0.2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8})
		require.NoError(t, err)
	}
	prompt := make([]int32, 40)
	for i := range prompt {
		prompt[i] = int32(i)
	}
	type drawn struct {
		ids []int32
		lp  []float32
	}
	round := func() []drawn {
		got := make([]drawn, 8)
		for i := range got {
			require.NoError(t, e.Submit(&sample.Request{Prompt: prompt, Adapter: i % 4, Sample: i / 4,
				Params: sample.Params{Max: 12, Temperature: 1, Seed: 9}, Done: func(sample.End) {},
				Emit: func(k sample.Token) bool {
					got[i].ids, got[i].lp = append(got[i].ids, k.ID), append(got[i].lp, k.LogProb)
					return true
				}}))
		}
		for e.Busy() {
			require.NoError(t, e.Step())
		}
		for i, d := range got {
			if i%4 == 0 {
				continue
			}
			text := append(append([]int32{}, prompt...), d.ids...)
			w := &Work{Slot: i%4 - 1, Loss: CrossEntropy, Data: []Datum{{Tokens: text[:len(text)-1],
				Targets: text[1:]}}}
			all(t, x, []*Work{w})
			require.Equal(t, w.result.LogProbs[0][len(prompt)-1:], d.lp)
		}
		return got
	}
	first := round()
	require.Positive(t, e.Stats().Shared)
	for i := range 3 {
		require.NotEqual(t, first[i].lp, first[i+1].lp)
	}
	all(t, x, []*Work{work(1, 1, 1)})
	_, _, err = x.Step(1, Adam{LR: 0.2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8})
	require.NoError(t, err)
	e.Changed(2)
	again := round()
	for i := range again {
		require.Equal(t, i%4 != 2, first[i].lp[0] == again[i].lp[0], "answer %d", i)
	}
	require.ErrorContains(t, e.Submit(&sample.Request{Prompt: prompt, Adapter: 4}),
		"no adapter in slot 4 of 3")
}

// TestFaults: work that means nothing is refused; a loss that is no number leaves its slot without a gradient,
// and nothing else.
func TestFaults(t *testing.T) {
	x := trainer(t, specs()["dense"], 2, ref.New())
	defer x.Close()
	x.Begin(0, 1)
	x.Begin(1, 2)
	one := []int32{1, 2}
	nan, huge := float32(math.NaN()), float32(-1e30)
	for want, w := range map[string]*Work{"no slot 2": {Slot: 2}, "no data": {Loss: CrossEntropy},
		"the loss is": {Loss: "x",
			Data: []Datum{{}}}, "has 0 tokens": {Loss: CrossEntropy, Data: []Datum{{}}},
		"2 tokens and 0 targets": {Loss: CrossEntropy,
			Data: []Datum{{Tokens: one}}}, "is id 70": {Loss: CrossEntropy, Data: []Datum{{Tokens: one,
			Targets: []int32{1, 70}}}},
		"1 weights for 2": {Loss: CrossEntropy, Data: []Datum{{Tokens: one, Targets: one,
			Weights: []float32{1}}}},
		"number 1 is none": {Loss: CrossEntropy, Data: []Datum{{Tokens: one, Targets: one,
			Weights: []float32{1, nan}}}},
		"has no effect": {Loss: CrossEntropy, Data: []Datum{{Tokens: one, Targets: one,
			Advantages: []float32{1, 1}}}},
		"0 logprobs": {Loss: ImportanceSampling, Data: []Datum{{Tokens: one, Targets: one,
			Advantages: []float32{1, 1}}}},
		"clip is": {Loss: PPO, Clip: [2]float64{-1, 2}, Data: []Datum{{Tokens: one,
			Targets: one}}},
		"and not from 1 to 96": {Loss: CrossEntropy, Data: []Datum{{Tokens: make([]int32, 97)}}}} {
		require.ErrorContains(t, x.Check(w), want)
	}
	bad := &Work{Slot: 0, Loss: ImportanceSampling, Backward: true, Data: []Datum{{Tokens: one, Targets: one,
		LogProbs: []float32{huge, 0}, Advantages: []float32{1, 1}}}}
	good := work(1, 0, 0)
	all(t, x, []*Work{bad, good})
	_, err := bad.Result()
	require.ErrorContains(t, err, "is no number")
	_, _, err = x.Step(0, adam)
	require.ErrorContains(t, err, "no gradient")
	_, _, err = x.Step(1, adam)
	require.NoError(t, err)
	alone := trainer(t, specs()["dense"], 2, ref.New())
	defer alone.Close()
	alone.Begin(1, 2)
	all(t, alone, []*Work{work(1, 0, 0)})
	_, _, err = alone.Step(1, adam)
	require.NoError(t, err)
	require.Equal(t, weights(t, alone, 1), weights(t, x, 1))
	require.ErrorContains(t, Adam{LR: math.NaN()}.Check(), "lr is NaN")
	require.ErrorContains(t, Adam{Beta1: 1}.Check(), "beta1 is 1")
	require.NoError(t, adam.Check())
}

// TestOverflow: an update that would make weights infinite leaves weights, moments and the number of updates as they
// were; a rate of learning that does so at once is refused.
func TestOverflow(t *testing.T) {
	x := trainer(t, specs()["dense"], 2, ref.New())
	defer x.Close()
	x.Begin(0, 1)
	all(t, x, []*Work{work(0, 0, 0)})
	_, _, err := x.Step(0, adam)
	require.NoError(t, err)
	before, state := weights(t, x, 0), x.State(0)
	for _, a := range []Adam{{LR: 10, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: math.MaxFloat32},
		{LR: math.MaxFloat32, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 2}} {
		all(t, x, []*Work{work(0, 0, 1)})
		_, n, err := x.Step(0, a)
		require.ErrorContains(t, err, "would be infinite")
		require.Equal(t, int64(1), n)
		require.Equal(t, before, weights(t, x, 0))
		require.Equal(t, state, x.State(0))
		_, _, err = x.Step(0, adam)
		require.ErrorContains(t, err, "no gradient")
	}
	require.ErrorContains(t, Adam{LR: 1e38}.Check(), "lr is 1e+38, and not from 0 to 10")
}

// TestSees: models that see are trained on texts, and say beforehand what they say of the same tokens
// where they answer.
func TestSees(t *testing.T) {
	b := ref.New()
	defer kernels.Close(b)
	for _, name := range []string{"qwen2-vl", "qwen2.5-vl", "qwen3-vl"} {
		c, err := configs.ReadModel("../family/testdata/" + name)
		require.NoError(t, err, name)
		m, err := family.Build(c, 24)
		require.NoError(t, err, name)
		g := generatorOf(t, m, 2, b)
		x, err := New(g, 96, 1000)
		require.NoError(t, err, name)
		x.Begin(1, 5)
		w := &Work{Slot: 1, Loss: CrossEntropy, Backward: true, Data: []Datum{{Tokens: []int32{3, 4, 5, 6},
			Targets: []int32{4, 5, 6, 7}, Weights: []float32{1, 1, 1, 1}}}}
		all(t, x, []*Work{w})
		x.Close()
		rows, err := plain(t, m, b).Logits(w.Data[0].Tokens)
		require.NoError(t, err, name)
		for k, target := range w.Data[0].Targets {
			row := rows[k*m.Spec.Vocab:][:m.Spec.Vocab]
			sum := 0.0
			for _, v := range row {
				sum += math.Exp(float64(v))
			}
			require.InDelta(t, float64(row[target])-math.Log(sum), w.result.LogProbs[0][k], 1e-4, name)
		}
	}
}

// TestRoom: as many blocks' activations are kept as have room, never more, and gradients have the same bits
// with none, some and all of them.
func TestRoom(t *testing.T) {
	s := specs()["dense"]
	s.Layers = 6
	var want []float32
	var before int64
	for _, room := range []int64{0, 400 << 10, 1 << 30} {
		x := trainer(t, s, 2, cpu.New(2))
		require.Positive(t, x.room)
		x.room = room
		x.Begin(0, 1)
		all(t, x, []*Work{work(0, 0, 0)})
		for s, tr := range x.traces {
			least, most := peak(x.record(s, 0)), peak(x.record(s, len(x.m.Blocks)))
			require.Greater(t, most-least, int64(400<<10))
			got := peak(tr)
			require.LessOrEqual(t, got, least+room)
			require.Greater(t, got, before)
			before = got
			switch room {
			case 0:
				require.Equal(t, least, got)
			case 1 << 30:
				require.Equal(t, most, got)
			}
		}
		require.Len(t, x.traces, 1)
		_, _, err := x.Step(0, adam)
		require.NoError(t, err)
		if want == nil {
			want = weights(t, x, 0)
		}
		require.Equal(t, want, weights(t, x, 0))
		x.Close()
	}
}

// TestMost: a piece of more tokens than several have together is computed alone, to the same bits.
func TestMost(t *testing.T) {
	var want [2][]float32
	for _, most := range []int{1000, 1} {
		x, err := New(generator(t, specs()["dense"], 2, cpu.New(2)), 96, most)
		require.NoError(t, err)
		works := []*Work{work(0, 0, 0), work(1, 1, 0)}
		for slot, w := range works {
			x.Begin(slot, uint64(slot))
			require.NoError(t, x.Check(w))
		}
		done, err := x.Run(works)
		require.NoError(t, err)
		require.Equal(t, most > 1, works[1].Begun(), "beside the first one's piece")
		for left := 2 - len(done); left > 0; left -= len(done) {
			done, err = x.Run(slices.DeleteFunc(slices.Clone(works),
				func(w *Work) bool { return w.done == len(w.pieces) }))
			require.NoError(t, err)
		}
		for slot := range want {
			_, _, err := x.Step(slot, adam)
			require.NoError(t, err)
			if got := weights(t, x, slot); want[slot] == nil {
				want[slot] = got
			} else {
				require.Equal(t, want[slot], got)
			}
		}
		x.Close()
	}
}
