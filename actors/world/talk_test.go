package world

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answers is the program of an environment of texts: it says how often it was told something, and what
// last; three texts end an episode. How it misbehaves, in the second turn of seed 3, goes by its name; with
// "once" before it only the first process does.
func answers(how string) {
	in := bufio.NewReader(os.Stdin)
	once := filepath.Join(os.Getenv("LFACTOR_TEST_DIR"), "once")
	var seed uint64
	n := 0
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q talkRequest
		if err := json.Unmarshal(text, &q); err != nil {
			panic(err)
		}
		r := map[string]any{"id": q.ID, "text": "", "reward": 0, "done": false}
		if q.Reset != nil {
			seed, n = q.Reset.Seed, 0
		} else {
			n++
			r["text"], r["reward"], r["done"] = fmt.Sprintf("%d %s", n, q.Step.Text), 0.5, n == 3
		}
		name, first := strings.CutPrefix(how, "once-")
		if _, err := os.Stat(once); seed == 3 && n == 2 && (!first || err != nil) {
			_ = os.WriteFile(once, nil, 0o600)
			switch name {
			case "dies":
				os.Exit(3)
			case "hangs":
				select {}
			case "twice":
				b, _ := json.Marshal(r)
				fmt.Printf("%s\n", b)
			case "text", "reward", "done":
				delete(r, name)
			case "null":
				r["reward"] = nil
			case "number":
				r["id"] = 99
			case "none":
				fmt.Println("what?")
				continue
			case "more":
				r["surprise"] = 1
			case "sorry":
				r = map[string]any{"id": q.ID, "error": "no such move"}
			case "unsteady":
				r["text"] = fmt.Sprint(time.Now().UnixNano())
			}
		}
		b, _ := json.Marshal(r)
		fmt.Printf("%s\n", b)
	}
}

// talks has processes of that program.
func talks(t *testing.T, how string, processes int, deadline time.Duration) *Talks {
	t.Setenv(worldEnv, "talk:"+how)
	t.Setenv("LFACTOR_TEST_DIR", t.TempDir())
	x := NewTalks([]string{os.Args[0]}, processes, deadline)
	t.Cleanup(x.Close)
	return x
}

// began are the processes that Talks began.
type began struct {
	mu  sync.Mutex
	all []party
}

func (b *began) at(i int) party {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[i]
}

// parties keeps the processes that begin from now on.
func parties(x *Talks) *began {
	b, begin := &began{}, x.begin
	x.begin = func(ctx context.Context) (party, error) {
		p, err := begin(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			b.all = append(b.all, p)
		}
		return p, err
	}
	return b
}

// talked brings an episode to its end.
func talked(x *Talks, seed uint64, between func()) (*Dialogue, error) {
	e := &Dialogue{Seed: seed}
	for {
		turn, err := x.Next(context.Background(), e)
		if err != nil || turn.Done {
			return e, err
		}
		between()
		e.Told = append(e.Told, fmt.Sprintf("move %d", len(e.Told)))
	}
}

// TestTalks: episodes are the same whichever process says their turns: where one process has several under way,
// each is told again when it goes on, and so it is where a process dies, hangs or says what is no answer, once.
func TestTalks(t *testing.T) {
	const wait = 4 * time.Minute // which nobody takes that is not to hang
	want := []Turn{{}, {"1 move 0", 0.5, false}, {"2 move 1", 0.5, false}, {"3 move 2", 0.5, true}}
	x := talks(t, "well", 1, wait)
	first := &Dialogue{Seed: 1}
	_, err := x.Next(context.Background(), first)
	require.NoError(t, err)
	first.Told = []string{"move 0"}
	e, err := talked(x, 2, func() {})
	require.NoError(t, err)
	require.Equal(t, want, e.Heard)
	for i := 1; i < 4; i++ {
		_, err = x.Next(context.Background(), first)
		require.NoError(t, err)
		first.Told = append(first.Told, fmt.Sprintf("move %d", i))
		_, err = talked(x, 5, func() {}) // meanwhile the process is in another episode
		require.NoError(t, err)
	}
	require.Equal(t, want, first.Heard)
	for _, how := range []string{"dies", "hangs", "number", "none", "more", "sorry", "twice", "text",
		"reward", "done", "null"} {
		x := talks(t, "once-"+how, 2, wait)
		all, turns := parties(x), 0
		e, err := talked(x, 3, func() {
			if turns++; how == "hangs" && turns == 2 {
				all.at(0).(*spoken).deadline = 10 * time.Millisecond // of the turn that hangs alone
			}
		})
		require.NoError(t, err, how)
		require.Equal(t, want, e.Heard, how)
		d := wait
		if how == "hangs" { // which is an error, whatever else takes as long
			d = 100 * time.Millisecond
		}
		_, err = talked(talks(t, how, 2, d), 3, func() {})
		require.Error(t, err, how)
		t.Log(how, err)
	}
	x = talks(t, "unsteady", 1, wait)
	_, err = talked(x, 3, func() { _, _ = talked(x, 1, func() {}) })
	require.ErrorContains(t, err, "told the same again it says")
	_, err = talked(NewTalks([]string{"no-such-environment"}, 1, wait), 1, func() {})
	require.ErrorContains(t, err, "it does not start")
}

// TestTalksProcesses: there are as many processes as there may be, whichever episodes they are in, and episodes that
// are left keep none. Those that are asked end with the rest.
func TestTalksProcesses(t *testing.T) {
	x := talks(t, "well", 2, time.Minute)
	log := filepath.Join(t.TempDir(), "begun")
	words := []string{"sh", "-c", `echo $$ >> "$0"; exec "$1"`, log, os.Args[0]}
	x.begin = NewTalks(words, 2, time.Minute).begin
	for k := range 3 {
		all := []*Dialogue{{Seed: 1}, {Seed: 2}, {Seed: 4}, {Seed: 5}}
		for range 3 {
			var left sync.WaitGroup
			for _, e := range all {
				left.Go(func() {
					_, err := x.Next(context.Background(), e)
					require.NoError(t, err, k)
				})
			}
			left.Wait()
			for _, e := range all {
				e.Told = append(e.Told, "on")
			}
		}
		for _, e := range all {
			x.Leave(e)
		}
	}
	b, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(b)), 2)

	t.Setenv(worldEnv, "talk:hangs")
	x = NewTalks([]string{os.Args[0]}, 1, time.Minute)
	all := parties(x)
	ctx, leave := context.WithCancel(context.Background())
	e := &Dialogue{Seed: 3}
	for len(e.Heard) < 2 {
		_, err = x.Next(ctx, e)
		require.NoError(t, err)
		e.Told = append(e.Told, "on")
	}
	ended := make(chan error)
	go func() {
		_, err := x.Next(ctx, e)
		ended <- err
	}()
	for !x.Members()[0].Wait.Busy { // until it is asked
		runtime.Gosched()
	}
	leave()
	x.Close()
	require.True(t, all.at(0).(*spoken).ended)
	require.ErrorIs(t, <-ended, context.Canceled)
}
