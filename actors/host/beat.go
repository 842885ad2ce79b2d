package host

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/lfactor/lfactor/actors"
)

// A process that is lost closes its connections, which those who talk to it see at once. One that is stopped
// or cut off says nothing: so each writes a byte to process 0 every beatEvery, on a connection of its own.

const (
	beatEvery  = 100 * time.Millisecond
	silentFrom = 400 * time.Millisecond // without a beat a process is suspect
	// or so many of the longest gaps between its beats, where a machine has more work than processors,
	silentGaps = 4
	silentMost = 5 * time.Second // but not longer
)

// beating is the place of an actor in the hello of a connection that carries beats.
const beating actors.Ref = -2

// pulse is what is known of a process's beats.
type pulse struct {
	life uint32
	last time.Time
	gap  time.Duration // the longest
	told bool
}

// limit is how long the process may be silent.
func (p *pulse) limit() time.Duration {
	return min(silentMost, max(silentFrom, silentGaps*p.gap))
}

// Beat writes to process 0 until Close, and to the one that takes its place.
func (l *Links) Beat() {
	go func() { // to dial may take long, and Close does not wait for it
		for {
			c, err := l.t.Dial(0)
			if err != nil || !l.keep(c) {
				return
			}
			l.beatOn(c)
			select {
			case <-l.over:
				return
			case <-time.After(beatEvery):
			}
		}
	}()
}

// beatOn writes to one connection until it ends.
func (l *Links) beatOn(c net.Conn) {
	defer l.forget(c)
	_, err := c.Write(l.hello(beating, beating, 0))
	if err == nil {
		err = flush(c)
	}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for err == nil {
		select {
		case <-l.over:
			return
		case <-tick.C:
			if _, err = c.Write([]byte{1}); err == nil {
				err = flush(c)
			}
		}
	}
}

// Expect takes a process for silent from within on, if nothing is heard of it before.
func (l *Links) Expect(proc, life int, within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulses[proc] = &pulse{life: uint32(life), last: time.Now().Add(within - silentFrom)}
}

// listen takes in the beats of a process.
func (l *Links) listen(c net.Conn, proc int, life uint32) {
	l.heard(proc, life, true)
	for b := make([]byte, 1); ; l.heard(proc, life, false) {
		if _, err := io.ReadFull(c, b); err != nil {
			return // how a process ends is seen by who has started it
		}
	}
}

func (l *Links) heard(proc int, life uint32, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, now := l.pulses[proc], time.Now()
	switch {
	case first:
		l.pulses[proc] = &pulse{life: life, last: now}
	case p.life == life:
		p.gap, p.last = max(p.gap, now.Sub(p.last)), now
	}
}

// Watch calls silent for each process that has beaten and is not heard any more, once a life of it, until
// Close. Time in which this process itself did not run does not count.
func (l *Links) Watch(silent func(proc, life int, since time.Duration)) {
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		tick := time.NewTicker(beatEvery / 2)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-l.over:
				return
			case <-tick.C:
			}
			now := time.Now()
			asleep := now.Sub(last) - beatEvery/2
			last = now
			for proc, p := range l.quiet(now, max(0, asleep)) {
				silent(proc, int(p.life), now.Sub(p.last))
			}
		}
	}()
}

// quiet lists the processes that have been silent for too long, and puts off what they may be by the time
// that this one slept.
func (l *Links) quiet(now time.Time, asleep time.Duration) map[int]pulse {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out map[int]pulse
	for proc, p := range l.pulses {
		p.last = p.last.Add(asleep)
		if !p.told && now.Sub(p.last) > p.limit() {
			if p.told = true; out == nil {
				out = map[int]pulse{}
			}
			out[proc] = *p
		}
	}
	return out
}

// said is what a hello says of its sender.
func said(b []byte) (proc int, life uint32, from actors.Ref, epoch uint32) {
	u := binary.LittleEndian.Uint32
	return int(u(b[4:])), u(b[8:]), actors.Ref(u(b[12:])), u(b[20:])
}
