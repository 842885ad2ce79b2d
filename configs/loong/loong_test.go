package loong_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/lfactor/lfactor/configs"

	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
	_ "github.com/lfactor/lfactor/dataset/format"
	_ "github.com/lfactor/lfactor/stages/family/all"
	"github.com/stretchr/testify/require"
)

const loongTree = "../testdata/loong/configs/models/"

// TestLoongComposed composes files in LoongForge's layout and compares what comes out.
func TestLoongComposed(t *testing.T) {
	for _, c := range []struct{ file, family, like, text string }{
		{"qwen2.5vl/qwen2_5_vl_3b", "qwen2_5_vl", "qwen-vl/2.5-3b", "qwen2"},
		{"qwen2.5vl/qwen2_5_vl_7b", "qwen2_5_vl", "qwen-vl/2.5-7b", "qwen2"},
		{"qwen2.5vl/qwen2_5_vl_32b", "qwen2_5_vl", "qwen-vl/2.5-32b", "qwen2"}, {"qwen2.5vl/qwen2_5_vl_72b",
			"qwen2_5_vl", "qwen-vl/2.5-72b", "qwen2"},
		{"qwen3_vl/qwen3_vl_8b", "qwen3_vl", "qwen-vl/3-8b", "qwen3"},
		{"internvl2.5/internvl2_5_38b", "internvl", "internvl/2.5-38b", "qwen2"},
		{"internvl2.5/internvl2_5_78b", "internvl", "internvl/2.5-78b", "qwen2"},
		{"internvl3.5/internvl3_5_8b", "internvl", "internvl/3.5-8b", "qwen3"},
		{"internvl3.5/internvl3_5_14b", "internvl", "internvl/3.5-14b", "qwen3"},
		{"internvl3.5/internvl3_5_38b", "internvl", "internvl/3.5-38b", "qwen3"},
	} {
		t.Run(c.file, func(t *testing.T) {
			cfg, err := Compose(Request{File: loongTree + c.file + ".yaml",
				Args: []string{"--norm-epsilon", "1e-6"}})
			require.NoError(t, err)
			m := cfg.Model
			require.Equal(t, []string{c.family, c.text}, []string{m.ModelType, m.Text})
			name, like, ok := m.Like(c.file)
			require.True(t, ok)
			require.Equal(t, c.like, name)
			// What the files leave out, or say of another training than the published one.
			like.MaxPositions, like.BOS, like.EOS, like.Parameters, like.Names, like.Source = m.MaxPositions,
				m.BOS, m.EOS, 0, nil, ""
			like.Vision.Projector = m.Vision.Projector
			if m.Vision.Kind == "internvl" {
				like.RopeTheta = m.RopeTheta
			}
			require.Equal(t, like, m)
		})
	}
}

