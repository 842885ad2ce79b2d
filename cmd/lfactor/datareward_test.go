package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A model of rewards that was trained here is a step of a recipe: documents like the answers that it learnt
// to prefer stay, and the scores are those of its export.
func TestRewardStep(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	pairs := ""
	for i := range 40 {
		pairs += fmt.Sprintf("{\"prompt\": \"q%d\", \"chosen\": \"func good%d(x int)\", \"rejected\": \"???? !!!! %d\"}\n", i,
			i, i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pairs.jsonl"), []byte(pairs), 0o600))
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "objective.kind=reward",
		"data.paths=[pairs.jsonl]",
		"data.kind=auto", "train.steps=40", "optimizer.lr=0.01", "checkpoint.interval=40")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, nil, "ckpt", "convert", "ckpt", "hf")
	require.Zero(t, code, out)
	docs := ""
	for i := range 10 {
		docs += fmt.Sprintf("{\"text\": \"q%d func good%d(x int)\"}\n{\"text\": \"q%d ???? !!!! %d\"}\n", i,
			i, i, i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docs.jsonl"), []byte(docs), 0o600))
	var scores [2][]float64
	for k, model := range []string{"ckpt", "hf"} {
		recipe := "output: out-" + model + "\ninputs: [docs.jsonl]\nsteps: [{step: reward_model, model: " + model + "}]\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "r.yaml"), []byte(recipe), 0o600))
		code, out = runIn(t, dir, nil, "data", "run", "r.yaml")
		require.Zero(t, code, out)
		text, err := os.ReadFile(filepath.Join(dir, "out-"+model, "data-00000.jsonl"))
		require.NoError(t, err)
		for l := range strings.Lines(string(text)) {
			var d struct{ Score float64 }
			require.NoError(t, json.Unmarshal([]byte(l), &d))
			scores[k] = append(scores[k], d.Score)
		}
	}
	require.Len(t, scores[0], 20)
	require.InDeltaSlice(t, scores[0], scores[1], 1e-5)
	least, most := scores[0][0], scores[0][1]
	for i := 0; i < 20; i += 2 {
		least, most = min(least, scores[0][i]), max(most, scores[0][i+1])
	}
	require.Greater(t, least, most, "good documents score higher: %v", scores[0])
	recipe := fmt.Sprintf("output: kept\ninputs: [docs.jsonl]\nsteps: [{step: reward_model, model: hf, min: %g, column: \"\"}]\n",
		(least+most)/2)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "r.yaml"), []byte(recipe), 0o600))
	code, out = runIn(t, dir, nil, "data", "run", "r.yaml")
	require.Zero(t, code, out)
	require.Contains(t, out, "10 low_score")
	bad := "output: bad\ninputs: [docs.jsonl]\nsteps: [{step: reward_model, model: tok}]\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "r.yaml"), []byte(bad), 0o600))
	code, out = runIn(t, dir, nil, "data", "run", "r.yaml")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "r.yaml:3: steps[0].model: ")
	require.NoDirExists(t, filepath.Join(dir, "bad"))
}
