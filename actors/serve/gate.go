package serve

import (
	"context"
	"sync"
)

// gate lets several in together, or one alone, in the order in which they came; whoever waits may go away.
type gate struct {
	mu     sync.Mutex
	inside int // alone is -1
	queue  []*visitor
}

type visitor struct {
	alone bool
	in    chan struct{} // closed when it is let in
}

// enter waits until there is room, or the context's end.
func (g *gate) enter(ctx context.Context, alone bool) error {
	v := &visitor{alone, make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, v)
	g.admit()
	g.mu.Unlock()
	select {
	case <-v.in:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-v.in: // let in meanwhile
		g.out(alone)
	default:
		for i, x := range g.queue {
			if x == v {
				g.queue = append(g.queue[:i], g.queue[i+1:]...)
				break
			}
		}
		g.admit()
	}
	return ctx.Err()
}

// leave gives room to others.
func (g *gate) leave(alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out(alone)
}

func (g *gate) out(alone bool) {
	if alone {
		g.inside = 0
	} else {
		g.inside--
	}
	g.admit()
}

// admit lets in who is first, and all behind that may be together with it.
func (g *gate) admit() {
	for len(g.queue) > 0 {
		v := g.queue[0]
		switch {
		case v.alone && g.inside != 0, g.inside < 0:
			return
		case v.alone:
			g.inside = -1
		default:
			g.inside++
		}
		g.queue = g.queue[1:]
		close(v.in)
	}
}

// waiting is how many wait.
func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}