// TestLoongOwnPairs composes what is not a published model.
func TestLoongOwnPairs(t *testing.T) {
	cfg, err := Compose(Request{File: loongTree + "internvl2.5/internvl2_5_26b.yaml"})
	require.NoError(t, err)
	m := cfg.Model
	require.Equal(t, []any{"internvl", "internlm2", RopeScaling{Type: "dynamic", Factor: 2.5}, 92553, 92546},
		[]any{m.ModelType, m.Text, m.RopeScaling, m.Vocab, m.Vision.ImageToken})
	require.Equal(t, []any{"internvl", 45, 3200, 25, true, "true", false},
		[]any{m.Vision.Kind, m.Vision.Depth,
			m.Vision.Hidden, m.Vision.Heads, m.Vision.RMS, value(m, "vision.use_qk_norm"), m.Vision.QKVBias})
	require.Contains(t, strings.Join(cfg.Notices, "\n"), "32 heads, of which 25 carry weights")
	cfg, err = Compose(Request{File: loongTree + "internvl2.5/internvl2_5_8b.yaml",
		Args: []string{"--rope-scaling-factor", "3"}})
	require.NoError(t, err)
	require.Equal(t, 3.0, cfg.Model.RopeScaling.Factor)
	_, err = Compose(Request{File: loongTree + "internvl3.5/internvl3_5_8b.yaml",
		Args: []string{"--rope-scaling-factor", "3"}})
	require.ErrorContains(t, err, "--rope-scaling-factor: set model.overrides.rope_scaling")

	cfg, err = Compose(Request{File: loongTree + "llava_onevision/llava_onevision_1_5_4b.yaml"})
	require.NoError(t, err)
	require.Equal(t, []any{"llava_onevision1_5", "rice", "qwen3", 5e6, false, 151655},
		[]any{cfg.Model.ModelType, cfg.Model.Vision.Kind, cfg.Model.Text, cfg.Model.RopeTheta,
			cfg.Model.TieEmbeddings, cfg.Model.Vision.ImageToken})

	cfg, err = Compose(Request{File: loongTree + "custom/qwen_vit_llama3_8b.yaml"})
	require.NoError(t, err)
	require.Equal(t, []string{"accepted, no effect: model.image_encoder.image_size"}, cfg.Notices)
	require.Equal(t, []any{"vlm", "qwen2_5_vl", "merger", "llama", 128002},
		[]any{cfg.Model.ModelType, cfg.Model.Vision.Kind, cfg.Model.Vision.Projector, cfg.Model.Text,
			cfg.Model.Vision.ImageToken})

	// one line of the file swaps the backbone
	text, err := os.ReadFile(loongTree + "qwen2.5vl/qwen2_5_vl_7b.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../testdata/loong")))
	file := filepath.Join(dir, "configs/models/qwen2.5vl/swapped.yaml")
	swapped := strings.Replace(string(text), "../../models/qwen2.5@model.foundation: qwen2_5_7b",
		"../../models/qwen3@model.foundation: qwen3_8b", 1)
	require.NoError(t, os.WriteFile(file, []byte(swapped), 0o644))
	cfg, err = Compose(Request{File: file})
	require.NoError(t, err)
	require.Equal(t, []any{"vlm", "qwen3", 4096}, []any{cfg.Model.ModelType, cfg.Model.Text,
		cfg.Model.Hidden})
	require.Contains(t, strings.Join(cfg.Notices, "\n"), "the parts are qwen2_5_vl, merger and qwen3")
}

// TestLoongParts gives each part its own parallelism, freezing, learning rate and additions.
func TestLoongParts(t *testing.T) {
	cfg, err := Compose(Request{File: loongTree + "qwen2.5vl/qwen2_5_vl_7b.yaml",
		Args: []string{"--tensor-model-parallel-size", "4", "--lr", "1e-4", "--norm-epsilon", "1e-6",
			"+model.image_encoder.freeze=True", "++model.foundation.freeze=false",
			"+model.image-projector.freeze=true", "+model.image_encoder.tensor-model-parallel-size=2",
			"+model.image_encoder.lr=2e-5",
			"+model.image_encoder.recompute_granularity=full",
			"++model.image_projector.recompute-granularity=selective", "model.foundation.num-layers=8",
			"~model.foundation.rotary_emb_func"}})
	require.NoError(t, err)
	r := cfg.Run
	require.Equal(t, []string{"visual.*", "projector.*"}, r.Freeze)
	require.Equal(t, []any{4, 2, "first"}, []any{r.Plan.TP, r.Plan.Encoder.TP, r.Plan.Encoder.Over})
	require.InDelta(t, 0.2, r.Optimizer.EncoderLR, 1e-12)
	require.Equal(t, []string{"selective", "full", "selective"},
		[]string{r.Plan.Recompute, r.Plan.Encoder.Recompute, r.Plan.ProjRecompute})
	require.Equal(t, 8, cfg.Model.Layers)
	require.Contains(t, cfg.Notices,
		"model.foundation.num_layers: 8 from model.foundation.num-layers=8 overrules 28 from "+
			"../testdata/loong/configs/models/qwen2.5/qwen2_5_7b.yaml:2")

	cfg, err = Load(Request{Args: []string{"--model-name", "qwen2.5-vl-7b", "--data-path", "x",
		"+model.image_encoder.freeze=True", "model.image_encoder.apply_rope_fusion=False",
		"+model.image_encoder.tensor_model_parallel_size=2", "--tensor-model-parallel-size", "4",
		"+model.foundation.num_layers=4"}})
	require.NoError(t, err)
	require.Equal(t, []any{4, 2, "first", 4}, []any{cfg.Run.Plan.TP, cfg.Run.Plan.Encoder.TP,
		cfg.Run.Plan.Encoder.Over, cfg.Model.Layers})
	require.Equal(t, []string{"visual.*"}, cfg.Run.Freeze)
	cfg, err = Load(Request{File: loongTree + "qwen3/qwen3_8b.yaml", Args: []string{"--data-path", "x"}})
	require.NoError(t, err)
	require.Equal(t, 36, cfg.Model.Layers)
	_, err = Load(Request{Args: []string{"--model-name", "qwen2.5-vl-7b", "--data-path", "x",
		"+model.image_encoder.freez=True"}})
	require.ErrorContains(t, err,
		`+model.image_encoder.freez=True: model.image_encoder.freez: unknown key of a published model's part; did you mean "freeze"?`)

	cfg, err = Compose(Request{File: loongTree + "qwen2.5vl/qwen2_5_vl_3b_lora.yaml"})
	require.NoError(t, err)
	require.Equal(t, []string{"visual.*", "projector.*"}, cfg.Run.Freeze)
	require.Equal(t, 16, cfg.Run.LoRA.Rank)
	require.Equal(t, []string{"model.layers.*.q_proj", "model.layers.*.k_proj", "model.layers.*.v_proj",
		"model.layers.*.gate_proj", "model.layers.*.up_proj"}, cfg.Run.LoRA.Targets)
}

