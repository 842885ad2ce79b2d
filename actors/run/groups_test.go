package run

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestOptimizerGroups: parameters of a group have its factors on the rate and on weight decay, with every
// optimizer and under plans; groups that match nothing, or one parameter twice, are refused.
func TestOptimizerGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	load := func(groups string, more ...string) (*configs.Config, string, error) {
		out := t.TempDir()
		text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 16, split: [1, 0, 0]}\ndiffusion: {autoencoder: "+
			"pixels, sizes: [8x8], text_encoder: none}\ntrain: {steps: 3, global_batch: 4, micro_batch: 2}\nschedule: {kind: constant}\noptimizer: {lr: "+
			"1.0e-2, weight_decay: 0.5, groups: %s}\n", filepath.Join(dir, "model.yaml"), filepath.Join(dir,
			"a.tar"), groups)
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved")},
			more...)})
		return cfg, filepath.Join(out, "saved"), err
	}
	train := func(groups string, more ...string) map[string][]float32 {
		cfg, saved, err := load(groups, more...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{}))
		return values(t, saved, cfg.Run.Train.Steps, checkpoint.Param, checkpoint.Master)
	}
	const still = `["*.to_q.weight lr=0", "*.to_v.weight decay=0"]`
	for _, kind := range []string{"adamw", "sgd", "lion", "schedule_free"} {
		begin := train("[]", "optimizer.kind="+kind, "train.steps=1", "optimizer.lr=0")
		plain, grouped := train("[]", "optimizer.kind="+kind), train(still, "optimizer.kind="+kind)
		for name, v := range grouped {
			switch {
			case strings.HasSuffix(name, ".to_q.weight"):
				require.Equal(t, begin[name], v, "%s %s", kind, name)
				require.NotEqual(t, begin[name], plain[name], "%s %s", kind, name)
			case strings.HasSuffix(name, ".to_v.weight"):
				require.NotEqual(t, plain[name], v, "%s %s", kind, name)
			}
		}
		for _, plan := range [][]string{{"plan.dp=2", "plan.zero=3"}, {"plan.pp=2",
			"plan.offload_optimizer=true"}} {
			other := train(still, append(plan, "optimizer.kind="+kind)...)
			for name, v := range grouped {
				require.InDeltaSlice(t, v, other[name], 2e-3, "%s %s %v", kind, name, plan)
			}
		}
	}
	for want, groups := range map[string]string{
		"matches nothing that is trained":               `["*.nowhere lr=2"]`,
		"both match":                                    `["*.to_q.* lr=2", "*.to_q.weight lr=3"]`,
		"has weight decay":                              `["*.bias decay=2"]`,
		"want a pattern":                                `["*.bias"]`,
		"want lr= or decay=":                            `["*.bias lr=-1"]`,
		"clip= and a norm above 0":                      `["*.bias clip=0"]`,
		"a group has lr=, decay=, clip= and optimizer=": `["*.bias beta=1"]`,
		"stands twice":                                  `["*.bias lr=1 lr=2"]`,
		"want one of adafactor, adamw,":                 `["*.bias optimizer=sloth"]`,
		"is for all parameters":                         `["*.bias optimizer=schedule_free"]`,
		"9 groups have clip=, 8 at most may": `["*.to_out.0.weight clip=1", "*.to_out.0.bias clip=1", "*.to_q.weight clip=1", "*.to_k.weight clip=1", ` +
			`"*.to_v.weight clip=1", "*.to_q.bias clip=1", "*.to_k.bias clip=1", "*.to_v.bias clip=1", "proj_out.* clip=1"]`,
	} {
		_, _, err := load(groups)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "optimizer.groups")
	}
}

// TestOptimizersOfGroups: parameters of a group are trained as by its optimizer alone, whatever the others have:
// each of a run of two optimizers has after its first step the bits that it has in a run of one, under plans too.
func TestOptimizersOfGroups(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	train := func(more ...string) map[string][]float32 {
		_, dir, said, err := spikeRun(t, docs, append(more, "train.steps=1", "optimizer.clip_grad=0")...)
		require.NoError(t, err, said)
		return values(t, filepath.Join(dir, "saved"), 1, checkpoint.Param)
	}
	for _, c := range [][2]string{{"adamw", "lion"}, {"muon", "adamw"}, {"adamw", "muon"}, {"sgd", "muon"}} {
		one, other := train("optimizer.kind="+c[0]), train("optimizer.kind="+c[1])
		for _, plan := range []string{"plan.pp=1", "plan.pp=2"} {
			both := train("optimizer.kind="+c[0], fmt.Sprintf(`optimizer.groups=["*.mlp.* optimizer=%s"]`, c[1]), plan)
			for name, v := range both {
				want := one[name]
				if strings.Contains(name, ".mlp.") {
					want = other[name]
				}
				require.InDeltaSlice(t, want, v, 1e-7, "%v %s %s", c, plan, name)
			}
		}
		sharded := train("optimizer.kind="+c[0], fmt.Sprintf(`optimizer.groups=["*.mlp.* optimizer=%s"]`, c[1]), "plan.dp=2", "plan.zero=1")
		for name, v := range sharded {
			want := one[name]
			if strings.Contains(name, ".mlp.") {
				want = other[name]
			}
			require.InDeltaSlice(t, want, v, 2e-3, "%v %s", c, name)
		}
	}
}

// TestClippedGroups: a group that has a norm of its own is clipped by it alone, and the others by theirs,
// under plans too: steps of SGD at a rate of 1 are the gradients themselves as they were clipped.
func TestClippedGroups(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	train := func(more ...string) map[string][]float32 {
		_, dir, said, err := spikeRun(t, docs, append([]string{"optimizer.kind=sgd", "optimizer.momentum=0",
			"optimizer.weight_decay=0", "schedule.kind=constant", "schedule.warmup_steps=0",
			"optimizer.lr=1",
			"train.steps=1"}, more...)...)
		require.NoError(t, err, said)
		return values(t, filepath.Join(dir, "saved"), 1, checkpoint.Param)
	}
	begin := train("optimizer.lr=0", "optimizer.clip_grad=0")
	norms := func(after map[string][]float32) (mlp, rest float64) {
		for name, v := range after {
			sum := 0.0
			for i, x := range v {
				d := float64(x) - float64(begin[name][i])
				sum += d * d
			}
			if strings.Contains(name, ".mlp.") {
				mlp += sum
			} else {
				rest += sum
			}
		}
		return math.Sqrt(mlp), math.Sqrt(rest)
	}
	mlp, rest := norms(train("optimizer.clip_grad=0"))
	for _, plan := range [][]string{nil, {"plan.pp=2"}, {"plan.tp=2"}, {"plan.dp=2", "plan.zero=1"}} {
		a, b := norms(train(append(plan, fmt.Sprintf(`optimizer.groups=["*.mlp.* clip=%g"]`, mlp/4),
			fmt.Sprintf("optimizer.clip_grad=%g", rest/8))...))
		require.InDelta(t, mlp/4, a, 1e-4*mlp, "%v", plan)
		require.InDelta(t, rest/8, b, 1e-4*rest, "%v", plan)
		a, b = norms(train(append(plan, fmt.Sprintf(`optimizer.groups=["*.mlp.* clip=%g"]`, mlp*4),
			"optimizer.clip_grad=0")...))
		require.InDelta(t, mlp, a, 1e-4*mlp, "%v: a norm below its limit stays", plan)
		require.InDelta(t, rest, b, 1e-4*rest, "%v: all others are not clipped", plan)
	}
}
