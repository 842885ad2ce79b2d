package jobs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// at makes a record of a run whose last step began in a generation.
func at(t *testing.T, path string, step, gen int64) {
	t.Helper()
	l, err := dataset.OpenLedger(path)
	require.NoError(t, err)
	require.NoError(t, l.Append(step, dataset.Position{Step: step, Generation: gen}, []int64{1}))
	require.NoError(t, l.Close())
}

// Shards are taken as far as the slowest run has credit for, the others stay where they lie and are no
// reason to end; the producer reads how many it may put, also of a follower that was started again.
func TestCredits(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(in, 0o700))
	a, b := filepath.Join(dir, "a.ledger"), filepath.Join(dir, "b.ledger")
	cfg := FollowConfig{Pattern: filepath.Join(in, "*.jsonl"), Output: out, Shards: 2, Ahead: 2,
		Consumers: []string{a, b}}
	_, err := ReadCredits(out)
	require.ErrorContains(t, err, "start lfactor data ingest --follow with --ahead")
	f, err := NewFollower(cfg)
	require.NoError(t, err)
	for i := range int64(12) {
		put(t, filepath.Join(in, fmt.Sprintf("%02d.jsonl", i)), whole, i)
	}
	clock := int64(0)
	look := func(granted, taken int64, held int) {
		t.Helper()
		clock += 10
		for range 2 {
			_, err := f.Look(time.Unix(clock, 0))
			require.NoError(t, err)
		}
		c, err := ReadCredits(out)
		require.NoError(t, err)
		require.Equal(t, Credits{granted, taken, 0}, c)
		require.Equal(t, granted-taken, c.Room())
		require.Equal(t, held, f.Report().Held)
	}
	look(6, 6, 6)
	at(t, a, 1, 3) // the other one has not begun
	look(6, 6, 6)
	at(t, b, 1, 0)
	look(6, 6, 6)
	at(t, b, 2, 2)
	look(10, 10, 2)
	f.Close()
	f, err = NewFollower(cfg)
	require.NoError(t, err)
	look(10, 10, 2)
	at(t, b, 3, 9)
	look(12, 12, 0)
	at(t, a, 2, 5)
	look(16, 12, 0)
	f.Close()
	require.NoError(t, os.WriteFile(filepath.Join(out, CreditsName), []byte("{"), 0o600))
	_, err = NewFollower(cfg)
	require.ErrorContains(t, err, CreditsName+": unexpected end of JSON input; remove it")
}

// following makes a follower of a folder with one run, and what looks once more and says what was granted.
func following(t *testing.T, cfg FollowConfig) (FollowConfig, func() (*Follower, Credits)) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "in"), 0o700))
	cfg.Pattern, cfg.Output = filepath.Join(dir, "in", "*.jsonl"), filepath.Join(dir, "out")
	cfg.Consumers = []string{filepath.Join(dir, "a.ledger")}
	f, err := NewFollower(cfg)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	clock := int64(0)
	return cfg, func() (*Follower, Credits) {
		t.Helper()
		clock += 10
		_, err := f.Look(time.Unix(clock, 0))
		require.NoError(t, err)
		c, err := ReadCredits(cfg.Output)
		require.NoError(t, err)
		return f, c
	}
}

// One generation ahead is one behind the generation that is learnt, so that the run goes on; and a run that waits
// behind generations that gave no step is where it waits. Generations that were larger count as they are.
func TestCreditsAheadOne(t *testing.T) {
	cfg, look := following(t, FollowConfig{Shards: 1, Ahead: 1})
	for i := range int64(9) {
		put(t, filepath.Join(filepath.Dir(cfg.Pattern), fmt.Sprintf("%d.jsonl", i)), whole, i)
	}
	at(t, cfg.Consumers[0], 1, 0)
	_, c := look()
	require.EqualValues(t, 2, c.Granted, "the run has generation 1 to go on with")
	require.NoError(t, dataset.WriteGenerationMark(filepath.Dir(cfg.Consumers[0]), 3))
	_, c = look()
	require.EqualValues(t, 5, c.Granted, "the record of steps is still in generation 0")
	at(t, cfg.Consumers[0], 2, 4)
	f, c := look()
	require.EqualValues(t, 6, c.Granted, "what was waited for once is passed")
	f.cfg.Shards = 3
	require.NoError(t, dataset.WriteGenerationMark(filepath.Dir(cfg.Consumers[0]), 5))
	_, c = look()
	require.EqualValues(t, 9, c.Granted, "six generations of one shard, and one of three")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(cfg.Consumers[0]), dataset.GenerationMarkName),
		[]byte("{}"), 0o600))
	_, err := f.Look(time.Unix(1000, 0))
	require.ErrorContains(t, err, "awaited.json: it names no generation; remove it")
}

// What a producer has put less what is taken or lost is what is on its way, though shards are refused
// or go away, also behind a new start; one that is completed is on its way again, and taken.
func TestCreditsLost(t *testing.T) {
	cfg, look := following(t, FollowConfig{Shards: 1, Ahead: 9, Settle: time.Second})
	in := func(name string) string { return filepath.Join(filepath.Dir(cfg.Pattern), name+".jsonl") }
	put(t, in("a"), whole, 1)
	put(t, in("b"), whole+"{\"text\": \"tor", 1)
	put(t, in("c"), whole, 1)
	_, c := look()
	require.Equal(t, Credits{10, 0, 0}, c)
	require.NoError(t, os.Remove(in("c")))
	f, c := look()
	require.Equal(t, Credits{10, 1, 2}, c, "all three have arrived, one way or another")
	f.Close()
	f, err := NewFollower(cfg)
	require.NoError(t, err)
	defer f.Close()
	require.EqualValues(t, 2, f.lost())
	put(t, in("b"), whole, 2)
	for second, want := range []Credits{{10, 1, 1}, {10, 2, 1}} {
		_, err = f.Look(time.Unix(1000+5*int64(second), 0))
		require.NoError(t, err)
		c, err = ReadCredits(cfg.Output)
		require.NoError(t, err)
		require.Equal(t, want, c)
	}
}

// A data set whose shards wait for a run ends when that run has not gone on for the time of idle, not
// before, and says once that a run has no record.
func TestFollowIdleHeld(t *testing.T) {
	dir := t.TempDir()
	for i := range int64(9) {
		put(t, filepath.Join(dir, fmt.Sprintf("%d.jsonl", i)), whole, i)
	}
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		run := filepath.Join(dir, "run")
		cfg := FollowConfig{Pattern: filepath.Join(dir, "*.jsonl"), Output: filepath.Join(dir, "out"),
			Shards: 1,
			Ahead:  1, Consumers: []string{filepath.Join(run, "samples.ledger")},
			Say: func(note string) { notes = append(notes, note) }}
		began := time.Now()
		time.AfterFunc(50*time.Second, func() { assert.NoError(t, dataset.WriteGenerationMark(run, 1)) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		rep, err := Follow(ctx, cfg, time.Second, time.Minute, func(FollowReport) {})
		require.NoError(t, err)
		require.Equal(t, FollowReport{Generations: 3, Shards: 3, Bytes: 84, Held: 6, Ended: true}, rep)
		require.InDelta(t, 111, time.Since(began).Seconds(), 3)
		require.Len(t, notes, 1)
		require.Contains(t, notes[0], run+" has no record of steps: 7 whole shards wait")
	})
}
