package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// pacedTalk is an environment that takes so many seconds for an answer, and ends it.
const pacedTalk = `while read -r q; do
  id=${q#*\"id\":}; id=${id%%%%,*}; d=false
  case $q in
  *'"reset"'*) ;;
  *) sleep %g; d=true ;;
  esac
  echo "{\"id\": $id, \"text\": \"\", \"reward\": 1, \"done\": $d}"
done
`

// TestPacedGain: what drawing ahead gains a run in four processes, of which three draw, is what the simulation
// of the desk says by the times of the run that draws and trains in turn, within 8 %. The processes do hardly
// more than wait: an answer takes as long as its environment, and a backward what a planted fault adds to it.
func TestPacedGain(t *testing.T) {
	if !*long {
		t.Skip("left out: half a minute of waiting, whose times another test would change; -long has it")
	}
	for _, answer := range []float64{0.9, 0.25} { // a step's training takes 0.45 s
		var step, waits [2]float64
		for staleness := range step {
			dir := clitest.DrawnRun(t, 12)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "env.sh"),
				fmt.Appendf(nil, pacedTalk, answer), 0o600))
			code, out := runIn(t, dir, []string{"LFACTOR_FAULT=slow=0@1"}, "train", "run.yaml",
				"rollout.samplers=3", "rollout.environment=[sh, env.sh]", "rollout.turns=1", "rollout.processes=4",
				"reward.kind=environment", `reward.pattern=""`, "rollout.span=0", "checkpoint.interval=100",
				"train.global_batch=12", "train.micro_batch=4", fmt.Sprint("rollout.staleness=", staleness))
			require.Zero(t, code, out)
			step[staleness], waits[staleness] = settled(t, filepath.Join(dir, "run", "metrics.jsonl"))
		}
		_, out, errs := streams(t, t.TempDir(), "", "sim", "rollouts", "--groups", "3", "--each", "4",
			"--samplers", "3", "--hold", "1", "--length", "1", "--most", "1", "--spread", "0.001",
			"--token", fmt.Sprint(waits[0]), "--train", fmt.Sprint(step[0]-waits[0]),
			"--load", "0.001", "--publish", "0.001", "--staleness", "0,1", "-o", "json")
		var said []struct {
			Staleness int     `json:"staleness"`
			Gain      float64 `json:"gain"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &said), errs)
		require.Len(t, said, 2)
		real := step[0] / step[1]
		t.Logf("an answer of %g s: steps of %.3f and %.3f s, a gain of %.3f, simulated %.3f", answer, step[0],
			step[1], real, said[1].Gain)
		require.Greater(t, said[1].Gain, 1.3)
		require.InEpsilon(t, real, said[1].Gain, 0.08)
	}
}

// settled is what a step takes in seconds behind the first four, and how much of it is waiting for answers.
func settled(t *testing.T, file string) (step, waits float64) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it is only read
	n := 0.0
	for s := bufio.NewScanner(f); s.Scan(); {
		var m run.Metrics
		require.NoError(t, json.Unmarshal(s.Bytes(), &m))
		if m.Step > 4 {
			step, waits, n = step+m.Seconds, waits+m.DataWait, n+1
		}
	}
	require.Positive(t, n)
	return step / n, waits / n
}
