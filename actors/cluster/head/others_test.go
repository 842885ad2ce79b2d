package head

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// TestOutputCopies: a head that follows gets the bytes of each job's output that it lacks; what it has
// otherwise than the one that leads is replaced.
func TestOutputCopies(t *testing.T) {
	lead, dir := t.TempDir(), t.TempDir()
	h := &Head{o: Options{Dir: lead}, outputs: map[string]*written{}}
	follower := &holder{o: Options{Dir: dir}}
	write := func(dir, id, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "jobs"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "jobs", id+".jsonl"), []byte(text), 0o600))
	}
	want := map[string]string{"1": "same\n", "2": "more and more\n", "3": "other\n", "4": "new\n",
		"5": "short\n"}
	for id, text := range want {
		write(lead, id, text)
		h.outputs[id] = &written{size: int64(len(text))}
	}
	write(dir, "1", "same\n")
	write(dir, "2", "more ")
	write(dir, "3", "mine\n")
	write(dir, "5", "short\nand more that nobody else has\n")
	has, err := copies(dir)
	require.NoError(t, err)
	require.Len(t, has, 4)
	x, y := net.Pipe()
	done := make(chan struct{})
	go func() {
		h.copyTo(control.NewConn(x, nil), has, done)
		x.Close()
	}()
	c, sent := control.NewConn(y, nil), map[string]int64{}
	for {
		m, err := c.Receive(time.Minute)
		require.NoError(t, err)
		if m.Kind == control.Beat {
			break // all that there was has come
		}
		sent[m.Job] = m.At
		require.NoError(t, follower.keep(m))
	}
	close(done)
	y.Close()
	require.Equal(t, map[string]int64{"2": 5, "3": 0, "4": 0, "5": 0}, sent)
	for id, text := range want {
		got, err := os.ReadFile(filepath.Join(dir, "jobs", id+".jsonl"))
		require.NoError(t, err)
		require.Equal(t, text, string(got), id)
	}
	for _, m := range []control.Message{{Job: "../x"}, {Job: "1", At: -1}} {
		require.ErrorContains(t, follower.keep(m), "output of")
	}
}

// TestReadWritten: a head finds out how far the output of each process has come, and takes off a torn end.
func TestReadWritten(t *testing.T) {
	h := &Head{o: Options{Dir: t.TempDir()}, wrote: map[procKey]int64{}}
	size, err := h.readWritten("1")
	require.NoError(t, err)
	require.Zero(t, size)
	var text []byte
	for _, c := range []Chunk{{Proc: 1, Gen: 2, Seq: 4}, {Proc: 1, Gen: 2, Seq: 5}, {Proc: 0, Gen: 1,
		Seq: 9}} {
		line, err := json.Marshal(c)
		require.NoError(t, err)
		text = append(append(text, line...), '\n')
	}
	require.NoError(t, os.Mkdir(filepath.Join(h.o.Dir, "jobs"), 0o700))
	require.NoError(t, os.WriteFile(h.outputFile("1"), append(text, `{"proc":1,"gen":2,"seq":6`...), 0o600))
	size, err = h.readWritten("1")
	require.NoError(t, err)
	require.Equal(t, int64(len(text)), size)
	got, err := os.ReadFile(h.outputFile("1"))
	require.NoError(t, err)
	require.Equal(t, text, got)
	require.Equal(t, map[procKey]int64{{"1", 1, 2}: 5, {"1", 0, 1}: 9}, h.wrote)
	require.Equal(t, []control.Proc{{Job: "1", Proc: 1, Gen: 2, Wrote: 5}},
		h.taken([]control.Proc{{Job: "1", Proc: 1, Gen: 2}, {Job: "1", Proc: 0, Gen: 7}}))
}

// TestSeats: what a head's list of heads says is taken as it is or refused by name.
func TestSeats(t *testing.T) {
	dir := t.TempDir()
	s, err := LoadSeats(dir)
	require.NoError(t, err)
	require.Empty(t, s.Heads)
	want := Seats{Self: "b", Heads: []Seat{{"a", "x:1", "x:2"}, {"b", "y:1", "y:2"}, {"c", "z:1", "z:2"}}}
	require.NoError(t, want.Save(dir))
	s, err = LoadSeats(dir)
	require.NoError(t, err)
	require.Equal(t, want, s)
	o := s.Store(dir)
	require.Equal(t, "b", o.Name)
	require.Equal(t, "z:2", o.Peers[2].Addr)
	want.Self = "d"
	require.NoError(t, want.Save(dir))
	_, err = LoadSeats(dir)
	require.ErrorContains(t, err, `"d" is not one of its heads`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, seatsFile), []byte("{"), 0o600))
	_, err = LoadSeats(dir)
	require.ErrorContains(t, err, seatsFile)
}

// TestTermTold: an agent hears in which term its head leads, and status has no list of heads where there
// is one.
func TestTermTold(t *testing.T) {
	x := newHead(t)
	c, err := control.Dial(context.Background(), x.addr, x.identity("h1b",
		trust.Subject{Name: "h1", Role: trust.Agent}), "/v1/agent")
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Send(control.Message{Kind: control.Hello,
		Info: &control.Info{Name: "h1", Binary: "this", Pid: 7}}))
	m, err := c.Receive(time.Minute)
	require.NoError(t, err)
	require.Positive(t, m.Epoch)
	var s Status
	admin := control.NewClient([]string{x.addr}, x.identity("admin", trust.Subject{Name: "u",
		Role: trust.Admin}))
	require.NoError(t, admin.Do(context.Background(), "GET", "/v1/status", nil, &s))
	require.Empty(t, s.Heads)
	require.True(t, strings.HasPrefix(s.Head, "127.0.0.1:"))
}
