package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/sample"
	models "github.com/lfactor/lfactor/stages/trained"
)

// vlmRun trains the demo's model for some steps in dir; more are overrides.
func vlmRun(t *testing.T, dir string, steps int, more ...string) error {
	ids, err := demo.SceneTokenizer(filepath.Join(dir, "tokenizer"))
	require.NoError(t, err)
	in := func(name string) string { return filepath.Join(dir, name) }
	text := fmt.Sprintf(demo.DemoVLMConfig, ids["vocab"], ids["<|im_end|>"], ids["<|image_pad|>"],
		ids["<|video_pad|>"], ids["<|vision_start|>"],
		in("shards/scenes-{00..03}.tar"), in("tokenizer"), steps, 1, in("checkpoints"), 3, in("run"))
	cfg, err := configs.Load(configs.Request{File: "test", Text: []byte(text),
		Args: append([]string{"checkpoint.save_hf=false", "schedule.kind=constant"}, more...)})
	require.NoError(t, err)
	return run.Train(context.Background(), cfg, run.Options{})
}

// TestVisionResume: a composed model goes on where it stopped, also with its encoder elsewhere, to the losses and the
// samples of the run that did not stop. Other layouts take other orders of sums: 1e-4 after six steps of AdamW.
func TestVisionResume(t *testing.T) {
	t.Parallel()
	shards := t.TempDir()
	_, err := demo.WriteScenes(shards, 160)
	require.NoError(t, err)
	start := func(name string) string {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.Symlink(shards, filepath.Join(dir, "shards")))
		return dir
	}
	whole := start("whole")
	require.NoError(t, vlmRun(t, whole, 6))
	want := metrics(t, whole)
	require.Len(t, want, 6)
	for _, plan := range clitest.Sample(t, 2, [][]string{
		{"same"},
		{"balanced", "plan.encoder.over=first", "plan.encoder.ranks=0", "plan.dp=2", "data.balance=true",
			"data.readers=3"},
		{"cut", "plan.encoder.over=none", "plan.encoder.ranks=0", "plan.pp=2", "plan.layers=[1,2]"},
		{"first", "plan.encoder.over=first", "plan.encoder.ranks=0", "plan.dp=2"},
	}) {
		name, plan := plan[0], plan[1:]
		t.Run(name, func(t *testing.T) {
			dir := start(name)
			if name == "balanced" { // a checkpoint keeps to one way of sharing out
				require.NoError(t, vlmRun(t, dir, 3, plan...))
			} else {
				require.NoError(t, vlmRun(t, dir, 3))
			}
			require.NoError(t, vlmRun(t, dir, 6, plan...))
			got := metrics(t, dir)
			require.Len(t, got, 6)
			for i := range want {
				if name == "same" {
					require.Equal(t, want[i].Loss, got[i].Loss, "step %d", i+1)
				}
				require.InEpsilon(t, want[i].Loss, got[i].Loss, 1e-4, "step %d", i+1)
			}
			a, err := os.ReadFile(filepath.Join(whole, "run", "samples.ledger"))
			require.NoError(t, err)
			b, err := os.ReadFile(filepath.Join(dir, "run", "samples.ledger"))
			require.NoError(t, err)
			require.Equal(t, a, b)
		})
	}
}

// TestVisionOwn: a run whose encoder has a precision and a recompute policy of its own goes on where it
// stopped, and exports each part in its own type. A model of text alone refuses to hear of parts.
func TestVisionOwn(t *testing.T) {
	t.Parallel()
	own := []string{"train.encoder_precision=bf16", "plan.encoder.recompute=full",
		"plan.projector_recompute=selective", "checkpoint.save_hf=true"}
	dirs := []string{t.TempDir(), t.TempDir()}
	for i, dir := range dirs {
		_, err := demo.WriteScenes(filepath.Join(dir, "shards"), 160)
		require.NoError(t, err)
		if i > 0 {
			require.NoError(t, vlmRun(t, dir, 3, own...))
		}
		require.NoError(t, vlmRun(t, dir, 6, own...))
	}
	want, got := metrics(t, dirs[0]), metrics(t, dirs[1])
	require.Len(t, got, 6)
	for i := range want {
		require.Equal(t, want[i].Loss, got[i].Loss, "step %d", i+1)
	}
	out, err := checkpoint.OpenDir(filepath.Join(dirs[0], "checkpoints", "release_hf_weights"))
	require.NoError(t, err)
	defer out.Close()
	encoder := 0
	for _, info := range out.Tensors() {
		if strings.HasPrefix(info.Name, "visual.") && !strings.HasPrefix(info.Name, "visual.merger") {
			encoder++
			require.Equal(t, checkpoint.BF16, info.DType, info.Name)
		} else {
			require.Equal(t, checkpoint.F32, info.DType, info.Name)
		}
	}
	require.Positive(t, encoder)

	for _, o := range []string{"train.encoder_precision=bf16", "train.projector_precision=bf16",
		"plan.encoder.recompute=full", "plan.projector_recompute=full"} {
		_, err := configs.Load(configs.Request{Args: []string{"--model-name", "llama/3.2-1b",
			"--data-path", "x", o}})
		require.ErrorContains(t, err, strings.Split(o, "=")[0]+": the model has no", "%s", o)
		require.Equal(t, exit.Usage, cli.ExitCode(err))
	}
}

