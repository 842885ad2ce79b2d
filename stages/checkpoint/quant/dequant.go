package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// packing is a way of keeping matrices in few bits. Each has a file of its own that registers it.
type packing struct {
	name   string
	source string // where it is described
	// find makes a matrix of t and what lies beside it, if t is the first tensor of one that is kept in this
	// way, and gives nil for any other. It takes what it uses out of sight.
	find func(f *finder, t checkpoint.Info) (*matrix, error)
}

// packings are all ways, sorted by name: the order in which files are initialized must not show.
var packings []packing

func registerPacking(p packing) struct{} {
	packings = append(packings, p)
	slices.SortFunc(packings, func(a, b packing) int { return strings.Compare(a.name, b.name) })
	return struct{}{}
}

// matrix is a tensor that is shown as float32 in place of those that it is made of.
type matrix struct {
	name  string
	shape []int
	grid  *Grid // nil where read does the work
	read  func(ranges [][2]int, dst []byte) error
}

// finder looks for the matrices of a source.
type finder struct {
	src    checkpoint.Source
	all    map[string]checkpoint.Info
	path   string
	config quantConfig
	used   map[string]bool
}

// take is a tensor that is not shown any more; without one of the name it is the zero Info.
func (f *finder) take(name string) checkpoint.Info {
	t, ok := f.all[name]
	if ok {
		f.used[name] = true
	}
	return t
}

// misshapen is the error of a tensor that does not fit its matrix.
func (f *finder) misshapen(name, format string, args ...any) error {
	return &checkpoint.Error{File: f.path, Tensor: name, Fault: checkpoint.Misshapen, Why: fmt.Sprintf(format, args...)}
}

// floats reads a box of a tensor of floating-point numbers as float32.
func (f *finder) floats(t checkpoint.Info, ranges ...[2]int) ([]float32, error) {
	size, decode := checkpoint.FloatDecoder(t.DType)
	if decode == nil {
		return nil, f.misshapen(t.Name, "%s %v, want floating-point numbers", t.DType, t.Shape)
	}
	raw := make([]byte, checkpoint.BoxLen(ranges)*size)
	if err := f.src.ReadRanges(t.Name, ranges, raw); err != nil {
		return nil, err
	}
	out := make([]float32, len(raw)/size)
	for i := range out {
		out[i] = float32(decode(raw[i*size:]))
	}
	return out, nil
}

// words reads a box of a tensor of 32-bit integers.
func (f *finder) words(t checkpoint.Info, ranges ...[2]int) ([]uint32, error) {
	raw := make([]byte, 4*checkpoint.BoxLen(ranges))
	if err := f.src.ReadRanges(t.Name, ranges, raw); err != nil {
		return nil, err
	}
	out := make([]uint32, len(raw)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return out, nil
}

// bytes reads a box of a tensor of bytes.
func (f *finder) bytes(t checkpoint.Info, ranges ...[2]int) ([]byte, error) {
	raw := make([]byte, checkpoint.BoxLen(ranges))
	return raw, f.src.ReadRanges(t.Name, ranges, raw)
}

// dequantized reads quantized matrices as float32.
type dequantized struct {
	checkpoint.Source
	infos map[string]checkpoint.Info // by name, as they are shown
	of    map[string]*matrix
}

// Dequantized shows matrices that src keeps in few bits as float32, which is exact but for the one rounding
// of a number times its scale, or what a format's file says. A source without any is given back as it is.
// path is that of a directory whose config.json, if it has one, says what names and shapes of tensors do
// not. What cannot be read is an *Error.
func Dequantized(src checkpoint.Source, path string) (checkpoint.Source, error) {
	f := &finder{src: src, all: map[string]checkpoint.Info{}, path: path, used: map[string]bool{}}
	tensors := src.Tensors()
	for _, t := range tensors {
		f.all[t.Name] = t
	}
	if err := f.config.read(path); err != nil {
		return nil, err
	}
	d := &dequantized{Source: src, infos: map[string]checkpoint.Info{}, of: map[string]*matrix{}}
	for _, t := range tensors {
		for _, p := range packings {
			m, err := p.find(f, t)
			if err != nil {
				return nil, err
			}
			if m == nil {
				continue
			}
			if d.of[m.name] != nil {
				return nil, &checkpoint.Error{File: path, Tensor: m.name, Fault: checkpoint.Extra,
					Why: "it is kept in few bits in two ways"}
			}
			d.of[m.name] = m
			d.infos[m.name] = checkpoint.Info{Name: m.name, DType: checkpoint.F32, Shape: m.shape,
				Bytes: 4 * int64(checkpoint.BoxLen(checkpoint.Whole(m.shape)))}
			break
		}
	}
	if len(d.of) == 0 {
		return src, nil
	}
	for _, t := range tensors {
		if f.used[t.Name] || d.activations(t.Name) {
			continue
		}
		if d.of[t.Name] != nil {
			return nil, &checkpoint.Error{File: path, Tensor: t.Name, Fault: checkpoint.Extra,
				Why: "it is here whole and in few bits"}
		}
		d.infos[t.Name] = t
	}
	return d, nil
}

// activationTails end the names of what engines that serve keep of a layer's inputs, outputs, keys and
// values: none of them is of a weight.
var activationTails = []string{"input_scale", "input_zero_point", "input_global_scale", "output_scale",
	"output_zero_point", "k_scale", "v_scale", "activation_scale"}

// activations reports whether a tensor says how activations of a layer are rounded whose weight is kept in
// few bits, or of one beside such layers.
func (d *dequantized) activations(name string) bool {
	at := strings.LastIndexByte(name, '.')
	return slices.Contains(activationTails, name[at+1:]) || strings.HasSuffix(name, "_activation_scale") // of all experts
}

// Tensors implements Source.
func (d *dequantized) Tensors() []checkpoint.Info { return checkpoint.SortedInfos(d.infos) }

// QuantizedAt reports whether a source of Dequantized made a tensor from quantized numbers.
func QuantizedAt(src checkpoint.Source, name string) bool {
	d, ok := src.(*dequantized)
	return ok && d.of[name] != nil
}

// GridAt is how a source of Dequantized keeps a matrix, nil for one that it does not keep as codes.
func GridAt(src checkpoint.Source, name string) *Grid {
	if d, ok := src.(*dequantized); ok && d.of[name] != nil {
		return d.of[name].grid
	}
	return nil
}

// ReadRanges implements Source.
func (d *dequantized) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	m := d.of[name]
	if m == nil {
		return d.Source.ReadRanges(name, ranges, dst)
	}
	for _, r := range ranges {
		if r[0] >= r[1] {
			return nil
		}
	}
	if m.grid != nil {
		return m.grid.floats(ranges[0], ranges[1], dst)
	}
	return m.read(ranges, dst)
}

