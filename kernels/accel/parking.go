package accel

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Tensors that a device parks in pinned memory of the host go there and come back by engines of their own,
// each with a sequence beside that of the device's calls. What orders the sequences is marks alone:
//
//   - a copy away waits for the calls before it and for copies back that read its place, and whoever uses
//     the memory next waits for the copy;
//   - a copy back waits for the copy away, and lands in memory that earlier landings have left, so that it
//     need not wait for calls that were issued and have not run; the first call that uses it waits for it.

// Engines is a driver with further sequences.
type Engines interface {
	// Engine makes one.
	Engine() (Engine, error)
}

// Engine is a further sequence of a device; its methods are those of Driver.
type Engine interface {
	Upload(to uint64, from []byte) error
	Download(to []byte, from uint64) error
	Mark() (Mark, error)
	Await(m Mark) error
	Close()
}

const (
	lotBytes    = 64 << 20 // of pinned memory taken at once, or as much as one tensor needs
	mostPending = 16       // buffers that wait to be given back behind a copy away
	mostLanding = 32       // regions that are kept for copies back
)

// lot is a block of pinned memory.
type lot struct {
	mem []byte
	*tensor.Holes
}

// slot is the handle of a parked tensor's storage.
type slot struct {
	l       *lot
	from    int
	size    int
	written Mark // the copy away
	read    Mark // the copy back
	used    bool // something lies there
}

// parking is pinned memory of the host for one device's tensors.
type parking struct {
	d       *Device
	out, in Engine
	lots    []*lot
	lastIn  Mark // of the copy back that was issued last
}

var (
	_ kernels.Parker  = (*Device)(nil)
	_ kernels.Reached = (*parking)(nil)
)

// Parks implements kernels.Parker.
func (d *Device) Parks() bool {
	_, ok := d.drv.(Engines)
	return ok
}

// Parking implements kernels.Parker.
func (d *Device) Parking() (kernels.Reached, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.park != nil {
		return d.park, nil
	}
	out, err := d.drv.(Engines).Engine()
	if err != nil {
		return nil, err
	}
	in, err := d.drv.(Engines).Engine()
	if err != nil {
		out.Close()
		return nil, err
	}
	d.park = &parking{d: d, out: out, in: in}
	return d.park, nil
}

// Space implements tensor.Memory.
func (p *parking) Space() string { return "host memory beside " + p.d.drv.Space() }

// Alloc implements tensor.Memory.
func (p *parking) Alloc(n int) (any, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	n = (max(n, 1) + alignBytes - 1) / alignBytes * alignBytes
	for _, l := range p.lots {
		if at, _ := l.Best(n); at >= 0 {
			return &slot{l: l, from: l.Take(at, n), size: n}, nil
		}
	}
	size := max(n, lotBytes)
	mem, err := p.d.drv.Pinned(size)
	if err != nil {
		return nil, fmt.Errorf("pinned memory for tensors that are offloaded: %w", err)
	}
	l := &lot{mem, tensor.NewHoles(size)}
	p.lots = append(p.lots, l)
	at, _ := l.Best(n)
	return &slot{l: l, from: l.Take(at, n), size: n}, nil
}

// Free implements tensor.Memory: copies away go through one sequence, and wait for copies back.
func (p *parking) Free(handle any) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	s := handle.(*slot)
	p.d.dropMark(&s.written)
	p.d.dropMark(&s.read)
	s.l.Give(s.from, s.size)
}

func (s *slot) bytes(at, n int) []byte { return s.l.mem[s.from+at : s.from+at+n] }

// close gives back engines and memory; nothing is under way.
func (p *parking) close() {
	p.d.dropMark(&p.lastIn)
	p.out.Close()
	p.in.Close()
	for _, l := range p.lots {
		p.d.drv.Unpin(l.mem)
	}
}

// Read implements kernels.Reached: the host waits for the copy away, and for nothing else.
func (p *parking) Read(dst []byte, t *tensor.Tensor) {
	h, at := t.Storage()
	s := h.(*slot)
	p.wait(s, func() []Mark { return []Mark{s.written} })
	copy(dst, s.bytes(at, t.Size()))
}

// Write implements kernels.Reached: the host waits for the copies that read or fill the place.
func (p *parking) Write(t *tensor.Tensor, src []byte) {
	h, at := t.Storage()
	s := h.(*slot)
	p.wait(s, func() []Mark { return []Mark{s.written, p.reads(s)} })
	copy(s.bytes(at, len(src)), src)
}

// wait lets the host wait for copies of a place, which then has something.
func (p *parking) wait(s *slot, of func() []Mark) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	for _, m := range of() {
		if m != 0 {
			p.d.must(p.d.drv.Wait(m))
		}
	}
	s.used = true
}

