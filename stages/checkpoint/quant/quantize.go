package quant

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// quantizer is a form of few bits that matrices are rounded to. Each has a file of its own that registers
// it, and packings read it.
type quantizer struct {
	name string
	doc  string
	unit int // rows that go together
	// fits reports whether a matrix of a shape can be kept so.
	fits func(rows, cols int) bool
	// parts are the tensors that a matrix becomes; those of float scales have a type of the matrix's.
	parts func(m checkpoint.Info) []quantPart
	// config is quantization_config of config.json; modules are those that stay as they are.
	config func(modules []string) any
}

// quantPart is a tensor that a matrix becomes.
type quantPart struct {
	checkpoint.Info
	rows int // of the matrix that a row of it is of; 0 where it is of the whole matrix
	// fill sets dst to the part's rows that whole units of the matrix's rows, w, become; most is the greatest
	// magnitude of the matrix.
	fill func(dst []byte, w []float32, cols int, most float32)
}

var quantizers []quantizer

func registerQuantizer(q quantizer) struct{} {
	quantizers = append(quantizers, q)
	slices.SortFunc(quantizers, func(a, b quantizer) int { return strings.Compare(a.name, b.name) })
	return struct{}{}
}

// Quantizers are the forms that Quantize rounds to, and what each is.
func Quantizers() (names, docs []string) {
	for _, q := range quantizers {
		names, docs = append(names, q.name), append(docs, q.doc)
	}
	return names, docs
}

// quantized shows some matrices of a source in few bits.
type quantized struct {
	checkpoint.Source
	infos map[string]checkpoint.Info
	of    map[string]quantOf
	mu    sync.Mutex
	most  map[string]float32 // greatest magnitudes of matrices, where they were needed
	fused map[string][]checkpoint.Info
}

// quantOf is a part with its matrix.
type quantOf struct {
	quantPart
	matrix checkpoint.Info
	unit   int
}

// headModule is what transformers calls the module of a model's head.
const headModule = "lm_head"

// Quantize shows the matrices of src that which chooses rounded to a form, to nearest, and gives what
// config.json is to say of it. Matrices whose shape the form has not stay as they are, and are named
// among those. A matrix with numbers that are not finite is an error where it is read.
func Quantize(src checkpoint.Source, form string, which func(name string) bool) (out checkpoint.Source, config json.RawMessage,
	err error) {
	f := fakeQuantizer(form)
	if i := slices.IndexFunc(quantizers, func(q quantizer) bool { return q.name == form }); i >= 0 {
		f = &quantizers[i]
	}
	if f == nil {
		names, _ := Quantizers()
		return nil, nil, fmt.Errorf("%q is no form of few bits, %v are", form, names)
	}
	q := &quantized{Source: src, infos: map[string]checkpoint.Info{}, of: map[string]quantOf{},
		most: map[string]float32{}, fused: map[string][]checkpoint.Info{}}
	var keep []string
	for _, t := range src.Tensors() {
		_, float := checkpoint.FloatDecoder(t.DType)
		module, weight := strings.CutSuffix(t.Name, ".weight")
		if float == nil || len(t.Shape) != 2 || !weight || !which(t.Name) || !f.fits(t.Shape[0], t.Shape[1]) {
			q.infos[t.Name] = t
			if weight && len(t.Shape) == 2 {
				keep = append(keep, module)
			}
			continue
		}
		q.fused[fusedAs(t.Name)] = append(q.fused[fusedAs(t.Name)], t)
		for _, p := range f.parts(t) {
			if p.Bytes, err = checkpoint.ByteSize(p.DType, p.Shape); err != nil {
				return nil, nil, err
			}
			q.infos[p.Name], q.of[p.Name] = p.Info, quantOf{p, t, f.unit}
		}
	}
	if len(q.of) == 0 {
		return nil, nil, fmt.Errorf("no matrix can be kept as %s: the model has no linear layers that are [out in] and of whole blocks", form)
	}
	isHead := func(module string) bool { return module == headModule || strings.HasSuffix(module, "."+headModule) }
	if !slices.ContainsFunc(keep, isHead) && !slices.ContainsFunc(slices.Collect(maps.Keys(q.of)), func(part string) bool {
		return strings.Contains(part, headModule+".")
	}) {
		keep = append(keep, headModule) // a tied head is a module without a tensor of its own
	}
	if config, err = json.Marshal(f.config(keep)); err != nil {
		return nil, nil, err
	}
	return q, config, nil
}

// Tensors implements Source.
func (q *quantized) Tensors() []checkpoint.Info { return checkpoint.SortedInfos(q.infos) }

// ReadRanges implements Source.
func (q *quantized) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	p, ok := q.of[name]
	if !ok {
		return q.Source.ReadRanges(name, ranges, dst)
	}
	n, err := checkpoint.BoxBytes(p.DType, p.Shape, ranges)
	if err != nil || n != int64(len(dst)) {
		return fmt.Errorf("%s: ranges %v take %d bytes, the buffer has %d: %w", name, ranges, n, len(dst), err)
	}
	most, err := q.greatest(p)
	if err != nil {
		return err
	}
	if p.rows == 0 {
		p.fill(dst, nil, p.matrix.Shape[1], most)
		return nil
	}
	for a, r := range ranges[1:] {
		if r != [2]int{0, p.Shape[a+1]} {
			return fmt.Errorf("%s: only whole rows of what is rounded are read", name)
		}
	}
	return q.fill(p, ranges[0], dst, most)
}

