//go:build cuda

package cuda

import (
	"fmt"
	"regexp"
	"runtime"
	"sync"
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// attender is cuDNN on one device.
type attender struct {
	lib    *Attentions
	handle uintptr
	chosen *Chosen
	mu     sync.Mutex
	plans  map[attentionShape]*plan // nil where the library has no engine
}

// engines are as engineOf writes them.
var engines = regexp.MustCompile(`^\d+( \d+=-?\d+)*$`)

// validEngine reports whether a text is an engine with its knobs.
func validEngine(text string) bool { return engines.MatchString(text) }

func (d *device) newAttender(l *Attentions, chosen *Chosen) (*attender, error) {
	a := &attender{lib: l, chosen: chosen, plans: map[attentionShape]*plan{}}
	return a, d.do(func() error {
		if err := l.call("cudnnCreate", l.create, uintptr(unsafe.Pointer(&a.handle))); err != nil {
			return err
		}
		return l.call("cudnnSetStream", l.setStream, a.handle, d.stream)
	})
}

// closeAttender gives plans and handle back; nothing is under way.
func (d *device) closeAttender() {
	a := d.attends
	if a == nil {
		return
	}
	_ = d.do(func() error { // a device that failed says so elsewhere
		for _, p := range a.plans {
			if p != nil {
				p.graph.close()
			}
		}
		return a.lib.call("cudnnDestroy", a.lib.destroy, a.handle)
	})
}

// planFor is the plan of a shape, nil if the library has none.
func (a *attender) planFor(device string, s attentionShape) (*plan, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, known := a.plans[s]
	if known {
		return p, nil
	}
	here := func(g *graph) uintptr {
		d := g.new(dnnDevice)
		g.put(d, deviceHandle, typeHandle, 1, unsafe.Pointer(&a.handle))
		return g.finish(d)
	}
	engine, err := a.chosen.algorithm(device, a.lib.Version, s.String(), func() (string, error) {
		var err error
		if p, err = a.lib.plan(s, here, ""); p == nil {
			return "", err
		}
		return p.engine, err
	})
	if err == nil && p == nil && engine != "" { // chosen by an earlier process, or by another rank
		p, err = a.lib.plan(s, here, engine)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", s, err)
	}
	a.plans[s] = p
	return p, nil
}

// hopper is the compute capability whose backward has a knob for sums in one order.
const hopper = 9

// ownBackward is the width of heads to which the project's kernels do the backward, also behind the library's
// forward: the library's sums in one order cost it more there. On an H200 it reached 107 TFLOP/s at 64, and
// these 168; at 128, 148 and 137.
const ownBackward = 64

// shapeFor is what a plan for a call depends on; ok is false for one that the library is not asked for:
// masks beyond a window, heads of other widths, queries and keys of other rows (where one may see no key),
// backwards whose bits may differ from run to run, and those of narrow heads.
func (x *issue) shapeFor(a attention, backward bool) (s attentionShape, ok bool) {
	at := x.c.Attr
	causal, window := at.I[0] == 1, at.I[1]
	_, half := dnnTypes[a.q.DType]
	switch {
	case !half, a.blocks != nil, a.posQ != nil, a.near != nil, a.place != nil, at.F[1] != 0,
		a.d != a.e, a.d%8 != 0, a.d > 128, a.t != a.s, !sameRows(a.cuQ, a.cuK), window > 0 && !causal,
		backward && (x.d.info.Major != hopper || a.d <= ownBackward), a.t == 0, a.h == 0, a.cuQ.Len() < 2:
		return s, false
	}
	return attentionShape{backward: backward, causal: causal, dtype: a.q.DType, rows: a.t, keys: a.s,
		sequences: a.cuQ.Len() - 1, heads: a.h, keyHeads: a.g, width: a.d, window: window}, true
}

// sameRows reports whether two operands are the same memory, so that queries and keys have one packing.
func sameRows(a, b *tensor.Tensor) bool {
	if a == b {
		return true
	}
	ha, from := a.Storage()
	hb, to := b.Storage()
	return !a.OnHost() && !b.OnHost() && ha == hb && from == to && a.Len() == b.Len()
}

// attendByLibrary runs attention by the library and reports whether it has; operands are by their number
// in a graph, results are those of outs. What decides is the shape alone.
func (x *issue) attendByLibrary(a attention, backward bool, operands map[int64]*tensor.Tensor, outs ...int64) bool {
	if x.d.attends == nil || x.err != nil || backward && x.d.attends.lib.Version < wholeCuDNN {
		return false
	}
	s, ok := x.shapeFor(a, backward)
	if !ok {
		return false
	}
	var p *plan
	x.err = x.d.do(func() (err error) {
		if p, err = x.d.attends.planFor(x.d.info.Name, s); err == nil && p != nil {
			err = x.runPlan(p, operands, outs)
		}
		return err
	})
	return x.err != nil || p != nil
}

// runPlan puts a plan into the device's sequence. Rows outside all sequences, which the library leaves as
// they are, are cleared before.
func (x *issue) runPlan(p *plan, operands map[int64]*tensor.Tensor, outs []int64) error {
	at := map[int64]uint64{}
	type move struct {
		to, from uint64
		size     int
	}
	var back []move
	result := map[int64]bool{}
	for _, id := range outs {
		t := operands[id]
		result[id] = true
		if at[id] = x.q.Addr(t); at[id]%uint64(dnnAlign) != 0 {
			own := at[id]
			at[id] = x.q.Work(t.Size())
			back = append(back, move{own, at[id], t.Size()})
		}
		if err := x.q.Failed(); err != nil {
			return err
		}
		if err := x.d.Clear(at[id], 0, t.Size()); err != nil {
			return err
		}
	}
	for id, t := range operands {
		if result[id] {
			continue
		}
		var err error
		if at[id], err = x.aligned(t, t.Size()); err != nil {
			return err
		}
	}
	work := x.q.Work(max(p.workspace, 1))
	if err := x.q.Failed(); err != nil {
		return err
	}
	if err := x.d.attends.execute(p, at, p.shape.scalars(x.c.Attr.F[0]), work); err != nil {
		return err
	}
	for _, m := range back {
		if err := x.d.Copy(m.to, m.from, m.size); err != nil {
			return err
		}
	}
	return nil
}

// execute runs a plan on operands at addresses of the device and on scalars of the host.
func (a *attender) execute(p *plan, at map[int64]uint64, scalars map[int64]uint32, work uint64) error {
	g := &graph{lib: a.lib}
	defer g.close()
	var pin runtime.Pinner
	defer pin.Unpin()
	var ids []int64
	var pointers []uintptr
	for id, address := range at {
		ids, pointers = append(ids, id), append(pointers, uintptr(address))
	}
	for id, v := range scalars {
		value := &v
		pin.Pin(value)
		ids, pointers = append(ids, id), append(pointers, uintptr(unsafe.Pointer(value)))
	}
	pack := g.new(dnnPack)
	g.ints(pack, packIDs, ids...)
	g.put(pack, packPointers, typePointer, len(pointers), unsafe.Pointer(&pointers[0]))
	where := uintptr(work)
	g.put(pack, packWorkspace, typePointer, 1, unsafe.Pointer(&where))
	g.finish(pack)
	if g.err != nil {
		return g.err
	}
	return a.lib.call("cudnnBackendExecute", a.lib.execute, a.handle, p.desc, pack)
}
