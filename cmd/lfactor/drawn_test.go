package main

import (
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
	"go.yaml.in/yaml/v3"
)

// narrowed are sizes for the keys that a published model has.
var narrowed = map[string]any{"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
	"head_dim":          16,
	"intermediate_size": 128, "max_position_embeddings": 128, "q_lora_rank": 32, "kv_lora_rank": 16,
	"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "num_experts": 8,
	"num_experts_per_tok":   2,
	"moe_intermediate_size": 32, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
	"shared_expert_intermediate_size": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
	"linear_key_head_dim": 16, "linear_value_head_dim": 16, "sliding_window": 16,
	"query_pre_attn_scalar": 16,
	"index_n_heads":         2, "index_head_dim": 16, "index_topk": 16}

// drawnModel is a published text model of few and narrow layers.
type drawnModel struct {
	name  string
	sizes map[string]any
	moe   bool
}

// drawnModels lists them by what they are made of, a list for each kind.
func drawnModels(t *testing.T) (kinds [][]drawnModel) {
	t.Helper()
	files, err := filepath.Glob("../../configs/models/*/*.yaml")
	require.NoError(t, err)
	at := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var keys map[string]any
		require.NoError(t, yaml.Unmarshal(text, &keys))
		if keys["vision"] != nil || keys["chunk_size"] != nil || keys["vocab_size"] == nil || keys["num_hidden_layers"] == nil ||
			strings.HasPrefix(fmt.Sprint(keys["model_type"]), "pi") {
			continue // of images, a policy, or no language model
		}
		m := drawnModel{name: strings.TrimSuffix(strings.TrimPrefix(file, "../../configs/models/"), ".yaml"),
			sizes: map[string]any{"num_hidden_layers": 4, "vocab_size": 401, "eos_token_id": 1},
			moe:   keys["num_experts"] != nil}
		for k, v := range narrowed {
			if keys[k] != nil {
				m.sizes[k] = v
			}
		}
		if keys["num_key_value_heads"] == keys["num_attention_heads"] && keys["num_key_value_heads"] != nil {
			m.sizes["num_key_value_heads"] = 4
		}
		for k, v := range keys {
			if l, is := v.([]any); is && len(l) == keys["num_hidden_layers"] {
				m.sizes[k] = l[len(l)-4:]
			}
		}
		kind := fmt.Sprint(keys["model_type"], m.moe)
		i, known := at[kind]
		if !known {
			i = len(kinds)
			at[kind], kinds = i, append(kinds, nil)
		}
		kinds[i] = append(kinds[i], m)
	}
	return kinds
}

func oneOf[T any](r *rand.Rand, l ...T) T { return l[r.IntN(len(l))] }

