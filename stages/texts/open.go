package texts

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Encoder is a text encoder with its weights on one backend. It is not safe for concurrent use.
type Encoder struct {
	*Model
	// Take is what Encode gives; Open sets Last, and pooled rows where the class has them.
	Take   Take
	dtype  tensor.DType
	run    *grad.Runner
	traces map[traceKey]*grad.Trace
}

// traceKey is what a trace depends on: the tokens of a caption and what is taken.
type traceKey struct {
	rows int
	take Take
}

// tracesMost bounds the traces that an Encoder keeps, one for each length of a caption. When there are as
// many, all are recorded anew.
const tracesMost = 128

// Open opens a folder as diffusers keeps a text encoder, with weights and states of a type: config.json, and
// model.safetensors or shards with their index. A key that is not known, and a weight that is missing, unused or of
// another shape, are errors that name it. T5's states are not float16.
func Open(dir string, b kernels.Backend, d tensor.DType) (*Encoder, error) {
	m, err := ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	if d == tensor.F16 && !m.Half {
		return nil, fmt.Errorf("%s: the states of %s are too large for f16: open it as bf16 or f32", dir, m.Class)
	}
	src, err := checkpoint.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it was read only
	w, err := m.match(dir, src)
	if err != nil {
		return nil, err
	}
	pool := tensor.NewPool("text encoder", 0)
	e := &Encoder{Model: m, Take: Take{Norm: true, Pooled: m.Pooled > 0}, dtype: d,
		traces: map[traceKey]*grad.Trace{}, run: grad.NewRunner(b, pool)}
	for _, p := range m.Params() {
		t, err := pool.New(p.Name, d, p.Shape...)
		if err == nil {
			e.run.Params[p.Name] = t
			err = w.read(p.Name, t)
		}
		if err != nil {
			e.Close()
			return nil, err
		}
	}
	return e, nil
}

// weights are the tensors of a folder by the model's names.
type weights struct {
	src checkpoint.Source
	of  map[string]checkpoint.Info
}

// match finds the file's tensor of every parameter. A second one of a parameter must be equal to the first.
func (m *Model) match(dir string, src checkpoint.Source) (*weights, error) {
	w := &weights{src: src, of: map[string]checkpoint.Info{}}
	var have []checkpoint.Info
	for _, t := range src.Tensors() {
		name := m.logical(t.Name)
		if name == "" {
			continue
		}
		if first, twice := w.of[name]; twice {
			if err := w.equal(dir, first, t); err != nil {
				return nil, err
			}
			continue
		}
		w.of[name] = t
		t.Name = name
		have = append(have, t)
	}
	var want []checkpoint.Info
	for _, p := range m.Params() {
		want = append(want, checkpoint.Info{Name: p.Name, Shape: p.Shape})
	}
	return w, checkpoint.Match(dir, want, have)
}

// equal refuses two tensors for one parameter that differ.
func (w *weights) equal(dir string, a, b checkpoint.Info) error {
	differ := &checkpoint.Error{File: filepath.Join(dir, b.File), Tensor: b.Name, Fault: checkpoint.Extra,
		Why: fmt.Sprintf("it is another name of %s, and the two are not equal", a.Name),
		Try: "save the encoder anew with transformers"}
	if a.DType != b.DType || a.Bytes != b.Bytes || len(a.Shape) == 0 || len(b.Shape) != len(a.Shape) {
		return differ
	}
	for from := 0; from < a.Shape[0]; from += rowsAtOnce {
		to := min(a.Shape[0], from+rowsAtOnce)
		var raw [2][]byte
		for i, t := range []checkpoint.Info{a, b} {
			raw[i] = make([]byte, a.Bytes/int64(a.Shape[0])*int64(to-from))
			if err := w.src.ReadRanges(t.Name, rowsOfTensor(t.Shape, from, to), raw[i]); err != nil {
				return err
			}
		}
		if string(raw[0]) != string(raw[1]) {
			return differ
		}
	}
	return nil
}

// rowsAtOnce bounds how much of a tensor is held beside it while it is read: 4096 rows of the widest
// embedding are 64 MiB in float32.
const rowsAtOnce = 4096

// rowsOfTensor is a box of whole rows.
func rowsOfTensor(shape []int, from, to int) [][2]int {
	box := make([][2]int, len(shape))
	for i, n := range shape {
		box[i] = [2]int{0, n}
	}
	box[0] = [2]int{from, to}
	return box
}

// read fills a parameter, a few rows at a time.
func (w *weights) read(name string, to *tensor.Tensor) error {
	info := w.of[name]
	from, err := tensor.ParseDType(strings.ToLower(string(info.DType)))
	if err != nil || !from.Float() {
		return &checkpoint.Error{File: info.File, Tensor: info.Name, Fault: checkpoint.Misshapen,
			Why: fmt.Sprintf("dtype %s, want F32, F16, BF16 or F64", info.DType),
			Try: "convert it with transformers: save_pretrained after .to(torch.bfloat16)"}
	}
	row := to.Len() / info.Shape[0]
	for at := 0; at < info.Shape[0]; at += rowsAtOnce {
		n := min(rowsAtOnce, info.Shape[0]-at)
		raw := make([]byte, n*row*from.Size())
		if err := w.src.ReadRanges(info.Name, rowsOfTensor(info.Shape, at, at+n), raw); err != nil {
			return err
		}
		if from != to.DType {
			wide := make([]float32, n*row)
			tensor.Widen(from, raw, wide)
			raw = make([]byte, n*row*to.DType.Size())
			tensor.Narrow(to.DType, wide, raw)
		}
		part := to.RowSlice(at, at+n)
		kernels.Write(part, raw)
		part.Release()
	}
	return nil
}

// Close gives the weights back.
func (e *Encoder) Close() {
	e.forget()
	for name, t := range e.run.Params {
		t.Release()
		delete(e.run.Params, name)
	}
}

// forget drops the traces, and their constants from a device.
func (e *Encoder) forget() {
	clear(e.traces)
	e.run.Close()
}