// TestSamplesAndPasses: Megatron's --train-samples are as many steps as they fill, and --num-train-epochs are passes.
func TestSamplesAndPasses(t *testing.T) {
	load := func(args string) (*Config, error) {
		return Load(Request{Args: strings.Fields("model.name=llama/3.2-1b --data-path x --global-batch-size 16 --micro-batch-size 1 " +
			args)})
	}
	cfg, err := load("--train-samples 1000")
	require.NoError(t, err)
	require.Equal(t, 62, cfg.Run.Train.Steps)
	require.Contains(t, cfg.Notices, "train.steps = 62: --train-samples 1000")
	cfg, err = load("--num-train-epochs 2.5")
	require.NoError(t, err)
	require.Equal(t, 2.5, cfg.Run.Train.Epochs)
	for _, bad := range []string{"--train-samples 1000 --train-iters 5", "--train-samples 15", "--train-samples x"} {
		_, err = load(bad)
		require.ErrorContains(t, err, "samples", bad)
	}
	_, err = load("--num-train-epochs 2 --train.spike_loss=2")
	require.Error(t, err)
}

// TestLoongLaunch reads what launch scripts of composed models give besides the model.
func TestLoongLaunch(t *testing.T) {
	cfg, err := Load(Request{Args: strings.Fields("--config-file " + loongTree +
		"internvl3.5/internvl3_5_38b.yaml --data-path x --tensor-model-parallel-size 4 --train-iters " +
		"50000 --exit-interval 5000 " +
		"--conv-style internvl2_5 --max-packed-tokens 16384 --energon-pack-algo sequential_max_images " +
		"--packing-pretrain-data --trainable-modules all --dynamic-image-size --enable-discard-sample")})
	require.NoError(t, err)
	r := cfg.Run
	require.Equal(t, []any{5000, 50000, "media", "max-images", true, true},
		[]any{r.Train.Steps, r.Schedule.DecaySteps, r.Data.Kind, r.Data.Pack, r.Data.Packing,
			r.Data.DropLong})
	require.Equal(t, []any{4, "first", 1}, []any{r.Plan.TP, r.Plan.Encoder.Over, r.Plan.Encoder.TP})
	require.Contains(t, cfg.Notices,
		"plan.encoder.over = first, plan.encoder.tp = 1: the encoder's 25 heads do not divide by plan.tp = 4")
	require.Contains(t, strings.Join(cfg.Notices, "\n"), "accepted, no effect: --max-packed-tokens 16384")
	require.Equal(t, []string{"token", "microbatch"}, []string{r.Train.LossWeight, r.Train.LossAverage})

	for args, want := range map[string][]string{"": {"square", "microbatch"},
		" --loss-reduction sample --loss-reduction-all-gather": {"sample", "round"}} {
		cfg, err = Load(Request{Args: strings.Fields("--config-file " + loongTree +
			"internvl3.5/internvl3_5_8b.yaml --data-path x --training-phase sft" + args)})
		require.NoError(t, err)
		require.Equal(t, want, []string{cfg.Run.Train.LossWeight, cfg.Run.Train.LossAverage})
		require.Equal(t, args == "", strings.Contains(strings.Join(cfg.Notices, "\n"),
			"train.loss_weight = square: LoongForge's"))
	}
	_, err = Load(Request{Args: strings.Fields("--config-file " + loongTree +
		"internvl3.5/internvl3_5_8b.yaml --data-path x --loss-reduction mean")})
	require.ErrorContains(t, err,
		`--loss-reduction: train.loss_weight: "mean", want one of token, sample, square`)
}

