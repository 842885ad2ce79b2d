package tenants

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/sample"
)

// Trainer trains the adapters of a generator whose adapters lie in slots. It is for one goroutine, and that
// of the generator.
type Trainer struct {
	g    *sample.Generator
	run  *grad.Runner
	m    *family.Model
	lora *block.Lora
	rows int // tokens of a piece
	most int // tokens of a microbatch of several slots
	// room is how many bytes more activations that are kept may take than those of one layer.
	room    int64
	params  []*grad.Param
	moments map[string][]*tensor.Tensor // of each parameter, as the optimizer has them
	adam    optim.Optimizer
	scratch [][]float32 // room for the moments and the weight of one parameter of one slot
	steps   []int64     // of each slot
	reach   []reach     // of each slot
	filled  []bool      // a slot has a gradient
	traces  map[shape]*grad.Trace
}

// roomShare is the share of the memory of weights, adapters, gradients and moments that kept activations take.
const roomShare = 100

// shape is a class of microbatches: all of one class have one trace.
type shape struct {
	rows     int
	backward bool
}

// New makes a trainer. A datum has at most rows tokens; work is computed in pieces of as many, and as many
// pieces together as have most tokens, or one of more.
func New(g *sample.Generator, rows, most int) (*Trainer, error) {
	m, lora := g.Model()
	t := &Trainer{g: g, run: g.Runner(), m: m, lora: lora, rows: rows, most: most,
		moments: map[string][]*tensor.Tensor{}, traces: map[shape]*grad.Trace{}}
	if lora == nil || lora.Slots == 0 {
		return nil, errors.New("tenants: the model has no slots of adapters")
	}
	if m.Spec.Mixes() {
		return nil, errors.New("tenants: adapters of models with experts are not trained side by side")
	}
	var err error
	if t.adam, err = optim.Get("adamw"); err != nil {
		return nil, err
	}
	t.steps, t.filled = make([]int64, lora.Slots), make([]bool, lora.Slots)
	t.reach = make([]reach, lora.Slots)
	for _, p := range m.Params(lora) {
		if !adapter(p.Name) {
			continue
		}
		t.params = append(t.params, p)
		list := []**tensor.Tensor{}
		t.moments[p.Name] = make([]*tensor.Tensor, len(t.adam.State))
		for i := range t.adam.State {
			list = append(list, &t.moments[p.Name][i])
		}
		var sum *tensor.Tensor
		for _, to := range append(list, &sum) {
			if *to, err = t.run.Pool.New(p.Name, tensor.F32, p.Shape...); err != nil {
				return nil, err
			}
			clear((*to).F32())
		}
		t.run.Grads[p.Name] = sum
	}
	if len(t.params) == 0 {
		return nil, errors.New("tenants: no layer has an adapter")
	}
	for _, p := range t.run.Params {
		t.room += int64(p.Size())
	}
	for _, p := range t.params {
		t.room += int64(len(t.adam.State)+1) * int64(t.run.Grads[p.Name].Size())
	}
	t.room /= roomShare
	t.scratch = make([][]float32, len(t.adam.State)+1)
	for i := range t.scratch {
		most := 0
		for _, p := range t.params {
			most = max(most, tensor.Len(p.Shape[1:]))
		}
		t.scratch[i] = make([]float32, most)
	}
	return t, nil
}

// adapter reports whether a parameter is one's.
func adapter(name string) bool {
	return strings.HasSuffix(name, ".lora_A.weight") || strings.HasSuffix(name, ".lora_B.weight")
}

// Close gives gradients and moments back.
func (t *Trainer) Close() {
	for _, p := range t.params {
		for _, m := range t.moments[p.Name] {
			m.Release()
		}
		t.run.Grads[p.Name].Release()
		delete(t.run.Grads, p.Name)
	}
}

// Check says what is wrong with work, and readies it.
func (t *Trainer) Check(w *Work) error {
	if w.Slot < 0 || w.Slot >= t.lora.Slots {
		return fmt.Errorf("there is no slot %d", w.Slot)
	}
	if err := w.check(t.m.Spec.Vocab, t.rows); err != nil {
		return err
	}
	w.cut(t.rows)
	w.done, w.err, w.result = 0, nil, Result{LogProbs: make([][]float32, len(w.Data))}
	return nil
}

// Run computes the next piece of each of some works, of which no two have one slot and all want a gradient or
// none does; as many as have room, from the first on. It returns those that are done.
func (t *Trainer) Run(works []*Work) (done []*Work, err error) {
	n, total := 0, 0
	for n < len(works) && (n == 0 || total+works[n].tokens() <= t.most) {
		total += works[n].tokens()
		n++
	}
	works = slices.Clone(works[:n])
	slices.SortFunc(works, func(a, b *Work) int { return a.Slot - b.Slot })
	if err := t.compute(works, total); err != nil {
		return nil, err
	}
	for _, w := range works {
		if w.done++; w.done == len(w.pieces) || w.err != nil {
			done = append(done, w)
		}
	}
	return done, nil
}

