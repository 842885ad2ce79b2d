package calibrate

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"gonum.org/v1/gonum/mat"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/family"
)

// Method is a way of choosing codes. Each has a file of its own that registers it; its layout is that of
// the same name in package checkpoint.
// In the words of the field: calibration of quantization.
type Method struct {
	Name, Doc, Source string
	// rounded says that later blocks read what rounded weights give.
	rounded bool
	// Orders says that columns may take their turns in another order (Job.ActOrder).
	Orders bool
	block  func(b *blockOf) error
}

var methods []Method

func register(m Method) struct{} {
	methods = append(methods, m)
	slices.SortFunc(methods, func(a, b Method) int { return strings.Compare(a.Name, b.Name) })
	return struct{}{}
}

// Methods are those that there are, by name.
func Methods() []Method { return slices.Clone(methods) }

// Job is a model of text to be rounded.
type Job struct {
	Model   *family.Model
	Weights *family.Weights   // gives parameters
	Source  checkpoint.Source // of the same tensors, as numbers
	Linear  map[string]bool   // tensors of the checkpoint that are rounded: Model.Linears
	Text    [][]int32         // sequences of tokens
	Group   int               // columns that share a scale
	// ActOrder has a method whose Orders says so take columns by how great what is read is.
	ActOrder bool
	Backend  kernels.Backend
	infos    map[string]checkpoint.Info
	param    map[string]*grad.Param
}

// Result is what a method has chosen.
type Result struct {
	Matrices map[string]*quant.Coded // by the names of the checkpoint's tensors
	Changed  map[string][]float32    // tensors that have other numbers
	Left     []string                // tensors that stay, since no token reached them or they do not fit
}

// blockOf is a block whose inputs are known.
type blockOf struct {
	job    *Job
	run    *grad.Runner
	inputs []*inputs
	params map[string][]string // of tensors of the checkpoint
	loaded map[string]*matrix
	scaled map[*inputs][]float32
	out    *Result
}

// matrix is a tensor [n k] of the checkpoint with its codes.
type matrix struct {
	w     *mat.Dense
	coded *quant.Coded
}

// Run chooses codes for a job's linear layers by a method.
func Run(j Job, method string) (*Result, error) {
	i := slices.IndexFunc(methods, func(m Method) bool { return m.Name == method })
	if i < 0 {
		return nil, fmt.Errorf("there is no way %q to round by what is read", method)
	}
	if j.Model.Vision != nil || !j.Model.Task().Writes {
		return nil, fmt.Errorf("%s is no model of text alone, which are calibrated", j.Model.Family)
	}
	w := newWalk(&j)
	defer w.close()
	last := len(w.stages)
	for last > 0 && !w.rounds(last-1) { // what comes behind gives nothing that is asked for, as the head
		last--
	}
	for n := range last {
		if err := w.stage(n, &methods[i]); err != nil {
			return nil, err
		}
	}
	for name := range j.Linear {
		if w.out.Matrices[name] == nil {
			w.out.Left = append(w.out.Left, name)
		}
	}
	slices.Sort(w.out.Left)
	if len(w.out.Matrices) == 0 {
		return nil, fmt.Errorf("no matrix has a place in groups of %d columns: of a row's columns that is to "+
			"be a divisor, and 8 one of rows and columns", j.Group)
	}
	return w.out, nil
}

// walk goes through the blocks.
type walk struct {
	job    *Job
	stages []family.Stage
	cap    *capture
	run    *grad.Runner
	states []map[string]*tensor.Tensor // ports of each sequence
	last   map[string]int              // the last stage that takes a port
	out    *Result
}

func newWalk(j *Job) *walk {
	cuts := make([]int, len(j.Model.Blocks)+1)
	for i := range cuts {
		cuts[i] = i
	}
	w := &walk{job: j, stages: j.Model.Cut(cuts), cap: &capture{Backend: j.Backend},
		states: make([]map[string]*tensor.Tensor, len(j.Text)), last: map[string]int{},
		out: &Result{Matrices: map[string]*quant.Coded{}, Changed: map[string][]float32{}}}
	pool := tensor.NewPool("calibrate", 0)
	w.run = &grad.Runner{Backend: w.cap, Pool: pool, Host: pool, Params: map[string]*tensor.Tensor{},
		Grads: map[string]*tensor.Tensor{}}
	for i := range w.states {
		w.states[i] = map[string]*tensor.Tensor{}
	}
	for i, st := range w.stages {
		for _, f := range st.In {
			w.last[f.Port] = i
		}
	}
	j.infos, j.param = map[string]checkpoint.Info{}, map[string]*grad.Param{}
	for _, t := range j.Source.Tensors() {
		j.infos[t.Name] = t
	}
	for _, p := range j.Model.Params(nil) {
		j.param[p.Name] = p
	}
	return w
}

