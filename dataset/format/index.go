package format

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// span is where a record lies in its file, in bytes.
type span struct{ start, end int64 }

// index says where the records of a file lie. It is in memory, or in a file that a later run finds again.
type index struct {
	spans []span // nil where blocks or file are used
	// of records that follow each other: where each begins, in tarBlocks; the last ends at end
	blocks []uint32
	end    int64
	file   *os.File // records of spanBytes each, behind the header
	n      int64
}

const (
	spanBytes   = 16 // two little-endian int64
	indexMagic  = "LFINDEX1"
	indexHeader = int64(len(indexMagic) + 8) // and the number of records
)

// at is where record i lies. Small indexes are in memory, those of tar files count blocks, and
// large ones are read from their file entry by entry.
func (x *index) at(i int64) (span, error) {
	switch {
	case x.spans != nil:
		return x.spans[i], nil
	case x.file == nil:
		s := span{int64(x.blocks[i]) * tarBlock, x.end}
		if i+1 < x.n {
			s.end = int64(x.blocks[i+1]) * tarBlock
		}
		return s, nil
	}
	var b [spanBytes]byte
	if _, err := x.file.ReadAt(b[:], indexHeader+i*spanBytes); err != nil {
		return span{}, fmt.Errorf("index: %w", err)
	}
	s := span{int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:]))}
	if s.start < 0 || s.end < s.start {
		return span{}, fmt.Errorf("index %s: record %d lies at %d to %d; delete the index", x.file.Name(), i,
			s.start, s.end)
	}
	return s, nil
}

func (x *index) close() error {
	if x.file == nil {
		return nil
	}
	return x.file.Close()
}

// scan finds the records of a file and gives each to yield, in order.
type scan func(r *bufio.Reader, yield func(span) error) error

// buildIndex returns the index of a file, from dir if an earlier run left it there for this very file and kind of scan.
// With dir "" it is built in memory, 16 bytes a record, or in a file without a name where there are many.
func buildIndex(f store.File, kind string, find scan, dir string) (*index, error) {
	if dir == "" {
		return heldIndex(f, find, indexHeldMax)
	}
	path := f.Name()
	if store.Scheme(path) == "" {
		var err error
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	name := filepath.Join(dir, HashOf(path, kind, f.Size(), f.Version())+".lfidx")
	if x, err := openIndex(name); err == nil {
		return x, nil
	}
	if err := writeIndex(f, name, find); err != nil {
		return nil, fmt.Errorf("index of %s: %w", f.Name(), err)
	}
	return openIndex(name)
}

// indexHeldMax is how many places an index holds in memory: 16 MiB of them.
const indexHeldMax = 1 << 20

// heldIndex builds an index of up to most places in memory; one of more lies in a file without a name.
func heldIndex(f store.File, find scan, most int) (*index, error) {
	x := &index{spans: []span{}}
	var w *bufio.Writer
	put := func(s span) error {
		b := binary.LittleEndian.AppendUint64(nil, uint64(s.start))
		_, err := w.Write(binary.LittleEndian.AppendUint64(b, uint64(s.end)))
		return err
	}
	err := find(readerOf(f), func(s span) (err error) {
		if x.n++; w != nil {
			return put(s)
		}
		if x.spans = append(x.spans, s); len(x.spans) <= most {
			return nil
		}
		if x.file, err = os.CreateTemp("", "lfactor-index-*"); err != nil {
			return err
		}
		err = os.Remove(x.file.Name()) // it lives as long as it is open
		w = bufio.NewWriterSize(x.file, 1<<16)
		_, bad := w.Write(make([]byte, indexHeader))
		err = errors.Join(err, bad)
		for _, s := range x.spans {
			err = errors.Join(err, put(s))
		}
		x.spans = nil
		return err
	})
	if w != nil {
		err = errors.Join(err, w.Flush())
	}
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// readerOf reads a file from its start.
func readerOf(f store.File) *bufio.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(f, 0, f.Size()), 1<<20)
}

// compact takes 4 bytes a record where records begin at multiples of tarBlock, below 2 TiB.
func (x *index) compact() {
	for _, s := range x.spans {
		if s.start%tarBlock != 0 || s.start/tarBlock > math.MaxUint32 {
			return
		}
	}
	if len(x.spans) == 0 {
		return
	}
	x.end = x.spans[len(x.spans)-1].end
	x.blocks = make([]uint32, len(x.spans))
	for i, s := range x.spans {
		x.blocks[i] = uint32(s.start / tarBlock)
	}
	x.spans = nil
}

