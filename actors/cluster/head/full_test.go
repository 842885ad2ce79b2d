package head

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
)

// TestOutputOnFullDisk: output that cannot be kept is an event, once, and what comes when there is room again
// is kept.
func TestOutputOnFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("left out: a disk that is full needs /dev/full")
	}
	dir := t.TempDir()
	st, err := store.Open(store.Options{Dir: filepath.Join(dir, "store"), Log: filepath.Join(dir, "etcd.log")})
	require.NoError(t, err)
	defer st.Close()
	term, err := st.Lead("head")
	require.NoError(t, err)
	j := &job{Job: Job{ID: "1", Procs: make([]Proc, 1)}}
	h := &Head{o: Options{Dir: dir, Log: io.Discard}, jobs: map[string]*job{"1": j},
		wrote: map[procKey]int64{}, st: term}
	h.heard = sync.NewCond(&h.mu)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "jobs"), 0o700))
	require.NoError(t, os.Symlink("/dev/full", h.outputFile("1")))
	for at := range int64(3) {
		h.output(control.Message{Job: "1", At: 1 + at, Data: []byte("a line\n")})
	}
	require.Len(t, h.events, 1)
	require.Contains(t, h.events[0].Text, "output of job 1 is lost, though the job goes on: write "+h.outputFile("1"))
	require.Zero(t, j.size)
	require.NoError(t, os.Remove(h.outputFile("1")))
	h.output(control.Message{Job: "1", At: 4, Data: []byte("another\n")})
	text, err := os.ReadFile(h.outputFile("1"))
	require.NoError(t, err)
	require.Len(t, text, int(j.size))
	require.NotEmpty(t, text)
	require.False(t, j.mute)
}
