package quant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Ends of the names of what PEFT keeps of an addition.
const (
	loraDown      = ".lora_A.weight"
	loraUp        = ".lora_B.weight"
	loraTableDown = ".lora_embedding_A"
	loraTableUp   = ".lora_embedding_B"
	loraMagnitude = ".lora_magnitude_vector"
	loraBias      = ".lora_B.bias"
)

// addition is what an adapter adds to a matrix [out in] of a model: scale·B·A, and with a magnitude for each
// row it gives the rows of the sum that length (arXiv:2402.09353).
type addition struct {
	down, up   []float32 // A [rank in], B [out rank]
	magnitude  []float32 // nil for none
	rank       int
	out, in    int
	scale      float64
	transposed bool // the model keeps the matrix as [in out]
}

// Base is how the model that an adapter adds to keeps its weights.
type Base struct {
	Names  map[string]string // the tensors of the weights of transformers' modules, where they are not the module's and .weight
	Turned map[string]bool   // tensors that are kept as [in out]; nil is as the adapter says
	// Table and Head are tensors of a model that has one table for both; Head is not in its files.
	Table, Head string
}

// change is what an adapter makes of a tensor of a model.
type change struct {
	checkpoint.Info
	from  string            // the base's that it begins with
	whole string            // the adapter's that is in place of that
	rows  map[int][]float32 // rows that are the adapter's
	add   *addition
	bias  []float32 // is added to a vector
}

// Merging is a model with an adapter added to it.
type Merging struct {
	checkpoint.Source
	Untied  bool // the head is no longer the table
	Words   int  // rows of a table that has others than the base's, else 0
	base    Base
	have    map[string]checkpoint.Info
	changes map[string]*change
	adapter *checkpoint.File
	config  *mergeConfig
	shared  string // the adapter's table that a tied model has for both
}

// Merge shows base with the PEFT adapter of a directory added: matrices that have additions in their own
// type, rounded once, and tensors that the adapter has whole in place of the base's. Every tensor of the
// adapter is used, or is an error. What an adapter changes of the table or of the head of a tied model alone
// parts the two, as in PEFT's forward pass: where its config has ensure_weight_tying they stay one.
func Merge(base checkpoint.Source, dir string, of Base) (*Merging, error) {
	c, err := readMergeConfig(dir)
	if err != nil {
		return nil, err
	}
	adapter, err := checkpoint.OpenAdapter(dir)
	if err != nil {
		return nil, err
	}
	m := &Merging{Source: base, base: of, have: map[string]checkpoint.Info{}, changes: map[string]*change{},
		adapter: adapter, config: c}
	for _, t := range base.Tensors() {
		m.have[t.Name] = t
	}
	table := strings.TrimSuffix(of.Table, ".weight") // PEFT ties what has one of these names
	c.Tie = c.Tie && (strings.HasSuffix(table, "embed_tokens") || strings.HasSuffix(table, "lm_head"))
	if _, own := m.have[of.Head]; own && !c.Tie {
		m.base.Table, m.base.Head = "", ""
	} else if own {
		err = m.fault(of.Head, checkpoint.Extra, "ensure_weight_tying, and the base has a head of its own")
	}
	if err == nil {
		err = m.read()
	}
	if err != nil {
		adapter.Close()
		return nil, err
	}
	return m, nil
}

// fault is an error of a tensor of the adapter's.
func (m *Merging) fault(tensor string, f checkpoint.Fault, format string, args ...any) error {
	return &checkpoint.Error{File: m.adapter.Path, Tensor: tensor, Fault: f, Why: fmt.Sprintf(format, args...)}
}

// Close closes both.
func (m *Merging) Close() error {
	return errors.Join(m.adapter.Close(), m.Source.Close())
}

// Tensors implements Source.
func (m *Merging) Tensors() (out []checkpoint.Info) {
	for _, t := range m.Source.Tensors() {
		if c := m.changes[t.Name]; c != nil {
			t.Shape = c.Shape
		}
		out = append(out, t)
	}
	if m.Untied {
		out = append(out, m.changes[m.base.Head].Info)
	}
	return out
}

