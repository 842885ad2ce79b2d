package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answers stand for the commands: what each prints in its n-th run, or an error.
func answers(t *testing.T, of map[string][]string) func(context.Context, string, []string) ([]byte, error) {
	seen := map[string]int{}
	return func(_ context.Context, program string, args []string) ([]byte, error) {
		require.Equal(t, "lfactor", program)
		require.Equal(t, []string{"-o", "json"}, args[len(args)-2:])
		for name, outs := range of {
			if strings.HasPrefix(strings.Join(args, " "), name) {
				n := seen[name]
				if seen[name]++; n >= len(outs) {
					break
				}
				if outs[n] == "" {
					return nil, errors.New("exit status 3: it does not fit")
				}
				return []byte(outs[n]), nil
			}
		}
		return nil, fmt.Errorf("no answer to %v", args)
	}
}

const peaks = `{"level":"cpu-avx2","multiply_add_flops":1e11,"bf16_flops":2e11,"memory_bytes_per_second":3e10}`

func options(run func(context.Context, string, []string) ([]byte, error), runs int, only ...string) Options {
	return Options{Program: "lfactor", Dir: "d", Only: only, Runs: runs, Version: "1", Threads: 2, Name: "<b>here</b>",
		Now: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), Tell: func(string, int, int) {}, Run: run}
}

// TestRun: a task of speed has the median of its runs and what that is of the machine's best, one of quality passes
// from its target on and runs once, and one that fails says why and keeps no other from running.
func TestRun(t *testing.T) {
	r, err := Run(context.Background(), options(answers(t, map[string][]string{
		"bench peak": {peaks},
		"bench step --precision fp32 --threads 2": {`{"tokens_per_second":100,"of_floor":0.5}`,
			`{"tokens_per_second":300,"of_floor":0.75}`, `{"tokens_per_second":200,"of_floor":0.8}`},
		"bench plan":         {`{"list_s":1,"closed_form_s":2,"simulate_s":3,"trace_s":4}`, "", `{}`},
		"demo --dir d/vis":   {`{"seconds":30,"right_with_image":0.95}`},
		"demo --dir d/robot": {`{"seconds":20,"reached":0.5}`},
	}), 3, "step-fp32", "plan", "vision", "robot"))
	require.NoError(t, err)
	require.Equal(t, "2026-11-27T12:00:00Z", r.Date)
	require.Equal(t, "cpu-avx2", r.Machine.Kernels)
	require.Len(t, r.Results, 4)
	step, plan, vision, robot := r.Results[0], r.Results[1], r.Results[2], r.Results[3]
	require.Equal(t, 200.0, step.Median)
	require.InDelta(t, 250, step.Floor, 1e-9)
	require.InDelta(t, 0.8, step.OfFloor, 1e-9)
	require.True(t, step.Passed)
	require.Equal(t, []float64{10}, plan.Values)
	require.False(t, plan.Passed)
	require.Contains(t, plan.Why, errNothing.Error(), "of the last run that failed")
	require.True(t, vision.Passed)
	require.Equal(t, 30.0, vision.Median)
	require.False(t, robot.Passed)
	require.Contains(t, robot.Why, "of unseen tables reached 0.5, and the time counts from 0.9 on")

	_, err = Run(context.Background(), options(nil, 1, "stop"))
	require.ErrorContains(t, err, `no task is named "stop"; there are step-fp32, step-bf16, plan`)
}

// TestBoard: reports are entered line by line, the best of each task is marked, names are text, and a file that is no
// leaderboard stays as it is.
func TestBoard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.jsonl")
	report := func(rate, seconds string) *Report {
		r, err := Run(context.Background(), options(answers(t, map[string][]string{"bench peak": {peaks},
			"bench step --precision fp32": {`{"tokens_per_second":` + rate + `,"of_floor":0.5}`},
			"demo --dir d/long":           {`{"seconds":` + seconds + `,"hybrid":4,"asked":4}`}}), 1, "step-fp32", "long"))
		require.NoError(t, err)
		return r
	}
	first := report("100", "7")
	_, err := Enter(path, first)
	require.NoError(t, err)
	second := report("90", "6")
	all, err := Enter(path, second)
	require.NoError(t, err)
	require.Len(t, all, 2)
	again, err := Board(path)
	require.NoError(t, err)
	require.Equal(t, []*Report{first, second}, again)

	text, err := Page(second, all, 2)
	require.NoError(t, err)
	html := string(text)
	require.Contains(t, html, `<td class="n best">100.0`)
	require.Contains(t, html, `<td class="n">90`)
	require.Contains(t, html, `<td class="n best">6`)
	require.NotContains(t, html, "<script")
	require.NotContains(t, html, "<b>here</b>")
	require.Contains(t, html, "&lt;b&gt;here&lt;/b&gt;")

	require.NoError(t, os.WriteFile(path, []byte("{}\n"), 0o600))
	_, err = Enter(path, second)
	require.ErrorContains(t, err, "board.jsonl:1: no report of the suite")
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "{}\n", string(kept))
}

// TestTasks: every task has a command that ends in JSON, and no two share a name.
func TestTasks(t *testing.T) {
	seen := map[string]bool{}
	for _, task := range Tasks(2) {
		require.False(t, seen[task.Name], task.Name)
		seen[task.Name] = true
		require.NotEmpty(t, task.Doc)
		require.NotEmpty(t, task.Args("d"))
		require.Equal(t, task.Target > 0, task.Quality != "", task.Name)
		_, err := task.Read([]byte("{"))
		require.Error(t, err, task.Name)
		_, err = task.Read([]byte(map[bool]string{true: "[]", false: "{}"}[task.Name == "simulate"]))
		require.ErrorIs(t, err, errNothing, task.Name)
	}
}