// TestLoongFaults holds that what does not fit is refused with its place and a remedy.
func TestLoongFaults(t *testing.T) {
	at := loongTree
	for _, c := range []struct {
		file string
		args string
		want string
	}{
		{"qwen2.5vl/qwen2_5_vl_7b", "+model.image_encoder.tensor_model_parallel_size=3",
			"plan.encoder.tp: the encoder's num_heads = 16 is not a multiple of 3; try 2"},
		{"qwen2.5vl/qwen2_5_vl_7b",
			"--tensor-model-parallel-size 2 +model.image_encoder.tensor_model_parallel_size=4",
			"plan.encoder.tp: 4 does not divide the 2 ranks that plan.encoder.over: first gives the " +
				"encoder; try 2"},
		{"qwen2.5vl/qwen2_5_vl_7b", "+model.image_encoder.freze=True",
			`+model.image_encoder.freze=True: model.image_encoder.freze: unknown key of an image encoder; did you mean "freeze"?`},
		{"qwen2.5vl/qwen2_5_vl_7b", "+model.imag_encoder.freeze=True",
			`model.imag_encoder: unknown key; did you mean "image_encoder"?`},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.foundation.num_layer=4",
			`model.foundation.num_layer: unknown key of a LoongForge model file; did you mean "num_layers"?`},
		{"qwen2.5vl/qwen2_5_vl_7b", "~model.fundation",
			`~model.fundation: model.fundation: there is nothing to remove; did you mean "foundation"?`},
		{"qwen2.5vl/qwen2_5_vl_7b", "plann.tp=2", `plann: unknown key; did you mean "plan"?`},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.foundation.num_experts=8",
			"model.overrides.num_experts: 8, but qwen2_5_vl has 0"},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.foundation=5",
			`model.foundation=5: model.foundation: "5", want a mapping`},
		{"qwen2.5vl/qwen2_5_vl_7b", "--tensor-model-parallel-size 2 --encoder-tensor-model-parallel-size 4",
			"--encoder-tensor-model-parallel-size: plan.encoder.tp: 4 does not divide the 2 ranks"},
		{"qwen2.5vl/qwen2_5_vl_7b", "~model.image_projector", at +
			"qwen2.5vl/qwen2_5_vl_7b.yaml: model.image_projector: is not given; add to defaults: - " +
			"../image_projector@model.image_projector: qwen_mlp_adapter"},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.image_projector.activation_func=${act:gleu}",
			`${act:gleu}: there is no such function; did you mean "gelu"?`},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.image_encoder.freeze=${oc.env:NOT_SET}",
			`model.image_encoder.freeze: the environment has no variable "NOT_SET"; export it`},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.image_encoder.freeze=${model.foundation.freeze}",
			"${model.foundation.freeze} has no value"},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.image_encoder.freeze=maybe", `"maybe", want true or false`},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.foundation.hidden_size=${model.foundation.hidden_size}",
			"the values take each other over in a circle"},
		{"internvl2.5/internvl2_5_38b", "model.image_projector.hidden_size=4096",
			"model.image_projector.hidden_size: the projector is 4096 wide, the foundation 5120 " +
				"(model.foundation.hidden_size); set it to 5120"},
		{"internvl3.5/internvl3_5_8b", "model.foundation.hidden_size=5120", at +
			"internvl3.5/internvl3_5_8b.yaml:11: model.image_projector.hidden_size: the projector is " +
			"4096 wide, the foundation 5120"},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.image_projector.normalization=LayerNorm",
			`model.image_projector.normalization: "LayerNorm", but the projector behind qwen2_5_vl's tower has RMSNorm`},
		{"qwen2.5vl/qwen2_5_vl_7b", "model.image_projector.activation_func=silu",
			"silu, but patch mergers here have gelu; set it to gelu"},
		{"qwen2.5vl/qwen2_5_vl_7b", "+model.image_projector.in_dim=1024",
			"the projector takes rows of 1024, the encoder gives 1280"},
		{"llama3/llama3_8b", "_target_=x.DeepseekConfig num_experts=4",
			"model.overrides.kv_lora_rank: is not given"},
		{"image_encoder/qwen2_5_vit", "", "is a part, an image encoder"},
		{"lora/lora", "", "is a part, low-rank additions"},
	} {
		_, err := Compose(Request{File: at + c.file + ".yaml", Args: strings.Fields(c.args)})
		require.ErrorContains(t, err, c.want)
		require.NotEmpty(t, Faults(err))
		require.NotContains(t, err.Error(), "model.overrides.hidden_size: is not given",
			"one cause, one fault")
	}
}

