package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology/machine"
)

// TestPiece: a file is told in whole lines, each once, without secrets, and again from its beginning when it
// was written anew; nothing but the files that are meant is told, wherever links lead.
func TestPiece(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "log.jsonl")
	write := func(text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o600)) }
	ask := func(at int64, mark []byte) Piece {
		p, err := pieceOf(dir, control.Message{Text: "log.jsonl", At: at, Data: mark})
		require.NoError(t, err)
		return p
	}
	require.Equal(t, Piece{}, ask(-1, nil), "it is not there yet")
	write("one https://me:word@host/x?key=1\ntwo\nthr")
	p := ask(-1, nil)
	require.True(t, p.Anew)
	require.Equal(t, "one https://host/x\ntwo\n", string(p.Data))
	write("one https://me:word@host/x?key=1\ntwo\nthree\n")
	q := ask(p.Next, p.Mark)
	require.Equal(t, "three\n", string(q.Data))
	require.False(t, q.Anew || q.More)
	require.Empty(t, ask(q.Next, q.Mark).Data)
	write("1ne https://me:word@host/x?key=1\ntwo\nthree\nfour\n")
	require.Equal(t, "four\n", string(ask(q.Next, q.Mark).Data[strings.Index(string(ask(q.Next,
		q.Mark).Data),
		"four"):]), "it is told")
	require.True(t, ask(q.Next, q.Mark).Anew, "other bytes lie before")
	write("x\n")
	require.Equal(t, Piece{Anew: true, Next: 2, Mark: ask(0, nil).Mark, Data: []byte("x\n")}, ask(q.Next,
		q.Mark),
		"it is shorter")
	require.Equal(t, "x\n", string(ask(1<<62, nil).Data))

	write(strings.Repeat("0123456\n", pieceMost/4))
	p = ask(0, nil)
	require.True(t, p.More)
	require.Len(t, p.Data, pieceMost)
	require.False(t, ask(p.Next, p.Mark).More)
	write(strings.Repeat("z", pieceMost+5) + "\nend\n")
	p = ask(0, nil)
	require.Equal(t, strings.Repeat(" ", pieceMost-1)+"\n", string(p.Data),
		"a line that is too long is left out")
	require.Equal(t, "zzzzz\nend\n", string(ask(p.Next, p.Mark).Data))

	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret\n"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "metrics.jsonl")))
	for _, name := range []string{"metrics.jsonl", "../secret", secret, "", ".", "trace.json",
		"/etc/passwd"} {
		p, _ := pieceOf(dir, control.Message{Text: name, At: -1})
		require.Empty(t, p.Data, name)
	}
	_, err := pieceOf("", control.Message{Text: "log.jsonl"})
	require.ErrorContains(t, err, "no folder of a run")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte("a: https://u:p@h/\nb: 1"),
		0o600))
	p, err = pieceOf(dir, control.Message{Text: control.RunSettings, At: -1})
	require.NoError(t, err)
	require.Equal(t, "a: https://h/\nb: 1", string(p.Data))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), make([]byte, wholeMost+1), 0o600))
	_, err = pieceOf(dir, control.Message{Text: control.RunSettings, At: -1})
	require.ErrorContains(t, err, "more than")
}

// TestPieceOfJobs: of the jobs of a process the newest are told that have room.
func TestPieceOfJobs(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	_, err = jobsOf(dir, 1)
	require.Error(t, err)
	l, err := net.Listen("unix", machine.AnswerSocket(dir, control.RunJobs, 1))
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			all := make([]string, 8192)
			for i := range all {
				all[i] = fmt.Sprintf("%0100d", i)
			}
			_ = json.NewEncoder(c).Encode(all)
			c.Close()
		}
	}()
	p, err := jobsOf(dir, 1)
	require.NoError(t, err)
	require.LessOrEqual(t, len(p.Data), pieceMost)
	var got []string
	require.NoError(t, json.Unmarshal(p.Data, &got))
	require.Equal(t, fmt.Sprintf("%0100d", 8191), got[len(got)-1])
	require.Greater(t, len(got), 2000)
}

// TestAsked: questions that programs answer wait up to a bound, what is beyond is turned away at once, and answers
// are without secrets.
func TestAsked(t *testing.T) {
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	require.NoError(t, os.WriteFile(held, nil, 0o600))
	script := filepath.Join(dir, "tells")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nwhile [ -e held ]; do sleep 0.02; done\n"+
		"echo https://u:p@h/x\n"), 0o700))
	a := &Agent{o: Options{Command: []string{script, "-"}}}
	answers := make(chan error, askedMost)
	for range askedMost {
		go func() {
			p, err := a.told(&control.Spec{Log: dir, Dir: dir}, 0, 0, control.Message{Text: "plan"})
			if err == nil && string(p.Data) != "https://h/x\n" {
				err = fmt.Errorf("answer %q", p.Data)
			}
			answers <- err
		}()
	}
	require.Eventually(t, func() bool { return a.asked.Load() == askedMost }, 2*time.Minute,
		time.Millisecond)
	_, err := a.told(&control.Spec{Log: dir, Dir: dir}, 0, 0, control.Message{Text: "plan"})
	require.ErrorContains(t, err, "4 questions wait here")
	require.NoError(t, os.Remove(held))
	for range askedMost {
		require.NoError(t, <-answers)
	}
	require.Zero(t, a.asked.Load())
}
