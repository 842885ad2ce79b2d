package links

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/wire"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Tensors that lie on a device go to another process's device by the library of the devices' vendor where
// both have it: an edge's stream then carries what describes them, and a channel of the edge's own their
// contents. A channel lives as long as the stream: as both are of one epoch and one direction, nothing of an
// epoch that is over can reach the next one, and no order of calls of different edges matters.

// byChannel is the name of the only tensor of a message whose tensors follow by the edge's channel. It has
// the words of a channel's name, on the first message of a stream, and what describes each tensor.
const byChannel = "by channel"

const channelWords = 32 // of 4 bytes: a channel's name

// channels are those of a process.
type channels struct {
	mu   sync.Mutex
	ends map[*channelEnd]struct{}
	into map[actors.Ref]intake // for what comes to a rank of this process
	far  func(actors.Ref) bool // whether a rank of another process receives by channel; nil for none
}

// intake is where a rank's device takes in what comes by channel.
type intake struct {
	device kernels.Joiner
	pool   *tensor.Pool
}

// channelEnd is this process's end of an edge's channel.
type channelEnd struct {
	kernels.Channel
	proc  int // that has the other end
	epoch uint32
}

// Join tells which ranks of this process receive by channel, into which device, and which of others do.
func (l *Links) Join(here map[actors.Ref]kernels.Joiner, far func(actors.Ref) bool) {
	l.channels.mu.Lock()
	defer l.channels.mu.Unlock()
	l.channels.into, l.channels.far = map[actors.Ref]intake{}, far
	for r, d := range here {
		l.channels.into[r] = intake{d, tensor.NewPool(fmt.Sprintf("what comes to actor %d", r), 0).In(d)}
	}
}

// openEnd opens an end, unless its epoch is over.
func (l *Links) openEnd(d kernels.Joiner, id []byte, sends bool, proc int, epoch uint32) (*channelEnd, error) {
	c, err := d.Channel(id, sends)
	if err != nil {
		return nil, err
	}
	e := &channelEnd{c, proc, epoch}
	l.channels.mu.Lock()
	if l.channels.ends == nil {
		l.channels.ends = map[*channelEnd]struct{}{}
	}
	l.channels.ends[e] = struct{}{}
	l.channels.mu.Unlock()
	l.abortWhere(func(e *channelEnd) bool { return e.epoch < l.fence.newest.Load() })
	return e, nil
}

// abortWhere ends channels; what waits for their other ends goes on with an error.
func (l *Links) abortWhere(which func(*channelEnd) bool) {
	var over []*channelEnd
	l.channels.mu.Lock()
	for e := range l.channels.ends {
		if which(e) {
			over = append(over, e)
			delete(l.channels.ends, e)
		}
	}
	l.channels.mu.Unlock()
	for _, e := range over {
		e.Abort()
	}
}

// closeEnd ends a stream's channel.
func (l *Links) closeEnd(e *channelEnd) {
	if e != nil {
		l.abortWhere(func(x *channelEnd) bool { return x == e })
	}
}

// raise takes in the epoch of a message: channels of the ones before end.
func (l *Links) raise(epoch uint32) {
	if l.fence.raise(epoch) {
		l.abortWhere(func(e *channelEnd) bool { return e.epoch < l.fence.newest.Load() })
	}
}

// joiner is the device that all tensors of a payload lie on, if it can be joined with others; nil else.
func joiner(p *Pack) kernels.Joiner {
	if len(p.Tensors) == 0 || p.Names != nil {
		return nil
	}
	d, ok := p.Tensors[0].Memory().(kernels.Joiner)
	if !ok || !d.Joins() {
		return nil
	}
	for _, t := range p.Tensors {
		if t.Memory() != tensor.Memory(d) {
			return nil
		}
		for _, n := range t.Shape {
			if n > math.MaxInt32 {
				return nil
			}
		}
	}
	return d
}