// reads is the mark of the newest copy back that may still read a place: where something lies, the one from
// there, and else that of whoever had the place before.
func (p *parking) reads(s *slot) Mark {
	if s.used {
		return s.read
	}
	return p.lastIn
}

// dropMark gives a mark back, if there is one.
func (d *Device) dropMark(m *Mark) {
	if *m != 0 && !d.closed {
		d.drv.Drop(*m)
	}
	*m = 0
}

// behind makes a sequence wait for a mark, if there is one, which is given back.
func (d *Device) behind(e interface{ Await(m Mark) error }, m *Mark) error {
	if *m == 0 {
		return nil
	}
	err := e.Await(*m)
	d.dropMark(m)
	return err
}

// away copies a tensor to its parking slot beside the device's calls.
func (p *parking) away(to *slot, at int, from *tensor.Tensor) error {
	d := p.d
	m, err := d.drv.Mark()
	if err == nil {
		err = d.behind(p.out, &m)
	}
	if read := p.reads(to); err == nil && read != 0 {
		err = p.out.Await(read)
	}
	if err == nil {
		err = p.out.Download(to.bytes(at, from.Size()), address(from))
	}
	if err != nil {
		return err
	}
	h, _ := from.Storage()
	s := h.(*span)
	to.used = true
	d.dropMark(&to.written)
	d.dropMark(&s.busy)
	if to.written, err = p.out.Mark(); err != nil {
		return err
	}
	s.busy, err = p.out.Mark()
	return err
}

// landed is device memory that a copy back has left, and when it is free.
type landed struct {
	region
	free Mark // of the calls that used it
	away Mark // of a copy away, 0 for none
}

// back copies a parked tensor to the device beside its calls. A tensor that nothing has used yet is moved to
// memory that is free already.
func (p *parking) back(to *tensor.Tensor, from *slot, at int) error {
	d := p.d
	h, offset := to.Storage()
	s := h.(*span)
	var l landed
	if s.fresh && offset == 0 {
		l = d.land(s)
	}
	var err error
	if l.free == 0 {
		if l.free, err = d.drv.Mark(); err != nil {
			return err
		}
	}
	for _, m := range []*Mark{&l.free, &l.away} {
		if err := d.behind(p.in, m); err != nil {
			return err
		}
	}
	if from.written != 0 {
		if err := p.in.Await(from.written); err != nil {
			return err
		}
	}
	if err := p.in.Upload(address(to), from.bytes(at, to.Size())); err != nil {
		return err
	}
	d.dropMark(&p.lastIn)
	d.dropMark(&s.awaits)
	if p.lastIn, err = p.in.Mark(); err != nil {
		return err
	}
	d.dropMark(&from.read)
	if from.read, err = p.in.Mark(); err != nil {
		return err
	}
	if s.awaits, err = p.in.Mark(); err == nil {
		d.incoming = append(d.incoming, s)
	}
	return err
}

// land gives a span memory that an earlier landing has left, and returns when that is free; nothing where
// there is none of its size, and the span keeps its own.
func (d *Device) land(s *span) landed {
	s.landing = true
	for i, l := range d.landings {
		if l.size < s.size || l.size > 2*s.size {
			continue
		}
		d.landings = append(d.landings[:i], d.landings[i+1:]...)
		d.mem.give(s.region)
		s.region = l.region
		return l
	}
	return landed{}
}

// leave keeps the memory of a landing for the next: behind the device's calls so far, and behind a copy away
// that reads it.
func (d *Device) leave(s *span) error {
	m, err := d.drv.Mark()
	if err != nil {
		return err
	}
	d.landings = append(d.landings, landed{s.region, m, s.busy})
	if len(d.landings) > mostLanding {
		return d.giveLanding()
	}
	return nil
}

// giveLanding gives the oldest landing back: it is free in the order of the device's calls, which wait for a
// copy away that reads it.
func (d *Device) giveLanding() error {
	l := d.landings[0]
	d.landings = d.landings[1:]
	d.dropMark(&l.free)
	err := d.behind(d.drv, &l.away)
	d.mem.give(l.region)
	return err
}

// settle makes the device's calls wait for all copies back.
func (d *Device) settle() error {
	for _, s := range d.incoming {
		if err := d.behind(d.drv, &s.awaits); err != nil {
			return err
		}
	}
	d.incoming = d.incoming[:0]
	return nil
}

// reap lets the device's calls wait for the oldest copy away whose memory nobody else uses, so that they may
// have it; false if there is none, nor a landing.
func (d *Device) reap() (bool, error) {
	if len(d.pending) > 0 {
		s := d.pending[0]
		d.pending = d.pending[1:]
		err := d.behind(d.drv, &s.busy)
		d.mem.give(s.region)
		return true, err
	}
	if len(d.landings) > 0 {
		return true, d.giveLanding()
	}
	return false, nil
}