// TestVisionBadSamples: an image cut short, bytes that are not an image, a mark without an image and an
// image without a mark are set aside with their places, and the run goes on.
func TestVisionBadSamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "shards"), 0o755))
	r := rand.New(rand.NewPCG(1, 2))
	for shard := range 4 {
		w, err := format.CreateShard(filepath.Join(dir, "shards", fmt.Sprintf("scenes-%02d.tar", shard)))
		require.NoError(t, err)
		for i := range 40 {
			s := demo.Scenes(false)[r.IntN(300)]
			image, turns, names := s.Png(r), demo.SceneTurns(s, r), []string{"0.png"}
			switch shard*40 + i {
			case 3:
				image = image[:len(image)/2]
			case 50:
				image = []byte("no image")
			case 90:
				turns[0].Content = "<image>" + turns[0].Content
			case 130:
				names = append(names, "1.png")
			}
			text, err := json.Marshal(map[string]any{"messages": turns, "media": "image", "name": names})
			require.NoError(t, err)
			parts := []dataset.Part{{Name: "0.png", Bytes: image}, {Name: "json", Bytes: text}}
			if len(names) > 1 {
				parts = append(parts, dataset.Part{Name: "1.png", Bytes: image})
			}
			require.NoError(t, w.Add(fmt.Sprintf("%02d-%05d", shard, i), parts))
		}
		require.NoError(t, w.Close())
	}
	require.NoError(t, vlmRun(t, dir, 8))
	bad, err := dataset.ReadQuarantine(filepath.Join(dir, "run", "quarantine.jsonl"))
	require.NoError(t, err)
	var all string
	for _, b := range bad {
		require.Contains(t, b.File, "scenes-")
		all += b.Reason + "\n"
	}
	require.Len(t, bad, 4, all)
	for _, key := range []string{"00-00003", "01-00010", "02-00010", "03-00010"} {
		require.Contains(t, all, key)
	}
}

// TestVisionParts: a composed model begins with the tower and the decoder that directories of their own have,
// and its projector with random values: after 14 steps the decoder alone has the loss of this data's text.
func TestVisionParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shards := t.TempDir()
	_, err := demo.WriteScenes(shards, 160)
	require.NoError(t, err)
	start := func(dir string) { require.NoError(t, os.Symlink(shards, filepath.Join(dir, "shards"))) }
	start(dir)
	require.NoError(t, vlmRun(t, dir, 14, "checkpoint.save_hf=true"))
	first := metrics(t, dir)
	weights := filepath.Join(dir, "checkpoints", "release_hf_weights")
	next := t.TempDir()
	start(next)
	require.NoError(t, vlmRun(t, next, 1, "model.init=auto", "model.encoder_path="+weights,
		"model.decoder_path="+weights))
	second := metrics(t, next)
	require.Len(t, second, 1)
	require.Greater(t, first[0].Loss, 5.5)
	require.Less(t, second[0].Loss, (first[0].Loss+first[13].Loss)/2)
	last := t.TempDir()
	start(last)
	require.ErrorContains(t, vlmRun(t, last, 1, "model.encoder_path="+weights), "model.init is random")
}

// TestVisionLossWeight: with --loss-reduction square a step's loss is another than with every token alike,
// the same however its microbatches are shared out, and that of rounds lies with the replicas. Other layouts
// take other orders of sums.
func TestVisionLossWeight(t *testing.T) {
	t.Parallel()
	shards := t.TempDir()
	_, err := demo.WriteScenes(shards, 64)
	require.NoError(t, err)
	loss := func(more ...string) float64 {
		dir := t.TempDir()
		require.NoError(t, os.Symlink(shards, filepath.Join(dir, "shards")))
		require.NoError(t, vlmRun(t, dir, 1, more...))
		return metrics(t, dir)[0].Loss
	}
	two := []string{"plan.encoder.over=first", "plan.encoder.ranks=0", "plan.dp=2"}
	token := loss()
	square := loss("--loss-reduction", "square")
	require.Greater(t, math.Abs(token-square), 1e-4)
	require.InEpsilon(t, square, loss(append(two, "--loss-reduction", "square")...), 1e-5)
	rounds := loss(append(two, "--loss-reduction", "square", "--loss-reduction-all-gather")...)
	require.Greater(t, math.Abs(rounds-square), 1e-6)
	require.InEpsilon(t, square, rounds, 1e-2)
}