// Begun reports whether a piece of the work has been computed.
func (w *Work) Begun() bool { return w.done > 0 }

// Result is what came of work that is done, or why its loss is none: its slot has no gradient then.
func (w *Work) Result() (Result, error) { return w.result, w.err }

// compute runs one microbatch.
func (t *Trainer) compute(works []*Work, total int) error {
	s := shape{sized(total), works[0].Backward}
	tr := t.trace(s)
	data, err := t.data(tr, works, s.rows)
	if err != nil {
		return err
	}
	f := t.run.NewFrame(tr, data, nil, nil)
	for pc := range tr.Segments(grad.F) {
		if _, err := t.run.Step(f, grad.F, pc, nil); err != nil {
			f.Drop()
			return err
		}
	}
	out := f.Outputs()["nll"]
	by := tensor.Make(tensor.F32, s.rows)
	t.losses(works, out.F32(), by.F32())
	out.Release()
	if !s.backward {
		f.Drop()
		return nil
	}
	f.Gradients(map[string]*tensor.Tensor{"nll": by})
	for pc := range tr.Segments(grad.B) {
		if _, err := t.run.Step(f, grad.B, pc, nil); err != nil {
			f.Drop()
			return err
		}
	}
	f.Close()
	for _, w := range works {
		if t.filled[w.Slot] = w.err == nil; w.err != nil {
			t.Empty(w.Slot)
		}
	}
	return nil
}

// Empty sets a slot's gradient to 0.
func (t *Trainer) Empty(slot int) {
	for _, p := range t.params {
		g := t.slice(t.run.Grads[p.Name], slot)
		clear(g.F32())
		g.Release()
	}
	t.filled[slot] = false
}