// Grid is a matrix of codes of few bits: each number is (Table[code] - zero) · scale.
type Grid struct {
	Rows, Cols int
	Table      []float32 // of 1<<bits numbers
	// Group are the neighbouring columns of a row that share scale and zero, counted from its beginning; 0
	// where groups do not lie so.
	Group int
	Zeros bool    // groups have zeros, else those are 0
	Times float32 // what numbers are multiplied with behind that; 0 is 1
	// Read fills a box's codes, scales and, with Zeros, zeros, each row-major.
	Read func(rows, cols [2]int, codes []uint8, scales, zeros []float32) error
}

// gridCells bounds what a grid reads at once.
const gridCells = 1 << 19

// Each calls f for runs of whole rows of a box, in order, with what Read gives of them.
func (g *Grid) Each(rows, cols [2]int, f func(rows [2]int, codes []uint8, scales, zeros []float32)) error {
	width := cols[1] - cols[0]
	step := max(1, gridCells/width)
	step = min(step, rows[1]-rows[0])
	codes, scales, zeros := make([]uint8, step*width), make([]float32, step*width), []float32(nil)
	if g.Zeros {
		zeros = make([]float32, step*width)
	}
	for at := rows[0]; at < rows[1]; at += step {
		r := [2]int{at, min(at+step, rows[1])}
		n := (r[1] - r[0]) * width
		z := zeros
		if g.Zeros {
			z = zeros[:n]
		}
		if err := g.Read(r, cols, codes[:n], scales[:n], z); err != nil {
			return err
		}
		f(r, codes[:n], scales[:n], z)
	}
	return nil
}

// floats reads a box as float32.
func (g *Grid) floats(rows, cols [2]int, dst []byte) error {
	at := 0
	return g.Each(rows, cols, func(_ [2]int, codes []uint8, scales, zeros []float32) {
		for i, c := range codes {
			x := g.Table[c]
			if zeros != nil {
				x -= zeros[i]
			}
			if x *= scales[i]; g.Times != 0 {
				x *= g.Times
			}
			binary.LittleEndian.PutUint32(dst[at:], math.Float32bits(x))
			at += 4
		}
	})
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }

// wholeNumbers are the tables of codes of so many bits that stand for code - less.
func wholeNumbers(bits, less int) []float32 {
	out := make([]float32, 1<<bits)
	for i := range out {
		out[i] = float32(i - less)
	}
	return out
}

// spread sets dst, a box's, to the numbers of blocks of rows and columns: from has those of the blocks that
// the box meets, so many a row.
func spread(dst, from []float32, rows, cols [2]int, blockRows, blockCols int) {
	each := ceilDiv(cols[1], blockCols) - cols[0]/blockCols
	i := 0
	for r := rows[0]; r < rows[1]; r++ {
		row := from[(r/blockRows-rows[0]/blockRows)*each:]
		for c := cols[0]; c < cols[1]; c++ {
			dst[i] = row[c/blockCols-cols[0]/blockCols]
			i++
		}
	}
}

// blocks are those of a size that a range meets.
func blocks(r [2]int, size int) [2]int { return [2]int{r[0] / size, ceilDiv(r[1], size)} }
