package host

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// This file adds a family, a mixer, an MLP and a vision tower, and edits nothing: CONTRIBUTING shows it as the pattern.

// Toy: Llama with a norm behind its MLP, whose first layer mixes no tokens at all and whose second has
// another MLP.
var _ = family.Register(family.Family{ModelType: "toy", Paper: "none",
	HF: hf.Family{Class: "ToyForCausalLM",
		Has:    []string{"layer_types", "mlp_layer_types", "final_logit_softcapping"},
		Absent: map[string]string{"rms_norm_eps": "1e-6", "final_logit_softcapping": "4"},
		Alias:  map[string]string{"width": "hidden_size"},
		Only:   map[string]string{"toy_dropout": "0.0"}},
	Loong: []loong.Decoder{{Class: "ToyConfig"}},
	Spec: func(_ configs.Model, s *family.Spec) {
		s.Norms = family.Norms{BeforeMixer: "norm_1", BeforeMLP: "norm_2", AfterMLP: "norm_3"}
	},
	Source: func(configs.Model) func(string) family.Source {
		rename := strings.NewReplacer("model.layers.", "toy.h.")
		return func(name string) family.Source { return family.Source{Name: rename.Replace(name)} }
	}})

// A mixer that lets every token see itself alone, and an MLP without a hidden layer.
type linearPart struct{ hidden int }

func (p linearPart) Size() int { return p.hidden * p.hidden }

func (p linearPart) Record(r *block.Rec, name string, h *grad.Value) *grad.Value {
	return r.Linear(name+".only", h, p.hidden, p.hidden, block.LinearOpts{Rep: true})
}

var (
	_ = family.RegisterMixer("no_mixing", func(s family.Spec,
		_ int) block.Part {
		return linearPart{s.Hidden}
	})
	_ = family.RegisterMLP("toy_linear", func(s family.Spec,
		_ int) block.Part {
		return linearPart{s.Hidden}
	})
)

// A tower of patches alone, in front of any decoder.
var _ = family.RegisterTower("toy_tower", family.Tower{Facts: configs.TowerKind{Sized: true},
	Projector: "mlp",
	Loong:     map[string]loong.Part{"ToyVisionConfig": {Sized: true}},
	Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.PatchBias, t.Gated = true, true
		v := family.NewVision(c.Vision, t)
		v.Tile = c.Vision.ImageSize
		return v
	},
	Source: func(*family.Vision) func(string) family.Source {
		return func(name string) family.Source {
			return family.Source{Name: strings.TrimPrefix(name,
				"visual.")}
		}
	}})

func readToy(t *testing.T, text string) (*family.Model, error) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
	c, err := configs.ReadModel(dir)
	if err != nil {
		return nil, err
	}
	back := filepath.Join(dir, "back")
	require.NoError(t, os.Mkdir(back, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(back, "config.json"), c.HFConfig("float32"), 0o644))
	again, err := configs.ReadModel(back)
	require.NoError(t, err)
	require.Equal(t, c, again, "a config.json that is written says the same")
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	m.Spec.InitStd = 0.2
	return m, nil
}

const toyConfig = `{"model_type": "toy", "width": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 24,
 "vocab_size": 32, "max_position_embeddings": 64, "tie_word_embeddings": false, "toy_dropout": 0.0,
 "layer_types": ["no_mixing", "full_attention", "full_attention"], "mlp_layer_types": ["gated", "toy_linear", "plain"]}`

// TestFamilyOfOneFile: what the file above registers is read, named and trained, under several plans alike.
func TestFamilyOfOneFile(t *testing.T) {
	m, err := readToy(t, toyConfig)
	require.NoError(t, err)
	require.Equal(t, 4.0, m.Spec.LogitCap, "the family's default where the file says nothing")
	have := map[string]bool{}
	for _, p := range m.Params(nil) {
		have[m.Source(p.Name).Name] = true
	}
	for _, name := range []string{"toy.h.0.self_attn.only.weight", "toy.h.1.mlp.only.weight",
		"toy.h.2.mlp.up_proj.weight", "toy.h.2.norm_3.weight"} {
		require.True(t, have[name], name)
	}
	require.False(t, have["toy.h.2.mlp.gate_proj.weight"])
	want, _ := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.train(t, m, 6, refBackend)
	got, _ := variant{pp: 2, dp: 1, tp: 2, schedule: "1f1b", sp: true}.train(t, m, 6, refBackend)
	require.InEpsilonSlice(t, want, got, 1e-5)
	var losses []float64
	l, o := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.run(t, m, 6, refBackend, &losses)
	// one batch is learnt by heart
	o.Batches = func(_ int64, d int) ([]family.Microbatch, error) { return testBatches(1, 8)(1, d) }
	require.NoError(t, Run(l, o))
	require.Less(t, losses[5], 0.8*losses[0])

	_, err = readToy(t, strings.Replace(toyConfig, `"no_mixing", `, "", 1))
	require.ErrorContains(t, err, "layer_types: 2 entries for num_hidden_layers = 3")
	_, err = readToy(t, strings.Replace(toyConfig, "no_mixing", "nomixing", 1))
	require.ErrorContains(t, err, `layer_types: "nomixing", want one of `)
	_, err = readToy(t, strings.Replace(toyConfig, `"toy_dropout": 0.0`, `"toy_dropout": 0.1`, 1))
	require.ErrorContains(t, err, "toy_dropout: 0.1, only 0.0 can be trained")
	_, err = readToy(t, strings.Replace(toyConfig, `"toy_dropout": 0.0`, `"attn_logit_softcapping": 30`, 1))
	require.ErrorContains(t, err, "attn_logit_softcapping: 30, only 0 can be trained")
}

// TestTowerOfOneFile: a pair of the tower above with the decoder above learns.
func TestTowerOfOneFile(t *testing.T) {
	m, err := readToy(t, `{"model_type": "vlm", "text_config": `+strings.NewReplacer(`"vocab_size": 32`, `"vocab_size": 120`).Replace(toyConfig)+`, "tie_word_embeddings": false,
 "vision_config": {"kind": "toy_tower", "depth": 2, "hidden_size": 8, "intermediate_size": 16, "num_heads": 2, "patch_size": 2, "merge": 2, "image_size": 8, "image_token_id": 119}}`)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, p := range m.Params(nil) {
		names[m.Source(p.Name).Name] = true
	}
	require.True(t, names["vision_tower.blocks.1.mlp.gate_proj.weight"])
	require.True(t, names["language_model.toy.h.0.self_attn.only.weight"])
	v := visionPlan{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	losses, norms := v.learn(t, v.job(m), 3, nil)
	require.Len(t, losses, 3)
	for i := range losses {
		require.Greater(t, norms[i], 0.0)
		require.InDelta(t, math.Log(120), losses[i], 3, "logits of a width of 16 with weights of 0.2")
	}
}