// losses takes losses and log-probabilities of rows in, and gives derivatives by minus the log-probabilities.
func (t *Trainer) losses(works []*Work, nll, by []float32) {
	row := 0
	for _, w := range works {
		from, at := row, w.pieces[w.done]
		for i := at[0]; i < at[1]; i++ {
			d := &w.Data[i]
			lp := make([]float32, len(d.Tokens))
			for k := range lp {
				lp[k] = -nll[row+k]
				loss, x := w.token(d, k, lp[k])
				w.result.Loss += loss
				by[row+k] = float32(x)
				if !finite(float64(by[row+k])) || !finite(loss) {
					w.err = fmt.Errorf("the loss of token %d of datum %d is no number", k, i)
				}
			}
			w.result.LogProbs[i] = lp
			row += len(lp)
		}
		if w.err != nil {
			clear(by[from:row])
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// trace is that of a class, recorded when it is met for the first time. A layer's activations are computed again in
// the backward, to the same bits, but for those of as many of the last blocks as there is room for.
func (t *Trainer) trace(s shape) *grad.Trace {
	if t.traces[s] == nil {
		t.traces[s] = t.roomiest(s)
	}
	return t.traces[s]
}

// roomiest records the trace of a class that keeps as many blocks' activations as have room.
func (t *Trainer) roomiest(s shape) *grad.Trace {
	lean := t.record(s, 0)
	if !s.backward {
		return lean
	}
	least, all := peak(lean), len(t.m.Blocks)
	tr, keep := t.record(s, all), all
	if more := peak(tr) - least; more > t.room {
		keep = int(int64(all) * t.room / more)
		tr = t.record(s, keep)
	}
	for keep > 0 && peak(tr) > least+t.room { // blocks are not all as large
		keep--
		tr = t.record(s, keep)
	}
	return tr
}

// peak is the most that a frame holds, in bytes.
func peak(tr *grad.Trace) int64 {
	m := tr.Memory(false, 1)
	return max(m.Peak[grad.F], m.Peak[grad.B])
}

// record is the trace of a class that keeps the activations of so many of the last blocks.
func (t *Trainer) record(s shape, keep int) *grad.Trace {
	rec := block.Rec{Shape: block.Shape{Rows: s.rows}, Lora: t.lora, NLL: true}
	return t.m.Record(grad.Options{DType: tensor.F32, NoGrad: !s.backward,
		Each: func(block int) (tensor.DType, grad.Recompute) {
			if block < len(t.m.Blocks)-keep {
				return tensor.F32, grad.RecomputeFull
			}
			return tensor.F32, grad.RecomputeNone
		}, Frozen: func(name string) bool { return !adapter(name) }}, rec, family.Stage{To: len(t.m.Blocks)})
}

// sized rounds a number of rows up to a class: the least power of two or three quarters of one, from 16 on.
func sized(n int) int {
	p := max(16, 1<<bits.Len(uint(n-1)))
	if n <= p/4*3 && p > 16 {
		return p / 4 * 3
	}
	return p
}

// data are the tensors that a trace reads: the pieces' sequences one after the other, and rows of none.
func (t *Trainer) data(tr *grad.Trace, works []*Work, rows int) (map[string]*tensor.Tensor, error) {
	ids, targets, positions := make([]int32, rows), make([]int32, rows), make([]int32, rows)
	places := make([]int32, 3*rows) // of models that see: a token of a text has its position on each axis
	cu, off, row := []int32{0}, make([]int32, t.lora.Slots+1), 0
	for _, w := range works {
		at := w.pieces[w.done]
		for _, d := range w.Data[at[0]:at[1]] {
			copy(ids[row:], d.Tokens)
			copy(targets[row:], d.Targets)
			for k := range d.Tokens {
				positions[row+k] = int32(k)
				for axis := range 3 {
					places[3*(row+k)+axis] = int32(k)
				}
			}
			row += len(d.Tokens)
			cu = append(cu, int32(row))
		}
		off[w.Slot+1] = int32(row)
	}
	for s := 1; s < len(off); s++ { // slots without rows
		off[s] = max(off[s], off[s-1])
	}
	for i := row; i < rows; i++ {
		targets[i] = -1
	}
	all := map[string]*tensor.Tensor{"ids": tensor.Of(tensor.I32, ids, rows),
		"targets": tensor.Of(tensor.I32, targets, rows), "positions": tensor.Of(tensor.I32, positions, rows),
		"positions3": tensor.Of(tensor.I32, places, rows, 3), "cu_seqlens": tensor.Of(tensor.I32, cu, len(cu)),
		"cu_seqlens_k": tensor.Of(tensor.I32, cu, len(cu)), "adapters.off": tensor.Of(tensor.I32, off, len(off))}
	if kinds := t.m.Kinds(ids); kinds != nil {
		all[block.KindsOf] = kinds
	}
	data := map[string]*tensor.Tensor{}
	for _, name := range tr.Data {
		if data[name] = all[name]; all[name] == nil {
			return nil, fmt.Errorf("tenants: %s reads %s, which there is not", t.m.Family, name)
		}
	}
	return data, nil
}

// slice is a slot's part of a tensor.
func (t *Trainer) slice(x *tensor.Tensor, slot int) *tensor.Tensor { return x.RowSlice(slot, slot+1) }

// Begin makes a slot a new adapter: A at random by a seed, B zero, and nothing of what was there before.
func (t *Trainer) Begin(slot int, seed uint64) {
	one := *t.lora
	one.Slots = 0
	for _, p := range t.m.Params(&one) {
		if adapter(p.Name) {
			w := t.slice(t.run.Params[p.Name], slot)
			t.m.Init(seed, p, family.Whole(p), w.F32())
			w.Release()
		}
	}
	t.forget(slot)
	t.reach[slot] = t.reaches(slot)
}

// forget drops a slot's gradient and moments.
func (t *Trainer) forget(slot int) {
	for _, p := range t.params {
		for _, x := range append(slices.Clone(t.moments[p.Name]), t.run.Grads[p.Name]) {
			part := t.slice(x, slot)
			clear(part.F32())
			part.Release()
		}
	}
	t.steps[slot], t.filled[slot] = 0, false
}

// Read copies a slot's numbers of a parameter, as the adapter alone has it.
func (t *Trainer) Read(slot int, name string, dst []float32) error {
	w, err := t.part(slot, name, len(dst))
	if err != nil {
		return err
	}
	defer w.Release()
	copy(dst, w.F32())
	return nil
}

// Write makes a slot another adapter: put gives the numbers of each parameter by name, [rank in] and [out rank].
// Nothing is left of what was there before; on an error nothing has changed.
func (t *Trainer) Write(slot int, put func(name string, shape []int) ([]float32, error)) error {
	all := map[string][]float32{}
	for _, p := range t.params {
		v, err := put(p.Name, p.Shape[1:])
		if err != nil {
			return err
		}
		if len(v) != tensor.Len(p.Shape[1:]) || slices.ContainsFunc(v,
			func(x float32) bool { return !finite(float64(x)) }) {
			return fmt.Errorf("%s: its numbers are none, or are not as many as those of %v", p.Name, p.Shape[1:])
		}
		all[p.Name] = v
	}
	for _, p := range t.params {
		w := t.slice(t.run.Params[p.Name], slot)
		copy(w.F32(), all[p.Name])
		w.Release()
	}
	t.forget(slot)
	t.reach[slot] = t.reaches(slot)
	return nil
}

// part is a slot's part of a parameter of so many numbers.
func (t *Trainer) part(slot int, name string, n int) (*tensor.Tensor, error) {
	x := t.run.Params[name]
	if x == nil || !adapter(name) {
		return nil, fmt.Errorf("tenants: there is no %s", name)
	}
	w := t.slice(x, slot)
	if n != w.Len() {
		w.Release()
		return nil, fmt.Errorf("tenants: %s has %d numbers, and not %d", name, tensor.Len(x.Shape[1:]), n)
	}
	return w, nil
}