// openIndex opens an index file and checks that it is whole.
func openIndex(name string) (*index, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	head := make([]byte, indexHeader)
	info, err := f.Stat()
	if err == nil {
		_, err = f.ReadAt(head, 0)
	}
	x := &index{file: f, n: int64(binary.LittleEndian.Uint64(head[len(indexMagic):]))}
	if err == nil && (!bytes.HasPrefix(head, []byte(indexMagic)) || x.n < 0 || x.n > info.Size() ||
		info.Size() != indexHeader+x.n*spanBytes) {
		err = fmt.Errorf("index %s is damaged", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return x, nil
}

// writeIndex writes an index under another name and renames it when it is whole.
func writeIndex(f store.File, name string, find scan) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return machine.Replace(name, 0o600, func(out *os.File) error { return fillIndex(out, f, find) })
}

// fillIndex scans a file and writes the place of each record. The header is written last, so that
// an index that was cut off is not taken for a whole one.
func fillIndex(out *os.File, f store.File, find scan) error {
	w := bufio.NewWriterSize(out, 1<<16)
	if _, err := w.Write(make([]byte, indexHeader)); err != nil {
		return err
	}
	n := int64(0)
	err := find(readerOf(f), func(s span) error {
		n++
		var b [spanBytes]byte
		binary.LittleEndian.PutUint64(b[:], uint64(s.start))
		binary.LittleEndian.PutUint64(b[8:], uint64(s.end))
		_, err := w.Write(b[:])
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return err
	}
	_, err = out.WriteAt(binary.LittleEndian.AppendUint64([]byte(indexMagic), uint64(n)), 0)
	return err
}

// scanLines finds the lines that hold more than white space, without their newlines.
func scanLines(r *bufio.Reader, yield func(span) error) error {
	return eachLine(r, func(s span, blank bool) error {
		if blank {
			return nil
		}
		return yield(s)
	})
}

// scanParagraphs finds the stretches between blank lines.
func scanParagraphs(r *bufio.Reader, yield func(span) error) error {
	p := span{-1, -1}
	err := eachLine(r, func(s span, blank bool) error {
		if !blank {
			if p.start < 0 {
				p.start = s.start
			}
			p.end = s.end
			return nil
		}
		done := p
		p = span{-1, -1}
		if done.start < 0 {
			return nil
		}
		return yield(done)
	})
	if err == nil && p.start >= 0 {
		err = yield(p)
	}
	return err
}

// eachLine gives every line and whether it is blank. A line is never held in memory.
func eachLine(r *bufio.Reader, yield func(s span, blank bool) error) error {
	at, start, blank := int64(0), int64(0), true
	for {
		chunk, err := r.ReadSlice('\n')
		at += int64(len(chunk))
		blank = blank && len(bytes.TrimSpace(chunk)) == 0
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && err != io.EOF {
			return err
		}
		end := at
		if err == nil {
			end--
		}
		if end > start || err == nil {
			if err := yield(span{start, end}, blank); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		start, blank = at, true
	}
}

// scanArray finds the elements of a JSON array that is the whole file, by their brackets and strings alone:
// whether an element is right shows when it is read.
func scanArray(r *bufio.Reader, yield func(span) error) error {
	s := arrayScan{start: -1}
	for {
		c, err := r.ReadByte()
		if err == io.EOF {
			return s.end(yield)
		}
		if err != nil {
			return err
		}
		if err := s.next(c, yield); err != nil {
			return err
		}
		s.at++
	}
}

type arrayScan struct {
	at, start, last int64 // place; start of the element, -1 between; end of its last byte that is no space
	depth           int
	text, escaped   bool
}

// next takes one byte of a JSON array and reports each element that ends there. It only follows
// strings and depth; whether an element is valid is found when it is read.
func (s *arrayScan) next(c byte, yield func(span) error) error {
	switch {
	case s.escaped:
		s.escaped = false
	case s.text:
		s.escaped = c == '\\'
		s.text = c != '"'
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		return nil
	case s.depth == 0:
		if c != '[' {
			return errors.New("the file is no JSON array: text stands outside [ … ]")
		}
		s.depth++
		return nil
	case s.depth == 1 && (c == ',' || c == ']'):
		if c == ']' {
			s.depth--
		}
		return s.end(yield)
	case c == '"':
		s.text = true
	case c == '{' || c == '[':
		s.depth++
	case c == '}' || c == ']':
		s.depth--
	}
	if s.start < 0 {
		s.start = s.at
	}
	s.last = s.at + 1
	return nil
}

// end yields the element that has begun, if any.
func (s *arrayScan) end(yield func(span) error) error {
	if s.start < 0 {
		return nil
	}
	done := span{s.start, s.last}
	s.start = -1
	return yield(done)
}
