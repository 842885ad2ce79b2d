// Package hdf5 reads files of HDF5 as h5py writes them unless it is told otherwise: groups of symbol tables
// or of links in their headers, numbers and strings, stored whole or in chunks that may be compressed. Other
// files say what of them is not read. Source: the HDF5 File Format Specification, version 3.0. Nothing in a
// file can make it read beyond the file's end, or hold more than its callers ask for.
package hdf5

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// File is an open file. It may be read by many at once.
type File struct {
	r    io.ReaderAt
	size int64
	root uint64
}

// Bounds of what a file may have.
const (
	headerMost   = 1 << 20 // bytes of an object's header
	messagesMost = 1 << 14
	nodesMost    = 1 << 16 // of a tree
	entriesMost  = 1 << 22
	depthMost    = 32
	rankMost     = 32
	// ValueMost is how many bytes one read gives at most.
	ValueMost = 1 << 30
)

const undefined = ^uint64(0)

var signature = []byte("\x89HDF\r\n\x1a\n")

// errShort says that something lies beyond the end of what it is in.
var errShort = errors.New("it ends too early")

// Open reads a file's beginning. r stays the caller's.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, size: size}
	b, err := f.at(0, min(96, max(0, size)))
	if err != nil || len(b) < 60 || string(b[:8]) != string(signature) {
		return nil, errors.New("it is no file of HDF5, or has something before it")
	}
	switch version := b[8]; version {
	case 0, 1:
		at := 56 + 4*int(version)
		if len(b) < at+16 || b[13] != 8 || b[14] != 8 {
			return nil, errors.New("addresses and lengths that have not 8 bytes are not read")
		}
		f.root = binary.LittleEndian.Uint64(b[at+8:])
	case 2, 3:
		if b[9] != 8 || b[10] != 8 {
			return nil, errors.New("addresses and lengths that have not 8 bytes are not read")
		}
		f.root = binary.LittleEndian.Uint64(b[36:])
	default:
		return nil, fmt.Errorf("a superblock of version %d is not read", version)
	}
	return f, nil
}

// at reads n bytes.
func (f *File) at(where uint64, n int64) ([]byte, error) {
	if n < 0 || where > uint64(f.size) || n > f.size-int64(where) {
		return nil, errShort
	}
	b := make([]byte, n)
	_, err := f.r.ReadAt(b, int64(where))
	if err == io.EOF {
		err = nil
	}
	return b, err
}

// reader takes numbers from bytes; what it is short of is 0, and its error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		r.err = errShort
		return make([]byte, max(0, min(n, 8)))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() int     { return int(r.take(1)[0]) }
