package quant

import (
	"encoding/binary"
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
)

// addition is what an adapter adds to a matrix [out in] of a model: scale·B·A, and with a magnitude for each
// row it gives the rows of the sum that length (arXiv:2402.09353).
type addition struct {
	base       checkpoint.Info
	down, up   []float32 // A [rank in], B [out rank]
	magnitude  []float32 // nil for none
	rank       int
	out, in    int
	scale      float64
	transposed bool // the model keeps the matrix as [in out]
}

// merging is a model with an adapter added to it.
type merging struct {
	checkpoint.Source
	added    map[string]*addition
	replaced map[string]string // names in the adapter of tensors that it has whole
	adapter  checkpoint.Source
}

// Merge shows base with the PEFT adapter of a directory added: matrices that have additions in their own
// type, rounded once, and tensors that the adapter has whole in place of the base's. nameOf gives the
// base's name of the weight of a module of transformers', "" where there is none. Every tensor of the
// adapter is used, or is an error.
func Merge(base checkpoint.Source, dir string, nameOf func(module string) string) (checkpoint.Source, error) {
	c, err := readMergeConfig(dir)
	if err != nil {
		return nil, err
	}
	adapter, err := checkpoint.OpenAdapter(dir)
	if err != nil {
		return nil, err
	}
	m := &merging{Source: base, added: map[string]*addition{}, replaced: map[string]string{},
		adapter: adapter}
	if err := m.read(c, adapter, dir, nameOf); err != nil {
		adapter.Close()
		return nil, err
	}
	return m, nil
}

// Close closes both.
func (m *merging) Close() error {
	err := m.adapter.Close()
	if of := m.Source.Close(); err == nil {
		err = of
	}
	return err
}

// read takes the tensors of the adapter.
func (m *merging) read(c *mergeConfig, adapter *checkpoint.File, dir string, nameOf func(module string) string) error {
	have := map[string]checkpoint.Info{}
	for _, t := range m.Source.Tensors() {
		have[t.Name] = t
	}
	named := func(module string) checkpoint.Info {
		for _, name := range []string{module + ".weight", nameOf(module)} {
			if t, ok := have[name]; ok {
				return t
			}
		}
		return checkpoint.Info{}
	}
	for _, t := range adapter.Tensors() {
		name, ok := strings.CutPrefix(t.Name, checkpoint.AdapterPrefix)
		if !ok {
			return &checkpoint.Error{File: adapter.Path, Tensor: t.Name, Fault: checkpoint.Extra,
				Why: "names of PEFT begin with " + checkpoint.AdapterPrefix}
		}
		if module, up, table := additionOf(name); up != "" {
			base := named(module)
			if base.Name == "" {
				return &checkpoint.Error{File: adapter.Path, Tensor: t.Name, Fault: checkpoint.Extra,
					Why: "the base model has no weight of " + module}
			}
			if m.added[base.Name] != nil {
				return &checkpoint.Error{File: adapter.Path, Tensor: t.Name, Fault: checkpoint.Extra,
					Why: base.Name + " has another addition"}
			}
			a, err := readAddition(adapter, t, checkpoint.AdapterPrefix+up, base, c, module, table)
			if err != nil {
				return err
			}
			m.added[base.Name] = a
			continue
		}
		if strings.HasSuffix(name, loraUp) || strings.HasSuffix(name, loraTableUp) ||
			strings.Contains(name, loraMagnitude) {
			continue // taken, or found to be missing, with the other matrix
		}
		whole, ok := have[name]
		if !ok {
			whole = named(strings.TrimSuffix(name, ".weight"))
		}
		if whole.Name == "" || !slices.Equal(whole.Shape, t.Shape) {
			return &checkpoint.Error{File: adapter.Path, Tensor: t.Name, Fault: checkpoint.Extra,
				Why: fmt.Sprintf("shape %v, and the "+
					"base model has nothing of this name and shape", t.Shape)}
		}
		m.replaced[whole.Name] = t.Name
	}
	return m.matched(adapter, dir)
}

