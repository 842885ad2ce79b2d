package loong_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/lfactor/lfactor/configs"

	"github.com/stretchr/testify/require"
)

// embodied is what bench/golden/embodied_launch.py read of LoongForge's policies.
type embodied struct {
	Lines []struct {
		Script string
		Args   []string
	}
	Files map[string]string
}

func readEmbodied(t *testing.T) (have embodied) {
	t.Helper()
	b, err := os.ReadFile("../testdata/embodied.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &have))
	return have
}

// TestEmbodiedLines: of the launch lines of LoongForge's policies those of Pi0.5 and FastWAM are accepted,
// that of X-VLA is refused for its recordings, and each of the others for its model alone.
func TestEmbodiedLines(t *testing.T) {
	accepted, refused := map[string]int{}, map[string]int{}
	for _, l := range readEmbodied(t).Lines {
		c, err := Load(Request{Args: l.Args})
		if err == nil {
			accepted[c.Model.ModelType]++
			require.Equal(t, map[string]int{"pi05": 50, "fastwam": 32}[c.Model.ModelType],
				c.Run.Data.SeqLen, l.Script)
			continue
		}
		if strings.Contains(strings.Join(l.Args, " "),
			"--model-name xvla ") { // its recordings
			refused["X-VLA"]++
			require.ErrorContains(t, err, `--dataset-format: "hdf5_datasets" is not there`)
			require.NotContains(t, err.Error(), "\n")
			continue
		}
		require.NotContains(t, err.Error(), "\n", l.Script)
		who, why, _ := strings.Cut(strings.TrimPrefix(err.Error(), "--model-name: "), ", ")
		require.Contains(t, why, "; docs/policies.md says which policies there are")
		refused[who]++
	}
	require.Equal(t, map[string]int{"pi05": 3, "fastwam": 2}, accepted)
	require.Equal(t, map[string]int{"X-VLA": 1, "what LoongForge's trainer of GR00T N1.6 makes of recordings": 1,
		"what LoongForge's trainer of GR00T N1.7 makes of recordings": 1,
		"what LoongForge's trainer of Cosmos3 makes of recordings":    1,
		"what LoongForge's trainer of DreamZero makes of recordings":  4,
		"what LoongForge's trainer of LingBot-VA makes of recordings": 2}, refused)
}

// TestEmbodiedFiles: of the model files of LoongForge's policies those of Pi0.5, X-VLA and FastWAM are the
// published models, and the others are refused with what they are.
func TestEmbodiedFiles(t *testing.T) {
	here := 0
	for name, text := range readEmbodied(t).Files {
		f := filepath.Join(t.TempDir(), filepath.Base(name))
		require.NoError(t, os.WriteFile(f, []byte(text), 0o644))
		c, err := Load(Request{File: f, Args: []string{"data.paths=[x]", "data.tokenizer=y"},
			Getenv: func(name string) string { // where weights lie
				return map[bool]string{true: "weights"}[strings.HasSuffix(name, "_CKPT_DIR")]
			}})
		if err == nil {
			here++
			of := map[string]string{"pi05.yaml": "pi/0.5", "xvla.yaml": "xvla/base",
				"fastwam.yaml": "fastwam/base", "lingbot_va_libero.yaml": "lingbot-va/base",
				"dreamzero_libero_wan22_5b.yaml": "dreamzero/5b", "cosmos3/nano.yaml": "cosmos3/nano",
				"groot_n1_6.yaml": "groot/n1.6", "groot_n1_7.yaml": "groot/n1.7"}[name]
			published, err := Published(of)
			require.NoError(t, err)
			if of == "dreamzero/5b" { // which has as many actions as LIBERO's blocks have
				require.Equal(t, []string{"64", "2", "libero", "9"}, []string{value(c.Model, "chunk_size"),
					value(c.Model, "video_every"), value(c.Model, "told_as"), value(c.Model, "block_window")})
				require.Equal(t, []any{64, "quantiles"}, []any{c.Run.Data.SeqLen, c.Run.Policy.Normalize})
				continue
			}
			require.Equal(t, published.Identity(), c.Model.Identity(), name)
			if strings.HasPrefix(of, "groot/") {
				drops := map[string]float64{"groot/n1.7": 0.2}[of]
				require.Equal(t, []any{"relative", drops}, []any{c.Run.Policy.Actions, c.Run.Policy.Stateless})
				continue
			}
			if of == "lingbot-va/base" { // which says of its chunks no more than the published model
				continue
			}
			require.Equal(t, map[string]int{"pi/0.5": 50, "xvla/base": 30, "fastwam/base": 32, "cosmos3/nano": 32}[of],
				c.Run.Data.SeqLen)
			require.Equal(t, of == "pi/0.5", c.Run.Plan.Recompute == "none")
			continue
		}
		if strings.HasPrefix(name, "dreamzero_") { // whose actions are relative in parts
			require.ErrorContains(t, err, "data.relative_action: ")
			require.ErrorContains(t, err, "data.language_chunk_sampling: ")
			continue
		}
		if name == "lingbot_va_robotwin.yaml" { // whose wrists are seen at half the size
			require.ErrorContains(t, err, "data.env_type: ")
			continue
		}
		require.ErrorContains(t, err, "but a policy of robots, ", name)
		require.ErrorContains(t, err, "is not there", name)
	}
	require.Equal(t, 8, here)
}

// TestEmbodiedDefaults: a file of FastWAM that leaves out what is otherwise to LoongForge is refused, and
// dotted keys of its launch lines are what they are in its file.
func TestEmbodiedDefaults(t *testing.T) {
	text := readEmbodied(t).Files["fastwam.yaml"]
	for _, c := range [][2]string{
		{"  variant: uncond\n", "model.variant: is not given, which to LoongForge is joint"},
		{"  action_horizon: 32\n", "model.action_horizon: is not given, which to LoongForge is 16"}} {
		require.Contains(t, text, c[0])
		f := filepath.Join(t.TempDir(), "fastwam.yaml")
		require.NoError(t, os.WriteFile(f, []byte(strings.Replace(text, c[0], "", 1)), 0o644))
		_, err := Load(Request{File: f, Args: []string{"data.paths=[x]", "data.tokenizer=y"}})
		require.ErrorContains(t, err, c[1])
	}
	line := func(more ...string) []string {
		return append([]string{"--model-name", "fastwam", "--trainer-type", "FinetuneTrainer",
			"--dataset-path", "set"}, more...)
	}
	c, err := Load(Request{Args: line("model.action_horizon=16", "data.normalization_mode=q99",
		"data.text_embedding_cache_dir=x", "model.variant=uncond")})
	require.NoError(t, err)
	require.Equal(t, []any{"16", 16, "quantiles"}, []any{value(c.Model, "chunk_size"),
		c.Run.Data.SeqLen, c.Run.Policy.Normalize})
	require.Contains(t, strings.Join(c.Notices, "\n"), "data.text_embedding_cache_dir=x")
	c, err = Load(Request{Args: line("train.steps=7", "optimizer.lr=3e-3", "train.micro_batch=2",
		"train.global_batch=6", "plan.zero=1")}) // which count where a default of LoongForge's says otherwise
	require.NoError(t, err)
	require.Equal(t, []any{7, 3e-3, 2, 6, 1}, []any{c.Run.Train.Steps, c.Run.Optimizer.LR,
		c.Run.Train.MicroBatch, c.Run.Train.GlobalBatch, c.Run.Plan.Zero})
	for arg, want := range map[string]string{
		"model.variant=joint":       `model.variant: "joint", only uncond or base`,
		"data.normalization_mode=z": `data.normalization_mode: "z" is not there`} {
		_, err := Load(Request{Args: line(arg)})
		require.ErrorContains(t, err, want)
	}
}

// TestEmbodiedFlags: LoongForge's defaults and values become this program's, and what has no meaning here
// is refused with its flag.
func TestEmbodiedFlags(t *testing.T) {
	line := func(more ...string) []string {
		return append([]string{"--model-name", "pi05", "--trainer-type", "FinetuneTrainer",
			"--dataset-path", "set",
			"--tokenizer-path", "words"}, more...)
	}
	c, err := Load(Request{Args: line("--per-device-batch-size=6", "--gradient-accumulation-steps", "2",
		"plan.dp=2",
		"--output_dir", "saved", "--save-interval", "10")})
	require.NoError(t, err)
	r := &c.Run
	require.Equal(t, []any{6, 24, 2, 3, "bf16", 150000, 2000, 2.5e-5, 1e-6, 0.01, 1.0, 3047, "cosine",
		"saved", 10, "set", "words"},
		[]any{r.Train.MicroBatch, r.Train.GlobalBatch, r.Plan.DP, r.Plan.Zero, r.Train.Precision,
			r.Train.Steps,
			r.Schedule.WarmupSteps, r.Optimizer.LR, r.Optimizer.MinLR, r.Optimizer.WeightDecay,
			r.Optimizer.ClipGrad,
			r.Train.Seed, r.Schedule.Kind, r.Checkpoint.Dir, r.Checkpoint.Interval, r.Data.Paths[0].Path,
			r.Data.Tokenizer})
	file := filepath.Join(t.TempDir(), "plan.yaml")
	require.NoError(t, os.WriteFile(file, []byte("plan: {dp: 3}\n"), 0o644))
	for want, more := range map[int][]string{12: nil, 8: {"plan.dp=2"}} {
		c, err = Load(Request{File: file, Args: line(more...)})
		require.NoError(t, err)
		require.Equal(t, want, c.Run.Train.GlobalBatch)
	}
	bare := []string{"--trainer-type", "FinetuneTrainer", "--dataset-path", "set", "--model-name",
		"dreamzero"}
	_, err = Load(Request{Args: bare})
	require.ErrorContains(t, err, "DreamZero")
	require.NotContains(t, err.Error(), "data.tokenizer")
	c, err = Load(Request{Args: line("--distributed-strategy", "ddp", "--dtype", "float32",
		"--lr-decay-style",
		"constant_with_warmup")})
	require.NoError(t, err)
	require.Equal(t, []any{0, "fp32", "constant"}, []any{c.Run.Plan.Zero, c.Run.Train.Precision,
		c.Run.Schedule.Kind})
	c, err = Load(Request{Args: line("--lr-base", "1e-4", "--lr-group", "model.vlm=1e-5, model.head=0",
		"--loss-spike-threshold", "1000")})
	require.NoError(t, err)
	groups := c.Run.Optimizer.ParsedGroups()
	require.Len(t, groups, 2)
	require.Equal(t, []string{"model.vlm.*", "model.head.*"}, []string{groups[0].Pattern, groups[1].Pattern})
	require.InDelta(t, 0.1, groups[0].LR, 1e-12)
	require.Zero(t, groups[1].LR)
	for flag, want := range map[string]string{
		"--dataset-format hdf5_datasets":        `--dataset-format: "hdf5_datasets" is not there: lerobot_datasets is`,
		"--dataset-strategy dreamzero":          `"dreamzero" is not there: default is`,
		"--optimizer SGD":                       `"SGD" is not there`,
		"--lr-decay-style lambda_linear":        `"lambda_linear" is not there`,
		"--per-device-batch-size none":          `--per-device-batch-size: "none", want a number above 0`,
		"--lr-group model.vlm":                  `--lr-group: "model.vlm", want module.path=rate`,
		"--lr-group model.vlm=-1":               `want module.path=rate`,
		"--lr-group model.vlm=1 --lr-base 0":    `--lr-base: "0", want a rate above 0`,
		"--model-name pi9":                      `"pi9" is none of LoongForge's policies`,
		"--trainer-type LingBotFinetuneTrainer": "FinetuneTrainer is",
	} {
		_, err := Load(Request{Args: line(strings.Fields(flag)...)})
		require.ErrorContains(t, err, want, flag)
	}
}

// TestEmbodiedKeys: keys of the file of Pi0.5 mean keys of ours, are named in a note, or are refused.
func TestEmbodiedKeys(t *testing.T) {
	file := loongTree + "embodied/pi05.yaml"
	c, err := Compose(Request{File: file, Args: []string{"model.action_horizon=10",
		"model.gradient_checkpointing=true", "data.image_size=448", "model.max_action_dim=16",
		"model.compile_model=False"}})
	require.NoError(t, err)
	flat := c.Flat()
	require.Equal(t, []string{"10", "10", "full", "448", "16"}, []string{flat["data.seq_len"],
		value(c.Model, "chunk_size"), flat["plan.recompute"], value(c.Model, "view_size"),
		value(c.Model, "in_channels")})
	require.Contains(t, strings.Join(c.Notices, "\n"), "model.compile_model")
	for arg, why := range map[string]string{
		"+model.action_dims=7": `model.action_dims: unknown key of a LoongForge policy file; ` +
			`did you mean "model.action_dim"?`,
		"data.image_normalize_mode=imagenet": `data.image_normalize_mode: "imagenet", only identity is built`,
		"model.gradient_checkpointing=some":  `model.gradient_checkpointing: "some", want false or true`,
	} {
		_, err := Compose(Request{File: file, Args: []string{arg}})
		require.ErrorContains(t, err, why)
	}
}
