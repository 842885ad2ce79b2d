// Package gguf reads and writes GGUF, the one-file form of models of llama.cpp: metadata, a tokenizer and
// tensors, many of them quantized in blocks.
//
// [Open] shows a file as a [checkpoint.Source] under the names of Hugging Face, with quantized tensors as
// float32, to the bit of ggml's definition. [Import] makes a Hugging Face directory of one, and [Export]
// makes one of a directory. Nothing in a file is trusted: counts and lengths are held to the bytes that are
// there before anything is allocated, and a fault is a [checkpoint.Error] with file, tensor and offset.
//
// The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; blocks: ggml-quants.c of the same repository.
package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Ext ends the name of such a file.
const Ext = ".gguf"

const (
	magic        = "GGUF"
	alignUsual   = 32
	alignMax     = 1 << 16
	axesMax      = 4
	depthMax     = 1       // of arrays in arrays
	stringMax    = 1 << 24 // bytes; the longest chat templates have some ten thousand
	countMax     = 1 << 24 // tensors, entries of metadata
	elementsMax  = 1 << 40 // of a tensor
	architecture = "general.architecture"
)

// Kinds of values.
const (
	kindU8 uint32 = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

// kindBytes are the sizes of values that have one; 0 for the others.
var kindBytes = [...]int64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// Meta is the metadata of a file: values are int64, float64, bool, string, or lists of one of these.
type Meta map[string]any

// Tensor is one of a file.
type Tensor struct {
	Name   string
	Type   Type
	Shape  []int // row-major: the file's dimensions from last to first
	Offset int64 // of its first byte, from the beginning of the file
	Bytes  int64
}

// File is an open file. Its methods may be called from several goroutines at once.
type File struct {
	Meta    Meta
	Tensors []Tensor // in the order of the file
	path    string
	f       *os.File
}

// OpenFile reads the head of a file: metadata, and where tensors lie. A file that is not what the format
// says is a *checkpoint.Error.
func OpenFile(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Unsafe, Why: "is not a regular file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	g, err := parse(f, path, info.Size())
	if err != nil {
		f.Close()
		return nil, err
	}
	g.f = f
	return g, nil
}

// Close releases the file.
func (g *File) Close() error { return g.f.Close() }

// parse reads the head of a file of a size.
func parse(r io.Reader, path string, size int64) (*File, error) {
	p := &parser{r: bufio.NewReaderSize(r, 1<<16), path: path, size: size}
	g := &File{path: path, Meta: Meta{}}
	switch string(p.bytes(4)) {
	case magic:
	case "vers":
		p.fail("is a pointer of Git LFS, and not the file: run `git lfs pull` where it was cloned")
	default:
		p.fail("does not begin with GGUF")
	}
	version := p.u32()
	if p.err == nil && version != 2 && version != 3 {
		p.fail("version %d, 2 and 3 can be read; files of big-endian machines cannot", version)
	}
	tensors, entries := p.count(), p.count()
	for range entries {
		p.entry(g.Meta)
		if p.err != nil {
			return nil, p.err
		}
	}
	seen := map[string]bool{}
	for range tensors {
		t := p.tensor()
		if p.err == nil && seen[t.Name] {
			p.fail("tensor %q is there twice", t.Name)
		}
		if p.err != nil {
			return nil, p.err
		}
		seen[t.Name] = true
		g.Tensors = append(g.Tensors, t)
	}
	if p.err != nil {
		return nil, p.err
	}
	return g, p.place(g)
}

// place moves offsets to count from the beginning of the file, and checks that tensors lie in it and apart.
func (p *parser) place(g *File) error {
	align := int64(alignUsual)
	if v, ok := g.Meta["general.alignment"].(int64); ok {
		align = v
	}
	if align < 8 || align > alignMax || align%8 != 0 {
		return p.fault("", "general.alignment is %d, want a multiple of 8 up to %d", align, alignMax)
	}
	data := (p.at + align - 1) / align * align
	order := make([]int, len(g.Tensors))
	for i := range g.Tensors {
		t := &g.Tensors[i]
		if order[i] = i; t.Offset%align != 0 || t.Offset > p.size {
			return p.fault(t.Name, "begins at %d of the data, which is no multiple of %d in the file", t.Offset, align)
		}
		if t.Offset += data; t.Offset > p.size-t.Bytes {
			return &checkpoint.Error{File: p.path, Tensor: t.Name, Fault: checkpoint.Truncated,
				Why: fmt.Sprintf("%d bytes at offset %d, the file has %d", t.Bytes, t.Offset, p.size),
				Try: "copy the file again"}
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if x, y := g.Tensors[a].Offset, g.Tensors[b].Offset; x != y {
			return int(max(-1, min(1, x-y)))
		}
		return int(max(-1, min(1, g.Tensors[a].Bytes-g.Tensors[b].Bytes)))
	})
	for i := 1; i < len(order); i++ {
		a, b := &g.Tensors[order[i-1]], &g.Tensors[order[i]]
		if a.Offset+a.Bytes > b.Offset {
			return p.fault(b.Name, "at offset %d overlaps tensor %q", b.Offset, a.Name)
		}
	}
	return nil
}

// parser reads the head of a file. Its first fault stays, and everything after it is zero.
type parser struct {
	r    *bufio.Reader
	path string
	at   int64
	size int64
	err  error
}

// fault is a malformed file, at the place that was reached.
func (p *parser) fault(tensor, format string, a ...any) error {
	return &checkpoint.Error{File: p.path, Tensor: tensor, Fault: checkpoint.Malformed,
		Why: fmt.Sprintf("at byte %d: ", p.at) + fmt.Sprintf(format, a...)}
}

func (p *parser) fail(format string, a ...any) {
	if p.err == nil {
		p.err = p.fault("", format, a...)
	}
}

// bytes are the next n of the file, which must have as many.
func (p *parser) bytes(n int64) []byte {
	if p.err != nil {
		return nil
	}
	if n < 0 || n > p.size-p.at {
		p.err = &checkpoint.Error{File: p.path, Fault: checkpoint.Truncated,
			Why: fmt.Sprintf("at byte %d: %d bytes are to follow, the file has %d", p.at, n, p.size)}
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(p.r, b); err != nil {
		p.err = &checkpoint.Error{File: p.path, Fault: checkpoint.Truncated,
			Why: fmt.Sprintf("at byte %d", p.at), Err: err}
		return nil
	}
	p.at += n
	return b
}

func (p *parser) u32() uint32 {
	if b := p.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count is a number of things, each of which has some bytes in the file.
func (p *parser) count() int {
	n := p.u64()
	if p.err == nil && (n > countMax || int64(n) > p.size-p.at) {
		p.fail("%d entries are to follow in the %d bytes that are left", n, p.size-p.at)
	}
	if p.err != nil {
		return 0
	}
	return int(n)
}

func (p *parser) text() string {
	n := p.u64()
	if p.err == nil && n > stringMax {
		p.fail("a text of %d bytes, limit %d", n, stringMax)
	}
	return string(p.bytes(int64(n)))
}

// entry reads one entry of the metadata.
func (p *parser) entry(m Meta) {
	key := p.text()
	if _, twice := m[key]; twice {
		p.fail("key %q is there twice", key)
	}
	v := p.value(p.u32(), 0)
	if p.err == nil {
		m[key] = v
	}
}

// value reads a value of a kind.
func (p *parser) value(kind uint32, depth int) any {
	switch {
	case p.err != nil:
		return nil
	case kind == kindString:
		return p.text()
	case kind == kindArray:
		return p.list(depth)
	case kind >= uint32(len(kindBytes)):
		p.fail("value of kind %d, which the format does not have", kind)
		return nil
	}
	b := p.bytes(kindBytes[kind])
	if p.err != nil {
		return nil
	}
	return p.scalar(kind, b)
}

// scalar decodes a number or a boolean.
func (p *parser) scalar(kind uint32, b []byte) any {
	le := binary.LittleEndian
	switch kind {
	case kindU8:
		return int64(b[0])
	case kindI8:
		return int64(int8(b[0]))
	case kindU16:
		return int64(le.Uint16(b))
	case kindI16:
		return int64(int16(le.Uint16(b)))
	case kindU32:
		return int64(le.Uint32(b))
	case kindI32:
		return int64(int32(le.Uint32(b)))
	case kindF32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case kindBool:
		if b[0] > 1 {
			p.fail("a boolean is %d", b[0])
		}
		return b[0] == 1
	case kindU64:
		if v := le.Uint64(b); v <= math.MaxInt64 {
			return int64(v)
		}
		p.fail("a number is above 2^63")
		return nil
	case kindI64:
		return int64(le.Uint64(b))
	}
	return math.Float64frombits(le.Uint64(b))
}

// list reads an array.
func (p *parser) list(depth int) any {
	kind, n := p.u32(), p.count()
	switch {
	case p.err != nil:
		return nil
	case kind >= uint32(len(kindBytes)) || kind == kindArray && depth >= depthMax:
		p.fail("a list of kind %d", kind)
		return nil
	case kind == kindArray:
		var out []any
		for range n {
			out = append(out, p.value(kind, depth+1))
			if p.err != nil {
				return nil
			}
		}
		return out
	case kind == kindString:
		var out []string
		for range n {
			out = append(out, p.text())
			if p.err != nil {
				return nil
			}
		}
		return out
	}
	b := p.bytes(int64(n) * kindBytes[kind])
	if p.err != nil {
		return nil
	}
	return p.numbers(kind, b)
}

// numbers decodes a list of numbers or booleans.
func (p *parser) numbers(kind uint32, b []byte) any {
	each := int(kindBytes[kind])
	switch n := len(b) / each; kind {
	case kindF32, kindF64:
		out := make([]float64, n)
		for i := range out {
			out[i] = p.scalar(kind, b[i*each:]).(float64)
		}
		return out
	case kindBool:
		out := make([]bool, n)
		for i := range out {
			out[i] = b[i] == 1
		}
		return out
	default:
		out := make([]int64, n)
		for i := range out {
			v, ok := p.scalar(kind, b[i*each:]).(int64)
			if !ok {
				return nil
			}
			out[i] = v
		}
		return out
	}
}

// tensor reads what the head says of one.
func (p *parser) tensor() (t Tensor) {
	t.Name = p.text()
	axes := p.u32()
	if p.err == nil && (axes == 0 || axes > axesMax) {
		p.fail("tensor %q has %d axes, 1 to %d can be read", t.Name, axes, axesMax)
	}
	elements := int64(1)
	for range axes {
		n := p.u64()
		if p.err != nil {
			return t
		}
		if n == 0 || n > elementsMax || elements > elementsMax/int64(n) {
			p.fail("tensor %q has more than %d elements, or none", t.Name, int64(elementsMax))
			return t
		}
		elements *= int64(n)
		t.Shape = slices.Insert(t.Shape, 0, int(n))
	}
	t.Type, t.Offset = Type(p.u32()), int64(p.u64())
	if p.err != nil {
		return t
	}
	l, ok := layouts[t.Type]
	row := t.Shape[len(t.Shape)-1]
	switch {
	case !ok:
		p.err = p.fault(t.Name, "its type is %v, which is not read: %s are", t.Type, strings.Join(typeNames(), ", "))
	case row%l.elements != 0:
		p.err = p.fault(t.Name, "rows of %d in blocks of %d", row, l.elements)
	case t.Offset < 0:
		p.err = p.fault(t.Name, "its offset is above 2^63")
	}
	if p.err == nil {
		t.Bytes = elements / int64(l.elements) * int64(l.bytes)
	}
	return t
}

// base is the name of the file for infos.
func (g *File) base() string { return filepath.Base(g.path) }
