package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/machine"
)

// TestClusterRecipe: a recipe of six steps whose blocks are made by the hosts of a cluster writes the bytes
// of one host, also when the agent of a helper is killed while they are made.
func TestClusterRecipe(t *testing.T) {
	t.Parallel()
	whole, dir := t.TempDir(), t.TempDir()
	var texts strings.Builder
	for i := range 60000 {
		fmt.Fprintf(&texts, "{\"text\": \"what is shown here %d, it is of the %s and that is all\", \"n\": %d}\n", i%9000,
			strings.Repeat(fmt.Sprintf("image %d ", i%7), i%40), i)
	}
	const recipe = "output: clean\nmemory: 1MiB\ninputs: [texts.jsonl]\nsteps: [pii, {step: length, min_words: 12}, " +
		"exact_dedup, {step: sample, fraction: 0.9}, {step: minhash_dedup, n_grams: 3}, paragraph_dedup]\n"
	for _, d := range []string{whole, dir} {
		require.NoError(t, os.WriteFile(filepath.Join(d, "texts.jsonl"), []byte(texts.String()), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(d, "recipe.yaml"), []byte(recipe), 0o644))
	}
	code, out := runIn(t, whole, nil, "data", "run", "recipe.yaml")
	require.Zero(t, code, out)
	want := treeOf(t, filepath.Join(whole, "clean"))
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "4", "--name", "test")
	require.Zero(t, code, out)
	go func() { // the agent of a helper, once blocks are made
		for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
			if machine.Exists(filepath.Join(dir, "clean", ".work", "stage-00", "000", "000003.block")) {
				pid := machine.Holder(filepath.Join(dir, "home", "clusters", "test", "agents", "h2"))
				_ = syscall.Kill(pid, syscall.SIGKILL) // the job may be over
				return
			}
		}
	}()
	shared := regexp.MustCompile(`batches by host: .*h[234] \d+`)
	for range 20 { // a short job can be over before the processes of the others have started
		code, out = runIn(t, dir, env, "data", "run", "recipe.yaml", "--cluster", "test")
		require.Zero(t, code, out)
		require.Equal(t, want, treeOf(t, filepath.Join(dir, "clean")))
		if shared.MatchString(out) {
			return
		}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "clean")))
	}
	t.Fatalf("all blocks of each run were made by its leader: %s", out)
}
