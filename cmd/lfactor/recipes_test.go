package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
)

// TestRecipes: every recipe is written by init, loads without a fault, and is a plan for its model; it says what it needs, and
// config check finds nothing but that files are not there yet.
func TestRecipes(t *testing.T) {
	for _, r := range configs.Recipes() {
		dir := t.TempDir()
		code, out := carriedOut(t, "init", "--recipe", r.Name, dir)
		require.Zero(t, code, out)
		file := filepath.Join(dir, "run.yaml")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, r.Text, string(text))
		require.GreaterOrEqual(
			t,
			strings.Count(r.Text, "# "),
			2,
			"%s says what it does, and what it needs",
			r.Name,
		)

		cfg, err := configs.Load(configs.Request{File: file, Getenv: func(string) string { return "" }})
		require.NoError(t, err, r.Name)
		_, err = layout.FromConfig(cfg)
		require.NoError(t, err, r.Name)
		code, out = carriedOut(t, "config", "check", file)
		require.Equal(t, 2, code, r.Name)
		for _, fault := range strings.Split(strings.TrimSpace(out), "\n") {
			require.Regexp(
				t,
				`no file of this host is named|has no tokenizer.json|has no config.json|no such file`,
				fault,
				r.Name,
			)
		}
	}
	code, out := carriedOut(t, "init", "--recipe", "lorra", t.TempDir())
	require.Equal(t, 2, code)
	require.Contains(t, out, `did you mean "lora"`)
	_, out = carriedOut(t, "init", "--help")
	require.Contains(t, out, "lora       Fine-tune a Qwen3 on a laptop")
	_, out = carriedOut(t, "__complete", "init", "--recipe", "l")
	require.Contains(t, out, "lora\t")
}
