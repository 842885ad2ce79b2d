// Package crew runs a pool (actors/pool) for real: on actors/host, with a function for the life of each member, and
// answers for those who wait for them.
package crew

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/pool"
)

// Run is the life of a member in a place, and returns how it has ended, with an Ended's Port: it does what comes in, which
// is closed where it is asked to end, and says results and that it lives. Its context ends, for a reason, when it must.
type Run func(ctx context.Context, place int, in <-chan actors.Message, say func(actors.Message)) (port int32, how error)

// Options of a crew. Those of its pool are filled in, but Owner and Places.
type Options struct {
	pool.Options
	Places int // numbers of places from First on
	First  int
	Room   int // messages that a member may be behind
	Run    Run
	Hear   func(actors.Message)  // what the pool tells its owner, but answers that somebody waits for; in its turns
	Fill   func(*actors.Message) // what goes with what a member is told, in the pool's turns; nil for nothing
	Turn   sync.Locker           // is held in the pool's turns, so that others may read its desk; nil for none
	Grace  time.Duration         // that members have to end in order when the crew does
}

// The actors of a crew: its pool, its owner, and the places.
const (
	poolRef  = actors.Ref(0)
	ownerRef = actors.Ref(1)
	placeRef = actors.Ref(2)
)

// Crew is a pool that runs.
type Crew struct {
	o       Options
	sys     *host.System
	members map[actors.Ref]*member // touched in the pool's turns, and when it has had its last
	left    sync.WaitGroup
	over    context.Context // of members
	end     context.CancelFunc
	closing chan struct{} // closed when nobody is answered any more
	once    sync.Once

	mu    sync.Mutex
	asked int64
	waits map[int64]chan actors.Message
}

// member is one that has begun.
type member struct {
	number uint32
	in     chan actors.Message
	leave  context.CancelCauseFunc
}

// hangs is how long a member with tasks, which says every second that it lives, says nothing until it counts as stuck.
const hangs = 5 * time.Second / 2

// Own is the body of a message that stays in this process: nothing counts it.
type Own struct{}

// Bytes implements actors.Payload, as Retain and Release do.
func (Own) Bytes() int64 { return 0 }

// Retain does nothing.
func (Own) Retain() {}

// Release does nothing.
func (Own) Release() {}

// ErrOver is the answer of a crew that has ended.
var ErrOver = errors.New("it has ended")

// New begins a crew.
func New(o Options) *Crew {
	c := &Crew{o: o, members: map[actors.Ref]*member{}, waits: map[int64]chan actors.Message{},
		closing: make(chan struct{})}
	c.over, c.end = context.WithCancel(context.Background())
	c.sys = host.NewSystem(0, placeRef+actors.Ref(o.Places), c)
	o.Owner = ownerRef
	for i := range o.Places {
		o.Options.Places = append(o.Options.Places, placeRef+actors.Ref(i))
	}
	c.sys.Spawn(poolRef, "pool", turn{pool.New(o.Options), o.Turn}, nil)
	return c
}

// turn is a pool whose turns hold a lock.
type turn struct {
	*pool.Pool
	lock sync.Locker
}

// Receive implements actors.Behaviour.
func (t turn) Receive(ctx actors.Context, m *actors.Message) {
	if t.lock != nil {
		t.lock.Lock()
		defer t.lock.Unlock()
	}
	t.Pool.Receive(ctx, m)
}

// Tell tells the desk something.
func (c *Crew) Tell(m actors.Message) { c.sys.Send(poolRef, m) }

// Ask has a task done, and waits for the answer. Its error is the answer's, too.
func (c *Crew) Ask(ctx context.Context, m actors.Message) (actors.Message, error) {
	reply := make(chan actors.Message, 1)
	c.mu.Lock()
	c.asked++
	m.Kind, m.Step = pool.Ask, c.asked
	c.waits[m.Step] = reply
	c.mu.Unlock()
	c.Tell(m)
	select {
	case a := <-reply:
		return a, a.Err
	case <-ctx.Done():
		return m, ctx.Err()
	case <-c.closing:
		return m, ErrOver
	}
}

// Members says of each place, as of an actor with its number, what its member does and for how long it has said
// nothing. One that is closed, or hangs, is stuck. There may be no crew.
func (c *Crew) Members() (out []host.Status) {
	if c == nil {
		return nil
	}
	s := c.sys.Ask(time.Second)[0]
	for _, h := range s.Wait.Held {
		m := host.Status{Ref: actors.Ref(c.o.First) + h.To - placeRef, Stuck: h.Edge == pool.Over}
		m.Wait = actors.Wait{For: actors.None, What: h.Edge}
		if m.Age = s.Age - time.Duration(h.Since); h.Count > 0 {
			m.Wait.Busy, m.Wait.What = true, fmt.Sprintf("%d results", h.Count)
			m.Stuck = c.o.Silence > 0 && m.Age > hangs
		}
		out = append(out, m)
	}
	return out
}

// Send implements host.Remote: what the pool says to its owner and to places. It never waits.
func (c *Crew) Send(to actors.Ref, m actors.Message) {
	if to == ownerRef {
		c.mu.Lock()
		reply := c.waits[m.Step]
		if m.Kind == pool.Answer {
			delete(c.waits, m.Step)
		}
		c.mu.Unlock()
		if reply != nil && m.Kind == pool.Answer {
			reply <- m // there is room for one
		} else if c.o.Hear != nil {
			c.o.Hear(m)
		}
		return
	}
	x := c.members[to]
	switch {
	case m.Kind == pool.Begin:
		c.begin(to, m.Epoch)
	case x == nil || x.number != m.Epoch:
		links.Release(m)
	case m.Kind == pool.Leave:
		x.leave(errors.New(m.Text))
	default:
		if c.o.Fill != nil {
			c.o.Fill(&m)
		}
		x.in <- m
	}
}

// begin has a member live.
func (c *Crew) begin(at actors.Ref, number uint32) {
	ctx, leave := context.WithCancelCause(c.over)
	x := &member{number, make(chan actors.Message, c.o.Room), leave}
	c.members[at] = x
	c.left.Go(func() {
		port, err := c.o.Run(ctx, c.o.First+int(at-placeRef), x.in, func(m actors.Message) {
			m.From, m.Epoch = at, number
			c.Tell(m)
		})
		leave(nil)
		c.Tell(actors.Message{Kind: pool.Ended, From: at, Epoch: number, Port: port, Err: err})
	})
}

// Close ends the members, and waits until they have ended. There may be no crew.
func (c *Crew) Close() {
	if c != nil {
		c.once.Do(c.close)
	}
}

func (c *Crew) close() {
	close(c.closing)
	c.sys.Stop()
	for _, x := range c.members {
		close(x.in)
	}
	late := time.AfterFunc(c.o.Grace, c.end)
	c.left.Wait()
	late.Stop()
	c.end()
}
