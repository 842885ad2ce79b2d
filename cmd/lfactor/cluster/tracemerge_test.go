package cluster_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/sim/rehearsal"
)

// TestTraceMerged: a run of several processes, here and on hosts of a cluster, leaves one trace of all
// ranks in one time: a stage begins a microbatch after the stage before has ended it, within what the file
// says of the clocks, and the simulator's comparison reads it.
func TestTraceMerged(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	env := clusterHome(t, dir, "test")
	code, out := runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	for _, where := range [][]string{{"train.restarts=0"}, nil, {"--cluster", "test"}} {
		code, out = runIn(t, dir, env, append([]string{"train", "run.yaml", "plan.procs=2", "plan.dp=1",
			"train.steps=12", "log.dir=run"}, where...)...)
		require.Zero(t, code, out)
		require.Regexp(t, `trace   2 processes in trace.json, their clocks within \S+s of each other`, out)
		file := filepath.Join(dir, "run", "trace.json")
		within := clocksWithin(t, file)
		require.Less(t, within, time.Second)
		jobs, cut, err := rehearsal.ReadTrace(file)
		require.NoError(t, err)
		require.False(t, cut)
		type at struct {
			step  int64
			micro string
		}
		ends, seen := map[at]float64{}, 0
		forward := regexp.MustCompile(`^([01])F(\d+)$`)
		for _, stage := range []string{"0", "1"} {
			for _, j := range jobs {
				m := forward.FindStringSubmatch(j.Action)
				switch k := (at{j.Step, strings.Join(m[min(2, len(m)):], "")}); {
				case m == nil || m[1] != stage:
				case stage == "0":
					ends[k] = max(ends[k], j.End)
				default:
					require.Contains(t, ends, k, "what the first stage did is there")
					require.GreaterOrEqual(t, j.Start, ends[k]-within.Seconds(), "%v", j)
					seen++
				}
			}
		}
		require.GreaterOrEqual(t, seen, 12*4*9/10, "both processes tell almost all they did")
		code, diff := runIn(t, dir, env, "sim", "diff", "run/trace.json", "run.yaml", "plan.procs=2",
			"plan.dp=1",
			"--cluster", "cpu")
		require.Zero(t, code, diff)
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
		t.Log(regexp.MustCompile("(?m)^trace.*$").FindString(out))
	}
}

// clocksWithin is what a trace says of the clocks of its processes.
func clocksWithin(t *testing.T, file string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var all []struct {
		Name string
		Args struct{ Labels string }
	}
	require.NoError(t, json.Unmarshal(text, &all))
	for _, e := range all {
		if m := regexp.MustCompile(`^clock \S+ ms, within (\S+) ms$`).FindStringSubmatch(e.Args.Labels); m != nil {
			ms, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			return time.Duration(ms * 1e6)
		}
	}
	t.Fatal("the trace says nothing of clocks")
	return 0
}
