package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/dataset"
)

// following are the settings of a run on data that grows.
var following = []string{"train", "run.yaml", "-q", "data.kind=auto", "data.paths=[stream/manifest.jsonl]",
	"data.follow=true", "data.split=[100,0,0]"}

// shardText is documents that are in no other shard.
func shardText(k int) string {
	var b strings.Builder
	for i := range 14 {
		fmt.Fprintf(&b, "{\"text\": \"%s\"}\n", strings.Repeat(fmt.Sprintf("func f%d(x%d int) { return } ",
			k, i), 2+(i+k)%5))
	}
	return b.String()
}

// produce has a follower, which is killed every second, and a producer, which tears and replaces shards, at
// work until it is called.
func produce(t *testing.T, dir, in string) func() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // the follower, killed every second
		defer close(stopped)
		for last := false; !last; {
			c := exec.Command(built(t), "data", "ingest", "--follow", "in/*.jsonl", "--to", "stream",
				"--settle", "40ms", "--ahead", "40", "--consumer", "run")
			c.Dir = dir
			if c.Start() != nil {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-stop:
				last = true
			}
			_ = c.Process.Kill() // it goes on in the next round
			_ = c.Wait()         // it was killed
		}
	}()
	go func() { // the producer
		for k := 1; ; k++ {
			select {
			case <-time.After(150 * time.Millisecond):
			case <-stop:
				return
			}
			name, text := filepath.Join(in, fmt.Sprintf("%02d.jsonl", k)), shardText(k)
			if k%5 == 0 { // one that is gone before it can be taken
				gone := filepath.Join(in, fmt.Sprintf("%02d-gone.jsonl", k))
				_ = os.WriteFile(gone, []byte(text[:len(text)/3]), 0o600)
				time.AfterFunc(350*time.Millisecond,
					func() { _ = os.Remove(gone) }) // it may be there no more
			}
			switch k % 4 {
			case 1: // torn for a while
				_ = os.WriteFile(name, []byte(text[:len(text)/2]), 0o600) // the follower meets what it meets
			case 2: // an earlier one is replaced
				_ = os.WriteFile(filepath.Join(in, fmt.Sprintf("%02d.jsonl", max(0, k-10))),
					[]byte("{\"text\": \"new\"}\n"), 0o600)
				_ = os.WriteFile(filepath.Join(in, fmt.Sprintf("%02d.jsonl", k-1)), []byte(shardText(k-1)),
					0o600)
				fallthrough
			default:
				_ = os.WriteFile(name, []byte(text), 0o600)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// ranksOf are plans of 1 to 16 ranks that take turns.
var ranksOf = [][]string{{"plan.procs=2"}, {"plan.pp=1", "plan.dp=1"}, {"plan.pp=2", "plan.dp=1",
	"plan.procs=2"},
	{"plan.pp=2", "plan.dp=2", "plan.tp=2", "plan.procs=4"}, {"plan.pp=4", "plan.dp=2", "plan.tp=2",
		"plan.procs=2"},
	{"plan.pp=1", "plan.dp=4", "plan.zero=1"}}

// A producer puts shards, some late, torn, replaced or removed, into a folder that is followed, while a run on 1 to 16
// ranks, which are others after each kill, learns them; follower and run are killed again and again. The run's ledger
// of samples is byte for byte that of a run of one rank that nobody disturbed, which begins when all shards are there.
func TestFollowKilled(t *testing.T) {
	t.Parallel()
	n := 6
	if *long {
		n = 40
	} else {
		t.Log("6 of 40 kills; all of them with -long")
	}
	dir := tinyRun(t)
	in := filepath.Join(dir, "in")
	require.NoError(t, os.Mkdir(in, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(in, "00.jsonl"), []byte(shardText(0)), 0o600))
	stop := produce(t, dir, in)
	manifest := filepath.Join(dir, "stream", dataset.ManifestName)
	require.Eventually(t, func() bool {
		list, _, err := dataset.ReadManifest(manifest)
		return err == nil && len(list) > 0
	}, 2*time.Minute, 20*time.Millisecond)
	died := 0
	for i, k := range kills(n, 5) {
		code, out := runIn(t, dir, []string{fmt.Sprintf("%s=kill=%s@%d+%d", run.EnvFault, k.job, k.step,
			k.micros)}, append(following, ranksOf[i%len(ranksOf)]...)...)
		if code != 0 {
			require.NotContains(t, out, "panic")
			died++
		}
	}
	require.GreaterOrEqual(t, died, n/2)
	code, out := runIn(t, dir, nil, append(following, "plan.procs=2")...)
	require.Zero(t, code, out)
	var quarantine []byte
	has := func(text string) bool { return strings.Contains(string(quarantine), text) }
	require.Eventually(t, func() bool { // the follower has to look while such a shard is there
		// it may not be there yet
		quarantine, _ = os.ReadFile(filepath.Join(dir, "stream", "quarantine.jsonl"))
		return has("changed after it was taken") && has("it was removed before it was taken")
	}, 2*time.Minute, 20*time.Millisecond)
	stop()

	alone := tinyRun(t)
	require.NoError(t, os.CopyFS(filepath.Join(alone, "stream"), os.DirFS(filepath.Join(dir, "stream"))))
	code, out = runIn(t, alone, nil, append(following, "plan.pp=1", "plan.dp=1")...)
	require.Zero(t, code, out)
	ledger := func(dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, "run", run.LedgerName))
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, ledger(alone), ledger(dir))
	code, out = runIn(t, dir, nil, "data", "room", "stream", "-o", "json")
	require.Zero(t, code, out)
	require.Contains(t, out, `"granted"`)
	code, out = runIn(t, dir, nil, "data", "blame", "run", "20")
	require.Zero(t, code, out)
	require.Contains(t, out, "stream/shards/")

	shardChanged(t, alone)
}

// shardChanged: a shard of a generation that is not what it was ends the run, and says which one.
func shardChanged(t *testing.T, alone string) {
	list, _, err := dataset.ReadManifest(filepath.Join(alone, "stream", dataset.ManifestName))
	require.NoError(t, err)
	shard := dataset.ShardPath(filepath.Join(alone, "stream", dataset.ManifestName), list[1].Shards[0])
	require.NoError(t, os.Chmod(shard, 0o600))
	require.NoError(t, os.WriteFile(shard, []byte("{\"text\": \"x\"}\n"), 0o600))
	code, out := runIn(t, alone, nil, append(following, "checkpoint.dir=again", "log.dir=again")...)
	require.NotZero(t, code)
	require.Contains(t, out, "of generation 1 is not the one that was taken: 14 bytes, want")
}

// Tickets of a queue are taken by the command, and one that cannot be used is set aside; a place that there is not is
// refused before anything is written.
func TestFollowQueue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.jsonl": shardText(1), "1.ticket": `{"path": "a.jsonl"}`,
		"b.jsonl": shardText(2)[:100], "2.ticket": `{"path": "b.jsonl"}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	code, out := runIn(t, dir, nil, "data", "ingest", "--follow", "*.ticket", "--from", "nowhere", "--to", "stream")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "--from nowhere: shards come from files, list, queue")
	require.NoDirExists(t, filepath.Join(dir, "stream"))
	code, out = runIn(t, dir, nil, "data", "ingest", "--follow", "*.ticket", "--from", "queue", "--to", "stream", "--idle", "1s")
	require.Zero(t, code, out)
	require.Contains(t, out, "1 generations of 1 shards")
	require.NoFileExists(t, filepath.Join(dir, "1.ticket"))
	require.FileExists(t, filepath.Join(dir, "2.ticket.refused"))
}