func (r *reader) u16() int    { return int(binary.LittleEndian.Uint16(r.take(2))) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// of takes a number of so many bytes.
func (r *reader) of(n int) (v uint64) {
	for i, x := range r.take(n) {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// message is one of an object's header.
type message struct {
	kind int
	body []byte
}

// Kinds of messages.
const (
	msgSpace     = 0x01
	msgLinkInfo  = 0x02
	msgType      = 0x03
	msgLink      = 0x06
	msgLayout    = 0x08
	msgFilters   = 0x0b
	msgAttribute = 0x0c
	msgContinued = 0x10
	msgSymbols   = 0x11
)

// header reads the messages of an object.
func (f *File) header(where uint64) ([]message, error) {
	b, err := f.at(where, min(16, max(0, f.size-int64(min(where, uint64(f.size))))))
	if err != nil || len(b) < 16 {
		return nil, errors.Join(errShort, err)
	}
	if string(b[:4]) == "OHDR" {
		return f.header2(where)
	}
	if b[0] != 1 {
		return nil, fmt.Errorf("an object's header of version %d is not read", b[0])
	}
	n := int64(binary.LittleEndian.Uint32(b[8:]))
	return f.blocks([][2]uint64{{where + 16, uint64(n)}}, func(b []byte) (out []message, err error) {
		r := &reader{b: b}
		for len(r.b) >= 8 {
			m := message{kind: r.u16()}
			size := r.u16()
			flags := r.u8()
			r.take(3)
			if m.body = r.take(size); r.err != nil {
				return nil, r.err
			}
			if flags&2 != 0 {
				return nil, errors.New("messages that objects share are not read")
			}
			out = append(out, m)
		}
		return out, nil
	})
}

// header2 is header of version 2.
func (f *File) header2(where uint64) ([]message, error) {
	b, err := f.at(where, min(64, f.size-int64(where)))
	if err != nil {
		return nil, err
	}
	r := &reader{b: b}
	r.take(5)
	flags := r.u8()
	if flags&0x20 != 0 {
		r.take(16)
	}
	if flags&0x10 != 0 {
		r.take(4)
	}
	n := r.of(1 << (flags & 3))
	if r.err != nil {
		return nil, r.err
	}
	first := [2]uint64{where + uint64(len(b)-len(r.b)), n}
	return f.blocks([][2]uint64{first}, func(b []byte) (out []message, err error) {
		r := &reader{b: b}
		if strings.HasPrefix(string(b), "OCHK") && len(b) >= 8 {
			r.b = b[4 : len(b)-4]
		}
		for len(r.b) >= 4 {
			m := message{kind: r.u8()}
			size := r.u16()
			own := r.u8()
			if flags&4 != 0 {
				r.take(2)
			}
			if m.body = r.take(size); r.err != nil {
				return nil, r.err
			}
			if own&2 != 0 {
				return nil, errors.New("messages that objects share are not read")
			}
			out = append(out, m)
		}
		return out, nil
	})
}

// blocks reads the messages of blocks, and of those that they go on in.
func (f *File) blocks(todo [][2]uint64, read func([]byte) ([]message, error)) (out []message, err error) {
	total := uint64(0)
	for len(todo) > 0 {
		where, n := todo[0][0], todo[0][1]
		todo = todo[1:]
		if total += n; n > headerMost || total > headerMost {
			return nil, errors.New("an object's header is too long")
		}
		b, err := f.at(where, int64(n))
		if err != nil {
			return nil, err
		}
		more, err := read(b)
		if err != nil {
			return nil, err
		}
		for _, m := range more {
			if m.kind == msgContinued && len(m.body) >= 16 {
				todo = append(todo, [2]uint64{binary.LittleEndian.Uint64(m.body),
					binary.LittleEndian.Uint64(m.body[8:])})
			}
		}
		if out = append(out, more...); len(out) > messagesMost || len(todo) > messagesMost {
			return nil, errors.New("an object's header has too many messages")
		}
	}
	return out, nil
}

// Object is a group or a data set.
type Object struct {
	f        *File
	messages []message
	children func() (map[string]uint64, error) // headers of a group's objects by their names, read once
}

// Root is the group that all others lie in.
func (f *File) Root() (*Object, error) { return f.object(f.root) }

func (f *File) object(where uint64) (*Object, error) {
	m, err := f.header(where)
	o := &Object{f: f, messages: m}
	o.children = sync.OnceValues(o.links)
	return o, err
}

// message is the first one of a kind, nil for none.
func (o *Object) message(kind int) []byte {
	i := slices.IndexFunc(o.messages, func(m message) bool { return m.kind == kind })
	if i < 0 {
		return nil
	}
	return o.messages[i].body
}

// Find is the object at a path of names between slashes, below this one.
func (o *Object) Find(path string) (*Object, error) {
	for name := range strings.SplitSeq(path, "/") {
		children, err := o.children()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		where, ok := children[name]
		if !ok {
			return nil, fmt.Errorf("%s: there is no %q", path, name)
		}
		if o, err = o.f.object(where); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return o, nil
}

// Names are those of a group's objects, in order; a data set has none.
func (o *Object) Names() ([]string, error) {
	children, err := o.children()
	var out []string
	for name := range children {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, err
}
