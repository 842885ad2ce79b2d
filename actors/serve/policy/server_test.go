package policy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/policies"
)

// counting is a policy whose actions say how many observations were answered before, and together with how
// many others; it waits at a gate if it has one.
type counting struct {
	gate    chan struct{}
	entered chan int      // the size of each batch that begins
	over    chan struct{} // closed when the test ends: no gate holds a server that is to close
	mu      sync.Mutex
	n       int
	joins   []*policies.Join
}

func (c *counting) Abilities() policies.Abilities {
	return policies.Abilities{State: "observation.state", Numbers: 2, Cameras: []string{"observation.images.top"},
		Size: [2]int{2, 2}, Chunk: 3, Width: 2, Joins: true}
}

func (c *counting) Ask(s policies.Seen) (policies.Ask, error) {
	if len(s.State) != 2 {
		return policies.Ask{}, fmt.Errorf("observation.state: %d numbers, want 2", len(s.State))
	}
	return policies.Ask{}, nil
}

func (c *counting) Decide(asks []policies.Ask) (out []policies.Chunk, err error) {
	if c.gate != nil {
		select {
		case c.entered <- len(asks):
			select {
			case <-c.gate:
			case <-c.over:
			}
		case <-c.over:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range asks {
		c.joins = append(c.joins, q.Join)
		row := []float64{float64(c.n), float64(len(asks))}
		out = append(out, policies.Chunk{Actions: [][]float64{row, row, row}})
		c.n++
	}
	return out, nil
}

// begins is the size of the next batch that a gated policy begins.
func (c *counting) begins(t *testing.T) int {
	t.Helper()
	select {
	case n := <-c.entered:
		return n
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "no batch begins")
		return 0
	}
}

// passes lets a batch through the gate.
func (c *counting) passes(t *testing.T) {
	t.Helper()
	select {
	case c.gate <- struct{}{}:
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "no batch is at the gate")
	}
}

// served serves a counting policy.
func served(t *testing.T, c *counting, o Options) (*Server, string) {
	t.Helper()
	s := newServer([]Policy{c}, o)
	url := at(t, s)
	if c.gate != nil {
		c.over = make(chan struct{})
		t.Cleanup(func() { close(c.over) })
	}
	return s, url
}

// at is the address of a server, which ends with the test.
func at(t *testing.T, s *Server) string {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
	return "ws" + strings.TrimPrefix(h.URL, "http")
}

// robot is a client of openpi's protocol, as small as can be.
type robot struct {
	t    *testing.T
	c    *websocket.Conn
	told map[string]any // the server's metadata
}

// dial connects and reads the metadata.
func dial(t *testing.T, url string) *robot {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.CloseNow() }) // it may be closed already
	r := &robot{t: t, c: c}
	kind, b, err := c.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, websocket.MessageBinary, kind)
	v, err := Unpack(b)
	require.NoError(t, err)
	r.told = v.(map[string]any)
	return r
}

// send sends a message as it is.
func (r *robot) send(b []byte) {
	r.t.Helper()
	require.NoError(r.t, r.c.Write(r.t.Context(), websocket.MessageBinary, b))
}

// answer reads the actions and the rest of a reply, or the text of an error.
func (r *robot) answer() (actions []float64, reply map[string]any, fault string) {
	r.t.Helper()
	kind, b, err := r.c.Read(r.t.Context())
	require.NoError(r.t, err)
	if kind == websocket.MessageText {
		return nil, nil, string(b)
	}
	v, err := Unpack(b)
	require.NoError(r.t, err)
	reply = v.(map[string]any)
	return reply["actions"].(Array).Floats(), reply, ""
}

// infer asks for actions.
func (r *robot) infer(o []Pair) ([]float64, map[string]any, string) {
	r.t.Helper()
	r.send(Pack(nil, o))
	return r.answer()
}

