package planner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/rehearsal"
	"github.com/lfactor/lfactor/configs"
)

// TestChooseTensors: with plenty of memory everything stays; with less, what is chosen fits where keeping
// all does not, its step is shorter than that of recomputing all, and a run file with the settings has the
// memory that was planned. With less than recomputing all takes nothing fits.
func TestChooseTensors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(deep), 0o644))
	own := []string{"plan.pp=2", "train.global_batch=8"}
	choose := func(memory string) (*Tensors, error) {
		return ChooseTensors(context.Background(), configs.Request{File: file,
			Args: append([]string{"plan.memory=" + memory}, own...)}, "h100")
	}
	planned := func(settings ...string) (peak int64, step float64) {
		cfg, err := configs.Load(configs.Request{File: file, Args: append(settings, own...),
			Getenv: os.Getenv})
		require.NoError(t, err)
		m, err := rehearsal.Machine("h100")
		require.NoError(t, err)
		r, err := rehearsal.New(cfg, rehearsal.Options{Machine: m})
		require.NoError(t, err)
		for rank := range r.Layout.Ranks {
			peak = max(peak, r.Layout.Memory(rank).WorstTotal())
		}
		sum, err := rehearsal.Simulate(context.Background(), cfg, rehearsal.Options{Machine: m})
		require.NoError(t, err)
		return peak, sum.Step
	}
	all, fastest := planned("plan.recompute=none")
	least, slowest := planned("plan.recompute=full")
	require.Less(t, least, all)

	plenty, err := choose("70GiB")
	require.NoError(t, err)
	require.Equal(t, all, plenty.PeakBytes)
	require.InDelta(t, fastest, plenty.StepSeconds, 1e-9)
	for _, f := range plenty.List {
		require.Equal(t, "keep", f.Fate)
	}

	limit := (all + least) / 2
	some, err := choose(fmt.Sprint(limit))
	require.NoError(t, err)
	require.LessOrEqual(t, some.PeakBytes, limit)
	require.Greater(t, some.PeakBytes, limit-(all-least)/8, "memory is left that could have saved time")
	require.Less(t, some.StepSeconds, slowest)
	peak, step := planned(some.Settings...)
	require.Equal(t, some.PeakBytes, peak)
	require.InDelta(t, step, some.StepSeconds, 1e-9)

	_, err = choose("1MiB")
	require.ErrorContains(t, err, "even with all that can be moved or computed again")
	_, err = configs.ReadPlan("plan.yaml", some.PlanFile())
	require.NoError(t, err)
}