// TestLoongDefaults goes through what a defaults list may say, in files of its own.
func TestLoongDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(files map[string]string) {
		for name, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		}
	}
	dense := "_target_: x.LLaMAConfig\nnum_layers: 2\nhidden_size: 64\nffn_hidden_size: " +
		"96\nnum_attention_heads: 4\nvocab_size_in_config_file: 512\n"
	write(map[string]string{
		"base.yaml": dense, "self-last.yaml": "defaults: [base, _self_]\nnum_layers: 4\n",
		"self-first.yaml": "defaults: [_self_, base]\nnum_layers: 4\n",
		"no-self.yaml":    "defaults: [base]\nnum_layers: 4\n",
		"optional.yaml":   "defaults:\n  - optional sub@x: none\n  - base\n",
		"a.yaml":          "defaults:\n  - sub/b\n", "sub/b.yaml": "defaults:\n  - ..@_here_: a\n",
		"self.yaml":   "defaults:\n\n  - self\n",
		"global.yaml": "defaults: [sub/g]\n", "sub/g.yaml": "# @package _global_\n" + dense,
		"here.yaml": "defaults:\n  - sub@_global_: h\n", "sub/h.yaml": "defaults: [i]\n",
		"sub/i.yaml":   dense,
		"missing.yaml": "defaults:\n  - base\n  - sub@model: bb\n",
		"nowhere.yaml": "defaults:\n  - ../sub: b\n", "unchosen.yaml": "defaults:\n  - sub@x: ???\n",
		"word.yaml": "defaults: base\n",
		"values.yaml": dense + "moe_layer_freq: ${moe_freq:\"[0]*3+[1]*58\"}\nconvert_file: " +
			"${oc.env:LOONGFORGE_PATH}/x\nkv_channels: " +
			"${oc.env:WIDTH,${hidden_size}}\nnum_query_groups: ${num_attention_heads}\n",
	})
	layers := func(file string, env ...string) (*Config, error) {
		return Compose(Request{File: file, Getenv: func(name string) string {
			for _, e := range env {
				if v, ok := strings.CutPrefix(e, name+"="); ok {
					return v
				}
			}
			return ""
		}})
	}
	for file, want := range map[string]int{"self-last.yaml": 4, "self-first.yaml": 2, "no-self.yaml": 4,
		"optional.yaml": 2, "global.yaml": 2, "here.yaml": 2} {
		c, err := layers(file)
		require.NoError(t, err, file)
		require.Equal(t, want, c.Model.Layers, file)
	}
	for file, want := range map[string]string{
		"a.yaml": "sub/b.yaml:2: defaults: the files include each other: a.yaml → sub/b.yaml → " +
			"a.yaml; remove one of the includes",
		"self.yaml":     "self.yaml:3: defaults: the files include each other: self.yaml → self.yaml",
		"missing.yaml":  "missing.yaml:3: defaults: sub/bb.yaml: no such file; one of b, g, h, i",
		"nowhere.yaml":  "nowhere.yaml:2: defaults: ../sub: where it goes is not said",
		"unchosen.yaml": "unchosen.yaml:2: defaults: sub@x: no file is chosen",
		"word.yaml":     "word.yaml:1: defaults: \"base\", want a list",
		"values.yaml":   "values.yaml:7: moe_layer_freq: llama has no experts",
	} {
		_, err := layers(file)
		require.ErrorContains(t, err, want)
	}
	write(map[string]string{"values.yaml": dense +
		"kv_channels: ${oc.env:WIDTH,${hidden_size}}\nnum_query_groups: ${.num_attention_heads}\n"})
	c, err := layers("values.yaml")
	require.NoError(t, err)
	require.Equal(t, []int{64, 4}, []int{c.Model.HeadDim, c.Model.KVHeads})
	c, err = layers("values.yaml", "WIDTH=32")
	require.NoError(t, err)
	require.Equal(t, 32, c.Model.HeadDim)
}

