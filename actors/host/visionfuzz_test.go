package host

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// TestVisionFuzz: of each leaf of the config.json of composed models, of their vision and text parts too, altered
// alone: each is computed as transformers does, or refused with its reason, or named in a note. It wants Python with
// transformers, named by LFACTOR_PYTHON or python3; LFACTOR_FUZZ names cases of bench/golden/vlm_golden.py in
// place of all, and with -v each refusal is told.
func TestVisionFuzz(t *testing.T) {
	if !*long {
		t.Skip("each leaf of composed models' config.json is held to transformers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import torch, transformers").Run(); err != nil {
		t.Skipf("%s cannot import torch and transformers (%v): no configuration is compared", python, err)
	}
	dir := t.TempDir()
	run := exec.Command(python, append([]string{"vision_fuzz.py", dir}, strings.Fields(os.Getenv("LFACTOR_FUZZ"))...)...)
	run.Dir = "../../bench/golden"
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	cases, err := os.ReadDir(dir)
	require.NoError(t, err)
	counts := map[string]int{}
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) { counts[leafOf(t, filepath.Join(dir, c.Name()))]++ })
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d %s", counts[k], k)
	}
}

// leafOf tells what came of an altered leaf.
func leafOf(t *testing.T, dir string) string {
	var facts struct {
		Moved bool
		Value json.RawMessage
	}
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &facts))
	c, err := configs.ReadModel(dir)
	if err == nil {
		err = fits(c, dir)
	}
	if err != nil {
		why := strings.ReplaceAll(strings.Split(err.Error(), "\n")[0], dir, "")
		t.Logf("%s is refused: %s", facts.Value, why)
		if !facts.Moved {
			return "refused, and transformers passes it over"
		}
		return "refused"
	}
	if _, err = fuzzed(t, dir); err == nil {
		if facts.Moved {
			return "moves as in transformers"
		}
		return "moves nothing, as in transformers"
	}
	leaf := filepath.Base(dir)
	leaf = leaf[:strings.LastIndex(leaf, "~")]
	leaf = leaf[strings.LastIndexAny(leaf, "~.")+1:]
	run, _ := configs.Load(configs.Request{Args: []string{"model.path=" + dir, "data.paths=x"}})
	if run != nil && slices.ContainsFunc(run.Notices, func(s string) bool {
		return strings.Contains(strings.ReplaceAll(s, dir, ""), leaf)
	}) {
		t.Logf("%s is noted: %v", facts.Value, err)
		return "noted"
	}
	t.Errorf("%s is silent: %v", facts.Value, err)
	return "silent"
}

// fits tells whether a model can be built and has the weights of a folder.
func fits(c configs.Model, dir string) error {
	m, err := family.Build(c, 24)
	if err != nil {
		return err
	}
	f, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = m.OpenWeights(f, dir)
	return err
}