// additionOf takes the name of an addition's first matrix apart; up is the name of its second, "" for any other tensor.
func additionOf(name string) (module, up string, table bool) {
	if module, ok := strings.CutSuffix(name, loraDown); ok {
		return module, module + loraUp, false
	}
	if module, ok := strings.CutSuffix(name, loraTableDown); ok {
		return module, module + loraTableUp, true
	}
	return "", "", false
}

// matched reports a second matrix without a first, and an adapter that adds nothing.
func (m *Merging) matched() error {
	for _, t := range m.adapter.Tensors() {
		for _, pair := range [][2]string{{loraUp, loraDown}, {loraTableUp, loraTableDown},
			{loraMagnitude, loraDown}, {loraMagnitude + ".weight", loraDown}} {
			base, ok := strings.CutSuffix(t.Name, pair[0])
			_, first := m.adapter.ByName[base+pair[1]]
			if _, table := m.adapter.ByName[base+loraTableDown]; ok && !first &&
				!(table && strings.HasPrefix(pair[0], loraMagnitude)) {
				return m.fault(base+pair[1], checkpoint.Missing, "the adapter has %s", t.Name)
			}
		}
	}
	if len(m.changes) == 0 {
		return &checkpoint.Error{File: m.adapter.Path, Fault: checkpoint.Malformed, Why: "the adapter has no tensors"}
	}
	return m.config.Check(m.adapter)
}

// readAddition reads one; t is its first matrix.
func (m *Merging) readAddition(t checkpoint.Info, up string, base checkpoint.Info, module string, table bool) (*addition,
	error) {
	c, f := m.config, m.adapter
	second, ok := f.ByName[up]
	if !ok {
		return nil, m.fault(up, checkpoint.Missing, "the adapter has %s", t.Name)
	}
	turned := c.Turned
	if m.base.Turned != nil { // PEFT corrects the key by the class of the layer
		turned = m.base.Turned[base.Name]
	}
	a := &addition{transposed: turned || table}
	if len(t.Shape) == 2 && len(second.Shape) == 2 && t.Shape[0] == second.Shape[1] {
		a.rank, a.out, a.in = t.Shape[0], second.Shape[0], t.Shape[1]
	}
	want := []int{a.out, a.in}
	if a.transposed {
		want = []int{a.in, a.out}
	}
	if _, float := checkpoint.FloatDecoder(base.DType); !slices.Equal(base.Shape, want) || float == nil || a.rank == 0 {
		return nil, m.fault(t.Name, checkpoint.Misshapen, "%v and %v are no addition to %s %s %v", t.Shape, second.Shape,
			base.Name, base.DType, base.Shape)
	}
	var err error
	if a.scale, err = c.scale(module, a.rank); err != nil {
		return nil, m.fault(t.Name, checkpoint.Malformed, "adapter configuration: %v", err)
	}
	read := &finder{src: f, path: f.Path}
	if a.down, err = read.floats(t, checkpoint.Whole(t.Shape)...); err != nil {
		return nil, err
	}
	if a.up, err = read.floats(second, checkpoint.Whole(second.Shape)...); err != nil {
		return nil, err
	}
	if !c.Dora {
		return a, nil
	}
	for _, tail := range []string{loraMagnitude, loraMagnitude + ".weight"} {
		m := f.ByName[checkpoint.AdapterPrefix+module+tail]
		if m.Name == "" {
			continue
		}
		if a.magnitude, err = read.floats(m, checkpoint.Whole(m.Shape)...); err != nil {
			return nil, err
		}
	}
	if len(a.magnitude) != a.out || a.transposed {
		return nil, m.fault(checkpoint.AdapterPrefix+module+loraMagnitude, checkpoint.Misshapen, "%d magnitudes for %d rows%s",
			len(a.magnitude), a.out, map[bool]string{true: " of a matrix that is kept as [in out]"}[a.transposed])
	}
	return a, nil
}

