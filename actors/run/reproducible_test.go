package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// reproducibleKinds are kinds of models with what a run file says of each, and of its data.
func reproducibleKinds(t *testing.T) map[string]string {
	dir := t.TempDir()
	docs, _ := poisoned()
	wordTokenizer(t, dir, 1)
	var lines bytes.Buffer
	for i, d := range docs { // of different lengths, so that each microbatch has its own number of trained tokens
		text, err := json.Marshal(map[string]string{"text": strings.Join(strings.Fields(d)[:4+i%11], " ")})
		require.NoError(t, err)
		lines.Write(append(text, '\n'))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "texts.jsonl"), lines.Bytes(), 0o600))
	squares(t, filepath.Join(dir, "a.tar"))
	shown(t, dir)
	seerWords(t, filepath.Join(dir, "sight"), "<|image_pad|>", qwenSight)
	texts := fmt.Sprintf("data: {paths: [%q], tokenizer: %q, seq_len: 16, split: [1, 0, 0]}\n",
		filepath.Join(dir, "texts.jsonl"), dir)
	kinds := map[string]string{
		"diffusion": fmt.Sprintf("data: {paths: [%q], seq_len: 16}\ndiffusion: {autoencoder: pixels, sizes: [8x8], "+
			"text_encoder: none}\n", filepath.Join(dir, "a.tar")),
		"vision": fmt.Sprintf("model: {path: ../../stages/family/testdata/qwen2.5-vl, init: random, overrides: "+
			"{vocab_size: 400}}\ndata: {paths: [%q], tokenizer: %q, seq_len: 96, split: [1, 0, 0]}\npolicy: {tokens: "+
			"bins, horizon: 2, view_size: 16, question: \"what now {task} ?\"}\n", filepath.Join(dir, "set"),
			filepath.Join(dir, "sight")),
	}
	models := map[string]string{"diffusion": wanOf12, "dense": pairsModel, "experts": gapModels["experts"],
		"hybrid": gapModels["hybrid"]}
	for kind, model := range models {
		file := filepath.Join(dir, kind+".yaml")
		if kind != "diffusion" {
			model += "eos_token_id: 1\n"
		}
		require.NoError(t, os.WriteFile(file, []byte(model), 0o600))
		if kind != "diffusion" {
			kinds[kind] = texts
		}
		kinds[kind] += fmt.Sprintf("model: {file: %q}\n", file)
	}
	return kinds
}

// reproducible is the configuration of a run of a kind of model in a folder up to a step.
func reproducible(t *testing.T, kind, dir string, steps int, more ...string) *configs.Config {
	t.Helper()
	text := kind + fmt.Sprintf("train: {steps: %d, global_batch: 12, reproducible: any-plan, seed: 3}\noptimizer: {lr: "+
		"4.0e-3}\nschedule: {warmup_steps: 0, decay_steps: 9}\ncheckpoint: {dir: %q}\nlog: {dir: %q}\n", steps,
		filepath.Join(dir, "saved"), filepath.Join(dir, "log"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true, Args: more})
	require.NoError(t, err, more)
	return cfg
}

