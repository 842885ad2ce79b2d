package run

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

var long = flag.Bool("long", false, "run the long tier as well")

// objectiveForms are what of a run's objective is of many rows, or of the whole of a weight, at once.
var objectiveForms = []struct {
	name  string
	any   bool // no plan changes it
	exact bool // gradients are not rounded to few bits
	args  []string
}{
	{"none", true, true, []string{"train.router.loss=none"}},
	{"pooled", false, true, []string{"train.router.loss=pooled"}},
	{"layer", false, true, []string{"train.router.loss=layer"}},
	{"sequence", false, true, []string{"train.router.loss=sequence"}},
	{"batch", false, true, []string{"train.router.loss=batch"}},
	{"z", true, true, []string{"train.router.loss=none", "train.router.z_loss_coef=0.1"}},
	{"capacity", false, true, []string{"train.router.loss=none", "train.router.capacity=1.1"}},
	{"capacity by position", false, true, []string{"train.router.loss=none", "train.router.capacity=1.1",
		"train.router.drop=position"}},
	{"tensor", false, false, []string{"train.low_precision=tensor"}},
	{"tensor_e4m3", false, false, []string{"train.low_precision=tensor_e4m3"}},
	{"nvfp4", false, false, []string{"train.low_precision=nvfp4"}},
	{"mxfp8", true, false, []string{"train.low_precision=mxfp8"}},
	{"block", false, false, []string{"train.low_precision=block"}},
	{"delayed", true, false, []string{"train.low_precision=delayed"}},
	{"tensor of experts", false, false, []string{"train.router.loss=none", "train.low_precision=tensor"}},
	{"nvfp4 of experts", false, false, []string{"train.router.loss=none", "train.low_precision=nvfp4"}},
	{"mxfp8 of experts", true, false, []string{"train.router.loss=none", "train.low_precision=mxfp8"}},
	{"block of experts", false, false, []string{"train.router.loss=none", "train.low_precision=block"}},
}

// drawnPlan is a plan of up to eight ranks with any axis, and what else cuts the rows of a step.
func drawnPlan(r *rand.Rand, experts bool) (out []string) {
	one := func(xs ...int) int { return xs[r.IntN(len(xs))] }
	set := func(key string, n int) { out = append(out, fmt.Sprintf("%s=%d", key, n)) }
	pp, tp, cp, dp := one(1, 1, 2), one(1, 1, 2), one(1, 1, 2), one(1, 1, 2)
	set("plan.pp", pp)
	set("plan.tp", tp)
	set("plan.cp", cp)
	set("plan.dp", dp)
	set("plan.zero", one(0, 0, 1, 2, 3))
	ranks := tp * cp * dp
	if tp > 1 && r.IntN(2) == 0 {
		out = append(out, "plan.sequence_parallel=true")
	}
	if cp > 1 {
		out = append(out, "plan.cp_comm="+[]string{"gather", "ring", "ulysses"}[r.IntN(3)])
	}
	if r.IntN(4) == 0 {
		out = append(out, "plan.schedule="+[]string{"chunkpipe", "seq1f1b"}[r.IntN(2)])
		set("plan.chunk_size", one(16, 32))
	}
	if experts {
		etp := min(one(1, 1, 2), tp)
		set("plan.ep", min(one(1, 2, 4), ranks/etp))
		set("plan.etp", etp)
	}
	out = append(out, "plan.recompute="+[]string{"none", "selective", "full"}[r.IntN(3)])
	return out
}

// firstSteps are what a run's first steps report, and what the run says of its settings.
func firstSteps(t *testing.T, dir, model string, args ...string) (steps []Metrics, said string, err error) {
	t.Helper()
	cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir, model+".yaml"),
		"data.tokenizer=" + dir, "data.paths=[" + filepath.Join(dir, "texts.jsonl") + "]", "data.seq_len=64",
		"data.split=[1,0,0]", "train.steps=1", "train.global_batch=4", "schedule.warmup_steps=0", "model.init=random",
		"log.dir=" + filepath.Join(t.TempDir(), "log")}, args...)})
	if err != nil {
		return nil, "", err
	}
	err = Train(context.Background(), cfg, Options{Step: func(m Metrics) { steps = append(steps, m) }})
	return steps, strings.Join(cfg.Notices, "\n"), err
}

// writeObjectives writes models, texts and a tokenizer.
func writeObjectives(t *testing.T, dir string) {
	t.Helper()
	wordTokenizer(t, dir, 1)
	for name, text := range map[string]string{
		"dense": strings.NewReplacer("hidden_size: 32", "hidden_size: 64", "intermediate_size: 48",
			"intermediate_size: 128", "head_dim: 8", "head_dim: 16", "heads: 2", "heads: 4").Replace(pairsModel),
		"experts": strings.NewReplacer("hidden_size: 32", "hidden_size: 64", "intermediate_size: 48",
			"intermediate_size: 128", "size: 24", "size: 64", "heads: 2", "heads: 4").Replace(gapModels["experts"]),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text+"vocab_size: 64\neos_token_id: 1\n"),
			0o600))
	}
	r := rand.New(rand.NewPCG(5, 8))
	var lines []string
	for range 60 {
		var words []string
		for range 8 + r.IntN(60) {
			words = append(words, colours[r.IntN(4)])
		}
		b, err := json.Marshal(map[string]string{"text": strings.Join(words, " ")})
		require.NoError(t, err)
		lines = append(lines, string(b))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "texts.jsonl"), []byte(strings.Join(lines, "\n")), 0o600))
}

// TestObjectiveDraws: under drawn plans the first loss is one rank's, or what the plan changes of it is noted. What is
// noted by the form differs in some plan, and losses that no plan changes are never noted.
func TestObjectiveDraws(t *testing.T) {
	t.Parallel()
	draws := len(objectiveForms)
	if *long {
		draws *= 24
	} else {
		t.Logf("%d of %d draws: add -long", draws, 24*draws)
	}
	dir := t.TempDir()
	writeObjectives(t, dir)
	r, same, noted, differ := rand.New(rand.NewPCG(8, 13)), map[string]int{}, map[string]int{}, map[string]int{}
	for i := range draws {
		f := objectiveForms[i%len(objectiveForms)]
		model, micro := "dense", fmt.Sprintf("train.micro_batch=%d", 1+i/len(objectiveForms)%2)
		if strings.HasPrefix(f.args[0], "train.router") {
			model = "experts"
		}
		args := append([]string{micro, "train.loss_average=token"}, f.args...)
		want, _, err := firstSteps(t, dir, model, args...)
		require.NoError(t, err)
		drawn := drawnPlan(r, model == "experts")
		got, said, err := firstSteps(t, dir, model, append(drawn, args...)...)
		require.NoError(t, err, "%s: %v", f.name, drawn)
		off := math.Abs(got[0].Loss-want[0].Loss) / want[0].Loss
		if strings.Contains(said, "changes what the run minimises") {
			if noted[f.name]++; off > 1e-6 {
				differ[f.name]++
			}
			require.False(t, f.any, "%s: %v: %s", f.name, drawn, said)
			continue
		}
		same[f.name]++
		require.LessOrEqual(t, off, 1e-6, "%s: %v", f.name, drawn)
		if f.exact {
			require.InEpsilon(t, want[0].GradNorm, got[0].GradNorm, 1e-4, "%s: %v", f.name, drawn)
		}
	}
	for _, f := range objectiveForms {
		t.Logf("%-22s %2d the same, %2d noted, of which %2d differ", f.name, same[f.name], noted[f.name], differ[f.name])
		require.True(t, !*long || f.any || differ[f.name] > 0, f.name)
	}
}