// ReadRanges implements Source.
func (m *Merging) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	c := m.changes[name]
	if c == nil {
		return m.Source.ReadRanges(name, ranges, dst)
	}
	for _, r := range ranges {
		if r[0] >= r[1] {
			return nil
		}
	}
	box := slices.Clone(ranges)
	if c.add != nil && c.add.magnitude != nil { // the length of a row is that of all of it
		box[1] = [2]int{0, c.add.in}
	}
	src, of := m.Source, m.have[c.from]
	if c.whole != "" {
		src, of = checkpoint.Source(m.adapter), m.adapter.ByName[c.whole]
	}
	w, err := (&finder{src: src}).floats(of, box...)
	if err != nil {
		return err
	}
	if c.rows != nil {
		width := box[1][1] - box[1][0]
		for r := box[0][0]; r < box[0][1]; r++ {
			if row := c.rows[r]; row != nil {
				copy(w[(r-box[0][0])*width:], row[box[1][0]:box[1][1]])
			}
		}
	}
	if c.bias != nil {
		for i := range w {
			w[i] += c.bias[box[0][0]+i]
		}
	}
	if c.add != nil {
		c.add.add(w, box[0], box[1])
		w = columns(w, box[0], box[1], ranges[1])
	}
	return narrow(c.DType, w, dst)
}

// columns keeps some columns.
func columns(w []float32, rows, all, cols [2]int) []float32 {
	width := all[1] - all[0]
	out := make([]float32, 0, (rows[1]-rows[0])*(cols[1]-cols[0]))
	for r := range rows[1] - rows[0] {
		out = append(out, w[r*width+cols[0]-all[0]:r*width+cols[1]-all[0]]...)
	}
	return out
}

// narrow writes numbers in a type of files.
func narrow(d checkpoint.DType, v []float32, dst []byte) error {
	if d == checkpoint.F64 {
		for i, x := range v {
			binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(float64(x)))
		}
		return nil
	}
	to, err := tensor.ParseDType(strings.ToLower(string(d)))
	if err != nil {
		return fmt.Errorf("an addition to a tensor of %s", d)
	}
	tensor.Narrow(to, v, dst)
	return nil
}

// Add adds scale·B·A of an adapter of a rank, A [rank in] and B [out rank], to w [out in]. With magnitudes [out] its rows get those lengths.
func Add(w, down, up, magnitude []float32, rank int, scale float64) {
	a := &addition{down: down, up: up, magnitude: magnitude, rank: rank, in: len(down) / rank, out: len(up) / rank, scale: scale}
	a.add(w, [2]int{0, a.out}, [2]int{0, a.in})
}

// add adds the part of a box of the tensor as it lies in the base: sums are taken in float64, and rounded once.
func (a *addition) add(w []float32, rows, cols [2]int) {
	width := cols[1] - cols[0]
	sums := make([]float64, width)
	for r := rows[0]; r < rows[1]; r++ {
		clear(sums)
		for k := range a.rank {
			if a.transposed { // r is an input
				x := float64(a.down[k*a.in+r])
				for c := range sums {
					sums[c] += x * float64(a.up[(cols[0]+c)*a.rank+k])
				}
				continue
			}
			x := float64(a.up[r*a.rank+k])
			for c, d := range a.down[k*a.in+cols[0] : k*a.in+cols[1]] {
				sums[c] += x * float64(d)
			}
		}
		row := w[(r-rows[0])*width : (r-rows[0]+1)*width]
		square := 0.0
		for c, x := range row {
			sums[c] = float64(x) + a.scale*sums[c]
			square += sums[c] * sums[c]
		}
		by := 1.0
		if a.magnitude != nil {
			by = float64(a.magnitude[r]) / math.Sqrt(square)
		}
		for c, x := range sums {
			row[c] = float32(by * x)
		}
	}
}