// TestLoongTrain trains, from a composed model file of LoongForge and the arguments of a launch script, a
// small model of the same make.
func TestLoongTrain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := demo.WriteScenes(filepath.Join(dir, "shards"), 160)
	require.NoError(t, err)
	ids, err := demo.SceneTokenizer(filepath.Join(dir, "tokenizer"))
	require.NoError(t, err)
	part := func(part string, more ...string) (out []string) {
		for _, m := range append([]string{"num_layers=2", "hidden_size=32", "ffn_hidden_size=64",
			"num_attention_heads=4"}, more...) {
			out = append(out, "++model."+part+"."+m)
		}
		return
	}
	args := slices.Concat([]string{"--config-file",
		"../../configs/testdata/loong/configs/models/qwen2.5vl/qwen2_5_vl_3b.yaml", "--tokenizer-type",
		"HFTokenizer",
		"--hf-tokenizer-path", filepath.Join(dir, "tokenizer"), "--data-path",
		filepath.Join(dir, "shards", "scenes-{00..03}.tar"), "--chat-template", "qwen2-vl",
		"--training-phase", "sft",
		"--seq-length", "96", "--micro-batch-size", "2", "--global-batch-size", "8", "--train-iters", "6",
		"--lr", "1e-2", "--min-lr", "1e-2", "--lr-decay-style", "constant", "--bf16",
		"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2",
		"--use-distributed-optimizer", "--sequence-parallel", "--recompute-granularity", "full",
		"--recompute-method", "block", "--custom-pipeline-recompute-layers", "1,0", "log.dir=" +
			filepath.Join(dir, "run"), "+model.image_encoder.freeze=True",
		"+model.image_encoder.recompute_granularity=full"},
		part("image_encoder", "num_query_groups=4", "kv_channels=8", "fullatt_block_indexes=[1]"),
		part("foundation", "num_query_groups=2", "mrope_section=[1,1,2]",
			fmt.Sprintf("vocab_size_in_config_file=%d", ids["vocab"]+1)))
	cfg, err := configs.Load(configs.Request{Args: args})
	require.NoError(t, err)
	require.NoError(t, run.Train(context.Background(), cfg, run.Options{}))
	m := metrics(t, dir)
	require.Len(t, m, 6)
	require.InDelta(t, math.Log(float64(ids["vocab"]+1)), m[0].Loss, 0.3, "an untrained model knows nothing")
	require.Less(t, m[5].Loss, m[0].Loss-0.5)
}

// TestVisionShown: behind an evaluation a model that sees is asked about pictures, and answers as its checkpoint does.
func TestVisionShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := demo.WriteScenes(filepath.Join(dir, "shards"), 40)
	require.NoError(t, err)
	picture := filepath.Join(dir, "picture.png")
	img := media.NewImage(32, 32)
	for i := range img.Pix {
		img.Pix[i] = byte(i * 7)
	}
	require.NoError(t, os.WriteFile(picture, img.PNG(), 0o644))
	asks := []string{"data.split=[80, 20, 0]", "train.eval_interval=2", "train.eval_steps=1",
		"train.eval_prompts=[what colour is it, how many]", "train.eval_images=[" + picture + "]", "train.eval_tokens=6"}
	require.NoError(t, vlmRun(t, dir, 4, asks...))
	text, err := os.ReadFile(filepath.Join(dir, "run", "log.jsonl"))
	require.NoError(t, err)
	q, done, err := models.OpenQuiz(filepath.Join(dir, "tokenizer"), filepath.Join(dir, "checkpoints"))
	require.NoError(t, err)
	defer done()
	var all []models.Shown
	for line := range strings.Lines(string(text)) {
		var s struct {
			Msg string
			models.Shown
		}
		if json.Unmarshal([]byte(line), &s) == nil && s.Msg == "answer" {
			all = append(all, s.Shown)
		}
	}
	require.Len(t, all, 4)
	for _, s := range all[2:] {
		want, err := q.Answer(s.Prompt, img.PNG(), sample.Params{Max: 6})
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(strings.Fields(s.Answer), " "))
	}
	require.ErrorContains(t, vlmRun(t, dir, 4, append(slices.Clone(asks), "train.eval_images=[none.png]")...), "no such file")
}
