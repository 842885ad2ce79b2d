package grad

import "github.com/lfactor/lfactor/kernels/tensor"

// Steady parts a forward on one rank in two: what depends on no data that changes reports, and the rest. A
// frame of the first is run once and keeps what the other reads (Frame.Kept); frames of the second begin
// with that (Frame.Resume) and give what the whole trace gives, bit for bit. Both have the slots of the
// whole. It returns nil for a trace that communicates or has a backward.
func (tr *Trace) Steady(changes func(data string) bool) (once, rest *Trace) {
	if !tr.NoGrad || len(tr.F) != 1 || len(tr.F[0].Comm) > 0 {
		return nil, nil
	}
	moves, made := map[int]bool{}, map[int]bool{} // slots of values that change, and of those that do not
	var lists [2][]*Node
	for _, n := range tr.F[0].Ops {
		moving := n.Op.Role == data && changes(n.Attr.Name)
		for _, v := range reads(n) {
			moving = moving || moves[v.ID]
		}
		at, to := 0, made
		if moving {
			at, to = 1, moves
		}
		lists[at] = append(lists[at], n)
		for _, v := range writes(n) {
			to[v.ID] = true
		}
	}
	keep := map[int]bool{}
	for _, n := range lists[1] {
		for _, v := range reads(n) {
			if made[v.ID] {
				keep[v.ID] = true
			}
		}
	}
	for _, p := range tr.Out {
		if made[p.Value.ID] {
			keep[p.Value.ID] = true
		}
	}
	once, rest = tr.part(lists[0], keep), tr.part(lists[1], nil)
	once.Out = nil
	for id := range made {
		if keep[id] {
			once.kept = append(once.kept, id)
		}
	}
	return once, rest
}

// part is a trace of some of a forward's nodes, which are freed behind their last use unless they are kept or leave.
func (tr *Trace) part(ns []*Node, keep map[int]bool) *Trace {
	p := *tr
	last := map[int]int{}
	for _, n := range ns {
		for _, v := range append(reads(n), writes(n)...) {
			if !keep[v.ID] {
				last[v.ID] = n.ID
			}
		}
	}
	for _, o := range tr.Out {
		delete(last, o.Value.ID)
	}
	p.F, p.freeB = []Segment{{Ops: ns}}, map[int][]int{}
	for v, n := range last {
		p.freeB[n] = append(p.freeB[n], v)
	}
	return &p
}

// reads and writes are the values with slots that a node and its epilogues read and make.
func reads(n *Node) (out []*Value) {
	for _, m := range append([]*Node{n}, n.Then...) {
		for _, v := range m.In {
			if v != nil && v.Const == nil && v.Node.Op.Role != param {
				out = append(out, v)
			}
		}
	}
	return out
}

func writes(n *Node) (out []*Value) {
	for _, m := range append([]*Node{n}, n.Then...) {
		out = append(out, m.Out...)
	}
	return out
}

// Kept takes what the first half of a parted trace made out of its frame, when F has ended: the caller owns
// a reference to each.
func (f *Frame) Kept() map[int]*tensor.Tensor {
	out := map[int]*tensor.Tensor{}
	for _, id := range f.Trace.kept {
		out[id], f.slots[id] = f.slots[id], nil
	}
	return out
}

// Resume begins a frame of the other half with it: the frame has references of its own.
func (f *Frame) Resume(kept map[int]*tensor.Tensor) {
	for id, t := range kept {
		t.Retain()
		f.slots[id] = t
	}
}
