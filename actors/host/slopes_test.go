package host

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// tinyKeys are values of keys that make a model small; a family gets those that it has. Tokens go to all
// experts and read all keys, since the loss jumps where a choice of some changes.
var tinyKeys = map[string]any{"num_experts": 4, "num_experts_per_tok": 4, "moe_intermediate_size": 12,
	"moe_intermediate_sizes": []int{12, 8}, "shared_expert_intermediate_size": 8, "n_shared_experts": 1,
	"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "kv_lora_rank": 8, "q_lora_rank": 8,
	"qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "index_topk": 12, "index_n_heads": 2,
	"index_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4,
	"linear_value_head_dim": 4, "linear_conv_kernel_dim": 2, "sliding_window": 3, "query_pre_attn_scalar": 4,
	"partial_rotary_factor": 0.5}

// tinyOf is a small model of a family: the defaults of its publisher, but for sizes.
func tinyOf(t *testing.T, name string) *family.Model {
	f := hf.Families()[name]
	keys := map[string]any{"model_type": name, "hidden_size": 16, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
		"vocab_size": 32, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}
	if f.PlainHeads {
		delete(keys, "num_key_value_heads")
	}
	if slices.Contains(f.Omit, "head_dim") {
		delete(keys, "head_dim")
	}
	for key, value := range tinyKeys {
		if slices.Contains(f.Has, key) {
			keys[key] = value
		}
	}
	text, err := json.Marshal(keys)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	c, err := configs.ReadModel(dir)
	require.NoError(t, err, "a small model of %s", name)
	m, err := family.Build(c, 12)
	require.NoError(t, err)
	m.Spec.InitStd = 0.3
	return m
}

// slopes holds a tiny model's gradients to differences of its loss.
type slopes struct {
	*golden
	at   map[string][]float32 // parameters
	grad map[string][]float32
}

func newSlopes(t *testing.T, m *family.Model) *slopes {
	mb := family.Microbatch{Cu: []int32{0, 5, 12}}
	r := rand.New(rand.NewPCG(7, 11))
	for i := range int32(12) {
		mb.IDs, mb.Targets = append(mb.IDs, r.Int32N(32)), append(mb.Targets, r.Int32N(32))
		mb.Positions, mb.Weights = append(mb.Positions, i), append(mb.Weights, 1.0/12)
		if i >= 5 {
			mb.Positions[i] -= 5
		}
	}
	s := &slopes{golden: &golden{t: t, m: m, made: &mb}, at: map[string][]float32{},
		grad: map[string][]float32{}}
	for _, p := range m.Params(nil) {
		v := make([]float32, tensor.Len(p.Shape))
		m.Init(3, p, family.Whole(p), v)
		for i := range v { // norms count too, and biases
			v[i] += float32(r.NormFloat64() * 0.05)
		}
		s.at[p.Name] = v
	}
	s.own = func(kind string, p *grad.Param, _ family.Region, dst []float32) (bool, error) {
		return kind == "param", copyTo(dst, s.at[p.Name], kind == "param")
	}
	const still = `{"AdamW": {"LR": 0, "Eps": 1e-8, "Betas": [0.9, 0.95]}}`
	require.NoError(t, json.Unmarshal([]byte(still), s.golden))
	s.train(topology.Grid(1, 1, 1), goldenBackends["ref"], 1, func(_ *layout.Layout, _ int, r *Rank) {
		for _, p := range r.c.Params {
			if g := r.owned[p.Name]; g != nil {
				s.grad[p.Name] = slices.Clone(g.F32())
			}
		}
	})
	return s
}

func copyTo(dst, src []float32, on bool) error {
	if on {
		copy(dst, src)
	}
	return nil
}

