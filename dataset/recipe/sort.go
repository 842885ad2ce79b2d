package recipe

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
)

// sorter sorts records of one size as bytes. It holds as many as its memory has room for, and lays sorted
// runs down in a folder when there are more.
type sorter struct {
	size  int
	room  int // records that it holds
	dir   string
	data  []byte
	runs  []string
	spilt int64 // bytes that were laid down
	list  []sortEntry
}

// sortEntry is a record in the index by which records are sorted.
type sortEntry struct {
	head uint64 // its first bytes
	at   uint32
}

// A merge reads so many runs at a time, each through a buffer.
const (
	mergeRuns   = 64
	mergeBuffer = 64 << 10
	indexBytes  = 16 // of a record in the index by which they are sorted
	roomMin     = 1024
)

// newSorter returns a sorter of records of a size that uses about so much memory: it holds half of that, since the
// garbage collector lets as much again lie.
func newSorter(size int, memory int64, dir string) *sorter {
	return &sorter{size: size, room: max(roomMin, int(memory/2)/(size+indexBytes)), dir: dir}
}

// add takes a record.
func (s *sorter) add(record []byte) error {
	if len(s.data) == cap(s.data) { // by half, and no further than there is room
		more := min(max(roomMin*s.size, cap(s.data)/2), s.room*s.size-cap(s.data))
		s.data = slices.Grow(s.data, max(more, s.size))
	}
	s.data = append(s.data, record...)
	if len(s.data) < s.room*s.size {
		return nil
	}
	return s.spill()
}

// inOrder calls each with the records that are held, in order.
func (s *sorter) inOrder(each func(record []byte) error) error {
	n := len(s.data) / s.size
	if cap(s.list) < n {
		s.list = make([]sortEntry, n)
	}
	list := s.list[:n]
	record := func(i uint32) []byte { return s.data[int(i)*s.size:][:s.size] }
	for i := range list {
		list[i] = sortEntry{binary.BigEndian.Uint64(record(uint32(i))),
			uint32(i)} // records have eight bytes and more
	}
	slices.SortFunc(list, func(a, b sortEntry) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(record(a.at), record(b.at))
	})
	for _, e := range list {
		if err := each(record(e.at)); err != nil {
			return err
		}
	}
	return nil
}

// spill lays what is held down as a sorted run.
func (s *sorter) spill() error {
	if len(s.data) == 0 {
		return nil
	}
	err := s.run(s.inOrder)
	s.data = s.data[:0]
	return err
}

// run writes a run of what records gives.
func (s *sorter) run(records func(each func(record []byte) error) error) error {
	f, err := os.CreateTemp(s.dir, ".run-*")
	if err != nil {
		return err
	}
	s.runs = append(s.runs, f.Name())
	w := bufio.NewWriterSize(f, 1<<20)
	err = records(func(r []byte) error {
		s.spilt += int64(len(r))
		_, err := w.Write(r)
		return err
	})
	return errors.Join(err, w.Flush(), f.Close())
}

// sorted calls each with all records in order, and removes the runs.
func (s *sorter) sorted(each func(record []byte) error) error {
	if len(s.runs) == 0 {
		return s.inOrder(each)
	}
	defer s.remove()
	if err := s.spill(); err != nil {
		return err
	}
	s.data, s.list = nil, nil
	for len(s.runs) > mergeRuns {
		part := s.runs[:mergeRuns]
		err := s.run(func(each func([]byte) error) error { return s.merge(part, each) })
		for _, p := range part {
			err = errors.Join(err, os.Remove(p))
		}
		s.runs = slices.Clone(s.runs[mergeRuns:])
		if err != nil {
			return err
		}
	}
	return s.merge(s.runs, each)
}

// remove removes the runs; what stays behind lies in a folder that goes when the recipe is done.
func (s *sorter) remove() {
	for _, p := range s.runs {
		_ = os.Remove(p) // what stays goes with the folder
	}
	s.runs = nil
}

// runReader is a run with its next record.
type runReader struct {
	f      *os.File
	in     *bufio.Reader
	record []byte
}

// next reads the next record and reports whether there is one.
func (r *runReader) next() (bool, error) {
	_, err := io.ReadFull(r.in, r.record)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

// runHeap has the run with the least record in front.
type runHeap []*runReader

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return bytes.Compare(h[i].record, h[j].record) < 0 }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)        { *h = append(*h, x.(*runReader)) }
func (h *runHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// merge calls each with the records of runs in order.
func (s *sorter) merge(paths []string, each func(record []byte) error) (err error) {
	var h runHeap
	var all []*runReader
	defer func() {
		for _, r := range all {
			err = errors.Join(err, r.f.Close())
		}
	}()
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		r := &runReader{f, bufio.NewReaderSize(f, mergeBuffer), make([]byte, s.size)}
		all = append(all, r)
		more, err := r.next()
		if err != nil {
			return err
		}
		if more {
			h = append(h, r)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		if err := each(h[0].record); err != nil {
			return err
		}
		more, err := h[0].next()
		if err != nil {
			return err
		}
		if more {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return nil
}
