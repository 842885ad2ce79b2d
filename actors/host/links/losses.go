package links

import (
	"net"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

const (
	lossLearns = 50  // segments are enough to judge by
	lossKeeps  = 200 // of those before count as much as others
)

// losses is what the network loses of what a process sends to others, over all connections that it has opened.
type losses struct {
	sent, again float64
	last        map[net.Conn]watched
}

// watched is a connection as it was at the last look, and how long it waits for its peer.
type watched struct {
	machine.Traffic
	wait time.Duration
}

// see takes in what the connections have sent since the last look, and gives each the patience that the network wants:
// how much gets lost, and how long it takes to try again.
func (x *losses) see(now map[net.Conn]machine.Traffic) {
	next := make(map[net.Conn]watched, len(now))
	for c, t := range now {
		was, known := x.last[c]
		if !known {
			was.wait = machine.CutAfter
		}
		x.sent, x.again = x.sent+float64(t.Sent-was.Sent), x.again+float64(t.Again-was.Again)
		next[c] = watched{t, was.wait}
	}
	if x.sent > lossKeeps {
		x.again, x.sent = x.again*lossKeeps/x.sent, lossKeeps
	}
	x.last = next
	for c, w := range next {
		wait := machine.Patience(machine.CutAfter, w.Retry, x.share())
		if wait > w.wait || 2*wait < w.wait {
			w.wait = wait
			next[c] = w
			_ = machine.GiveUpAfter(tcp(c), wait) // a connection that has ended fails where it is used
		}
	}
}

// share is how much of what is sent gets lost.
func (x *losses) share() float64 {
	if x.sent < lossLearns {
		return 0
	}
	return min(1, x.again/x.sent)
}