// additionOf takes the name of an addition's first matrix apart; up is the name of its second, "" for any
// other tensor.
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
func (m *merging) matched(adapter *checkpoint.File, dir string) error {
	have := map[string]bool{}
	for _, t := range adapter.Tensors() {
		have[t.Name] = true
	}
	for _, t := range adapter.Tensors() {
		for _, pair := range [][2]string{{loraUp, loraDown}, {loraTableUp, loraTableDown},
			{loraMagnitude, loraDown}, {loraMagnitude + ".weight", loraDown}} {
			if base, ok := strings.CutSuffix(t.Name, pair[0]); ok && !have[base+pair[1]] {
				return &checkpoint.Error{File: adapter.Path, Tensor: base + pair[1], Fault: checkpoint.Missing,
					Why: "the adapter has " + t.Name}
			}
		}
	}
	if len(m.added)+len(m.replaced) == 0 {
		return &checkpoint.Error{File: dir, Fault: checkpoint.Malformed, Why: "the adapter has no tensors"}
	}
	return nil
}

// readAddition reads one; t is its first matrix.
func readAddition(f *checkpoint.File, t checkpoint.Info, up string, base checkpoint.Info, c *mergeConfig, module string,
	table bool) (*addition, error) {
	second, ok := f.ByName[up]
	switch {
	case !ok:
		return nil, &checkpoint.Error{File: f.Path, Tensor: up, Fault: checkpoint.Missing, Why: "the adapter has " + t.Name}
	case len(t.Shape) != 2 || len(second.Shape) != 2 || len(base.Shape) != 2 ||
		t.Shape[0] != second.Shape[1]:
		return nil, &checkpoint.Error{File: f.Path, Tensor: t.Name, Fault: checkpoint.Misshapen,
			Why: fmt.Sprintf("%v and %v are no "+
				"addition to %s %v", t.Shape, second.Shape, base.Name, base.Shape)}
	}
	a := &addition{base: base, rank: t.Shape[0], out: second.Shape[0], in: t.Shape[1],
		transposed: c.Turned || table}
	want := []int{a.out, a.in}
	if a.transposed {
		want = []int{a.in, a.out}
	}
	if _, float := checkpoint.FloatDecoder(base.DType); !slices.Equal(base.Shape, want) || float == nil || a.rank == 0 {
		return nil, &checkpoint.Error{File: f.Path, Tensor: t.Name, Fault: checkpoint.Misshapen,
			Why: fmt.Sprintf("%v and %v are no "+
				"addition to %s %s %v", t.Shape, second.Shape, base.Name, base.DType, base.Shape)}
	}
	var err error
	if a.scale, err = c.scale(module, a.rank); err != nil {
		return nil, &checkpoint.Error{File: f.Path, Tensor: t.Name, Fault: checkpoint.Malformed, Why: "adapter configuration",
			Err: err}
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
		return nil, &checkpoint.Error{File: f.Path, Tensor: checkpoint.AdapterPrefix + module + loraMagnitude, Fault: checkpoint.Misshapen,
			Why: fmt.Sprintf("%d magnitudes for %d rows", len(a.magnitude), a.out)}
	}
	return a, nil
}

// ReadRanges implements Source.
func (m *merging) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	if from, ok := m.replaced[name]; ok {
		return m.whole(name, from, ranges, dst)
	}
	a := m.added[name]
	if a == nil {
		return m.Source.ReadRanges(name, ranges, dst)
	}
	rows, cols := ranges[0], ranges[1]
	if rows[0] >= rows[1] || cols[0] >= cols[1] {
		return nil
	}
	read := &finder{src: m.Source}
	all := cols
	if a.magnitude != nil { // the length of a row is that of all of it
		all = [2]int{0, a.in}
	}
	w, err := read.floats(a.base, rows, all)
	if err != nil {
		return err
	}
	a.add(w, rows, all)
	if a.magnitude != nil {
		w = columns(w, rows, all, cols)
	}
	return narrow(a.base.DType, w, dst)
}

// whole reads a tensor that the adapter has whole, in the base's type.
func (m *merging) whole(name, from string, ranges [][2]int, dst []byte) error {
	read := &finder{src: m.adapter}
	v, err := read.floats(m.adapter.(*checkpoint.File).ByName[from], ranges...)
	if err != nil {
		return err
	}
	for _, t := range m.Source.Tensors() {
		if t.Name == name {
			return narrow(t.DType, v, dst)
		}
	}
	return nil
}

// columns keeps some columns.
func columns(w []float32, rows, all, cols [2]int) []float32 {
	width := all[1] - all[0]
	out := make([]float32, 0, (rows[1]-rows[0])*(cols[1]-cols[0]))
	for r := range rows[1] - rows[0] {
		out = append(out, w[r*width+cols[0]:r*width+cols[1]]...)
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

// add adds the part of a box of the tensor as it lies in the base: sums are taken in float64, and rounded
// once.
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