func (w *walk) close() {
	for _, ports := range w.states {
		for _, t := range ports {
			t.Release()
		}
	}
	w.drop()
}

// drop gives a block's weights back.
func (w *walk) drop() {
	for name, t := range w.run.Params {
		t.Release()
		delete(w.run.Params, name)
	}
}

// rounds reports whether a block has weights that are rounded.
func (w *walk) rounds(n int) bool {
	return slices.ContainsFunc(w.trace(n, len(w.job.Text[0])).Params, func(p *grad.Param) bool {
		return w.job.Linear[w.job.tensor(p.Name)]
	})
}

// stage rounds the weights of a block.
func (w *walk) stage(n int, m *Method) error {
	b := &blockOf{job: w.job, run: w.run, params: map[string][]string{}, loaded: map[string]*matrix{},
		scaled: map[*inputs][]float32{}, out: w.out}
	tr := w.trace(n, len(w.job.Text[0]))
	var linear []string
	for _, p := range tr.Params {
		t, err := w.run.Pool.New(p.Name, tensor.F32, p.Shape...)
		if err != nil {
			return err
		}
		w.run.Params[p.Name] = t
		if ok, err := w.job.Weights.Read(p, family.Whole(p), t.F32()); err != nil || !ok {
			return fmt.Errorf("no values for parameter %s: %w", p.Name, err)
		}
		if name := w.job.tensor(p.Name); w.job.Linear[name] {
			b.params[name] = append(b.params[name], p.Name)
			linear = append(linear, p.Name)
		}
	}
	defer w.drop()
	w.cap.begin(w.run.Params, func(name string) bool { return slices.Contains(linear, name) })
	given, err := w.through(n)
	if err != nil {
		return err
	}
	b.inputs = w.cap.all
	if err := m.block(b); err != nil {
		return err
	}
	for name, x := range b.loaded {
		if x != nil {
			w.out.Matrices[name] = x.coded
		}
	}
	if m.rounded && len(b.loaded) > 0 {
		for _, ports := range given {
			for _, t := range ports {
				t.Release()
			}
		}
		b.settle()
		w.cap.begin(nil, nil)
		if given, err = w.through(n); err != nil {
			return err
		}
	}
	for i, ports := range given {
		for name, t := range ports {
			if old := w.states[i][name]; old != nil {
				old.Release()
			}
			w.states[i][name] = t
		}
		for name, t := range w.states[i] {
			if w.last[name] <= n {
				t.Release()
				delete(w.states[i], name)
			}
		}
	}
	return nil
}

// trace records a block for sequences of some length.
func (w *walk) trace(n, rows int) *grad.Trace {
	return w.job.Model.Record(grad.Options{DType: tensor.F32, NoGrad: true},
		block.Rec{Shape: block.Shape{Rows: rows}, Logits: true}, w.stages[n])
}

// through runs a block on every sequence and gives what it gives.
func (w *walk) through(n int) ([]map[string]*tensor.Tensor, error) {
	out := make([]map[string]*tensor.Tensor, len(w.states))
	for i, ids := range w.job.Text {
		rows := len(ids)
		tr := w.trace(n, rows)
		positions := make([]int32, rows)
		for i := range positions {
			positions[i] = int32(i)
		}
		cu := []int32{0, int32(rows)}
		all := map[string]*tensor.Tensor{"ids": tensor.Of(tensor.I32, ids, rows),
			"targets":   tensor.Of(tensor.I32, make([]int32, rows), rows),
			"positions": tensor.Of(tensor.I32, positions, rows), "cu_seqlens": tensor.Of(tensor.I32, cu, 2),
			"cu_seqlens_k": tensor.Of(tensor.I32, cu, 2)}
		data, in := map[string]*tensor.Tensor{}, map[string]*tensor.Tensor{}
		for _, name := range tr.Data {
			if data[name] = all[name]; all[name] == nil {
				return nil, fmt.Errorf("%s reads %s, which text alone has not", w.job.Model.Family, name)
			}
		}
		for _, p := range tr.In {
			in[p.Name] = w.states[i][p.Name]
			in[p.Name].Retain()
		}
		w.cap.frame()
		f := w.run.NewFrame(tr, data, in, nil)
		if _, err := w.run.Step(f, grad.F, 0, nil); err != nil {
			f.Drop()
			return nil, err
		}
		out[i] = f.Outputs()
		if z := out[i]["logits"]; z != nil {
			z.Release()
			delete(out[i], "logits")
		}
		for _, t := range out[i] {
			w.cap.given(t)
		}
		f.Close()
		w.run.Close() // the next trace has constants of its own
	}
	return out, nil
}