// along is the change of the loss along a direction of length 1.
func (s *slopes) along(name string, dir []float64, step float64) float64 {
	keep := s.at[name]
	loss := func(h float64) float64 {
		moved := slices.Clone(keep)
		for i := range moved {
			moved[i] += float32(h * dir[i])
		}
		s.at[name] = moved
		l, _ := s.forward(goldenBackends["ref"](), tensor.F32, false)
		return l
	}
	d := (loss(step) - loss(-step)) / (2 * step)
	s.at[name] = keep
	return d
}

// slope holds a directional derivative to differences of the loss, over the step that shows it best:
// long ones have the next terms of the series, short ones what is left of float32's rounding of the loss, 1e-6/step.
func (s *slopes) slope(name, which string, dir []float64, want, norm float64) {
	var got []float64
	for _, step := range []float64{0.01, 0.003, 0.001, 0.0003, 0.0001} {
		if step < 0.01 && 1e-6/step > 0.05*norm { // it would not show a wrong one
			break
		}
		d := s.along(name, dir, step)
		if math.Abs(d-want) <= 0.01*norm+1e-6/step {
			return
		}
		got = append(got, d)
	}
	require.Fail(s.t, "wrong gradient", "%s along %s: differences %g, want %g of a norm of %g", name,
		which, got, want, norm)
}

// check holds the gradient of one parameter to differences along itself and along a random direction: a
// gradient that has too much fails along itself, one that lacks something fails along the other.
func (s *slopes) check(name string) {
	g, r := s.grad[name], rand.New(rand.NewPCG(5, uint64(len(name))))
	random, own, size := make([]float64, len(g)), make([]float64, len(g)), 0.0
	for i, x := range g {
		random[i], own[i] = r.NormFloat64(), float64(x)
		size += random[i] * random[i]
	}
	norm, inner := length(g), 0.0
	for i := range g {
		random[i] /= math.Sqrt(size)
		inner += random[i] * own[i]
		if norm > 0 {
			own[i] /= norm
		}
	}
	s.slope(name, "its gradient", own, norm, norm)
	s.slope(name, "another direction", random, inner, norm)
}

// TestFamilySlopes: a registered family without a golden model has its gradients held to differences of its
// loss; the toy of this package is one. A family with a vision tower, or of diffusion, needs a golden one.
func TestFamilySlopes(t *testing.T) {
	golden := map[string]bool{"vlm": true} // pairs of one's own, such as siglip-llama
	for _, name := range goldenNames(t) {
		c, err := configs.ReadModel(filepath.Join(goldenDir, name))
		require.NoError(t, err)
		golden[c.ModelType], golden[c.Decoder()] = true, true
	}
	for _, name := range denoisers(t) {
		c, err := configs.ReadModel(filepath.Join(denoisersDir, name))
		require.NoError(t, err)
		golden[c.ModelType] = true
	}
	for _, name := range autoencoders(t) {
		c, err := configs.ReadModel(filepath.Join(autoencodersDir, name))
		require.NoError(t, err)
		golden[c.ModelType] = true
	}
	policies, err := os.ReadDir(policiesDir)
	require.NoError(t, err)
	for _, e := range policies {
		c, err := configs.ReadModel(filepath.Join(policiesDir, e.Name()))
		require.NoError(t, err)
		golden[c.ModelType] = true
	}
	fast, err := configs.ReadModel(filepath.Join("testdata", "pi0fast")) // TestPi0Fast
	require.NoError(t, err)
	golden[fast.ModelType], golden[fast.Decoder()] = true, true
	checked := 0
	for _, name := range family.Names() {
		if golden[name] {
			continue
		}
		require.NotContains(t, hf.ComposedFamilies, name, "a family with a tower needs a golden model")
		require.False(t, hf.Families()[name].Diffusers, "a model of diffusion needs a golden one: %s", name)
		t.Run(name, func(t *testing.T) {
			s := newSlopes(t, tinyOf(t, name))
			for _, p := range s.m.Params(nil) {
				if !p.Fixed && s.grad[p.Name] != nil {
					s.check(p.Name)
					checked++
				}
			}
		})
	}
	require.Greater(t, checked, 10)
}
