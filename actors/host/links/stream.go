package links

import (
	"net"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/wire"
)

// stream is the connection of an edge in one epoch. Each epoch has its own: what a process that was lost has
// left of the one before cannot reach the process that takes its place, and sequence numbers begin again.
type stream struct {
	e       *outEdge
	epoch   uint32
	c       net.Conn
	enc     *wire.Encoder
	written uint64
	channel *channelEnd // to the receiver's device, nil before something went there
	err     error       // the first; what follows is dropped
}

// write sends the queue in order.
func (e *outEdge) write() {
	defer e.l.wg.Done()
	var s *stream
	for {
		m, ok := e.take()
		if !ok {
			break
		}
		if s == nil || m.Epoch > s.epoch && m.Epoch != actors.AnyEpoch {
			s.farewell()
			s = e.open(m.Epoch)
		}
		for s.send(m); s.err != nil && e.needs(m.Kind); s.send(m) {
			s.farewell()
			s = e.open(m.Epoch)
		}
		Release(m)
	}
	s.farewell()
}

// needs reports whether nobody else would hear that a message of a kind is lost: its sender tells over the same edge that
// messages are, and an epoch that is over is not told of. At the end nothing is needed.
func (e *outEdge) needs(k actors.Kind) bool {
	select {
	case <-e.l.over:
		return false
	default:
		return k == actors.Broken || k == actors.Join
	}
}

// open connects with the process of the edge's receiver.
func (e *outEdge) open(epoch uint32) *stream {
	s := &stream{e: e, epoch: epoch, enc: wire.NewEncoder()}
	if s.c, s.err = e.l.t.Dial(e.l.owner(e.to)); s.err == nil {
		e.l.sends(s.c, e.l.owner(e.to))
		_, s.err = s.c.Write(e.l.hello(e.from, e.to, epoch))
	}
	s.failed()
	return s
}

// failed tells once that the process at the other end is lost.
func (s *stream) failed() {
	if s.err != nil && s.epoch >= s.e.l.fence.newest.Load() { // a channel of one before was aborted
		s.e.l.lost(s.e.l.owner(s.e.to), s.epoch, s.err)
	}
}

// farewell ends the stream in order.
func (s *stream) farewell() {
	if s == nil || s.c == nil {
		return
	}
	s.e.l.closeEnd(s.channel)
	if s.err == nil {
		b, _, _ := s.enc.Encode(&wire.Record{Message: actors.Message{From: s.e.from}, To: actors.None})
		_, _ = b.WriteTo(s.c) // nobody is left to tell
	}
	s.e.l.sent(s.c)
	s.c.Close()
}

// send writes one message: first the record, then the tensors in whichever way was agreed on. The first error stays in
// s.err and makes all later calls do nothing, since the stream has lost its place.
func (s *stream) send(m actors.Message) {
	if s.err != nil {
		return
	}
	s.written++
	r, done := &wire.Record{Message: m, To: s.e.to, Seq: s.written}, func() {}
	var carry func() error
	if p, ok := m.Payload.(*Pack); ok {
		if carry, s.err = s.describe(r, p); s.err != nil {
			s.failed()
			return
		}
	}
	if carry == nil {
		r, done = RecordOf(&m, s.e.to, s.written)
	}
	defer done()
	b, _, _ := s.enc.Encode(r)
	if _, s.err = b.WriteTo(s.c); s.err == nil {
		s.err = flush(s.c)
	}
	if s.err == nil && carry != nil {
		s.err = carry()
	}
	s.failed()
}