// tensors are those of the checkpoint whose layers read inputs, in order.
func (b *blockOf) tensors(in *inputs) (out []string) {
	for _, p := range in.names {
		if name := b.job.tensor(p); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// matrix reads a tensor to be rounded; nil is that its shape has no place in the layout.
func (b *blockOf) matrix(name string) (*matrix, error) {
	if m, ok := b.loaded[name]; ok {
		return m, nil
	}
	shape := b.job.infos[name].Shape
	coded, fits := quant.NewCoded(shape[0], shape[1], b.job.Group)
	if !fits {
		b.loaded[name] = nil
		return nil, nil
	}
	v, err := b.job.floats(name)
	if err != nil {
		return nil, err
	}
	wide := make([]float64, len(v))
	for i, x := range v {
		if wide[i] = float64(x); !(math.Abs(wide[i]) < tensorMost) {
			return nil, &checkpoint.Error{Tensor: name, Fault: checkpoint.Malformed,
				Why: fmt.Sprintf("it has %v, and a scale of float16 goes to %v", x, tensorMost)}
		}
	}
	b.loaded[name] = &matrix{w: mat.NewDense(shape[0], shape[1], wide), coded: coded}
	return b.loaded[name], nil
}

// tensorMost is above what a float16 scale can give.
const tensorMost = 65504

// settle sets the block's parameters to the numbers of their codes.
func (b *blockOf) settle() {
	for name, params := range b.params {
		m := b.loaded[name]
		if m == nil {
			continue
		}
		for _, p := range params {
			t := b.run.Params[p]
			k := m.coded.Cols
			for i, row := range b.job.rows(p) {
				m.coded.Row(row, t.F32()[i*k:(i+1)*k])
			}
		}
	}
}

// tensor is the checkpoint's that a parameter is part of.
func (j *Job) tensor(param string) string { return j.Model.Source(param).Name }

// rows are those of the checkpoint's tensor that are a parameter's.
func (j *Job) rows(param string) (out []int) {
	all := j.Model.Source(param).Rows
	if all == nil {
		all = [][2]int{{0, j.param[param].Shape[0]}}
	}
	for _, r := range all {
		for i := r[0]; i < r[1]; i++ {
			out = append(out, i)
		}
	}
	return out
}

// bias is the parameter that a linear layer adds, "" for none.
func (j *Job) bias(weight string) string {
	name := strings.TrimSuffix(weight, ".weight") + ".bias"
	if j.param[name] == nil {
		return ""
	}
	return name
}

// floats reads a tensor of the checkpoint.
func (j *Job) floats(name string) ([]float32, error) {
	t, ok := j.infos[name]
	d, known := map[checkpoint.DType]tensor.DType{checkpoint.F32: tensor.F32, checkpoint.F16: tensor.F16,
		checkpoint.BF16: tensor.BF16}[t.DType]
	if !ok || !known {
		return nil, &checkpoint.Error{Tensor: name, Fault: checkpoint.Malformed,
			Why: fmt.Sprintf("%s is no type to be rounded", t.DType)}
	}
	raw := make([]byte, t.Bytes)
	ranges := make([][2]int, len(t.Shape))
	n := 1
	for i, x := range t.Shape {
		ranges[i] = [2]int{0, x}
		n *= x
	}
	if err := j.Source.ReadRanges(name, ranges, raw); err != nil {
		return nil, err
	}
	out := make([]float32, n)
	tensor.Widen(d, raw, out)
	return out, nil
}

// forRows runs f for rows, several at a time.
func forRows(n int, f func(row int)) {
	var wg sync.WaitGroup
	each := max(1, (n+4*runtime.GOMAXPROCS(0)-1)/(4*runtime.GOMAXPROCS(0)))
	for at := 0; at < n; at += each {
		wg.Go(func() {
			for r := at; r < min(at+each, n); r++ {
				f(r)
			}
		})
	}
	wg.Wait()
}

// Names are those of methods, sorted.
func Names() (out []string) {
	for _, m := range methods {
		out = append(out, m.Name)
	}
	return out
}
