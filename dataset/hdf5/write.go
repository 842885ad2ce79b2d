package hdf5

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// Node is a group, or a data set, that is written.
type Node struct {
	Children map[string]*Node // of a group
	Floats   []float32        // of a data set, or
	Bytes    []byte
	Shape    []int
}

// Encode is a file of a group, as h5py reads it.
func Encode(root *Node) []byte {
	w := &writer{b: make([]byte, 96)}
	at := w.node(root)
	b := append([]byte(nil), signature...)
	b = append(b, 0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0)
	for _, v := range []uint64{0, undefined, uint64(len(w.b)), undefined, 0, at, 0, 0, 0} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	copy(w.b, b)
	return w.b
}

// writer is a file that grows.
type writer struct{ b []byte }

// put appends bytes at a multiple of 8, and returns where they lie.
func (w *writer) put(b []byte) uint64 {
	for len(w.b)%8 != 0 {
		w.b = append(w.b, 0)
	}
	at := uint64(len(w.b))
	w.b = append(w.b, b...)
	return at
}

// node writes a node and what lies below it.
func (w *writer) node(n *Node) uint64 {
	if n.Children == nil {
		return w.data(n)
	}
	none := binary.LittleEndian.AppendUint64(nil, undefined)
	messages := []message{{msgLinkInfo, slices.Concat([]byte{0, 0}, none, none)}, {msgGroupInfo, []byte{0, 0}}}
	for _, name := range slices.Sorted(maps.Keys(n.Children)) {
		link := binary.LittleEndian.AppendUint16([]byte{1, 1}, uint16(len(name)))
		link = append(link, name...)
		link = binary.LittleEndian.AppendUint64(link, w.node(n.Children[name]))
		messages = append(messages, message{msgLink, link})
	}
	return w.header(messages)
}

// msgGroupInfo says how a group's links are kept.
const msgGroupInfo = 0x0a

// data writes a data set whole.
func (w *writer) data(n *Node) uint64 {
	kind, raw := []byte{0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0}, n.Bytes
	if n.Floats != nil {
		kind, raw = []byte{0x11, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0}, nil
		for _, v := range n.Floats {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	}
	at := w.put(raw)
	if len(raw) == 0 {
		at = undefined
	}
	space := []byte{1, byte(len(n.Shape)), 0, 0, 0, 0, 0, 0}
	for _, s := range n.Shape {
		space = binary.LittleEndian.AppendUint64(space, uint64(s))
	}
	layout := binary.LittleEndian.AppendUint64([]byte{3, 1}, at)
	layout = binary.LittleEndian.AppendUint64(layout, uint64(len(raw)))
	return w.header([]message{{msgSpace, space}, {msgType, kind}, {msgFill, []byte{2, 2, 0, 0}}, {msgLayout, layout}})
}

// msgFill says what stands for values that were never written.
const msgFill = 0x05

// header writes an object's header.
func (w *writer) header(messages []message) uint64 {
	var body []byte
	for _, m := range messages {
		for len(m.body)%8 != 0 {
			m.body = append(m.body, 0)
		}
		body = binary.LittleEndian.AppendUint16(body, uint16(m.kind))
		body = binary.LittleEndian.AppendUint16(body, uint16(len(m.body)))
		body = append(append(body, 0, 0, 0, 0), m.body...)
	}
	b := binary.LittleEndian.AppendUint16([]byte{1, 0}, uint16(len(messages)))
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return w.put(append(append(b, 0, 0, 0, 0), body...))
}
