package links

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// TestOffsets: over ways on which messages wait at random the estimate is right within what it states, and
// better than most single round trips; old measurements go, since clocks drift.
func TestOffsets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const ahead = -time.Hour
	o := &offsets{}
	_, ok := o.estimate()
	require.False(t, ok)
	now := time.Second
	for n := range 200 {
		there := time.Duration(50+rng.ExpFloat64()*400) * time.Microsecond
		back := time.Duration(50+rng.ExpFloat64()*400) * time.Microsecond
		o.add(now, now+there+ahead, now+there+back)
		x, ok := o.estimate()
		require.True(t, ok)
		require.LessOrEqual(t, (x.Ahead - ahead).Abs(), x.Within, "round trip %d", n)
		now += 10 * time.Millisecond
	}
	x, _ := o.estimate()
	require.Less(t, x.Within, 150*time.Microsecond)
	o.add(now, now+ahead, now-1)
	same, _ := o.estimate()
	require.Equal(t, x, same, "an answer before its question says nothing")
	const later = ahead + 5*time.Millisecond
	for range 2500 { // 25 s, in which the clocks have drifted apart
		o.add(now, now+time.Millisecond+later, now+2*time.Millisecond)
		now += 10 * time.Millisecond
	}
	x, _ = o.estimate()
	require.Equal(t, later, x.Ahead)
	require.InDelta(t, time.Millisecond, x.Within, 10)
	require.Equal(t, x, o.stated())
	o.told(Offset{Within: 3 * time.Millisecond})
	o.told(Offset{Within: 2 * time.Millisecond})
	require.Equal(t, Offset{Ahead: later, Within: 3 * time.Millisecond}, o.stated(), "of all that was told")
	require.Equal(t, Offset{}, (&offsets{}).stated())
}

// piped is a Transport over pipes in memory between two processes.
type piped struct {
	to     *piped
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func (p *piped) Dial(int) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.to.accept <- b:
		return a, nil
	case <-p.to.done:
		return nil, net.ErrClosed
	}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error { p.once.Do(func() { close(p.done) }); return nil }

// TestClocksShifted: a process whose clock is an hour late tells what it did in the time of process 0, and
// its part comes there behind what it has answered to: sent before received, received before answered. The
// last news come with its end.
func TestClocksShifted(t *testing.T) {
	a, b := &piped{accept: make(chan net.Conn), done: make(chan struct{})},
		&piped{accept: make(chan net.Conn), done: make(chan struct{})}
	a.to, b.to = b, a
	owner := func(actors.Ref) int { return 0 }
	leader, worker := New(a, 0, 0, [32]byte{}, owner), New(b, 1, 0, [32]byte{}, owner)
	began := time.Now()
	leader.clock = func() time.Duration { return time.Since(began) }
	worker.clock = func() time.Duration { return time.Since(began) - time.Hour }
	type told struct{ sent, received, answered time.Duration }
	var mu sync.Mutex
	var all []told
	asked := make(chan time.Duration, 100)
	worker.Tell = func(o Offset) []byte {
		select {
		case sent := <-asked:
			mu.Lock()
			defer mu.Unlock()
			all = append(all, told{sent: sent, received: worker.clock() + o.Ahead})
			return []byte("news")
		default:
			return nil
		}
	}
	got := make(chan struct{}, 100)
	leader.Told = func(proc int, text []byte) {
		require.Equal(t, 1, proc)
		require.Equal(t, "news", string(text))
		mu.Lock()
		all[len(all)-1].answered = leader.clock()
		mu.Unlock()
		got <- struct{}{}
	}
	leader.Serve(nil, actors.None)
	worker.Beat()
	for range 5 {
		asked <- leader.clock()
		<-got
	}
	require.Eventually(t, func() bool { return leader.Clocks()[1].Within > 0 }, 2*time.Minute,
		time.Millisecond)
	o := leader.Clocks()[1]
	require.LessOrEqual(t, (o.Ahead - time.Hour).Abs(), o.Within)
	for i, x := range all {
		require.LessOrEqual(t, x.sent, x.received+o.Within, "message %d", i)
		require.LessOrEqual(t, x.received, x.answered+o.Within, "message %d", i)
	}
	asked <- leader.clock()
	worker.Close()
	<-got
	leader.Close()
}

// TestNewsBounded: news that nobody sends ends the connection, before memory is taken for it.
func TestNewsBounded(t *testing.T) {
	l := New(&piped{done: make(chan struct{})}, 0, 0, [32]byte{}, nil)
	x, y := net.Pipe()
	ended := make(chan struct{})
	go func() { l.listen(y, 1, 0); close(ended) }()
	_, err := x.Write([]byte{newsFrame, 255, 255, 255, 255})
	require.NoError(t, err)
	<-ended
}