// groupFiles writes files that choose files of groups into a new directory, and goes there.
func groupFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	dense := "_target_: x.LLaMAConfig\nhidden_size: 64\nffn_hidden_size: 96\nnum_attention_heads: " +
		"4\nvocab_size_in_config_file: 512\nnum_layers: 1\n"
	for name, text := range map[string]string{
		"size/two.yaml": "num_layers: 2\n", "size/three.yaml": "num_layers: 3\n",
		"size/five.yaml": "num_layers: 5\n", "size/heads.yaml": "num_attention_heads: 8\n",
		"base.yaml":  dense,
		"inner.yaml": "defaults:\n  - base\n  - size@_here_: two\n",
		"outer.yaml": "defaults:\n  - inner\n  - override size@_here_: three\n",
		"most.yaml": "defaults:\n  - outer\n  - override size@_here_: five\n  - override " +
			"hydra/job_logging: disabled\n",
		"none.yaml":    "defaults:\n  - inner\n  - override size@_here_: null\n",
		"both.yaml":    "defaults:\n  - inner\n  - override size@_here_: [five, heads]\n",
		"must.yaml":    "defaults:\n  - base\n  - size@_here_: ???\n",
		"twice.yaml":   "defaults:\n  - base\n  - size@a: two\n  - size@b: two\n",
		"astray.yaml":  "defaults:\n  - inner\n  - override sizes@_here_: two\n",
		"around.yaml":  "defaults:\n  - inner\n  - override size@_here_: ../around\n",
		"deep/up.yaml": "defaults:\n  - ../inner@_here_: ../inner\n  - override ../size@_here_: five\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}

// TestLoongGroups goes through choices of files of groups: those of entries, of override entries and of
// the command line.
func TestLoongGroups(t *testing.T) {
	groupFiles(t)
	for _, c := range []struct {
		args          string
		layers, heads int
	}{
		{"base.yaml", 1, 4},
		{"inner.yaml", 2, 4},
		{"outer.yaml", 3, 4},
		{"most.yaml", 5, 4}, // who includes is stronger than what is included
		{"none.yaml", 1, 4},
		{"both.yaml", 5, 8},
		{"inner.yaml size=five", 5, 4},
		{"most.yaml size=two", 2, 4}, // the command line is the strongest
		{"most.yaml size=two size=three", 3, 4},
		{"inner.yaml ./size=five", 5, 4},
		{"inner.yaml size=[five,heads]", 5, 8},
		{"inner.yaml ~size", 1, 4},
		{"inner.yaml size=null num_layers=7", 7, 4}, // a bare name that is a key sets it
		{"must.yaml size=three", 3, 4},
		{"base.yaml +size@_global_=five", 5, 4},
		{"inner.yaml num_layers=7 size=five", 7, 4},
	} {
		args := strings.Fields(c.args)
		cfg, err := Compose(Request{File: args[0], Args: args[1:]})
		require.NoError(t, err, c.args)
		require.Equal(t, []int{c.layers, c.heads}, []int{cfg.Model.Layers, cfg.Model.Heads}, c.args)
	}
	cfg, err := Compose(Request{File: "deep/up.yaml"})
	require.NoError(t, err)
	require.Equal(t, 5, cfg.Model.Layers)
}

// TestLoongGroupFaults holds that a choice for nothing, or of nothing, is refused with the nearest that there is.
func TestLoongGroupFaults(t *testing.T) {
	groupFiles(t)
	for args, want := range map[string]string{
		"inner.yaml size=fiv":   `size=fiv: defaults: size/fiv.yaml: no such file; did you mean "five"?`,
		"inner.yaml sizee=five": `sizee=five: sizee: no file includes such a group; did you mean "size"?`,
		"inner.yaml colour/hue=red": "colour/hue=red: colour/hue: no file includes such a group; " +
			"one of size",
		"inner.yaml size@model=five": "size@model=five: size: is not included at model; one of " +
			"size@_global_",
		"inner.yaml ~sizes/x": "~sizes/x: sizes/x: no file includes such a group",
		"base.yaml a/b=c": "a/b=c: a/b: no file includes such a group; the file " +
			"includes none",
		"base.yaml +./size=five":         "+./size=five: ./size: where it goes is not said; write +./size@",
		"base.yaml +sizes@_global_=five": "+sizes@_global_=five: sizes: no file includes such a group",
		"base.yaml +size@_global_=fiv":   `+size@_global_=fiv: defaults: size/fiv.yaml: no such file; did you mean "five"?`,
		"inner.yaml ./size={a: b}":       `./size={a: b}: ./size: "{a: b}", want the name of a file`,
		"inner.yaml size=[[five]]":       "size=[[five]]: defaults: size: a list, want the name of a file",
		"twice.yaml size=five": "size=five: size: is included more than once, as size@a and " +
			"size@b; choose for one of them, by its package",
		"must.yaml": "must.yaml:3: defaults: size@_here_: no file is chosen; put " +
			"the name of a file in place of ???, or choose on the command line",
		"must.yaml size=???": "no file is chosen",
		"astray.yaml":        `astray.yaml:3: sizes: no file includes such a group; did you mean "size"?`,
		"around.yaml": "around.yaml:3: defaults: the files include each other: " +
			"around.yaml → inner.yaml → around.yaml",
		"inner.yaml size=../inner": "size=../inner: defaults: the files include each other: " +
			"inner.yaml → inner.yaml",
		"base.yaml num_layer=2":            `num_layer=2: num_layer: unknown key of a LoongForge model file; did you mean "num_layers"?`,
		"inner.yaml size=five num_layer=2": "num_layer: unknown key",
	} {
		words := strings.SplitN(args, " ", 3)
		if strings.Contains(args, "{") {
			words = strings.SplitN(args, " ", 2)
		}
		_, err := Compose(Request{File: words[0], Args: words[1:]})
		require.ErrorContains(t, err, want, args)
	}
}

// TestLoongBackbone exchanges the parts of a composed model on the command line.
func TestLoongBackbone(t *testing.T) {
	cfg, err := Compose(Request{File: loongTree + "internvl3.5/internvl3_5_8b.yaml",
		Args: []string{"qwen3@model.foundation=qwen3_14b", "model.image_projector.hidden_size=5120"}})
	require.NoError(t, err)
	require.Equal(t, []any{"internvl", "qwen3", 40, 5120}, []any{cfg.Model.ModelType, cfg.Model.Text,
		cfg.Model.Layers, cfg.Model.Hidden})
	cfg, err = Compose(Request{File: loongTree + "internvl3.5/internvl3_5_8b.yaml",
		Args: []string{"image_encoder=intern_vit_6b"}})
	require.NoError(t, err)
	require.Equal(t, 45, cfg.Model.Vision.Depth)
	_, err = Compose(Request{File: loongTree + "internvl3.5/internvl3_5_8b.yaml",
		Args: []string{"image_encoder=intern_vit_6"}})
	require.ErrorContains(t, err, `image_encoder=intern_vit_6: defaults: `)
	require.ErrorContains(t, err, `did you mean "intern_vit_6b"?`)
}

// TestLoongPartsCount: keys of parts that were swallowed once count, or are faults, or are named in a note.
func TestLoongPartsCount(t *testing.T) {
	vl, intern := loongTree+"qwen2.5vl/qwen2_5_vl_3b.yaml", loongTree+"internvl3.5/internvl3_5_8b.yaml"
	cfg, err := Compose(Request{File: vl, Args: []string{"model.image_encoder.patch_size=16",
		"model.image_encoder.window_size=128"}})
	require.NoError(t, err)
	require.Equal(t, 16, cfg.Model.Vision.Patch)
	for _, c := range []struct{ file, arg, want string }{
		{vl, "model.image_encoder.swiglu=false",
			"model.image_encoder.swiglu: false: not so in qwen2_5_vl's tower"},
		{vl, "+model.image_encoder.class_token_len=8",
			`model.image_encoder.class_token_len: "8": class tokens are qwen2_5_vl's own; set it to 0`},
		{vl, "model.image_encoder.position_embedding_type=learned_absolute",
			`position_embedding_type: "learned_absolute": positions are those of qwen2_5_vl's tower; set it to none`},
		{vl, "model.position_idx_func=position_ids",
			`model.position_idx_func: "position_ids", but this model has mrope_ids`},
		{vl, "model.position_idx_func=nonsense",
			`model.position_idx_func: "nonsense", but this model has mrope_ids`},
		{vl, "model.loss_func=loss_func_internvl",
			`model.loss_func: "loss_func_internvl", but this model has default`},
		{intern, "model.loss_func=default",
			`model.loss_func: "default", but this model has loss_func_internvl`},
		{intern, "model.loss_func=nonsense",
			`model.loss_func: "nonsense", but this model has loss_func_internvl`},
		{vl, "+model.mix_used_vision_encoder=perhaps",
			`model.mix_used_vision_encoder: "perhaps", want true or false`},
		{loongTree + "qwen3_vl/qwen3_vl_8b.yaml", "model.image_encoder.deepstack_visual_indexes=[8,16,8]",
			"deepstack_visual_indexes: layer 8 is named twice"},
	} {
		_, err := Compose(Request{File: c.file, Args: []string{c.arg, "--norm-epsilon", "1e-6"}})
		require.ErrorContains(t, err, c.want, c.arg)
	}
	cfg, err = Compose(Request{File: vl, Args: []string{"+model.mix_used_vision_encoder=false"}})
	require.NoError(t, err)
	require.Contains(t, strings.Join(cfg.Notices, "\n"), "model.mix_used_vision_encoder")
}

// TestChunksOfImages: sequences with images have no chunks, and config check says so.
func TestChunksOfImages(t *testing.T) {
	_, err := Load(Request{Args: strings.Fields("model.name=qwen-vl/2.5-3b data.kind=media data.paths=x " +
		"data.seq_len=4096 plan.chunk_size=1024")})
	require.ErrorContains(t, err, "plan.chunk_size: sequences with images have no chunks")
}

// TestLoongNames: a name that means adapters gives them, and a note says where LoongForge's file of a name
// is not the published model.
func TestLoongNames(t *testing.T) {
	named, err := Load(Request{Args: strings.Fields("--model-name qwen2.5-vl-3b-lora --data-path x " +
		"data.kind=media data.tokenizer=y")})
	require.NoError(t, err)
	file, err := Compose(Request{File: loongTree + "qwen2.5vl/qwen2_5_vl_3b_lora.yaml"})
	require.NoError(t, err)
	require.Equal(t, file.Run.Freeze, named.Run.Freeze)
	require.Equal(t, []any{16, 32.0, 0.1}, []any{named.Run.LoRA.Rank, named.Run.LoRA.Alpha,
		named.Run.LoRA.Dropout})
	require.Subset(t, named.Run.LoRA.Targets, file.Run.LoRA.Targets)
	require.Equal(t, "qwen2_5_vl", named.Model.ModelType)
	for name, want := range map[string]string{"qwen3-0.6b": "LoongForge's own file has false: set " +
		"model.overrides.tie_word_embeddings=false to follow it",
		"qwen1.5-4b": "rope_theta is that of the published model; LoongForge's own file has 1000000"} {
		c, err := Load(Request{Args: []string{"--model-name", name, "--data-path", "x"}})
		require.NoError(t, err)
		require.Contains(t, strings.Join(c.Notices, "\n"), want)
	}
	for name := range loong.Differs {
		_, err := Published(name)
		require.NoError(t, err)
	}
}

// value is that of a model's key.
func value(m Model, key string) string {
	return (&Config{Model: m}).Flat()[source.ModelKeys+"."+key]
}

// unbalanced is a published model without a loss of its routers, which is a setting of training in LoongForge.
func unbalanced(t *testing.T, name string) Model {
	t.Helper()
	c, err := Compose(Request{Args: []string{"model.name=" + name, source.ModelKeys + ".router_aux_loss_coef=0"}})
	require.NoError(t, err)
	return c.Model
}
