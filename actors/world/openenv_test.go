package world

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// served is a server of OpenEnv's protocol whose environment counts what it is told; how it misbehaves, in
// the second turn of an episode, goes by its name, with "once" before it in the first session only.
func served(t *testing.T, how string) (url string, sessions *atomic.Int64) {
	sessions = &atomic.Int64{}
	name, once := strings.CutPrefix(how, "once-")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/ws", r.URL.Path)
		c, err := websocket.Accept(w, r, nil)
		require.NoError(t, err)
		defer c.CloseNow() //nolint:errcheck // a client that has gone needs none
		first := sessions.Add(1) == 1
		n, seed, ctx := 0, 0.0, r.Context()
		for {
			_, text, err := c.Read(ctx)
			if err != nil {
				return
			}
			var m struct {
				Type string
				Data map[string]any
			}
			require.NoError(t, json.Unmarshal(text, &m))
			if m.Type == "state" {
				_ = c.Write(ctx, websocket.MessageText, []byte(stateOf(name, n))) // the next read says so
				if name == "later" && n == 1 && seed == 3 && (!once || first) {   // once more, behind the mark
					_ = c.Write(ctx, websocket.MessageText, []byte(stale)) // the test sees what comes of it
				}
				continue
			}
			answer := `{"type": "observation", "data": {"observation": {"prompt": "?", "said": {"text": "%d %v", "n": %d}}, "reward": %s, ` +
				`"done": %t}}`
			if m.Type == "reset" {
				n, seed = 0, m.Data["seed"].(float64)
				answer = fmt.Sprintf(answer, n, m.Data["level"], n, "null", false)
			} else {
				n++
				answer = fmt.Sprintf(answer, n, m.Data["move"], n, []string{"0.5", "true", "0.5"}[n-1],
					n == 3)
			}
			if n == 2 && seed == 3 && (!once || first) {
				switch name {
				case "ends":
					return
				case "hangs":
					<-ctx.Done()
					return
				case "twice":
					_ = c.Write(ctx, websocket.MessageText,
						[]byte(answer)) // the test looks at what comes of it
				case "sorry":
					answer = `{"type": "error", "data": {"message": "no such move", "code": "EXECUTION_ERROR"}}`
				case "none":
					answer = "what?"
				case "more", "lacks", "over", "rich":
					answer = strings.Replace(answer, spoilt[name][0], spoilt[name][1], 1)
				case "state":
					answer = `{"type": "state", "data": {}}`
				}
			}
			if c.Write(ctx, websocket.MessageText, []byte(answer)) != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, sessions
}

// spoilt are answers that lack something or have too much, as what is put in the place of what.
var spoilt = map[string][2]string{"more": {`"done"`, `"surprise": 1, "done"`}, "lacks": {`"text"`, `"words"`},
	"over": {`, "done": false`, ""}, "rich": {"true", `"much"`}}

// stale is the answer to a step that was asked before.
const stale = `{"type": "observation", "data": {"observation": {"said": {"text": "1 move 0"}}, "reward": 0.5, ` +
	`"done": false}}`

// stateOf is what a server says of its state, which some have none of.
func stateOf(how string, n int) string {
	if how == "stateless" {
		return `{"type": "error", "data": {"message": "no state", "code": "EXECUTION_ERROR"}}`
	}
	return fmt.Sprintf(`{"type": "state", "data": {"episode_id": "e", "step_count": %d}}`, n)
}

// TestOpenEnv: an environment that is served by OpenEnv's protocol is told and says turns; one that ends a
// session, hangs, or says what is no observation is told the episode again in another one, once. Sessions
// are kept, and are as many as there may be.
func TestOpenEnv(t *testing.T) {
	want := []Turn{{}, {"1 move 0", 0.5, false}, {"2 move 1", 1, false}, {"3 move 2", 0.5, true}}
	o := OpenEnv{Action: "move", Texts: []string{"said.text"}}
	for _, how := range []string{"well", "stateless", "ends", "hangs", "sorry", "none", "more", "lacks",
		"rich", "over", "state", "twice", "later"} {
		url, sessions := served(t, "once-"+how)
		o.URL = url
		x := o.Talks(2, 10*time.Second)
		all, turns := parties(x), 0
		e, err := talked(x, 3, func() {
			if turns++; how == "hangs" && turns == 2 && sessions.Load() == 1 {
				all.at(0).(*session).deadline = 10 * time.Millisecond // of the turn that hangs alone
			}
		})
		require.NoError(t, err, how)
		require.Equal(t, want, e.Heard, how)
		x.Close()
		if strings.HasSuffix(how, "well") || how == "stateless" {
			require.EqualValues(t, 1, sessions.Load())
			continue
		}
		require.EqualValues(t, 2, sessions.Load(), how)
		wait := 10 * time.Second
		if how == "hangs" { // which is an error, whatever else takes as long
			wait = 100 * time.Millisecond
		}
		o.URL, _ = served(t, how)
		x = o.Talks(1, wait)
		_, err = talked(x, 3, func() {})
		require.Error(t, err, how)
		t.Log(how, err)
		x.Close()
	}
	for how, why := range map[string]string{"twice": "it answers a request twice, or late",
		"later": "it "} { // which is there before the next request, or counts as its answer until the mark
		o.URL, _ = served(t, how)
		x := o.Talks(1, 10*time.Second)
		_, err := talked(x, 3, func() {})
		require.ErrorContains(t, err, why, how)
		x.Close()
	}
	o.URL, _ = served(t, "well")
	o.Texts = nil
	x := o.Talks(1, 10*time.Second)
	defer x.Close()
	d := &Dialogue{Seed: 1<<40 + 7, Record: map[string]json.RawMessage{"reset": json.RawMessage(`{"level": 4}`)}}
	_, err := x.Next(context.Background(), d)
	require.NoError(t, err)
	d.Told = []string{"left"}
	turn, err := x.Next(context.Background(), d)
	require.NoError(t, err)
	require.Equal(t, `{"prompt":"?","said":{"text":"1 left","n":1}}`, strings.ReplaceAll(turn.Text, " \"", "\""))
	for url, why := range map[string]string{"http://127.0.0.1:1": "no session begins",
		"http://": "names no server"} {
		_, err := talked(OpenEnv{URL: url}.Talks(1, time.Second), 1, func() {})
		require.ErrorContains(t, err, why)
	}
}

// few is a server that takes so many sessions at once, as OpenEnv's does, whose episodes have two turns;
// closes ends all sessions.
func few(t *testing.T, most int) (url string, closes func(), resets func() []string) {
	places := make(chan struct{}, most)
	var mu sync.Mutex
	var all []*websocket.Conn
	var said []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow() //nolint:errcheck // a client that has gone needs none
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			_ = c.Write(r.Context(), websocket.MessageText, []byte(`{"type": "error", "data": `+
				`{"message": "Server at capacity", "code": "CAPACITY_REACHED", "max_sessions": 1}}`)) // it may have gone
			_ = c.Close(websocket.StatusNormalClosure, "") // the same
			return
		}
		mu.Lock()
		all = append(all, c)
		mu.Unlock()
		for {
			_, text, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if strings.Contains(string(text), `"state"`) {
				// whether it comes the next read says
				_ = c.Write(r.Context(), websocket.MessageText, []byte(stateOf("few", 0)))
				continue
			}
			over := strings.Contains(string(text), `"step"`)
			mu.Lock()
			if !over {
				said = append(said, string(text))
			}
			mu.Unlock()
			_ = c.Write(r.Context(), websocket.MessageText, fmt.Appendf(nil, // the next read says so
				`{"type": "observation", "data": {"observation": {"t": "x"}, "reward": 1, "done": %t}}`, over))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func() {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range all {
				_ = c.CloseNow() // it may have ended
			}
			all = nil
		}, func() []string {
			mu.Lock()
			defer mu.Unlock()
			return said
		}
}

// TestOpenEnvFull: episodes share the sessions that a server takes, and where others have all of them its words
// are the error.
func TestOpenEnvFull(t *testing.T) {
	o := OpenEnv{Action: "m", Texts: []string{"t"}}
	o.URL, _, _ = few(t, 1)
	x := o.Talks(4, time.Minute)
	defer x.Close()
	all := []*Dialogue{{Seed: 1}, {Seed: 2}, {Seed: 3}, {Seed: 4}}
	for range 2 {
		var left sync.WaitGroup
		for _, e := range all {
			left.Go(func() {
				_, err := x.Next(context.Background(), e)
				require.NoError(t, err)
			})
		}
		left.Wait()
		for _, e := range all {
			e.Told = []string{"a"}
		}
	}
	other := o.Talks(4, time.Minute)
	other.desk.Wait = actors.Duration(100 * time.Millisecond)
	defer other.Close()
	_, err := other.Next(context.Background(), &Dialogue{Seed: 1})
	require.ErrorContains(t, err, "Server at capacity (CAPACITY_REACHED); it is to take rollout.processes sessions")
}

// TestOpenEnvIdle: that all sessions end while nobody is in them costs no episode anything.
func TestOpenEnvIdle(t *testing.T) {
	o := OpenEnv{Action: "m", Texts: []string{"t"}}
	url, closes, resets := few(t, 9)
	o.URL = url + "/?token=x"
	x := o.Talks(4, time.Minute)
	defer x.Close()
	began := parties(x)
	for gone, known := range []bool{false, true} {
		var all []*Dialogue
		for range 4 {
			e := &Dialogue{Record: map[string]json.RawMessage{"reset": json.RawMessage(`{"seed": 9007199254740993, "n": 1e21}`)}}
			_, err := x.Next(context.Background(), e)
			require.NoError(t, err)
			all = append(all, e)
		}
		for _, e := range all {
			x.Leave(e)
		}
		closes()
		for i := range 4 { // what is known to have ended is not asked, and what is not is asked in vain
			s := began.at(4*gone + i).(*session)
			<-s.gone
			if !known {
				s.gone = make(chan struct{})
			}
		}
	}
	_, err := x.Next(context.Background(), &Dialogue{})
	require.NoError(t, err)
	require.Equal(t, `{"type":"reset","data":{"n":1e21,"seed":9007199254740993}}`, resets()[0])
}

// TestOpenEnvSilent: a server that takes connections and says nothing holds nobody up but those that ask it,
// who hear their context.
func TestOpenEnvSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // nobody is left
	x := OpenEnv{URL: "ws://u:secret@" + l.Addr().String(), Action: "m"}.Talks(2, time.Hour)
	ctx, leave := context.WithCancel(context.Background())
	said := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := x.Next(ctx, &Dialogue{})
			said <- err
		}()
	}
	for range 2 { // both at once
		c, err := l.Accept()
		require.NoError(t, err)
		defer c.Close() //nolint:errcheck // as above
	}
	x.Leave(&Dialogue{})
	leave()
	x.Close()
	for range 2 {
		err := <-said
		require.ErrorIs(t, err, context.Canceled)
		require.NotContains(t, err.Error(), "secret")
	}
}
