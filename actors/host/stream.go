package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/wire"
	"github.com/lfactor/lfactor/kernels/tensor"
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
		s.send(m)
		release(m)
	}
	s.farewell()
}

// open connects with the process of the edge's receiver.
func (e *outEdge) open(epoch uint32) *stream {
	s := &stream{e: e, epoch: epoch, enc: wire.NewEncoder()}
	if s.c, s.err = e.l.t.Dial(e.l.owner(e.to)); s.err == nil {
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
	s.c.Close()
}

func (s *stream) send(m actors.Message) {
	if s.err != nil {
		return
	}
	s.written++
	r := &wire.Record{Message: m, To: s.e.to, Seq: s.written}
	var carry func() error
	if p, ok := m.Payload.(*Pack); ok {
		r.Names, r.Tensors = p.Names, p.Tensors
		if carry, s.err = s.describe(r, p); s.err != nil {
			s.failed()
			return
		}
		if carry == nil && slices.ContainsFunc(p.Tensors, func(t *tensor.Tensor) bool {
			return !t.OnHost()
		}) {
			r.Tensors = p.Host()
		}
	}
	if m.Err != nil {
		r.Fault, r.Code = m.Err.Error(), 1
		var x ExitCoder
		if errors.As(m.Err, &x) {
			r.Code = int32(x.ExitCode())
		}
	}
	b, n, first := s.enc.Encode(r)
	if s.e.l.capture != "" {
		s.err = s.keep(b, n, first)
	}
	if s.err == nil {
		_, s.err = b.WriteTo(s.c)
	}
	if s.err == nil {
		s.err = flush(s.c)
	}
	if s.err == nil && carry != nil {
		s.err = carry()
	}
	s.failed()
}

// keep appends a message to the edge's capture: one file a stream, each a standard Arrow IPC stream.
func (s *stream) keep(b net.Buffers, n uint32, first bool) error {
	name := fmt.Sprintf("edge-%d-%d-%d.arrows", s.e.from, s.e.to, n)
	if s.epoch > 0 {
		name = fmt.Sprintf("edge-%d-%d-%d-epoch-%d.arrows", s.e.from, s.e.to, n, s.epoch)
	}
	f, err := os.OpenFile(filepath.Join(s.e.l.capture, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if first {
		if _, err := f.Write(b[1]); err != nil {
			return err
		}
		b = b[2:]
	}
	for _, x := range b[1:] {
		if _, err := f.Write(x); err != nil {
			return err
		}
	}
	return nil
}
