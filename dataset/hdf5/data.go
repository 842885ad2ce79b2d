package hdf5

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Classes of kinds of values.
const (
	classInteger  = 0
	classFloat    = 1
	classString   = 3
	classEnum     = 8
	classVariable = 9
)

// Kind is what the values of a data set are.
type Kind struct {
	Class  int
	Size   int // bytes of one
	Signed bool
	Big    bool // the first byte is the largest
}

// parseKind reads a kind.
func parseKind(b []byte) (k Kind, err error) {
	r := &reader{b: b}
	first := r.u8()
	bits := r.of(3)
	size := r.u32()
	if r.err != nil || size > 1<<20 {
		return k, errors.Join(errors.New("a kind of values that cannot be"), r.err)
	}
	k = Kind{Class: first & 15, Size: int(size), Big: bits&1 != 0, Signed: bits&8 != 0}
	if k.Class == classEnum { // h5py's truths are: numbers with names
		base, err := parseKind(r.b)
		base.Size = k.Size
		return base, err
	}
	return k, nil
}

// Data is a data set.
type Data struct {
	Kind  Kind
	Shape []int
	f     *File
	class int // 0 in the header, 1 whole, 2 in chunks
	where uint64
	size  uint64
	body  []byte
	chunk []int // of a chunk
	pipes []filter
	parts []part
}

// filter is what was done to each chunk, in order.
type filter struct {
	id     int
	values []uint32
}

// part is a chunk.
type part struct {
	at    []int // first element
	where uint64
	size  uint32
	mask  uint32 // filters that were not done
}

// Data reads what an object has as a data set.
func (o *Object) Data() (*Data, error) {
	space, kind, layout := o.message(msgSpace), o.message(msgType), o.message(msgLayout)
	if space == nil || kind == nil || layout == nil {
		return nil, errors.New("it is no data set")
	}
	d := &Data{f: o.f}
	var err error
	if d.Kind, err = parseKind(kind); err != nil {
		return nil, err
	}
	if d.Shape, err = parseSpace(space); err != nil {
		return nil, err
	}
	if b := o.message(msgFilters); b != nil {
		if d.pipes, err = parseFilters(b); err != nil {
			return nil, err
		}
	}
	return d, d.layout(layout)
}

// parseSpace reads a shape.
func parseSpace(b []byte) (shape []int, err error) {
	r := &reader{b: b}
	version, rank := r.u8(), r.u8()
	r.take(1)
	switch version {
	case 1:
		r.take(5)
	case 2:
		r.take(1)
	default:
		return nil, fmt.Errorf("a shape of version %d is not read", version)
	}
	if rank > rankMost {
		return nil, fmt.Errorf("%d axes", rank)
	}
	for range rank {
		n := r.u64()
		if n > math.MaxInt32 {
			return nil, fmt.Errorf("an axis of %d", n)
		}
		shape = append(shape, int(n))
	}
	return shape, r.err
}

// parseFilters reads what was done to chunks.
func parseFilters(b []byte) (out []filter, err error) {
	r := &reader{b: b}
	version, n := r.u8(), r.u8()
	if version == 1 {
		r.take(6)
	}
	for range n {
		f, name := filter{id: r.u16()}, 0
		if version == 1 || f.id >= 256 {
			name = r.u16()
		}
		r.take(2)
		values := r.u16()
		if version == 1 {
			name = (name + 7) / 8 * 8
		}
		r.take(name)
		for range values {
			if f.values = append(f.values, r.u32()); r.err != nil {
				return nil, r.err
			}
		}
		if version == 1 && values%2 == 1 {
			r.take(4)
		}
		switch out = append(out, f); f.id {
		case deflate, shuffle, fletcher, lzf:
		default:
			return nil, fmt.Errorf("chunks of filter %d are not read: gzip, lzf, shuffle and fletcher32 are", f.id)
		}
	}
	return out, r.err
}

