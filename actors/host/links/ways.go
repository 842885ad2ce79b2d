package links

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// A slow way between two hosts makes all ranks wait and none of them slow. The system knows of each
// connection how long it has had something on its way, and how long of that the receiver had no room: what
// is left is the way's. It is held to what the same way carried before.

const (
	waysEvery  = 500 * time.Millisecond
	waySteps   = 4 // looks in a row, two seconds, make a way slow, and as many others an ordinary one again
	wayLearns  = 4 // looks are enough to judge by
	wayKeeps   = 64
	wayTimes   = 3        // times less than usual is slow,
	wayShare   = .5       // where it is for so much of the time that something is on its way
	wayAtLeast = .02      // of the time is the least that is measured: the system counts in milliseconds
	wayBytes   = 64 << 10 // are the least that say anything
)

// carried is what a process has sent to another, over all connections.
type carried struct {
	busy, full time.Duration
	acked      int64
}

// way is what is known of the way to another process.
type way struct {
	last  carried
	past  []float64 // bytes a second while something was on its way, of ordinary looks
	odd   int       // looks in a row that were slow; below 0, ordinary ones since
	named bool
}

// see takes in what was carried since the last look, and says once what is slow.
func (w *way) see(now carried, passed time.Duration) (rate, usual, share float64, slow bool) {
	d := carried{now.busy - w.last.busy, now.full - w.last.full, now.acked - w.last.acked}
	w.last = now
	mine := d.busy - d.full
	if d.acked < 0 || mine < 0 || passed <= 0 {
		return 0, 0, 0, false // connections were made anew
	}
	if d.acked < wayBytes {
		return 0, 0, 0, false
	}
	share = min(1, mine.Seconds()/passed.Seconds()) // of several connections at a time
	rate, usual = float64(d.acked)/(max(share, wayAtLeast)*passed.Seconds()), middle(w.past)
	if len(w.past) < wayLearns || share < wayShare || rate > usual/wayTimes {
		w.past = append(w.past, rate)
		w.past = w.past[max(0, len(w.past)-wayKeeps):]
		if w.odd = min(0, w.odd) - 1; w.odd <= -waySteps {
			w.named = false
		}
		return 0, 0, 0, false
	}
	if w.odd = max(0, w.odd) + 1; w.odd < waySteps || w.named {
		return 0, 0, 0, false
	}
	w.named = true
	return rate, usual, share, true
}

// middle is the middle one of some values, 0 for none.
func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}

// tcp is the connection of TCP below one of an edge.
func tcp(c net.Conn) net.Conn {
	if x, ok := c.(interface{ TCP() net.Conn }); ok {
		return x.TCP()
	}
	return c
}

// sends notes that a connection carries what this process sends to another.
func (l *Links) sends(c net.Conn, to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outs[c] = to
}

// sent forgets such a connection. What it has carried stays counted.
func (l *Links) sent(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to, known := l.outs[c]
	if !known {
		return
	}
	delete(l.outs, c)
	if now, ok := machine.Carried(tcp(c)); ok {
		l.gone[to] = l.gone[to].plus(now)
	}
}

// plus is what was carried with what a connection has.
func (x carried) plus(t machine.Traffic) carried {
	return carried{x.busy + t.Busy, x.full + t.Full, x.acked + t.Acked}
}

// carriedBy is what this process has sent to each other. Each connection is given the patience that the network
// wants: how much of all that was sent got lost, and how long it takes to try again.
func (l *Links) carriedBy() map[int]carried {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[int]carried{}
	for to, x := range l.gone {
		out[to] = x
	}
	mine := map[net.Conn]machine.Traffic{} // those that others opened, they watch
	for c, to := range l.outs {
		if now, ok := machine.Carried(tcp(c)); ok {
			out[to] = out[to].plus(now)
			mine[c] = now
		}
	}
	for c, dialed := range l.conns { // for beats
		if now, ok := machine.Carried(tcp(c)); ok && dialed {
			mine[c] = now
		}
	}
	l.losses.see(mine)
	return out
}

// WatchWays looks after the ways to other processes until Close. What is slow is told to process 0.
func (l *Links) WatchWays() {
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		tick := time.NewTicker(waysEvery)
		defer tick.Stop()
		ways, last := map[int]*way{}, time.Now()
		for {
			select {
			case <-l.over:
				return
			case <-tick.C:
			}
			passed := time.Since(last)
			last = time.Now()
			for to, x := range l.carriedBy() {
				if ways[to] == nil {
					ways[to] = &way{}
				}
				if rate, usual, share, slow := ways[to].see(x, passed); slow {
					l.slowWay(fmt.Sprintf("the way from process %d to process %d carries %.3g MB/s instead of %.3g "+
						"MB/s, and for %.0f %% of the time something is on it that the receiver has room for", l.proc,
						to, rate/1e6, usual/1e6, 100*share))
				}
			}
		}
	}()
}

// slowWay tells process 0.
func (l *Links) slowWay(text string) {
	if l.proc == 0 {
		if l.Slow != nil {
			l.Slow(0, text)
		}
		return
	}
	l.mu.Lock()
	l.complaints = append(l.complaints, text)
	l.mu.Unlock()
}

// complaint is the next that process 0 has not heard, "" for none.
func (l *Links) complaint() (text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.complaints) > 0 {
		text, l.complaints = l.complaints[0], l.complaints[1:]
	}
	return text
}
