package links

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"time"

	"github.com/lfactor/lfactor/actors"
)

// A process that is lost closes its connections, which those who talk to it see at once. One that is
// stopped or cut off says nothing: so each writes to process 0 every beatEvery, on a connection of its own,
// which also measures how their clocks stand to each other.

const (
	beatEvery = 100 * time.Millisecond
	// silentFrom without a beat a process is suspect: a beat that gets lost is there 300 ms after the one before, one
	// that gets lost twice 500 ms; and so is the first on a way that became 600 ms longer
	silentFrom = 700 * time.Millisecond
	// or so many of the longest gaps between its beats, where a machine has more work than processors,
	silentGaps = 4
	silentMost = 5 * time.Second // but not longer
	// lastNews is how long a process that ends waits for the last that others say, and for them to take its
	// own, if their connections stay open. One that is not there any more, or stopped, closes none.
	lastNews = 2 * time.Second
	// lastWord is how long a process that has said its last to process 0 may be silent: it closes its connections
	// and its devices, and says what ended it, before it is gone.
	lastWord = 10 * time.Second
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

// What is written on such a connection: a beat asks process 0 for its time, and says what came of that
// before; news is what Links.Tell has, with its length before it. Who has said its last waits until process 0
// has read it and ends the connection.
const (
	beatFrame = 1 // the time, Offset.Ahead and Offset.Within of the sender, 8 bytes each
	newsFrame = 2
	slowFrame = 3 // as news: a way that is slow, in words
	lastFrame = 4 // nothing comes after it: process 0 ends the connection
	beatSize  = 1 + 3*8
	newsMost  = 1 << 20
)

// The first beats come faster, so that clocks are known early.
const (
	firstBeats = 8
	firstEvery = 5 * time.Millisecond
)

// Beat writes to process 0 until Close, and to the one that takes its place.
func (l *Links) Beat() {
	go func() { // to dial may take long, and Close does not wait for it
		for {
			c, err := l.t.Dial(0)
			if err != nil || !l.keepBeat(c) {
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

// keepBeat is keep for a connection of beats, which Close waits for.
func (l *Links) keepBeat(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		c.Close()
		return false
	}
	l.conns[c] = true
	l.wg.Add(1)
	return true
}

// beatOn writes to one connection until it ends. Process 0 may have changed, and its clock with it.
func (l *Links) beatOn(c net.Conn) {
	defer l.wg.Done()
	defer l.forget(c)
	o := &offsets{}
	_, err := c.Write(l.hello(beating, beating, 0))
	if err == nil {
		err = flush(c)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		l.answers(c, o)
	}()
	tick := time.NewTicker(firstEvery)
	defer tick.Stop()
	for n := 1; err == nil; n++ {
		if n == firstBeats {
			tick.Reset(beatEvery)
		}
		select {
		case <-l.over:
			if l.lastNews(c, o) == nil {
				// a connection that is closed while an answer is on its way takes with it what was not read yet
				<-answered
			}
			return
		case <-tick.C:
			err = l.beat(c, o)
		}
	}
}

// beat writes a beat, and news if there are any.
func (l *Links) beat(c net.Conn, o *offsets) error {
	known := o.stated()
	b := []byte{beatFrame}
	for _, d := range []time.Duration{l.since(), known.Ahead, known.Within} {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	if err := flush(c); err != nil {
		return err
	}
	if text := l.complaint(); text != "" {
		if err := writeNews(c, slowFrame, []byte(text)); err != nil {
			return err
		}
	}
	_, err := l.news(c, o)
	return err
}

// lastNews writes all that Tell still has, and that it is the last. Process 0 may not be there any more.
func (l *Links) lastNews(c net.Conn, o *offsets) error {
	_ = c.SetDeadline(time.Now().Add(lastNews)) // a connection that takes none fails below
	for {
		if some, err := l.news(c, o); err != nil {
			return err
		} else if !some {
			break
		}
	}
	if _, err := c.Write([]byte{lastFrame}); err != nil {
		return err
	}
	return flush(c)
}

// news writes what Tell has for process 0, once the clocks are known, and reports whether there was any.
func (l *Links) news(c net.Conn, o *offsets) (some bool, err error) {
	known, ok := o.estimate()
	if l.Tell == nil || !ok {
		return false, nil
	}
	text := l.Tell(known)
	if len(text) == 0 {
		return false, nil
	}
	o.told(known)
	return true, writeNews(c, newsFrame, text)
}

// writeNews writes one piece of news as a byte for its kind, the length in four bytes, and the text.
func writeNews(c net.Conn, kind byte, text []byte) error {
	b := append(binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(text))), text...)
	if _, err := c.Write(b); err != nil {
		return err
	}
	return flush(c)
}

// answers takes in the times of process 0.
func (l *Links) answers(c net.Conn, o *offsets) {
	for b := make([]byte, 16); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			return // the writer sees it too
		}
		sent, there := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		o.add(time.Duration(sent), time.Duration(there), l.since())
	}
}

// since is the time since this process's part of the run began.
func (l *Links) since() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.clock != nil:
		return l.clock()
	case l.sys == nil:
		return 0
	}
	return l.sys.Since()
}