// describe replaces a payload by what describes it where it goes by the edge's channel, which is opened for
// the first; the result then carries the payload itself, behind the message.
func (s *stream) describe(r *wire.Record, p *Pack) (carry func() error, err error) {
	d := joiner(p)
	l := s.e.l
	if d == nil || l.channels.far == nil || !l.channels.far(s.e.to) {
		return nil, nil
	}
	words := []int32{0}
	var id []byte
	if s.channel == nil {
		if id, err = d.ChannelID(); err != nil {
			return nil, err
		}
		words[0] = 1
		words = append(words, packed(id)...)
	}
	for _, t := range p.Tensors {
		words = append(words, int32(t.DType), int32(len(t.Shape)))
		for _, n := range t.Shape {
			words = append(words, int32(n))
		}
	}
	r.Names, r.Tensors = []string{byChannel}, []*tensor.Tensor{tensor.Of(tensor.I32, words, len(words))}
	return func() (err error) {
		defer faulty(&err)
		if s.channel == nil {
			if s.channel, err = l.openEnd(d, id, true, l.owner(s.e.to), s.epoch); err != nil {
				return err
			}
		}
		return s.channel.Send(p.Tensors, p.Ready)
	}, nil
}

// faulty makes an error of a device that failed.
func faulty(err *error) {
	if x := recover(); x != nil {
		e, ok := x.(*kernels.DeviceError)
		if !ok {
			panic(x)
		}
		*err = e
	}
}

// packed puts the bytes of a channel's identity into 32-bit words, low byte first, since messages
// carry numbers and no bytes.
func packed(id []byte) []int32 {
	words := make([]int32, channelWords)
	for i, b := range id {
		words[i/4] |= int32(uint32(b) << (8 * (i % 4)))
	}
	return words
}

// unpacked gives the bytes that packed was given, padded with zeros to whole words.
func unpacked(words []int32) []byte {
	id := make([]byte, 4*len(words))
	for i := range id {
		id[i] = byte(uint32(words[i/4]) >> (8 * (i % 4)))
	}
	return id
}

// refusal is a message that this process cannot take in: it is the end of the run, not a lost connection.
type refusal struct{ error }

// fetch receives the payload that a message describes; end is the edge's channel, nil before the first.
func (l *Links) fetch(r *wire.Record, end *channelEnd, proc int, epoch uint32) (p *Pack, _ *channelEnd, err error) {
	defer faulty(&err)
	l.channels.mu.Lock()
	into, here := l.channels.into[r.To]
	l.channels.mu.Unlock()
	if !here {
		return nil, end, refusal{fmt.Errorf("actor %d sends from device to device, and there is no library for "+
			"that here: install it on all hosts, or set LFACTOR_LIBNCCL=none on all", r.From)}
	}
	words := r.Tensors[0].I32()
	first, words := words[0] == 1, words[1:]
	if first {
		if len(words) < channelWords {
			return nil, end, errors.New("a message that opens a channel is too short")
		}
		id := unpacked(words[:channelWords])
		words = words[channelWords:]
		if end, err = l.openEnd(into.device, id, false, proc, epoch); err != nil {
			return nil, end, refusal{err}
		}
	}
	if end == nil {
		return nil, end, errors.New("a message comes by a channel that is not open")
	}
	p = NewPack(nil)
	for len(words) > 1 {
		d, n := tensor.DType(words[0]), int(words[1])
		if n < 0 || len(words) < 2+n {
			p.Release()
			return nil, end, errors.New("a message that describes tensors is too short")
		}
		shape := make([]int, n)
		for i, w := range words[2 : 2+n] {
			shape[i] = int(w)
		}
		words = words[2+n:]
		t, err := into.pool.New("what came from another process", d, shape...)
		if err != nil {
			p.Release()
			return nil, end, refusal{err}
		}
		p.Tensors = append(p.Tensors, t)
	}
	if err := end.Receive(p.Tensors); err != nil {
		p.Release()
		return nil, end, err
	}
	return p, end, nil
}
