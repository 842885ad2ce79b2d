package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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
		require.Equal(t, Credits{granted, taken}, c)
		require.Equal(t, granted-taken, c.Room())
		require.Equal(t, held, f.Report().Held)
	}
	look(4, 4, 8)
	at(t, a, 1, 3) // the other one has not begun
	look(4, 4, 8)
	at(t, b, 1, 0)
	look(4, 4, 8)
	at(t, b, 2, 2)
	look(8, 8, 4)
	f.Close()
	f, err = NewFollower(cfg)
	require.NoError(t, err)
	look(8, 8, 4)
	at(t, b, 3, 9)
	look(10, 10, 2)
	at(t, a, 2, 5)
	look(14, 12, 0)
	f.Close()
	require.NoError(t, os.WriteFile(filepath.Join(out, CreditsName), []byte("{"), 0o600))
	_, err = NewFollower(cfg)
	require.ErrorContains(t, err, CreditsName+": unexpected end of JSON input; remove it")
}