// Clocks are the offsets of process 0's clock to those of the others, as these have measured them.
func (l *Links) Clocks() map[int]Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.clocks)
}

// Expect takes a process for silent from within on, if nothing is heard of it before.
func (l *Links) Expect(proc, life int, within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulses[proc] = &pulse{life: uint32(life), last: time.Now().Add(within - silentFrom)}
}

// listen takes in the beats of a process, and answers each with this process's time.
func (l *Links) listen(c net.Conn, proc int, life uint32) {
	l.heard(proc, life, true)
	r := bufio.NewReader(c)
	for {
		kind, err := r.ReadByte()
		if err != nil {
			return // how a process ends is seen by who has started it
		}
		l.heard(proc, life, false)
		switch kind {
		case lastFrame:
			l.ending(proc, life)
			return
		case newsFrame:
			err = takeNews(r, func(text []byte) {
				if l.Told != nil {
					l.Told(proc, text)
				}
			})
		case slowFrame:
			err = takeNews(r, func(text []byte) {
				if l.Slow != nil {
					l.Slow(proc, string(text))
				}
			})
		default:
			err = l.answer(c, r, proc)
		}
		if err != nil {
			return
		}
	}
}

// answer tells the sender of a beat this process's time.
func (l *Links) answer(c net.Conn, r io.Reader, proc int) error {
	var b [beatSize - 1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	out := binary.LittleEndian.AppendUint64(bytes.Clone(b[:8]), uint64(l.since()))
	if within := time.Duration(binary.LittleEndian.Uint64(b[16:])); within > 0 {
		l.mu.Lock()
		l.clocks[proc] = Offset{time.Duration(binary.LittleEndian.Uint64(b[8:])), within}
		l.mu.Unlock()
	}
	if _, err := c.Write(out); err != nil {
		return err
	}
	return flush(c)
}

// takeNews hands on what a process tells.
func takeNews(r io.Reader, hear func([]byte)) error {
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(b[:])
	if n > newsMost {
		return fmt.Errorf("news of %d bytes, more than %d", n, newsMost)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	hear(text)
	return nil
}

// heard notes a sign of life of a process. A later one counts only if it comes from the same life,
// because a process that was started anew must not speak for the one before.
func (l *Links) heard(proc int, life uint32, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, now := l.pulses[proc], time.Now()
	switch {
	case first:
		old := &pulse{life: life, last: now} // of a life whose connection broke, the gaps are known
		if p != nil && p.life == life {
			old.gap = max(p.gap, now.Sub(p.last))
		}
		l.pulses[proc] = old
	case p.life == life:
		p.gap, p.last = max(p.gap, now.Sub(p.last)), now
	}
}

// ending gives a process that has said its last the time to end by itself.
func (l *Links) ending(proc int, life uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pulses[proc]; p.life == life {
		p.last = time.Now().Add(lastWord)
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