// layout reads where the values lie.
func (d *Data) layout(b []byte) error {
	r := &reader{b: b}
	version := r.u8()
	if version != 3 && version != 4 {
		return fmt.Errorf("a layout of version %d is not read", version)
	}
	switch d.class = r.u8(); d.class {
	case 0:
		d.body = r.take(r.u16())
		return r.err
	case 1:
		d.where, d.size = r.u64(), r.u64()
		return r.err
	case 2:
	default:
		return fmt.Errorf("a layout of class %d is not read", d.class)
	}
	if version == 4 {
		return errors.New("chunks in HDF5's latest form are not read; write the file with h5py's libver earliest, its default")
	}
	rank := r.u8()
	tree := r.u64()
	if rank != len(d.Shape)+1 {
		return fmt.Errorf("chunks of %d axes, and values of %d", rank-1, len(d.Shape))
	}
	total := 1
	for range rank - 1 {
		n := int(r.u32())
		if n < 1 || total > ValueMost/n {
			return errors.New("chunks of a size that cannot be")
		}
		d.chunk, total = append(d.chunk, n), total*n
	}
	if r.u32() != uint32(d.Kind.Size) || r.err != nil || total > ValueMost/max(1, d.Kind.Size) {
		return errors.Join(errors.New("chunks of a size that cannot be"), r.err)
	}
	return d.f.walk(tree, 1, 8+8*rank, func(key []byte, child uint64) error {
		p := part{where: child, size: binary.LittleEndian.Uint32(key), mask: binary.LittleEndian.Uint32(key[4:])}
		for i := range rank - 1 {
			at := binary.LittleEndian.Uint64(key[8+8*i:])
			if at > math.MaxInt32 {
				return errors.New("a chunk that lies nowhere")
			}
			p.at = append(p.at, int(at))
		}
		d.parts = append(d.parts, p)
		return nil
	})
}

// Row is how many bytes one index of the first axis has.
func (d *Data) Row() int {
	n := d.Kind.Size
	for _, s := range d.Shape[min(1, len(d.Shape)):] {
		if s > 0 && n > ValueMost/s {
			return ValueMost + 1
		}
		n *= s
	}
	return n
}

// Rows are the bytes of n indices of the first axis, from one on. What was never written is 0.
func (d *Data) Rows(from, n int) ([]byte, error) {
	row := d.Row()
	if len(d.Shape) == 0 || from < 0 || n < 0 || from > d.Shape[0]-n || row > ValueMost || n > 0 && row > ValueMost/n {
		return nil, fmt.Errorf("rows %d to %d of %v are not there, or too many at once", from, from+n, d.Shape)
	}
	switch {
	case d.class == 0 && len(d.body) >= (from+n)*row:
		return slices.Clone(d.body[from*row : (from+n)*row]), nil
	case d.class == 0:
		return nil, errShort
	case d.class == 1 && d.where == undefined:
		return make([]byte, n*row), nil
	case d.class == 1:
		return d.f.at(d.where+uint64(from)*uint64(row), int64(n*row))
	}
	out := make([]byte, n*row)
	for _, p := range d.parts {
		if len(p.at) == 0 || p.at[0] >= from+n || p.at[0]+d.chunk[0] <= from {
			continue
		}
		b, err := d.part(p)
		if err != nil {
			return nil, err
		}
		d.lay(out, from, n, p, b)
	}
	return out, nil
}

// lay puts what rows have of a chunk where it belongs.
func (d *Data) lay(out []byte, from, n int, p part, b []byte) {
	rank, size := len(d.Shape), d.Kind.Size
	first, last := make([]int, rank), make([]int,
		rank) // of the chunk's places on each axis, those that are wanted
	for i := range rank {
		last[i] = min(d.chunk[i], d.Shape[i]-p.at[i])
		if i == 0 {
			first[i], last[i] = max(0, from-p.at[i]), min(last[i], from+n-p.at[i])
		}
		if first[i] >= last[i] {
			return
		}
	}
	run := last[rank-1] - first[rank-1]
	at := slices.Clone(first)
	for {
		source, to := 0, 0
		for i := range rank {
			length, place := d.Shape[i], p.at[i]+at[i]
			if i == 0 {
				length, place = n, place-from
			}
			source, to = source*d.chunk[i]+at[i], to*length+place
		}
		copy(out[to*size:], b[source*size:(source+run)*size])
		i := rank - 2
		for ; i >= 0; i-- {
			if at[i]++; at[i] < last[i] {
				break
			}
			at[i] = first[i]
		}
		if i < 0 {
			return
		}
	}
}