// looks is an observation that the counting policy reads, with more.
func looks(more ...Pair) []Pair {
	return append([]Pair{{"observation/state", FloatsOf([]float32{1, 2}, 2)},
		{"observation/images/top", Array{DType: "|u1", Shape: []int{2, 2, 3}, Data: make([]byte, 12)}},
		{"prompt", "go"}}, more...)
}

// closed waits for the end of a connection and returns how the server ended it.
func (r *robot) closed() websocket.StatusCode {
	r.t.Helper()
	for {
		if _, _, err := r.c.Read(r.t.Context()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// TestTalk: a client is told what is served, then given actions for each observation; what is wrong with one
// is said, and the connection goes on; what was done is counted.
func TestTalk(t *testing.T) {
	c := &counting{}
	s, url := served(t, c, Options{Name: "reach"})
	r := dial(t, url)
	require.Equal(t, "reach", r.told["model"])
	require.Equal(t, 3.0, r.told["action_horizon"])
	require.Equal(t, []any{"images/top"}, r.told["image_keys"])
	got, reply, _ := r.infer(looks())
	require.Equal(t, []float64{0, 1, 0, 1, 0, 1}, got)
	require.Equal(t, []int{3, 2}, reply["actions"].(Array).Shape)
	require.NotContains(t, reply["server_timing"], "prev_total_ms")
	got, reply, _ = r.infer(looks(Pair{"seed", 9}))
	require.Equal(t, 1.0, got[0])
	require.Equal(t, 9.0, reply["seed"])
	require.Contains(t, reply["server_timing"], "prev_total_ms")

	_, _, fault := r.infer(looks()[:2])
	require.Contains(t, fault, "prompt: the observation says no task")
	_, _, fault = r.infer([]Pair{{"state", FloatsOf([]float32{1}, 1)}, {"images/top", nil}, {"prompt", "go"}})
	require.Equal(t, "observation.state: 1 numbers, want 2", fault)
	got, _, _ = r.infer(looks())
	require.Equal(t, 2.0, got[0])
	require.NoError(t, r.c.Close(websocket.StatusNormalClosure, ""))
	s.Close()
	sum := s.Summary()
	require.Equal(t, [4]int64{3, 2, 0, 3}, [4]int64{sum.Answered, sum.Refused, sum.Dropped, sum.Batches})
	require.Contains(t, sum.String(), "3 observations answered in 3 batches, p50 ")
	require.Contains(t, sum.String(), "2 refused")
}

// TestJoins: a chunk is joined to the one that the same connection was given last.
func TestJoins(t *testing.T) {
	c := &counting{}
	_, url := served(t, c, Options{Horizon: 2})
	at := func(executed, delay int) Pair {
		return Pair{"real_time_chunking", []Pair{{"executed", executed}, {"delay", delay}}}
	}
	r := dial(t, url)
	_, _, fault := r.infer(looks(at(0, 0)))
	require.Contains(t, fault, "was given no chunk before")
	r.infer(looks())
	dial(t, url).infer(looks()) // another robot's chunk
	got, _, _ := r.infer(looks(at(1, 2)))
	require.Equal(t, 2.0, got[0])
	require.Nil(t, c.joins[1])
	j := c.joins[2]
	require.Equal(t, 0.0, j.Before.Actions[0][0])
	require.Equal(t, [3]int{1, 2, 2}, [3]int{j.Executed, j.Delay, j.Horizon})
	_, _, fault = r.infer(looks(at(2, 2)))
	require.Contains(t, fault, "2 actions carried out and 2 to come are more than the 3")
}

// TestBatches: what comes while a replica computes is answered together, no more at once than a batch has.
func TestBatches(t *testing.T) {
	c := &counting{gate: make(chan struct{}), entered: make(chan int)}
	s, url := served(t, c, Options{Batch: 3, Deadline: time.Hour})
	robots := make([]*robot, 6)
	for i := range robots {
		robots[i] = dial(t, url)
	}
	robots[0].send(Pack(nil, looks()))
	require.Equal(t, 1, c.begins(t))
	for _, r := range robots[1:] {
		r.send(Pack(nil, looks()))
	}
	require.Eventually(t, func() bool { return s.r.waiting.Load() == 5 }, 2*time.Minute, time.Millisecond)
	c.passes(t)
	require.Equal(t, 3, c.begins(t))
	c.passes(t)
	require.Equal(t, 2, c.begins(t))
	c.passes(t)
	for _, r := range robots {
		got, _, _ := r.answer()
		require.Len(t, got, 6)
	}
}

// TestBounds: an observation that finds no room to wait is told so, one whose time is over is not begun, and
// both connections go on.
func TestBounds(t *testing.T) {
	c := &counting{gate: make(chan struct{}), entered: make(chan int)}
	s, url := served(t, c, Options{Queue: 1, Batch: 1, Deadline: 5 * time.Second})
	first, second, third := dial(t, url), dial(t, url), dial(t, url)
	first.send(Pack(nil, looks()))
	require.Equal(t, 1, c.begins(t))
	second.send(Pack(nil, looks()))
	require.Eventually(t, func() bool { return s.r.waiting.Load() == 1 }, 2*time.Minute, time.Millisecond)
	_, _, fault := third.infer(looks())
	require.Equal(t, ErrFull.Error(), fault)
	for _, r := range []*robot{first, second} {
		_, _, fault = r.answer()
		require.Equal(t, ErrLate.Error(), fault)
	}
	c.passes(t) // the first is computed for nobody, and the second is not begun
	require.Eventually(t, func() bool { return s.r.waiting.Load() == 0 }, 2*time.Minute, time.Millisecond)
	close(c.gate) // whatever begins from now on passes
	go func() {
		for {
			select {
			case <-c.entered:
			case <-c.over:
				return
			}
		}
	}()
	late := int64(2)
	got, _, fault := third.infer(looks())
	for ; fault == ErrLate.Error(); late++ { // five seconds may pass on a machine that has much else to do
		got, _, fault = third.infer(looks())
	}
	require.Empty(t, fault)
	if late == 2 {
		require.Equal(t, 1.0, got[0])
	}
	require.Eventually(t, func() bool { // an answer is counted when it has been sent
		sum := s.Summary()
		return [3]int64{1, late, 1} == [3]int64{sum.Answered, sum.Late, sum.Full}
	}, 2*time.Minute, time.Millisecond)
}

// TestDropped: whoever speaks no msgpack, says too much or not to its end loses its connection, and nobody else does.
func TestDropped(t *testing.T) {
	c := &counting{}
	s, url := served(t, c, Options{Message: 1 << 16})
	good := dial(t, url)
	r := dial(t, url)
	_, _, fault := r.infer(nil)
	require.Contains(t, fault, "the observation has none")
	r.send([]byte("garbage"))
	_, _, fault = r.answer()
	require.Contains(t, fault, "the message is not understood")
	require.Equal(t, websocket.StatusInvalidFramePayloadData, r.closed())

	r = dial(t, url)
	require.NoError(t, r.c.Write(t.Context(), websocket.MessageText, []byte("hello")))
	_, _, fault = r.answer()
	require.Contains(t, fault, "observations are binary messages")
	require.Equal(t, websocket.StatusUnsupportedData, r.closed())

	r = dial(t, url)
	r.send(make([]byte, 70000))
	require.Equal(t, websocket.StatusMessageTooBig, r.closed())

	slow, url2 := served(t, &counting{}, Options{Slow: 2 * time.Second})
	r = dial(t, url2)
	w, err := r.c.Writer(t.Context(), websocket.MessageBinary)
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 10000)) // half a message, more than is held back
	require.NoError(t, err)
	require.Equal(t, websocket.StatusCode(-1), r.closed())
	got, _, _ := good.infer(looks())
	require.Equal(t, 0.0, got[0])
	require.Eventually(t, func() bool { return slow.Summary().Dropped == 1 }, 2*time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return s.Summary().Dropped == 3 }, 2*time.Minute, time.Millisecond)
}

