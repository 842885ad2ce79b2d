package head

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// TestOutputOnFullDisk: output that cannot be kept is an event, once, and what comes when there is room
// again is kept.
func TestOutputOnFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("left out: a disk that is full needs /dev/full")
	}
	dir := t.TempDir()
	h := bare(t, dir)
	ask := func(in decide.Input) { h.step(in) }
	ask(decide.Enroll{Serials: map[string]string{"h1": "1"}})
	ask(decide.Connect{Conn: 1, Name: "h1", Hello: control.Message{Info: &control.Info{Name: "h1", Pid: 1}}})
	ask(decide.Submit{Spec: control.Spec{Args: []string{"train"}, Dir: "/", Procs: 1}})
	before := len(h.m.Events(0))
	j := h.writtenOf("1")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "jobs"), 0o700))
	require.NoError(t, os.Symlink("/dev/full", h.outputFile("1")))
	for at := range int64(3) {
		h.output("h1", control.Message{Job: "1", At: 1 + at, Data: []byte("a line\n")})
	}
	events := h.m.Events(before)
	require.Len(t, events, 1)
	require.Contains(t, events[0].Text, "output of job 1 is lost, though the job goes on: write "+
		h.outputFile("1"))
	require.Zero(t, j.size)
	require.NoError(t, os.Remove(h.outputFile("1")))
	h.output("h1", control.Message{Job: "1", At: 4, Data: []byte("another\n")})
	text, err := os.ReadFile(h.outputFile("1"))
	require.NoError(t, err)
	require.Len(t, text, int(j.size))
	require.NotEmpty(t, text)
	require.False(t, j.mute)
}