// drawnPlan is a plan of up to four ranks.
func drawnPlan(r *rand.Rand, moe bool) (args []string) {
	set := func(key string, v any) { args = append(args, fmt.Sprintf("%s=%v", key, v)) }
	some := func(share float64) bool { return r.Float64() < share }
	n := oneOf(r, [4]int{1, 1, 1, 1}, [4]int{2, 1, 1, 1}, [4]int{1, 2, 1, 1}, [4]int{1, 1, 2, 1}, [4]int{2,
		1, 2, 1},
		[4]int{1, 2, 2, 1}, [4]int{2, 2, 1, 1}, [4]int{1, 1, 4, 1}, [4]int{1, 1, 1, 2}, [4]int{2, 1, 1, 2},
		[4]int{1, 2, 1, 2}, [4]int{1, 1, 2, 2})
	for i, key := range []string{"plan.pp", "plan.tp", "plan.dp", "plan.cp"} {
		set(key, n[i])
	}
	if n[3] > 1 {
		set("plan.cp_comm", oneOf(r, "gather", "ring", "ulysses"))
	}
	if n[2]*n[3] > 1 {
		set("plan.zero", r.IntN(4))
	}
	if n[1] > 1 && some(0.5) {
		set("plan.sequence_parallel", true)
	}
	if moe && n[1]*n[2]*n[3] > 1 && some(0.7) {
		set("plan.ep", 2)
		if some(0.4) {
			set("train.balance_every", 1)
		}
	}
	if n[0] > 1 && some(0.5) {
		schedule := oneOf(r, "gpipe", "zb-h1", "zb-h2", "interleaved", "dualpipe", "zb-v")
		if set("plan.schedule", schedule); !slices.Contains([]string{"gpipe", "zb-h1", "zb-h2"}, schedule) {
			set("plan.virtual_stages", 2)
		}
	}
	for _, key := range []string{"plan.offload_optimizer", "plan.offload"} {
		if some(0.2) {
			set(key, true)
		}
	}
	if some(0.4) {
		set("plan.recompute", oneOf(r, "full", "selective"))
	}
	if n != [4]int{1, 1, 1, 1} && some(0.25) {
		set("plan.procs", 2)
	}
	if some(0.2) {
		set("plan.chunk_size", 16)
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "plan.schedule=") }) {
			set("plan.schedule", oneOf(r, "chunkpipe", "seq1f1b"))
		}
	}
	return args
}

// answering is a plan without what objectives of whole answers refuse.
func answering(plan []string) []string {
	return slices.DeleteFunc(plan, func(a string) bool {
		key, _, _ := strings.Cut(a, "=")
		return slices.Contains([]string{"plan.cp", "plan.cp_comm", "plan.chunk_size"}, key) || a == "plan.schedule=chunkpipe" ||
			a == "plan.schedule=seq1f1b"
	})
}

// drawnTraining is how it is trained, and how far a plan's losses may be from those of one rank: sums in
// another order, in numbers of few bits too.
func drawnTraining(r *rand.Rand, moe bool) (args []string, apart float64) {
	apart = 2e-5
	kind := oneOf(r, "adamw", "adamw", "adamw", "muon", "schedule_free", "lion", "adafactor")
	args = []string{"optimizer.kind=" + kind, "schedule.kind=constant"}
	if moments := oneOf(r, "fp32", "bf16", "8bit"); kind == "adamw" || kind == "muon" {
		if args = append(args, "optimizer.moments="+moments); moments == "8bit" {
			args = append(args, "optimizer.moments_block=16")
		}
	}
	if kind != "schedule_free" && r.IntN(3) == 0 {
		args = append(args, "optimizer.ema=0.9")
	}
	precision := oneOf(r, "fp32", "fp32", "bf16", "bf16", "fp16")
	args = append(args, "train.precision="+precision)
	if precision != "fp32" {
		apart = 5e-3
	}
	if precision != "fp16" && r.IntN(3) == 0 {
		low := oneOf(r, "block", "block_pow2", "mxfp8", "nvfp4", "tensor", "delayed")
		args, apart = append(args, "train.low_precision="+low), 5e-3
		switch some := r.IntN(4); {
		case some == 0 && low != "delayed":
			args = append(args, "train.adaptive.limit=0.1", "train.adaptive.every=1")
		case some == 1 && (low == "block_pow2" || low == "mxfp8"):
			args = append(args, "train.low_precision_gather=true")
		case some > 0 && moe && (low == "block_pow2" || low == "mxfp8" || low == "block"):
			args = append(args, "train.low_precision_dispatch=true")
		}
	}
	args = append(args, oneOf(r, nil, nil, nil, nil, nil, nil, []string{"optimizer.qk_clip.limit=0.3"}, []string{"log.attention_logits=true"},
		[]string{`optimizer.groups=["*.mlp.* clip=0.1 lr=0.5"]`})...)
	if r.IntN(5) == 0 {
		args = append(args, "lora.rank=4")
	} else if r.IntN(5) == 0 {
		args, apart = append(args, "train.qat="+oneOf(r, "int4", "int8"), "train.qat_group=16"), max(apart, 1e-3)
	}
	if r.IntN(5) == 0 {
		args = append(args, "objective.kind="+oneOf(r, "dpo", "orpo", "simpo", "reward"), "data.paths=[pairs.jsonl]")
	}
	if r.IntN(6) == 0 {
		args = append(args, oneOf(r, `freeze=["*embed*"]`, `freeze=["*.layers.0.*", "*.layers.1.*"]`))
	}
	if r.IntN(3) == 0 {
		args = append(args, `log.tensors=["*_grad", "*.input", "*.output*"]`, "log.tensor_steps=[1-4]")
	}
	return args, apart
}

