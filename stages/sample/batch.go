package sample

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// shape is a class of microbatches: all of one class have one trace.
type shape struct {
	rows, keys, heads int
	images            int32 // family.Vision.Class
}

// sized rounds a number of rows up to a class: the least power of two or three quarters of one.
func sized(n int) int {
	if n <= 2 {
		return max(n, 1)
	}
	p := 1 << bits.Len(uint(n-1))
	if n <= p/4*3 {
		return p / 4 * 3
	}
	return p
}

// part is the next tokens of a sequence: [from, to).
type part struct {
	seq      *sequence
	from, to int
	sure     int // tokens of the sequence without drafts
}

// draws is the number of rows that tokens are drawn from: the last token's and those of drafts.
func (p part) draws() int { return max(0, p.to-max(p.from, p.sure-1)) }

// scores is the number of rows before them whose logits say how likely the prompt's next tokens are.
func (p part) scores() int {
	if p.seq == nil || p.seq.toScore() <= 0 {
		return 0
	}
	return max(0, min(p.to, p.sure-1)-max(p.from, p.seq.scored))
}

// heads is the number of rows whose logits are wanted.
func (p part) heads() int { return p.draws() + p.scores() }

// batch is the parts of one microbatch.
// In the words of the field: batch invariance.
type batch struct {
	parts             []part
	rows, keys, heads int
	shape             shape
	behind            int // tokens that are read lie so many behind those of their rows
}

// gather puts the next tokens of running sequences into a microbatch: drawn ones first, so that no answer waits for
// another's prompt, and then as much of prompts as there is room for.
func (e *Engine) gather() *batch {
	if b := e.gatherSeen(); b != nil {
		return b
	}
	b := &batch{}
	left := max(e.o.Rows, len(e.running))
	for _, drawn := range []bool{true, false} {
		for i := 0; i < len(e.running); i++ { // room may shorten it
			s := e.running[i]
			if s.unseen() {
				continue
			}
			if rest := len(s.tokens) - s.done; (rest == 1) == drawn && left > 0 {
				to := e.room(s, s.done+min(rest, left))
				if to <= s.done {
					continue
				}
				to += e.spare(s, to, left-(to-s.done))
				b.parts = append(b.parts, part{s, s.done, to, len(s.tokens)})
				left -= to - s.done
			}
		}
	}
	running := b.parts[:0]
	for _, p := range b.parts {
		if len(p.seq.pages) > 0 { // else it gave its pages up
			running = append(running, p)
			b.rows, b.keys, b.heads = b.rows+p.to-p.from, b.keys+p.to, b.heads+p.heads()
		}
	}
	b.parts = running
	if n := e.slots(); n > 0 { // rows lie in the order of slots, those of none behind them
		place := func(p part) int { return (p.seq.Adapter + n) % (n + 1) }
		slices.SortStableFunc(b.parts, func(x, y part) int { return place(x) - place(y) })
	}
	b.shape = classOf(b)
	return b
}

// classOf is the class of a batch without images.
func classOf(b *batch) shape {
	return shape{rows: sized(b.rows), keys: sized((b.keys+63)/64) * 64, heads: sized(b.heads)}
}

// spare is how many drafts of a sequence there is room for behind its last token, without anybody giving up pages.
func (e *Engine) spare(s *sequence, to, left int) int {
	if to < len(s.tokens) {
		return 0
	}
	n := min(len(s.drafts), left)
	return max(0, min(n, e.stretch(s, to+n)-to))
}

// stretch takes free pages for n tokens of a sequence, and returns for how many it has some.
func (e *Engine) stretch(s *sequence, n int) int {
	for len(s.pages)*PageRows < n && len(e.pages.free) > 0 {
		s.pages = append(s.pages, e.pages.take())
	}
	return len(s.pages) * PageRows
}

// compute runs a microbatch, puts its keys and values into pages and gives the logits of its heads, before a
// cap, in rows.
func (e *Engine) compute(b *batch) ([]float32, error) {
	tr := e.trace(b.shape)
	data, err := e.data(tr, b, nil)
	if err != nil {
		return nil, err
	}
	out, err := e.run(tr, data)
	if err != nil {
		return nil, err
	}
	logits := e.g.read(out["logits"])
	delete(out, "logits")
	if t := out["final"]; t != nil {
		row, size := 0, len(t.Bytes())/t.Shape[0]
		for _, p := range b.parts {
			n := p.to - p.from
			p.seq.hidden = &states{p.from, slices.Clone(t.Bytes()[row*size : (row+n)*size])}
			row += n
		}
		t.Release()
		delete(out, "final")
	}
	e.keep(out, b)
	return logits, nil
}

// microbatch implements computer by the model.
func (e *Engine) microbatch(b *batch) error {
	logits, err := e.compute(b)
	if err != nil {
		return err
	}
	e.computed(b)
	e.emit(b, logits)
	return nil
}

// computed counts a microbatch's tokens.
func (e *Engine) computed(b *batch) {
	e.shares.count(b.parts)
	for _, p := range b.parts {
		e.stats.Prompt += int64(min(p.to, p.sure) - p.from)
		if p.draws() > 0 {
			e.stats.Prompt--
		}
	}
}

// run gives what a trace makes of data.
func (e *Engine) run(tr *grad.Trace, data map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	f := e.g.run.NewFrame(tr, data, nil, nil)
	if _, err := e.g.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return nil, err
	}
	out := f.Outputs()
	f.Close()
	return out, nil
}