// TestNeverReads: a client that asks and never reads loses its connection when no more of its answers fit into it.
func TestNeverReads(t *testing.T) {
	s := newServer([]Policy{&counting{}}, Options{Slow: 2 * time.Second})
	h := httptest.NewUnstartedServer(s)
	h.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		// as little as the kernel allows, where it would grow to megabytes of small answers
		require.NoError(t, c.(*net.TCPConn).SetWriteBuffer(4096))
		return ctx
	}
	h.Start()
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
	url := "ws" + strings.TrimPrefix(h.URL, "http")
	small := func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4096)
		}
		return c, err
	}
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: &http.Client{
		Transport: &http.Transport{DialContext: small}}})
	require.NoError(t, err)
	var asking sync.WaitGroup
	asking.Go(func() {
		for b := Pack(nil, looks()); c.Write(context.Background(), websocket.MessageBinary, b) == nil; {
		}
	})
	defer func() {
		_ = c.CloseNow() // the server has dropped it, which a client that reads nothing may not notice
		asking.Wait()
	}()
	require.Eventually(t, func() bool { return s.Summary().Dropped == 1 }, 2*time.Minute, time.Millisecond)
	got, _, _ := dial(t, url).infer(looks())
	require.Len(t, got, 6)
}

// TestDoors: as many robots as may be, and those that show the token.
func TestDoors(t *testing.T) {
	s, url := served(t, &counting{}, Options{Clients: 2, Token: "secret"})
	ask := func(scheme string) (*websocket.Conn, *http.Response) {
		c, r, _ := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{
			"Authorization": {scheme + "secret"}}}) // the response says why
		return c, r
	}
	_, r := ask("")
	require.Equal(t, http.StatusUnauthorized, r.StatusCode)
	one, _ := ask("Api-Key ")
	require.NotNil(t, one)
	two, _ := ask("Bearer ")
	require.NotNil(t, two)
	for range 1000 {
		_, r = ask("Api-Key ")
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	}
	require.Equal(t, int64(1000), s.Summary().Turned)
	require.NoError(t, one.CloseNow())
	require.Eventually(t, func() bool { c, _ := ask("Api-Key "); return c != nil }, 2*time.Minute,
		time.Millisecond)
	page := "http" + strings.TrimPrefix(url, "ws")
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 401, "/": 401} {
		r, err := http.Get(page + path)
		require.NoError(t, err)
		require.Equal(t, want, r.StatusCode, path)
		require.NoError(t, r.Body.Close())
	}
	q, err := http.NewRequestWithContext(context.Background(), "GET", page+"/metrics", nil)
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer secret")
	r, err = http.DefaultClient.Do(q)
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Contains(t, string(b), "\nlfactor_policy_connections_refused_total 1")
	require.Contains(t, string(b), `lfactor_policy_latency_recent_seconds{quantile="0.99"} 0`)
}

// TestQuantiles: of the last answers alone, by rank.
func TestQuantiles(t *testing.T) {
	l := newLatencies()
	require.Equal(t, []time.Duration{0}, l.quantiles(0.5))
	for range kept {
		l.add(time.Hour)
	}
	for i := range kept {
		l.add(time.Duration(i+1) * time.Millisecond)
	}
	require.Equal(t, []time.Duration{kept/2*time.Millisecond + time.Millisecond, 8111 * time.Millisecond},
		l.quantiles(0.5, 0.99))
	var b strings.Builder
	l.export(&b, 3)
	require.Contains(t, b.String(), "lfactor_policy_observations_waiting 3\n")
	require.Contains(t, b.String(), "latency_seconds_bucket{le=\"0.005\"} 5\n")
	require.Contains(t, b.String(), "latency_seconds_bucket{le=\"+Inf\"} 16384\n")
}
