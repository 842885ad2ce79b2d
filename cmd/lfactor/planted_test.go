package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// plantedRun has thirteen faults in seven sections: in single values, between two keys of a section,
// between sections, between a section and the model, and between a section and this host's files. Each
// stands on a line of its own, with a comment that names the key in the message.
const plantedRun = `model:
  name: qwen/3-0.6b
  init: random
data:
  kind: text
  paths: [nowhere.txt]      # data.paths
  tokenizer: ./nowhere      # data.tokenizer
  split: [1, -1, 0]         # data.split
train:
  steps: ten                # train.steps
  loss_scale: 4             # train.loss_scale
  router: {jitter: 0.1}     # train.router.jitter
  global_batch: 7           # train.global_batch
  micro_batch: 2
optimizer:
  beta1: 1                  # optimizer.beta1
plan:
  pp: 5                     # plan.pp
  dq: 2                     # plan.dq
  encoder: {recompute: full} # plan.encoder.recompute
lora:
  rank: 4
  targets: ["*.nothing"]    # lora.targets
checkpoint:
  save_hf: true             # checkpoint.save_hf
`

// TestPlantedFaults: config check and train say every fault of a run file at once, each with its line; plan
// and sim say all but those of files, since they lay out runs of other hosts.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(plantedRun), 0o644))
	for verb, files := range map[string]bool{"config check": true, "train": true, "plan": false,
		"sim": false} {
		code, out := runIn(t, dir, nil, append(strings.Fields(verb), "run.yaml")...)
		require.Equal(t, exit.Usage, code, "%s: %s", verb, out)
		n := 0
		for i, line := range strings.Split(plantedRun, "\n") {
			_, key, marked := strings.Cut(line, "# ")
			if !marked || !files && (key == "data.paths" || key == "data.tokenizer") {
				continue
			}
			n++
			found := false
			for _, said := range strings.Split(out, "\n") {
				at := strings.Index(said, "run.yaml:"+strconv.Itoa(i+1)+": "+key+": ")
				found = found || at >= 0 && strings.Contains(said[at:], "; ") || at >= 0 &&
					strings.Contains(said, "want ")
			}
			require.True(t, found, "%s says nothing, or no remedy, of %s in line %d:\n%s", verb, key, i+1,
				out)
		}
		require.Equal(t, n, strings.Count(out, "run.yaml:"), "%s says more than what is planted:\n%s",
			verb, out)
	}
}