// fill reads rows of a part: whole units of the matrix's rows are rounded, a few at a time.
func (q *quantized) fill(p quantOf, rows [2]int, dst []byte, most float32) error {
	all, cols := p.matrix.Shape[0], p.matrix.Shape[1]
	row := int(p.Bytes) / p.Shape[0]
	unit := max(p.unit, p.rows)
	step := max(1, gridCells/cols/unit) * unit
	read := &finder{src: q.Source}
	for at := rows[0] * p.rows / unit * unit; at < min(all, rows[1]*p.rows); at += step {
		end := min(at+step, all)
		w, err := read.floats(p.matrix, [2]int{at, end}, [2]int{0, cols})
		if err != nil {
			return err
		}
		part := make([]byte, ceilDiv(end-at, p.rows)*row)
		p.quantPart.fill(part, w, cols, most)
		first := at / p.rows
		lo, hi := max(rows[0], first), min(rows[1], first+len(part)/row)
		if lo < hi {
			copy(dst[(lo-rows[0])*row:], part[(lo-first)*row:(hi-first)*row])
		}
	}
	return nil
}

// together are matrices of a layer that engines put into one, of which they take one scale of the whole (vLLM's NVFP4: the greatest).
var together = [][]string{{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"w1", "w3"}, {"q_a_proj", "kv_a_proj_with_mqa"}}

// fusedAs is the same for matrices that engines put into one.
func fusedAs(name string) string {
	module := strings.TrimSuffix(name, ".weight")
	at := strings.LastIndexByte(module, '.') + 1
	if i := slices.IndexFunc(together, func(g []string) bool { return slices.Contains(g, module[at:]) }); i >= 0 {
		return module[:at] + together[i][0]
	}
	return name
}

// greatest is the greatest magnitude of a part's matrix and of those that engines put into one with it; a number that is not finite is an
// error.
func (q *quantized) greatest(p quantOf) (most float32, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.fused[fusedAs(p.matrix.Name)] {
		one, err := q.greatestOf(m)
		if most = max(most, one); err != nil {
			return 0, err
		}
	}
	return most, nil
}

func (q *quantized) greatestOf(m checkpoint.Info) (float32, error) {
	if most, ok := q.most[m.Name]; ok {
		return most, nil
	}
	read, most := &finder{src: q.Source}, float32(0)
	rows, cols := m.Shape[0], m.Shape[1]
	step := max(1, gridCells/cols)
	for at := 0; at < rows; at += step {
		w, err := read.floats(m, [2]int{at, min(at+step, rows)}, [2]int{0, cols})
		if err != nil {
			return 0, err
		}
		if most = max(most, magnitude(w)); math.IsInf(float64(most), 0) || most != most {
			return 0, &checkpoint.Error{Tensor: m.Name, Fault: checkpoint.Malformed,
				Why: "it has numbers that are not finite, which few bits have not"}
		}
	}
	q.most[m.Name] = most
	return most, nil
}

// magnitude is the greatest of some numbers, NaN if one is.
func magnitude(w []float32) (most float32) {
	for _, x := range w {
		most = max(most, float32(math.Abs(float64(x))))
	}
	return most
}

// putFloat writes a scale in a type, and gives the number that it is then.
func putFloat(d checkpoint.DType, dst []byte, x float32) float32 {
	switch d {
	case checkpoint.F32:
		putWord(dst, 0, math.Float32bits(x))
		return x
	case checkpoint.BF16:
		binary.LittleEndian.PutUint16(dst, tensor.BF16Bits(x))
		return tensor.BF16Value(tensor.BF16Bits(x))
	case checkpoint.F16:
		binary.LittleEndian.PutUint16(dst, tensor.F16Bits(x))
		return tensor.F16Value(tensor.F16Bits(x))
	}
	panic("checkpoint: a scale of " + string(d))
}

// scaleType is the type of scales beside a matrix: its own if that is of 16 bits.
func scaleType(m checkpoint.Info) checkpoint.DType {
	if m.DType == checkpoint.BF16 || m.DType == checkpoint.F16 {
		return m.DType
	}
	return checkpoint.F32
}

// whole8 is x over scale as an integer in [low, high], to nearest, ties to even.
func whole8(x, scale, low, high float32) int8 {
	if scale == 0 {
		return 0
	}
	return int8(min(max((x/scale)+wholeMagic-wholeMagic, low), high))
}

// toE4M3 is the byte of FP8 that is nearest to x, of two the even one; what is beyond the greatest is that.
func toE4M3(x float32) byte {
	a := float32(math.Abs(float64(x)))
	i, _ := slices.BinarySearch(e4m3[:127], a)
	if i == 127 {
		i = 126
	}
	if i > 0 {
		below, above := a-e4m3[i-1], e4m3[i]-a
		if below < above || below == above && i%2 == 1 {
			i--
		}
	}
	if math.Signbit(float64(x)) {
		i |= 128
	}
	return byte(i)
}

// toE2M1 is the number of four bits that is nearest to x, of two the even one.
func toE2M1(x float32) byte {
	a := float32(math.Abs(float64(x)))
	best := 0
	for i := 1; i < 8; i++ {
		if below, above := a-e2m1[best], e2m1[i]-a; above < below || above == below && i%2 == 0 {
			best = i
		}
	}
	if math.Signbit(float64(x)) {
		best |= 8
	}
	return byte(best)
}

func putWord(dst []byte, i int, v uint32) { binary.LittleEndian.PutUint32(dst[4*i:], v) }