// keep puts new keys and values into pages, and gives them back.
func (e *Engine) keep(out map[string]*tensor.Tensor, b *batch) {
	for name, t := range out { // in no order: each has a pool of its own
		e.store(name, t, b)
		t.Release()
	}
}

// name enters full pages under what they hold.
func (e *Engine) name(s *sequence) {
	if s.Images != nil {
		return
	}
	most := s.done
	if s.fixed > 0 {
		most = min(most, s.fixed)
	}
	for (s.named+1)*PageRows <= most {
		s.key = chain(s.key, s.tokens[s.named*PageRows:(s.named+1)*PageRows])
		e.pages.name(s.pages[s.named], s.key)
		s.named++
	}
}

// trace is that of a class, recorded when it is met for the first time.
func (e *Engine) trace(s shape) *grad.Trace {
	tr := e.traces[s]
	if tr == nil {
		rec := block.Rec{Shape: e.g.m.Vision.Shape(s.rows, s.images), Lora: e.g.lora, Logits: true, Cached: true,
			Pool: e.o.Pages * PageRows, KeyRows: s.keys, Heads: s.heads, Hidden: e.o.Further}
		tr = e.g.m.Record(e.g.options(), rec, family.Stage{To: len(e.g.m.Blocks)})
		e.traces[s] = tr
	}
	return tr
}

// data are the tensors that a trace reads, with some that only it does.
func (e *Engine) data(tr *grad.Trace, b *batch, more map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	ids, positions := make([]int32, b.shape.rows), make([]int32, b.shape.rows)
	at, last, heads := filled(b.shape.keys), filled(b.shape.rows), filled(b.shape.heads)
	cu, cuK := []int32{0}, []int32{0}
	off := make([]int32, e.slots()+1)
	row, key, head := 0, 0, 0
	for _, p := range b.parts {
		for i := range p.from {
			at[key+i] = int32(p.seq.pages[i/PageRows]*PageRows + i%PageRows)
		}
		for i := p.from; i < p.to; i++ {
			ids[row], positions[row] = p.seq.at(i+b.behind), int32(i)
			at[key+i], last[row] = int32(-1-row), int32(key+i)
			if i >= p.to-p.heads() {
				heads[head] = int32(row)
				head++
			}
			row++
		}
		if a := p.seq.Adapter; a > 0 && len(off) > 1 {
			off[a] = int32(row)
		}
		key += p.to
		cu, cuK = append(cu, int32(row)), append(cuK, int32(key))
	}
	for i := 1; i < len(off); i++ { // slots without rows
		off[i] = max(off[i], off[i-1])
	}
	all := map[string]*tensor.Tensor{"ids": tensor.Of(tensor.I32, ids, len(ids)), "adapters.off": tensor.Of(
		tensor.I32, off, len(off)), "positions": tensor.Of(tensor.I32, positions, len(positions)),
		"cu_seqlens": tensor.Of(tensor.I32, cu, len(cu)), "cu_seqlens_k": tensor.Of(tensor.I32, cuK, len(cuK)),
		"paged.at": tensor.Of(tensor.I32, at, len(at)), "paged.last": tensor.Of(tensor.I32, last, len(last)),
		"paged.head": tensor.Of(tensor.I32, heads, len(heads))}
	e.see(all, b, ids)
	if kinds := e.g.m.Kinds(ids); kinds != nil {
		all[block.KindsOf] = kinds
	}
	for _, p := range tr.Out { // the pool has the form of what goes into it
		if p.Name == "logits" || p.Name == "final" {
			continue
		}
		t, err := e.poolOf(p.Name, p.Value)
		if err != nil {
			return nil, err
		}
		all["pool."+p.Name] = t.Retain()
	}
	maps.Copy(all, more)
	data := map[string]*tensor.Tensor{}
	for _, name := range tr.Data {
		if all[name] == nil {
			return nil, fmt.Errorf("sample: %s reads %s, which an engine does not have", e.g.m.Family, name)
		}
		data[name] = all[name]
	}
	return data, nil
}

// filled is n places of no row.
func filled(n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = noRow
	}
	return v
}

// noRow is a place that is neither a row of a pool nor a new one.
const noRow = -1 << 30

// poolOf is the pool of pages of what goes by a name.
func (e *Engine) poolOf(name string, v *grad.Value) (*tensor.Tensor, error) {
	if t := e.pool[name]; t != nil {
		return t, nil
	}
	t, err := e.g.run.Pool.New("pool."+name, v.DType, append([]int{e.o.Pages * PageRows}, v.Shape[1:]...)...)
	if err != nil {
		return nil, err
	}
	if e.o.Further { // rows that no layer for further tokens has written are read, and say nothing
		clear(t.Bytes())
	}
	e.pool[name] = t
	return t, nil
}

// store copies new rows into their pages.
func (e *Engine) store(name string, t *tensor.Tensor, b *batch) {
	n := len(t.Bytes()) / t.Shape[0]
	from, to, row := t.Bytes(), e.pool[name].Bytes(), 0
	for _, p := range b.parts {
		for i := p.from; i < p.to; i++ {
			copy(to[(p.seq.pages[i/PageRows]*PageRows+i%PageRows)*n:], from[row*n:(row+1)*n])
			row++
		}
	}
}
