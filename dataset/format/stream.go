package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/lfactor/lfactor/dataset"
)

// slideBytes is how much is read at once. Half a sample is copied to the front each time, so that it should
// be many samples.
const slideBytes = 1 << 20

// slider is a window over content that is read in order: what lies from keep on stays in memory.
type slider struct {
	in   io.ReaderAt
	seq  io.Reader // in place of in: content that cannot be read by offset
	buf  []byte
	base int64 // place of buf[0]
	n    int   // bytes in buf
	keep int64 // what lies before may go; beyond the window nothing is kept
	err  error // what stands behind the window
}

var slideBuffers = sync.Pool{New: func() any { b := make([]byte, slideBytes); return &b }}

// ReadAt implements io.ReaderAt for places not before keep.
func (s *slider) ReadAt(p []byte, at int64) (int, error) {
	b, err := s.get(at, len(p))
	n := copy(p, b)
	if n == len(p) {
		err = nil
	}
	return n, err
}

// get returns n bytes from a place on, fewer with the error that stands behind them. They last until the next call.
func (s *slider) get(at int64, n int) ([]byte, error) {
	for at+int64(n) > s.base+int64(s.n) && s.err == nil {
		s.fill(at, n)
	}
	from := min(max(at-s.base, 0), int64(s.n))
	return s.buf[from:min(from+int64(n), int64(s.n))], s.err
}

// fill moves the window towards a place and reads on.
func (s *slider) fill(at int64, n int) {
	keep := min(s.keep, at)
	if drop := keep - s.base; drop >= int64(s.n) {
		s.base, s.n = s.base+int64(s.n), 0
		s.skip(keep - s.base)
	} else if drop > 0 {
		copy(s.buf, s.buf[drop:s.n])
		s.base, s.n = keep, s.n-int(drop)
	}
	if need := int(at + int64(n) - s.base); need > len(s.buf) {
		grown := make([]byte, max(need, 2*len(s.buf)))
		copy(grown, s.buf[:s.n])
		s.buf = grown
	}
	got := 0
	if s.seq != nil {
		got, s.err = s.seq.Read(s.buf[s.n:])
	} else {
		got, s.err = s.in.ReadAt(s.buf[s.n:], s.base+int64(s.n))
	}
	s.n += got
}

// skip goes on by some bytes that nobody needs, with an empty window.
func (s *slider) skip(n int64) {
	if s.seq == nil {
		s.base += n
		return
	}
	for n > 0 && s.err == nil {
		var got int
		got, s.err = s.seq.Read(s.buf[:min(n, int64(len(s.buf)))])
		n -= int64(got)
		s.base += int64(got)
	}
}

// Stream implements dataset.Streamer. A compressed shard is expanded as it is read.
func (s *shard) Stream(ctx context.Context, from, to int64, visit dataset.Visit) error {
	if from >= to {
		return nil
	}
	d := dataset.Document{Place: dataset.Place{File: s.file.Name()}}
	if s.size == 0 {
		return visit(0, &d, &dataset.BadSample{Place: d.Place, Reason: "the file is empty"})
	}
	buf := slideBuffers.Get().(*[]byte)
	defer slideBuffers.Put(buf)
	first, err := s.index.at(from)
	if err != nil {
		return err
	}
	r := &sampleReader{limit: s.limit, size: s.size, window: slider{in: s.file, buf: *buf, base: first.start}}
	if s.spill != nil {
		x, err := expand(s.file, s.size)
		if err != nil {
			return err
		}
		defer x.Close()
		r.size, r.window.seq, r.window.base = -1, x, 0
	}
	r.tar = tarReader{in: &r.window, size: r.size}
	for i := from; i < to; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		at, err := s.index.at(i)
		if err != nil {
			return err
		}
		reason, err := r.read(at, &d)
		if err != nil {
			return err
		}
		var bad *dataset.BadSample
		if reason != "" {
			d.Parts = d.Parts[:0]
			bad = &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("sample %q: %s", d.Key, reason)}
		}
		if err := visit(i, &d, bad); err != nil {
			return err
		}
	}
	return nil
}

// sampleReader reads samples of a shard in order, into memory that it uses again.
type sampleReader struct {
	window slider
	tar    tarReader
	now    gathered
	size   int64 // of the archive, negative where it is not known
	limit  int64
}

// read reads the sample at a span. The reason says why it cannot be used.
func (r *sampleReader) read(at span, d *dataset.Document) (reason string, err error) {
	r.now = gathered{entries: r.now.entries[:0]}
	r.tar.at, r.window.keep = at.start, at.start
	whole := at.end-at.start <= r.limit+shardPartsMax*tarBlock
	if !whole {
		r.window.keep = math.MaxInt64
	}
	err = r.now.read(&r.tar, at.end)
	d.Key, d.Parts, d.Place.Offset = r.now.key, d.Parts[:0], at.start
	var broken *brokenError
	if errors.As(err, &broken) {
		return broken.Error(), nil
	}
	if err != nil {
		return "", err
	}
	if reason = r.now.fault(r.limit); reason != "" {
		return reason, nil
	}
	if !whole {
		return fmt.Sprintf("its files lie within %d bytes", at.end-at.start), nil
	}
	return r.content(at, d)
}

// content sets the parts of a sample to their bytes.
func (r *sampleReader) content(at span, d *dataset.Document) (reason string, err error) {
	last := r.now.entries[len(r.now.entries)-1]
	want := last.data + last.size - at.start
	if last.data+last.size > at.end {
		return last.name + " reaches beyond the sample's bytes; delete the shard's index", nil
	}
	all, err := r.window.get(at.start, int(want))
	if int64(len(all)) < want {
		var damage *streamError
		if errors.As(err, &damage) {
			return "the compressed data " + damage.reason, nil
		}
		if err != io.EOF {
			return "", err
		}
		return fmt.Sprintf("at byte %d the shard ends within %q", last.start, Clip(last.name)), nil
	}
	for _, e := range r.now.entries {
		from := e.data - at.start
		d.Parts = append(d.Parts, dataset.Part{Name: e.ext, Bytes: all[from : from+e.size : from+e.size]})
	}
	return "", nil
}
