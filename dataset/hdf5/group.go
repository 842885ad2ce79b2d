package hdf5

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// links are the headers of a group's objects by their names.
func (o *Object) links() (map[string]uint64, error) {
	out := map[string]uint64{}
	for _, m := range o.messages {
		var err error
		switch m.kind {
		case msgSymbols:
			r := &reader{b: m.body}
			tree, heap := r.u64(), r.u64()
			if err = r.err; err == nil {
				err = o.f.symbols(tree, heap, out)
			}
		case msgLink:
			err = link(m.body, out)
		case msgLinkInfo:
			err = dense(m.body)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// dense refuses a group whose links lie in a heap of their own.
func dense(b []byte) error {
	r := &reader{b: b}
	r.take(1)
	if flags := r.u8(); flags&1 != 0 {
		r.take(8)
	}
	if heap := r.u64(); r.err != nil || heap != undefined {
		return errors.Join(errors.New("groups of many links in HDF5's latest form are not read; write the file with h5py's libver "+
			"earliest, its default"), r.err)
	}
	return nil
}

// link reads a link: those to objects of the same file are taken.
func link(b []byte, out map[string]uint64) error {
	r := &reader{b: b}
	r.take(1)
	flags, kind := r.u8(), 0
	if flags&8 != 0 {
		kind = r.u8()
	}
	if flags&4 != 0 {
		r.take(8)
	}
	if flags&16 != 0 {
		r.take(1)
	}
	name := string(r.take(int(min(r.of(1<<(flags&3)), headerMost))))
	if kind == 0 {
		out[name] = r.u64()
	}
	return r.err
}

// symbols reads a group's names from a tree and a heap.
func (f *File) symbols(tree, heap uint64, out map[string]uint64) error {
	b, err := f.at(heap, 32)
	if err != nil || string(b[:4]) != "HEAP" {
		return errors.Join(errors.New("a group's heap of names is not there"), err)
	}
	size, where := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[24:])
	if size > headerMost*16 {
		return errors.New("a group's heap of names is too long")
	}
	names, err := f.at(where, int64(size))
	if err != nil {
		return err
	}
	return f.walk(tree, 0, 8, func(_ []byte, child uint64) error {
		b, err := f.at(child, 8)
		if err != nil || string(b[:4]) != "SNOD" {
			return errors.Join(errors.New("a group's table of names is not there"), err)
		}
		n := int64(binary.LittleEndian.Uint16(b[6:]))
		if b, err = f.at(child+8, 40*n); err != nil {
			return err
		}
		for ; len(b) >= 40; b = b[40:] {
			at := binary.LittleEndian.Uint64(b)
			if at >= uint64(len(names)) {
				return errShort
			}
			name, _, _ := bytes.Cut(names[at:], []byte{0})
			if kind := binary.LittleEndian.Uint32(b[16:]); kind != 2 { // a link by name is none of ours
				out[string(name)] = binary.LittleEndian.Uint64(b[8:])
			}
		}
		return nil
	})
}

// walk calls leaf for each key and child of a tree of version 1 of a kind, whose keys have so many bytes.
func (f *File) walk(where uint64, kind, key int, leaf func(key []byte, child uint64) error) error {
	nodes, entries := map[uint64]bool{}, 0
	var visit func(where uint64, depth int) error
	visit = func(where uint64, depth int) error {
		if nodes[where] || len(nodes) >= nodesMost || depth > depthMost {
			return errors.New("a tree of the file is too large or goes round in a circle")
		}
		nodes[where] = true
		b, err := f.at(where, 24)
		if err != nil {
			return err
		}
		if string(b[:4]) != "TREE" || int(b[4]) != kind {
			return fmt.Errorf("there is no tree of kind %d at %d", kind, where)
		}
		level, n := int(b[5]), int(binary.LittleEndian.Uint16(b[6:]))
		if b, err = f.at(where+24, int64(n*(key+8)+key)); err != nil {
			return err
		}
		if entries += n; entries > entriesMost {
			return errors.New("a tree of the file is too large")
		}
		for ; n > 0; n-- {
			child := binary.LittleEndian.Uint64(b[key:])
			if level > 0 {
				err = visit(child, depth+1)
			} else {
				err = leaf(b[:key], child)
			}
			if err != nil {
				return err
			}
			b = b[key+8:]
		}
		return nil
	}
	if where == undefined { // nothing was stored
		return nil
	}
	return visit(where, 0)
}

// Attribute is the text of an attribute of strings, "" for one that is not there or has no text.
func (o *Object) Attribute(name string) (string, error) {
	for _, m := range o.messages {
		if m.kind != msgAttribute {
			continue
		}
		r := &reader{b: m.body}
		version := r.u8()
		r.take(1)
		sizes := [3]int{r.u16(), r.u16(), r.u16()}
		if version == 3 {
			r.take(1)
		}
		var parts [3][]byte
		for i, n := range sizes {
			parts[i] = r.take(n)
			if version == 1 {
				r.take((8 - n%8) % 8)
			}
		}
		if r.err != nil {
			return "", r.err
		}
		if own, _, _ := bytes.Cut(parts[0], []byte{0}); string(own) != name {
			continue
		}
		kind, err := parseKind(parts[1])
		if err != nil {
			return "", err
		}
		return o.f.text(kind, r.b)
	}
	return "", nil
}

// text is a string of a kind, which may lie in a heap of the file's.
func (f *File) text(k Kind, b []byte) (string, error) {
	switch {
	case k.Class == classString:
		s, _, _ := bytes.Cut(b[:min(len(b), k.Size)], []byte{0})
		return string(s), nil
	case k.Class != classVariable:
		return "", nil
	}
	r := &reader{b: b}
	n, where, index := r.u32(), r.u64(), r.u32()
	if r.err != nil || n == 0 {
		return "", r.err
	}
	head, err := f.at(where, 16)
	if err != nil || string(head[:4]) != "GCOL" {
		return "", errors.Join(errors.New("a heap of strings is not there"), err)
	}
	size := binary.LittleEndian.Uint64(head[8:])
	if size < 16 || size > headerMost*64 {
		return "", errors.New("a heap of strings is too long")
	}
	all, err := f.at(where+16, int64(size-16))
	if err != nil {
		return "", err
	}
	for r = (&reader{b: all}); len(r.b) >= 16; {
		own := r.u16()
		r.take(6)
		long := r.u64()
		if long > uint64(len(r.b)) {
			return "", errShort
		}
		s := r.take(int(long))
		if uint32(own) == index && own != 0 {
			return string(s[:min(uint64(n), long)]), nil
		}
		r.take(min(len(r.b), int((8-long%8)%8)))
	}
	return "", errors.New("a string is not in its heap")
}
