package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestOptimizerGroups: parameters of a group have its factors on the rate and on weight decay, with every optimizer and
// under plans; groups that match nothing, or one parameter twice, are refused.
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
		"matches nothing that is trained":        `["*.nowhere lr=2"]`,
		"both match":                             `["*.to_q.* lr=2", "*.to_q.weight lr=3"]`,
		"has weight decay":                       `["*.bias decay=2"]`,
		"want a pattern":                         `["*.bias"]`,
		"want lr= or decay=":                     `["*.bias lr=-1"]`,
		"a group has lr=, decay= and optimizer=": `["*.bias beta=1"]`,
		"stands twice":                           `["*.bias lr=1 lr=2"]`,
		"want one of adamw,":                     `["*.bias optimizer=sloth"]`,
		"is for all parameters":                  `["*.bias optimizer=schedule_free"]`,
	} {
		_, _, err := load(groups)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "optimizer.groups")
	}
}

// TestOptimizersOfGroups: parameters of a group are trained as by its optimizer alone, whatever the others
// have: each of a run of two optimizers has after its first step the bits that it has in a run of one,
// under plans too.
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