// Filters of chunks.
const (
	deflate  = 1
	shuffle  = 2
	fletcher = 3
	lzf      = 32000
)

// part reads a chunk's values.
func (d *Data) part(p part) ([]byte, error) {
	want := d.Kind.Size
	for _, n := range d.chunk {
		want *= n
	}
	b, err := d.f.at(p.where, int64(p.size))
	for i := len(d.pipes) - 1; i >= 0 && err == nil; i-- {
		if p.mask>>i&1 != 0 {
			continue
		}
		switch d.pipes[i].id {
		case deflate:
			b, err = inflated(b, want+4)
		case lzf:
			b, err = unLZF(b, want+4)
		case shuffle:
			b = unshuffled(b, d.Kind.Size)
		case fletcher:
			b = b[:max(0, len(b)-4)]
		}
	}
	if err == nil && len(b) != want {
		err = fmt.Errorf("a chunk has %d bytes, want %d", len(b), want)
	}
	return b, err
}

// inflated is what zlib made small, at most so many bytes.
func inflated(b []byte, most int) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, int64(most)))
}

// unshuffled puts the bytes of each value together again.
func unshuffled(b []byte, size int) []byte {
	n := len(b) / max(1, size)
	if size < 2 || n < 2 {
		return b
	}
	out := make([]byte, len(b))
	for i := range n {
		for k := range size {
			out[i*size+k] = b[k*n+i]
		}
	}
	copy(out[n*size:], b[n*size:])
	return out
}

// unLZF is what LibLZF made small, at most so many bytes.
func unLZF(b []byte, most int) (out []byte, err error) {
	for len(b) > 0 {
		c := int(b[0])
		b = b[1:]
		if c < 32 { // as it is
			if c+1 > len(b) {
				return nil, errShort
			}
			out, b = append(out, b[:c+1]...), b[c+1:]
			continue
		}
		n := c >> 5
		if n == 7 {
			if len(b) == 0 {
				return nil, errShort
			}
			n, b = n+int(b[0]), b[1:]
		}
		if len(b) == 0 {
			return nil, errShort
		}
		from := len(out) - (c&31<<8 | int(b[0])) - 1
		if b = b[1:]; from < 0 || len(out)+n+2 > most {
			return nil, errors.New("a chunk of lzf is broken")
		}
		for range n + 2 {
			out = append(out, out[from])
			from++
		}
	}
	return out, nil
}

// Numbers are the values of bytes that Rows gave.
func (d *Data) Numbers(b []byte) ([]float64, error) {
	k := d.Kind
	if k.Class != classInteger && k.Class != classFloat || !slices.Contains([]int{1, 2, 4, 8}, k.Size) ||
		k.Class == classFloat && k.Size < 4 {
		return nil, fmt.Errorf("values of class %d and %d bytes are no numbers that are read", k.Class, k.Size)
	}
	out := make([]float64, len(b)/k.Size)
	for i := range out {
		v := uint64(0)
		for j := range k.Size {
			at := j
			if k.Big {
				at = k.Size - 1 - j
			}
			v |= uint64(b[i*k.Size+at]) << (8 * j)
		}
		switch {
		case k.Class == classFloat && k.Size == 4:
			out[i] = float64(math.Float32frombits(uint32(v)))
		case k.Class == classFloat:
			out[i] = math.Float64frombits(v)
		case k.Signed:
			out[i] = float64(int64(v<<(64-8*k.Size)) >> (64 - 8*k.Size))
		default:
			out[i] = float64(v)
		}
	}
	return out, nil
}