// TestDrawnCombinations draws published models made narrow, ways to train them and plans, lets two steps be
// taken, and two more under another plan, and exports the result: each is refused with a reason or carried
// out, with the losses of one rank. Of what is drawn a third at least is carried out.
func TestDrawnCombinations(t *testing.T) {
	t.Parallel()
	draws := 6
	if *long {
		draws = 200
	} else {
		t.Log("6 of 200 draws: add -long")
	}
	dir, kinds, r, carried := tinyRun(t), drawnModels(t), rand.New(rand.NewPCG(7, 11)), 0
	require.Greater(t, len(kinds), 25)
	pairs := strings.Repeat(`{"prompt": "one and one", "chosen": "two", "rejected": "three or so"}`+"\n", 40)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pairs.jsonl"), []byte(pairs), 0o644))
	for i := range draws {
		m := oneOf(r, oneOf(r, kinds...)...)
		training, apart := drawnTraining(r, m.moe)
		plans := [][]string{drawnPlan(r, m.moe), drawnPlan(r, m.moe)}
		if slices.ContainsFunc(training, func(a string) bool { return strings.HasPrefix(a, "objective.") }) {
			plans[0], plans[1] = answering(plans[0]), answering(plans[1])
		}
		own := fmt.Sprintf("draw%d", i)
		text, err := json.Marshal(map[string]any{"model": map[string]any{"name": m.name, "init": "random",
			"overrides": m.sizes},
			"data": map[string]any{"paths": []string{"text"}, "tokenizer": "tok", "seq_len": 32,
				"packing": true},
			"train":      map[string]any{"steps": 4, "global_batch": 4, "micro_batch": 1},
			"log":        map[string]any{"dir": own + "/run"},
			"checkpoint": map[string]any{"dir": own + "/ckpt"}})
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, own), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, own, "run.yaml"), text, 0o644))
		train := func(args ...string) bool {
			args = append(append([]string{"train", own + "/run.yaml"}, training...), args...)
			code, out := runIn(t, dir, nil, args...)
			require.NotContains(t, out, "panic", "%s %s", text, args)
			require.Contains(t, []int{0, 2}, code, "%s %s\n%s", text, args, out)
			if code != 0 && *long {
				t.Logf("draw %d refused: %.200s", i, out)
			}
			return code == 0
		}
		if !train(append(plans[0], "train.steps=2")...) {
			continue
		}
		if train("train.steps=2", "log.dir="+own+"/one/run", "checkpoint.dir="+own+"/other") {
			one, got := metrics(t, filepath.Join(dir, own, "one")), metrics(t, filepath.Join(dir, own))
			for k, x := range one {
				require.LessOrEqual(t, math.Abs(x.Loss-got[k].Loss), apart*x.Loss, "%s %s %s: step %d", text,
					training, plans[0], k+1)
			}
		}
		if train(append(plans[1], "train.steps=4")...) {
			carried++
			code, out := runIn(t, dir, nil, "ckpt", "convert", own+"/ckpt", own+"/hf")
			require.Zero(t, code, "%s %s %s", text, training, out)
		}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, own)))
	}
	t.Logf("%d of %d carried out", carried, draws)
	require.Greater(t, 3*carried, draws)
}
