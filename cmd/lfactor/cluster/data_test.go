package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/machine"
)

// TestClusterData: data jobs whose input is shared out over the hosts of a cluster write the bytes of one
// host, also when an agent is killed with its helper while they run; the job's output and the events say
// what was done again.
func TestClusterData(t *testing.T) {
	t.Parallel()
	const entries = 2500
	whole, dir := t.TempDir(), t.TempDir()
	var texts strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&texts, "{\"text\": \"what is shown here %d, it is %s\"}\n", i,
			strings.Repeat("an image ", i%40))
	}
	for _, d := range []string{whole, dir} {
		ingestData(t, d, entries)
		require.NoError(t, os.WriteFile(filepath.Join(d, "texts.jsonl"), []byte(texts.String()), 0o644))
	}
	jobs := [][]string{{"ingest", "job.yaml"},
		{"tokenize", "--input", "texts.jsonl", "--hf-tokenizer-path", "model", "--output-prefix",
			"out/texts"},
		{"convert", "--output_dir", "out/converted", "--json_file", "a.jsonl", "--image_dir", "img",
			"--sample_type", "multi_mix_qa", "--maxcount", "400"},
		{"pack", "--input", "out/converted", "--output_dir", "out/rows", "--model", "model",
			"--max-tokens=300"}}
	for _, job := range jobs {
		code, out := runIn(t, whole, nil, append([]string{"data"}, job...)...)
		require.Zero(t, code, out)
	}
	env := clusterHome(t, dir, "test")
	code, out := runIn(t, dir, env, "cluster", "up", "--local", "3", "--name", "test")
	require.Zero(t, code, out)
	on := func(job []string) string {
		code, out := runIn(t, dir, env, append(append([]string{"data"}, job...), "--cluster", "test")...)
		require.Zero(t, code, out)
		return out
	}
	said := helperKilled(t, dir, jobs[0], on)
	require.Contains(t, said, "out is written on h1")
	for _, job := range jobs[1:] {
		othersHelp(t, dir, job, on)
	}
	require.Equal(t, treeOf(t, filepath.Join(whole, "out")), treeOf(t, filepath.Join(dir, "out")))
	var text strings.Builder
	for _, e := range eventsOf(t, dir, env) {
		fmt.Fprintln(&text, e.Time.Format("15:04:05.000"), e.Kind, e.Text)
	}
	// the agent is started again, and has not the process, or another host takes its part over
	require.Regexp(t, `process 1 of job \d+ on h2 (is gone|was lost with its host)`, text.String())
	require.Contains(t, text.String(), "data ingest")
	t.Logf("%s%s", text.String(), said)
	code, out = runIn(t, dir, env, "data", "tokenize", "--input", "texts.jsonl", "--hf-tokenizer-path",
		"model",
		"--output-prefix", "x", "--hosts", "2")
	require.Equal(t, 2, code, out)
	code, out = runIn(t, dir, env, "data", "tokenize", "--input", "nowhere", "--hf-tokenizer-path", "model",
		"--output-prefix", "x", "--cluster", "test")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "nowhere")
}

// helperKilled runs a data job and kills the agent of a helper once the job writes, until that helper had
// something under way then: where its process has just started, or hands a batch in at that moment, it has
// nothing.
func helperKilled(t *testing.T, dir string, job []string, on func([]string) string) (said string) {
	const tries = 20
	for range tries {
		killed := make(chan error, 1)
		go func() {
			for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); {
				if !machine.Exists(filepath.Join(dir, "out", "source-0", "pretrain-2.tar")) {
					continue
				}
				pid := machine.Holder(filepath.Join(dir, "home", "clusters", "test", "agents", "h2"))
				if pid > 0 { // else it is being started again
					killed <- syscall.Kill(pid, syscall.SIGKILL)
					return
				}
			}
			killed <- errors.New("the job has written nothing")
		}()
		said = on(job)
		require.NoError(t, <-killed)
		if strings.Contains(said, "what it had under way is done again") {
			return said
		}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "out")))
	}
	t.Fatalf("in each of %d runs of %v the helper that was killed had nothing to do: %s", tries, job, said)
	return ""
}

// othersHelp runs a data job until another host than the first has made batches of it: a short one can be over
// before the others' processes have started.
func othersHelp(t *testing.T, dir string, job []string, on func([]string) string) {
	const tries = 20
	shared := regexp.MustCompile(`batches by host: .*h[23] \d+`)
	for range tries {
		if shared.MatchString(on(job)) {
			return
		}
		at := slices.IndexFunc(job, func(s string) bool { return strings.HasPrefix(s, "--output") }) + 1
		old, err := filepath.Glob(filepath.Join(dir, job[at]+"*"))
		require.NoError(t, err)
		for _, path := range old {
			require.NoError(t, os.RemoveAll(path))
		}
	}
	t.Fatalf("%d runs of %v, and all batches of each were made by its leader", tries, job)
}
