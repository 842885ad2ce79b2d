package cluster_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClusterBuckets: two replicas on two hosts, with a link that needs about as long for the gradients as a
// backward takes, have the weights of a run that sends all gradients behind the backward, and shorter steps.
func TestClusterBuckets(t *testing.T) {
	if !*long {
		t.Skip("-long measures how much of an exchange of gradients passes behind the backward, on a slow link")
	}
	dir := tinyRun(t)
	r := onRig(t, dir, 2)
	for _, h := range r.Hosts[:2] {
		h.Rate(300_000_000)
	}
	median := map[string]float64{}
	var states []state
	for _, bucket := range []string{"0", "1MiB"} {
		for _, d := range []string{"ckpt", "run"} {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, d)))
		}
		r.on(0, "train", "run.yaml", "--cluster", "rig", "plan.procs=2", "plan.pp=1", "plan.dp=2",
			"checkpoint.interval=16", "train.steps=16", "model.overrides.hidden_size=256",
			"model.overrides.head_dim=64", "model.overrides.intermediate_size=768",
			"model.overrides.num_hidden_layers=8", "data.seq_len=64", "train.micro_batch=16",
			"train.global_batch=32", "train.buddy=off", "plan.bucket_bytes="+bucket)
		text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		require.NoError(t, err)
		var took []float64
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			var m struct{ Seconds float64 }
			require.NoError(t, json.Unmarshal(lines.Bytes(), &m))
			took = append(took, m.Seconds)
		}
		slices.Sort(took)
		median[bucket] = took[len(took)/2]
		states = append(states, stateOf(t, dir, 16))
	}
	require.Equal(t, states[0], states[1])
	t.Logf("median step: %.3f s with gradients behind the backward, %.3f s in buckets", median["0"],
		median["1MiB"])
	require.Less(t, median["1MiB"], 0.9*median["0"])
}
