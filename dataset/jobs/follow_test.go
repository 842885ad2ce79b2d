package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// put writes a file, whose time of change is told, since clocks of file systems are coarse.
func put(t *testing.T, path, text string, at int64) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, time.Unix(at, 0), time.Unix(at, 0)))
}

const whole = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"

// A producer adds shards, some late, torn, replaced or removed: what is whole is taken once and stays as it
// was, and the rest is in the quarantine with the reason.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(in, 0o700))
	cfg := FollowConfig{Pattern: filepath.Join(in, "*.jsonl*"), Output: out, Shards: 2,
		Settle: 2 * time.Second}
	f, err := NewFollower(cfg)
	require.NoError(t, err)
	look := func(second int64) {
		t.Helper()
		_, err := f.Look(time.Unix(1000+second, 0))
		require.NoError(t, err)
	}
	put(t, filepath.Join(in, "a.jsonl"), whole, 1)
	look(0)
	require.Zero(t, f.Report().Waiting, "it has not settled")
	put(t, filepath.Join(in, "a.jsonl"), whole+whole, 2)
	look(2)
	require.Zero(t, f.Report().Waiting, "it has changed")
	put(t, filepath.Join(in, "b.jsonl"), whole+"{\"text\": \"tor", 3)
	put(t, filepath.Join(in, "c.jsonl"), whole, 3)
	look(4)
	require.Equal(t, 1, f.Report().Waiting)
	_, err = NewFollower(cfg)
	require.ErrorContains(t, err, "in use by another run")
	look(5)
	require.NoError(t, os.Remove(filepath.Join(in, "c.jsonl")))
	look(6)
	put(t, filepath.Join(in, "d.jsonl.gz"), "\x1f\x8b\x08\x00half of a file", 4)
	put(t, filepath.Join(in, "a.jsonl"), "{\"text\": \"other\"}\n", 9)
	look(7)
	look(10)
	require.Equal(t, 1, f.Report().Waiting, "what waits becomes a generation with the next")
	put(t, filepath.Join(in, "b.jsonl"), whole+"{\"text\": \"torn no more\"}\n", 5)
	look(11)
	look(13)
	require.Equal(t, FollowReport{Generations: 1, Shards: 2, Bytes: 109, Quarantined: 4}, f.Report())
	f.Close()

	quarantineHas(t, out)
	got, err := os.ReadFile(filepath.Join(out, "shards", "000000-a.jsonl"))
	require.NoError(t, err)
	require.Equal(t, whole+whole, string(got), "the shard is as it was when it was taken")
	goesOn(t, cfg, in)
}

// quarantineHas says that each file that was not taken is told of.
func quarantineHas(t *testing.T, out string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, quarantineName))
	require.NoError(t, err)
	for name, reason := range map[string]string{"b.jsonl": "may be half written",
		"c.jsonl":    "removed before it was taken",
		"d.jsonl.gz": "cannot be read", "a.jsonl": "changed after it was taken"} {
		found := false
		for l := range strings.Lines(string(text)) {
			found = found || strings.Contains(l, name) && strings.Contains(l, reason)
		}
		require.True(t, found, "%s: %s", name, text)
	}
}

// goesOn: a process that was cut off in the middle of a line goes on, takes nothing twice, and tells nothing twice.
func goesOn(t *testing.T, cfg FollowConfig, in string) {
	t.Helper()
	// twice.
	m := filepath.Join(cfg.Output, dataset.ManifestName)
	line, err := os.ReadFile(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(m, append(line, `{"generation":1,"sha`...), 0o600))
	f, err := NewFollower(cfg)
	require.NoError(t, err)
	look := func(second int64) {
		t.Helper()
		_, err := f.Look(time.Unix(1000+second, 0))
		require.NoError(t, err)
	}
	look(20)
	put(t, filepath.Join(in, "e.jsonl"), whole, 6)
	look(21)
	look(30)
	require.NoError(t, f.End())
	require.Equal(t, FollowReport{Generations: 2, Shards: 3, Bytes: 137, Quarantined: 4, Ended: true},
		f.Report())
	f.Close()
	list, _, err := dataset.ReadManifest(m)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, "shards/000002-e.jsonl", list[1].Shards[0].Path)
	_, err = NewFollower(cfg)
	require.ErrorContains(t, err, "has ended; name another output")
}

// With a marker a file is taken when the marker is there, however long it has stayed as it is.
func TestFollowMarker(t *testing.T) {
	dir := t.TempDir()
	f, err := NewFollower(FollowConfig{Pattern: filepath.Join(dir, "*.jsonl*"), Output: filepath.Join(dir,
		"out"),
		Marker: ".done"})
	require.NoError(t, err)
	defer f.Close()
	put(t, filepath.Join(dir, "a.jsonl"), whole, 1)
	for i := range int64(3) {
		took, err := f.Look(time.Unix(1000*i, 0))
		require.NoError(t, err)
		require.False(t, took)
	}
	put(t, filepath.Join(dir, "a.jsonl.done"), "", 2)
	took, err := f.Look(time.Unix(1, 0)) // the clock has jumped back
	require.NoError(t, err)
	require.True(t, took)
	require.Equal(t, int64(1), f.Report().Generations)
}

// A ledger whose lines were changed, left out or put in another order is an error with its line.
func TestManifestChanged(t *testing.T) {
	dir := t.TempDir()
	f, err := NewFollower(FollowConfig{Pattern: filepath.Join(dir, "*.jsonl"), Output: filepath.Join(dir,
		"out")})
	require.NoError(t, err)
	for i := range int64(4) {
		put(t, filepath.Join(dir, fmt.Sprintf("%d.jsonl", i)), whole, i)
		_, err = f.Look(time.Unix(i, 0))
		require.NoError(t, err)
	}
	require.NoError(t, f.End())
	f.Close()
	m := filepath.Join(dir, "out", dataset.ManifestName)
	text, err := os.ReadFile(m)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	for changed, want := range map[string]string{
		lines[0] + lines[1] + lines[3]: ":3: it does not follow",
		lines[0] + strings.Replace(lines[1], "1.jsonl", "7.jsonl", 1) +
			lines[2]: ":3: it does not follow",
		strings.Replace(lines[0], `"generation":0`, `"generation":1`,
			1): ":1: it does not follow",
		strings.Replace(lines[0], `"shards"`, `"shardz"`,
			1): ":1: a generation has shards",
		string(text) + fmt.Sprintf("{\"generation\":5,\"before\":%q}\n",
			dataset.LineHash([]byte(lines[4]))): ":6: it follows",
		"no\n": ":1: it is no line of a growing data set",
	} {
		require.NoError(t, os.WriteFile(m, []byte(changed), 0o600))
		_, _, err := dataset.ReadManifest(m)
		require.ErrorContains(t, err, want)
	}
}
