package run

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestOptimizersGoOn: a run of each optimizer, and with moments in few bits, that is ended and goes on has
// the losses of one left alone, to the bit; under another plan within 1e-3, since plans sum gradients in
// other orders. What schedule-free AdamW gives to those who open a run is its average.
func TestOptimizersGoOn(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	wide := []string{"model.overrides.intermediate_size=512", "optimizer.lr=3.0e-3"}
	cases := [][]string{{"optimizer.moments=bf16"}, {"optimizer.moments=8bit"}, {"optimizer.moments=8bit",
		"optimizer.ema=0.9"},
		{"optimizer.moments=8bit", "optimizer.kind=muon"}, {"optimizer.moments=8bit",
			"train.precision=bf16"}}
	for _, kind := range optim.Names() {
		cases = append(cases, []string{"optimizer.kind=" + kind})
	}
	cases = append(cases, []string{"optimizer.kind=adafactor", "optimizer.ema=0.9"},
		[]string{"optimizer.kind=adafactor", "train.precision=bf16", "optimizer.adafactor.fixed=true"})
	plans := [][]string{{}, {"plan.pp=2", "plan.offload_optimizer=true"}, {"plan.dp=2", "plan.zero=1"},
		{"plan.tp=2"},
		{"plan.dp=2", "plan.zero=3"}}
	for i, c := range cases {
		args := append(slices.Clone(wide), c...)
		want, dir, said, err := spikeRun(t, docs, append(args, "train.steps=6")...)
		require.NoError(t, err, said)
		for j, plan := range plans {
			if j > 0 && j != 1+i%4 && c[0] != "optimizer.moments=8bit" {
				continue // each case under one other plan, and those in eight bits under all
			}
			if c[0] == "optimizer.kind=adafactor" && slices.Contains(plan, "plan.offload_optimizer=true") {
				_, err := spikeConfig(t, t.TempDir(), docs, append(slices.Clone(args), plan...)...)
				require.ErrorContains(t, err, "adafactor keeps little state")
				plan = []string{"plan.dp=2", "plan.zero=2"}
			}
			dir := t.TempDir()
			_, said, err := spikeIn(t, dir, docs, append(args, "train.steps=3")...)
			require.NoError(t, err, said)
			got, said, err := spikeIn(t, dir, docs, append(append(args, plan...), "train.steps=6")...)
			require.NoError(t, err, said)
			require.Len(t, got, 3)
			for step, loss := range got {
				if j == 0 {
					require.Equal(t, want[step], loss, "%v step %d", c, step)
				}
				require.InEpsilon(t, want[step], loss, 1e-3, "%v %v step %d", c, plan, step)
			}
		}
		saved := filepath.Join(dir, "saved")
		if i == 5+slices.Index(optim.Names(), "schedule_free") {
			x, err := trained.Open(saved, dir)
			require.NoError(t, err)
			const norm = "model.norm.weight"
			raw := make([]byte, 4*16)
			require.NoError(t, x.Saved.ReadLogical(norm, checkpoint.Param, [][2]int{{0, 16}}, raw))
			v := make([]float32, 16)
			tensor.Widen(tensor.F32, raw, v)
			require.Equal(t, values(t, saved, 6, optim.AverageState)[norm], v)
			require.NotEqual(t, values(t, saved, 6, checkpoint.Param)[norm], v)
			x.Close()
		}
		scales := values(t, saved, 6, "exp_avg_sq_scale")
		require.Equal(t, c[0] == "optimizer.moments=8bit" && c[len(c)-1] != "optimizer.kind=muon",
			len(scales) > 0, "%v", c)
	}
}