// reproduced trains a kind of model in a folder up to a step and gives the hash of its losses, norms, weights and
// optimizer's state there.
func reproduced(t *testing.T, kind, dir string, steps int, more ...string) string {
	t.Helper()
	cfg := reproducible(t, kind, dir, steps, more...)
	h := sha256.New()
	all, err := os.OpenFile(filepath.Join(dir, "figures"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer all.Close() //nolint:errcheck // it is read back below
	require.NoError(t, Train(context.Background(), cfg, Options{Warnings: io.Discard, Progress: io.Discard,
		Step: func(m Metrics) {
			for _, x := range []float64{m.Loss, m.GradNorm} {
				require.NoError(t, binary.Write(all, binary.LittleEndian, math.Float64bits(x)))
			}
		}}), more)
	figures, err := os.ReadFile(all.Name())
	require.NoError(t, err)
	require.Len(t, figures, 16*steps)
	h.Write(figures)
	r, err := checkpoint.Open(filepath.Join(dir, "saved"))
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // it is only read
	require.EqualValues(t, steps, r.Step())
	for _, kind := range r.Kinds() {
		for _, x := range r.Kind(kind).Tensors() {
			raw, ranges := make([]byte, x.Bytes), make([][2]int, len(x.Shape))
			for i, n := range x.Shape {
				ranges[i] = [2]int{0, n}
			}
			require.NoError(t, r.ReadLogical(x.Name, kind, ranges, raw))
			fmt.Fprint(h, kind, x.Name, x.Shape)
			h.Write(raw)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// anyPlan is a plan of a run of twelve microbatches a step.
func anyPlan(r *rand.Rand, kind string) (plan []string) {
	pick := func(of ...string) {
		if x := of[r.IntN(len(of))]; x != "" {
			plan = append(plan, strings.Fields(x)...)
		}
	}
	dp := []int{1, 2, 3, 4, 6, 12}[r.IntN(6)]
	plan = append(plan, fmt.Sprint("plan.dp=", dp))
	if pick("", "plan.pp=2"); len(plan) > 1 {
		if kind == "vision" { // of three layers
			plan = append(plan, "plan.layers=[2,1]")
		}
		pick("", "plan.schedule=gpipe", "plan.schedule=zb-h1", "plan.schedule=zb-2p")
	}
	if dp > 1 {
		pick("", "plan.zero=1", "plan.zero=2", "plan.zero=3")
		if len(plan) > 1 && strings.HasPrefix(plan[len(plan)-1], "plan.zero") && dp%2 == 0 {
			pick("", "plan.zero_ranks=2")
		}
	}
	pick("", "plan.threads=1", "plan.threads=2")
	pick("", "plan.recompute=full", "plan.recompute=none")
	pick("", "plan.bucket_bytes=1", "plan.bucket_bytes=0", "plan.overlap=true")
	pick("", "", "plan.offload=true", "plan.offload_optimizer=true")
	return plan
}

// TestAnyPlan: with train.reproducible: any-plan runs of one kind have one hash of losses, norms, weights and
// optimizer's state, whatever their plan, and whether they were stopped in the middle and went on under another one.
func TestAnyPlan(t *testing.T) {
	t.Parallel()
	kinds := reproducibleKinds(t)
	plans := 2
	if *long {
		plans = 60
	} else {
		t.Logf("%d of 60 plans of each of %d kinds: add -long", plans, len(kinds))
	}
	for i, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, r := kinds[name], rand.New(rand.NewPCG(7, uint64(i)))
			want := reproduced(t, kind, t.TempDir(), 4)
			for range plans {
				plan := anyPlan(r, name)
				if i := r.IntN(3); i == 0 {
					plan = append(plan, "data.balance=true")
				}
				require.Equal(t, want, reproduced(t, kind, t.TempDir(), 4, plan...), "%s", plan)
			}
			for range 1 + plans/20 { // stopped, and gone on with
				dir, first, second := t.TempDir(), anyPlan(r, name), anyPlan(r, name)
				reproduced(t, kind, dir, 2, first...)
				require.Equal(t, want, reproduced(t, kind, dir, 4, second...), "%s, then %s", first, second)
			}
			other := reproduced(t, kind, t.TempDir(), 4, "train.micro_batch=2")
			require.NotEqual(t, want, other, "a microbatch is a whole")
		})
	}
}

// TestAnyPlanCuts: what cuts the sums of a microbatch belongs to the run; under one cut, too, no other part of a plan
// changes a bit.
func TestAnyPlanCuts(t *testing.T) {
	t.Parallel()
	kinds := reproducibleKinds(t)
	plans := 1
	if *long {
		plans = 12
	} else {
		t.Log("1 of 12 plans of each cut, and with plan.cp plan.zero=2: add -long")
	}
	for i, c := range []struct{ kind, cut string }{
		{"dense", "plan.tp=2"}, {"dense", "plan.tp=2 plan.sequence_parallel=true"}, {"dense", "plan.cp=2"},
		{"dense", "plan.cp=2 plan.cp_comm=ring plan.tp=2"}, {"dense", "train.micro_batch=2 train.global_batch=24"},
		{"dense", "train.precision=bf16"}, {"experts", "plan.tp=2"}, {"experts", "plan.cp=2"}, {"hybrid", "plan.tp=2"},
		{"hybrid", "plan.cp=2"}, {"vision", "plan.tp=2"}, {"diffusion", "plan.tp=2"}, {"diffusion", "plan.cp=2"},
		{"experts", "plan.dp=2 plan.ep=2"}, {"experts", "plan.tp=2 plan.ep=2 plan.etp=1"},
		{"experts", "plan.dp=2 plan.tp=2 plan.ep=4"}, {"hybrid", "plan.dp=4 plan.ep=2"},
		{"dense", "plan.pp=2 plan.schedule=chunkpipe plan.chunk_size=8"}} {
		t.Run(c.kind+" "+c.cut, func(t *testing.T) {
			t.Parallel()
			kind, r, cut := kinds[c.kind], rand.New(rand.NewPCG(8, uint64(i))), strings.Fields(c.cut)
			want := reproduced(t, kind, t.TempDir(), 4, cut...)
			for range plans {
				plan := anyPlan(r, c.kind)
				if strings.Contains(c.cut, "plan.ep") { // which divides the ranks of all replicas
					plan = append(plan, "plan.dp=4")
				}
				if strings.Contains(c.cut, "chunk") {
					plan = []string{"plan.dp=3", "plan.schedule=seq1f1b", "plan.zero=1"}
				}
				more := slices.Concat(cut, plan)
				require.Equal(t, want, reproduced(t, kind, t.TempDir(), 4, more...), "%s", more)
			}
			if strings.Contains(c.cut, "plan.cp") { // whose ranks have some gradients whole, and share their rows out
				more := append(cut, "plan.dp=3", "plan.zero=2")
				require.Equal(t, want, reproduced(t, kind, t.TempDir(), 4, more...), "%s", more)
			}
		})
	}
}

// TestAnyPlanBeyond: steps whose gradients are beyond what sums in fixed point have room for are given up, in every
// plan alike, and the run goes on with more room.
func TestAnyPlanBeyond(t *testing.T) {
	t.Parallel()
	kind, wild := reproducibleKinds(t)["dense"], filepath.Join(t.TempDir(), "wild.yaml")
	model := strings.Replace(pairsModel, "initializer_range: 0.1", "initializer_range: 1.0e+5", 1) + "eos_token_id: 1\n"
	require.NoError(t, os.WriteFile(wild, []byte(model), 0o600))
	var want string
	for _, plan := range []string{"plan.dp=1", "plan.dp=4 plan.zero=1", "plan.pp=2", "plan.dp=3 plan.zero=3"} {
		dir := t.TempDir()
		got := reproduced(t, kind, dir, 4, append(strings.Fields(plan), "model.file="+wild, "optimizer.lr=0")...)
		if want == "" {
			want = got
		}
		require.Equal(t, want, got, plan)
		text, err := os.ReadFile(filepath.Join(dir, "log", "metrics.jsonl"))
		require.NoError(t, err)
		var skipped []bool
		for l := range strings.Lines(string(text)) {
			var m Metrics
			require.NoError(t, json.Unmarshal([]byte(l), &m))
			skipped = append(skipped, m.Skipped)
		}
		require.Equal(t, []bool{true, false, false, false}, skipped, plan)
	}
}

// TestAnyPlanMicrobatch: what a microbatch is belongs to the run, and another is refused where it goes on.
func TestAnyPlanMicrobatch(t *testing.T) {
	t.Parallel()
	kind, dir := reproducibleKinds(t)["dense"], t.TempDir()
	reproduced(t, kind, dir, 2)
	err := Train(context.Background(), reproducible(t, kind, dir, 4, "train.micro_batch=2"), Options{})
	require.ErrorContains(t, err, "train.micro_batch: is 2, the checkpoint was made with 1")
}
