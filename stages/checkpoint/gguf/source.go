package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Model is a file as Hugging Face would have it. It implements checkpoint.Source.
type Model struct {
	File   *File
	family *family
	config config
	infos  map[string]checkpoint.Info
	of     map[string]placed
}

// placed is a tensor of the file under our name.
type placed struct {
	t *Tensor
	change
}

// dropped are tensors that are not weights, with what they are.
var dropped = map[string]string{"rope_freqs.weight": "follows from rope_scaling"}

// Open opens a file of a model of a family that is known. Every tensor has a name of Hugging Face, or is known to be
// none of the model's weights; one that has neither is a *checkpoint.Error, and so is one that is missing.
func Open(path string) (*Model, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	m := &Model{File: f, infos: map[string]checkpoint.Info{}, of: map[string]placed{}}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

func (m *Model) open() error {
	if parts, _ := m.File.Meta["split.count"].(int64); parts > 1 {
		no, _ := m.File.Meta["split.no"].(int64) // what is no number is the first
		return m.fault("", checkpoint.Malformed, "is part %d of %d of a split file: join them by llama.cpp's `llama-gguf-split "+
			"--merge FIRST-PART OUT.gguf`", no+1, parts)
	}
	arch, _ := m.File.Meta[architecture].(string)     // what is no text is no architecture
	n, _ := m.File.Meta[arch+".expert_count"].(int64) // of another type is refused where it is read
	i := slices.IndexFunc(families, func(f family) bool {
		return f.arch == arch && (f.moe != nil) == (n > 0)
	})
	if i < 0 {
		return m.fault("", checkpoint.Malformed, "%s is %q, of which no model is read: want one of %v", architecture,
			arch, archNames())
	}
	m.family = &families[i]
	if err := m.readConfig(); err != nil {
		return err
	}
	var errs []error
	for i := range m.File.Tensors {
		errs = append(errs, m.take(&m.File.Tensors[i]))
	}
	return errors.Join(append(errs, m.complete())...)
}

// fault is one of the file.
func (m *Model) fault(tensor string, f checkpoint.Fault, format string, a ...any) error {
	return &checkpoint.Error{File: m.File.path, Tensor: tensor, Fault: f, Why: fmt.Sprintf(format, a...)}
}

// take gives a tensor its name.
func (m *Model) take(t *Tensor) error {
	if dropped[t.Name] != "" {
		return nil
	}
	if is, err := m.takeExperts(t); is {
		return err
	}
	name := m.family.ours(t.Name)
	if name == "" {
		return m.fault(t.Name, checkpoint.Extra, "at offset %d: a model of %s has no such tensor", t.Offset,
			m.family.arch)
	}
	return m.show(name, t)
}

// show shows a tensor under our name.
func (m *Model) show(name string, t *Tensor) error {
	if len(t.Shape) > 2 {
		return m.fault(t.Name, checkpoint.Misshapen, "at offset %d: %v", t.Offset, t.Shape)
	}
	p := placed{t, m.family.changeOf(name, m.config.heads, m.config.kvHeads)}
	if p.heads > 0 && t.Shape[0]%(2*p.heads) != 0 {
		return m.fault(t.Name, checkpoint.Misshapen, "at offset %d: %d rows are no pairs in %d heads", t.Offset,
			t.Shape[0], p.heads)
	}
	dtype := map[Type]checkpoint.DType{F16: checkpoint.F16, BF16: checkpoint.BF16}[t.Type]
	if dtype == "" || p.plus != 0 {
		dtype = checkpoint.F32
	}
	bytes, err := checkpoint.ByteSize(dtype, t.Shape)
	if err != nil {
		return m.fault(t.Name, checkpoint.Malformed, "%v", err)
	}
	m.infos[name] = checkpoint.Info{Name: name, DType: dtype, Shape: t.Shape, File: m.File.base(), Bytes: bytes}
	m.of[name] = p
	return nil
}

// complete reports the tensors that the model lacks.
func (m *Model) complete() error {
	var errs []error
	need := func(name string) {
		if _, ok := m.of[name]; !ok {
			theirs, _ := m.family.expertOf(name)
			errs = append(errs, m.fault(cmp.Or(theirs, m.family.theirs(name)), checkpoint.Missing,
				"the model needs it"))
		}
	}
	need("model.embed_tokens.weight")
	need("model.norm.weight")
	for n := range m.config.layers {
		for module := range m.family.inLayers() { //lfvet:order joined errors are sorted below
			need(fmt.Sprintf("model.layers.%d.%s.weight", n, module))
		}
		for _, theirs := range expertTensors {
			if name := m.family.expert(fmt.Sprintf("blk.%d.%s.weight", n, theirs), 0); name != "" {
				need(name)
			}
		}
		if len(errs) > 20 {
			break
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Tensors implements checkpoint.Source.
func (m *Model) Tensors() []checkpoint.Info {
	out := make([]checkpoint.Info, 0, len(m.infos))
	for _, t := range m.infos { //lfvet:order sorted below
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b checkpoint.Info) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Close implements checkpoint.Source.
func (m *Model) Close() error { return m.File.Close() }

// ReadRanges implements checkpoint.Source.
func (m *Model) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	p, ok := m.of[name]
	if !ok {
		return m.fault(name, checkpoint.Missing, "the file has no such tensor")
	}
	axes := len(p.t.Shape)
	if len(ranges) != axes {
		return fmt.Errorf("%s: tensor %s: %d ranges for %d axes", m.File.path, name, len(ranges), axes)
	}
	n := 1
	for i, r := range ranges {
		if r[0] < 0 || r[0] > r[1] || r[1] > p.t.Shape[i] {
			return fmt.Errorf("%s: tensor %s: ranges %v lie outside of %v", m.File.path, name, ranges, p.t.Shape)
		}
		n *= r[1] - r[0]
	}
	info := m.infos[name]
	if size := n * info.DType.Bits() / 8; size != len(dst) {
		return fmt.Errorf("%s: tensor %s: ranges %v take %d bytes, the buffer has %d", m.File.path, name, ranges, size,
			len(dst))
	}
	if n == 0 {
		return nil
	}
	if axes == 1 && p.heads > 0 { // each number is a row
		return m.readPairs(p, ranges[0], dst)
	}
	return m.readRows(p, ranges, dst)
}

// readPairs reads a bias whose numbers lie in pairs.
func (m *Model) readPairs(p placed, r [2]int, dst []byte) error {
	all := make([]byte, int64(p.t.Shape[0])*4)
	whole := placed{t: p.t}
	each := len(dst) / (r[1] - r[0])
	if err := m.readRows(whole, [][2]int{{0, p.t.Shape[0]}}, all[:p.t.Shape[0]*each]); err != nil {
		return err
	}
	for i := r[0]; i < r[1]; i++ {
		at := p.row(i, p.t.Shape[0])
		copy(dst[(i-r[0])*each:][:each], all[at*each:])
	}
	return nil
}

// readRows reads a box row by row, rows that lie behind one another together.
func (m *Model) readRows(p placed, ranges [][2]int, dst []byte) error {
	t, l := p.t, layouts[p.t.Type]
	width := t.Shape[len(t.Shape)-1]
	cols := ranges[len(ranges)-1]
	first, last := cols[0]/l.elements, (cols[1]+l.elements-1)/l.elements
	rowBytes, take := int64(width/l.elements*l.bytes), (last-first)*l.bytes
	rows := rowsOf(t.Shape, ranges, p.change)
	out := len(dst) / len(rows)
	most := 1
	if take == int(rowBytes) {
		most = max(1, readMax/take)
	}
	raw, y := make([]byte, 0, take), make([]float32, (last-first)*l.elements)
	for len(rows) > 0 {
		n := 1
		for n < min(most, len(rows)) && rows[n] == rows[0]+n {
			n++
		}
		raw = slices.Grow(raw[:0], n*take)[:n*take]
		at := t.Offset + int64(rows[0])*rowBytes + int64(first*l.bytes)
		if _, err := m.File.f.ReadAt(raw, at); err != nil {
			if errors.Is(err, io.EOF) {
				return m.fault(t.Name, checkpoint.Truncated, "at offset %d: the file ended while it was read", at)
			}
			return fmt.Errorf("%s: reading %s: %w", m.File.path, t.Name, err)
		}
		for i := range n {
			m.put(p, dst[i*out:][:out], raw[i*take:][:take], y, cols[0]-first*l.elements)
		}
		rows, dst = rows[n:], dst[n*out:]
	}
	return nil
}

// readMax bounds what one read takes in, unless a row is longer.
const readMax = 8 << 20

// put writes a part of a row as it is shown.
func (m *Model) put(p placed, dst, raw []byte, y []float32, skip int) {
	if l := layouts[p.t.Type]; l.elements == 1 && p.plus == 0 {
		copy(dst, raw)
		return
	}
	p.t.Type.decode(y, raw)
	for i := range len(dst) / 4 {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(y[skip+i]-p.plus))
	}
}

// rowsOf are the rows of a box, as the file counts them.
func rowsOf(shape []int, ranges [][2]int, c change) []int {
	rows := []int{0}
	for axis := range len(shape) - 1 {
		var next []int
		for _, r := range rows {
			for i := ranges[axis][0]; i < ranges[axis][1]; i++ {
				at := i
				if axis == 0 {
					at = c.row(i, shape[0])
				}
				next = append(next, r*shape[axis]+at)
			}
		}
		rows = next
	}
	return rows
}
