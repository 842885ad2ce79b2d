package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// killing kills agents of a cluster of four, and processes of the jobs that they have, at random moments
// until stop is closed, and says how many it has killed.
func killing(dir string, most int, stop <-chan struct{}) <-chan int {
	killed := make(chan int, 1)
	go func() {
		rnd := rand.New(rand.NewPCG(6, 41))
		n := 0
		for n < most {
			select {
			case <-stop:
				killed <- n
				return
			case <-time.After(time.Duration(150+rnd.IntN(400)) * time.Millisecond):
			}
			agent := machine.Holder(filepath.Join(dir, "home", "clusters", "test", "agents",
				fmt.Sprintf("h%d", 1+rnd.IntN(4))))
			if agent == 0 { // it is being started again
				continue
			}
			victim := agent
			if of := clitest.ChildrenOf(agent); len(of) > 0 && rnd.IntN(3) > 0 {
				victim = of[rnd.IntN(len(of))]
			}
			if syscall.Kill(victim, syscall.SIGKILL) == nil { // it may have ended
				n++
			}
		}
		killed <- n
	}()
	return killed
}

// TestClusterRecipeKilled: a recipe of six steps on a cluster of four, of which agents and processes are
// killed again and again, leader and helpers, ends with the bytes of one host.
func TestClusterRecipeKilled(t *testing.T) {
	longOnly(t, "60 kills of agents and processes; TestClusterRecipe has one")
	whole, dir := t.TempDir(), t.TempDir()
	recipeOf(t, 400000, whole, dir)
	code, out := runIn(t, whole, nil, "data", "run", "recipe.yaml")
	require.Zero(t, code, out)
	want := treeOf(t, filepath.Join(whole, "clean"))
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "4", "--name", "test")
	require.Zero(t, code, out)
	const kills = 60
	stop := make(chan struct{})
	killed := killing(dir, kills, stop)
	total, ended := 0, 0
	for try := 0; total < kills && try < 100; try++ {
		code, out = runIn(t, dir, env, "data", "run", "recipe.yaml", "--cluster", "test")
		require.NotContains(t, out, "panic")
		if code == 0 {
			ended++
			require.Equal(t, want, treeOf(t, filepath.Join(dir, "clean")))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "clean")))
		}
		select {
		case total = <-killed:
		default:
		}
	}
	close(stop)
	if total == 0 {
		total = <-killed
	}
	t.Logf("%d kills; the recipe ended %d times meanwhile", total, ended)
	require.GreaterOrEqual(t, total, kills)
	for try := 0; ; try++ { // agents are started again
		if code, out = runIn(t, dir, env, "data", "run", "recipe.yaml", "--cluster", "test"); code == 0 {
			break
		}
		require.Less(t, try, 10, out)
	}
	require.Equal(t, want, treeOf(t, filepath.Join(dir, "clean")))
}

// recipeOf writes texts and a recipe of six steps over them into folders.
func recipeOf(t *testing.T, documents int, dirs ...string) {
	t.Helper()
	var texts strings.Builder
	for i := range documents {
		fmt.Fprintf(&texts, "{\"text\": \"what is shown here %d, it is of the %s and that is all\", \"n\": %d}\n", i%9000,
			strings.Repeat(fmt.Sprintf("image %d ", i%7), i%40), i)
	}
	const recipe = "output: clean\nmemory: 1MiB\ninputs: [texts.jsonl]\nsteps: [pii, {step: length, min_words: 12}, " +
		"exact_dedup, {step: sample, fraction: 0.9}, {step: minhash_dedup, n_grams: 3}, paragraph_dedup]\n"
	for _, d := range dirs {
		require.NoError(t, os.WriteFile(filepath.Join(d, "texts.jsonl"), []byte(texts.String()), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(d, "recipe.yaml"), []byte(recipe), 0o644))
	}
}

// TestClusterRecipe: a recipe of six steps whose blocks are made by the hosts of a cluster writes the bytes
// of one host, also when the agent of a helper is killed while they are made.
func TestClusterRecipe(t *testing.T) {
	t.Parallel()
	whole, dir := t.TempDir(), t.TempDir()
	recipeOf(t, 60000, whole, dir)
	code, out := runIn(t, whole, nil, "data", "run", "recipe.yaml")
	require.Zero(t, code, out)
	want := treeOf(t, filepath.Join(whole, "clean"))
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "4", "--name", "test")
	require.Zero(t, code, out)
	go func() { // the agent of a helper, once blocks are made
		for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); {
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
