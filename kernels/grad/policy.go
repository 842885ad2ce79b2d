package grad

import (
	"slices"
)

// policy rewrites uses of forward values by backward nodes into uses of clones (recompute, gather again) or of reloads.
// In the words of the field: activation offload, activation recomputation, gradient checkpointing.
type policy struct {
	t     *Tape
	early map[*Value]bool // needed by I, directly or through clones
	seen  map[inBlock]bool
	last  map[*Value]*Node
	made  map[use]*Value
	hosts map[*Value]*Value
	after map[*Node][]*Node
	tail  []*Node
}

// inBlock is a value as a block's backward uses it.
type inBlock struct {
	v     *Value
	block int
}

// use is a value in a phase, as what is recomputed in one phase is not there in another.
type use struct {
	v  *Value
	ph Phase
}

// rewrite carries out the choice of what is kept, recomputed, or moved to the host between forward
// and backward. The backward's inputs are replaced, and the nodes laid out anew.
func (t *Tape) rewrite() {
	p := &policy{t: t, early: map[*Value]bool{}, seen: map[inBlock]bool{}, last: map[*Value]*Node{},
		made: map[use]*Value{}, hosts: map[*Value]*Value{}, after: map[*Node][]*Node{}}
	var fwd, bwd []*Node
	t.nameTensors()
	for _, n := range t.nodes {
		if n.Phase == F {
			fwd = append(fwd, n)
		} else {
			bwd = append(bwd, n)
		}
	}
	// What the first backward phase needs is found beforehand: it is recomputed there, and not again in W.
	for _, n := range bwd {
		if n.Phase == I {
			for _, v := range n.In {
				p.mark(v, n.Block)
			}
		}
	}
	// A value goes to the host right after its last use in the forward.
	for _, n := range fwd {
		for _, v := range append(append([]*Value(nil), n.In...), n.Out...) {
			if v != nil {
				p.last[v] = n
			}
		}
	}
	for _, n := range bwd {
		for i, v := range n.In {
			if v != nil {
				n.In[i] = p.get(v, n.Block, n.Phase)
			}
		}
		p.tail = append(p.tail, n)
	}
	t.nodes = nil
	for _, n := range fwd {
		t.place(n)
		for _, o := range p.after[n] {
			t.place(o)
		}
	}
	for _, n := range t.hoist(p.tail) {
		t.place(n)
	}
}

func (t *Tape) place(n *Node) { n.ID = len(t.nodes); t.nodes = append(t.nodes, n) }

// hoist moves the gathers of parameters to the start of their block's run, so that one cut serves the block;
// with overlap, to the start of the run before, so that they travel while that one works.
func (t *Tape) hoist(all []*Node) (out []*Node) {
	var ns []*Node
	for _, n := range all { // parameters belong to no block and take nothing
		if n.Op.Role == param {
			out = append(out, n)
		} else {
			ns = append(ns, n)
		}
	}
	var gathers, rest [][]*Node // by run
	for from := 0; from < len(ns); {
		to := from
		var g, r []*Node
		for ; to < len(ns) && ns[to].Block == ns[from].Block; to++ {
			if ns[to].Op.Role == unshard {
				g = append(g, ns[to])
			} else {
				r = append(r, ns[to])
			}
		}
		gathers, rest = append(gathers, g), append(rest, r)
		from = to
	}
	for k := range rest {
		if !t.Overlap || k == 0 {
			out = append(out, gathers[k]...)
		}
		if t.Overlap && k+1 < len(rest) {
			out = append(out, gathers[k+1]...)
		}
		out = append(out, rest[k]...)
	}
	return out
}

// again reports whether a backward node of the given block takes a clone of v instead of a saved v.
func (p *policy) again(v *Value, block int) bool {
	n := v.Node
	if n.Phase != F || v.Exported || v.Kept || !n.Op.again() {
		return false
	}
	if n.Op.Role == unshard {
		return true
	}
	if n.Op.Role == alias && p.offloads(stored(v)) { // another shape of what comes back
		return true
	}
	if n.Block < 0 || n.Block != block || p.t.whole[block] {
		return false
	}
	switch p.t.chosen(v) {
	case Again:
		return true
	case Keep, Away:
		return false
	}
	switch _, rec := p.t.of(block); rec {
	case RecomputeFull:
		return true
	case RecomputeSelective:
		return n.Op.Cheap || n.Op.Role == offsets || n.Op.Role == convert && sharded(n.In[0].Place)
	}
	return false
}

// sharded tells whether the members of some axis each have a slice of the value.
func sharded(p Place) bool {
	for _, x := range p {
		if x.Kind == Sharded {
			return true
		}
	}
	return false
}

// offloads tells whether v goes to the host between its forward and its backward. A choice for this
// very tensor comes before the general rule.
func (p *policy) offloads(v *Value) bool {
	if v.Node.Phase != F || v.Exported || v.Node.Op.Role != recv && !v.moves() {
		return false
	}
	if c := p.t.chosen(v); c != ByPolicy {
		return c == Away
	}
	return p.t.Offload != nil && p.t.Offload(v)
}

// moves reports whether a value is a block's own that may wait on the host: what it computes, and what a
// communication brings beside what it says of that.
func (v *Value) moves() bool {
	switch v.Node.Op.Role {
	case compute, convert:
		return true
	case dispatch, combine:
		return !v.Kept
	}
	return false
}

// mark notes that v is needed in the first backward phase of a block, and with it all that v is recomputed from.
func (p *policy) mark(v *Value, block int) {
	if v == nil || p.seen[inBlock{v, block}] {
		return
	}
	p.early[v], p.seen[inBlock{v, block}] = true, true
	if p.again(v, block) { // in its own block; others take what was saved
		for _, u := range v.Node.In {
			p.mark(u, block)
		}
	}
}

// get is what a backward node of the given block and phase uses in place of v.
func (p *policy) get(v *Value, block int, ph Phase) *Value {
	if !p.t.RecomputePerPhase && v.Node.Op.Role != unshard { // one clone for I and W, of all that a node gives
		ph = W
		if slices.ContainsFunc(v.Node.Out, func(o *Value) bool { return p.early[o] }) {
			ph = I
		}
	}
	key := use{v, ph}
	if v.Node.Op.Role == unshard {
		key.ph += Phase(16 + 4*block) // one gather a block and phase
	}
	if c := p.made[key]; c != nil {
		return c
	}
	switch {
	case p.again(v, block):
		return p.clone(v, block, ph, key)
	case p.offloads(v):
		return p.reload(v, block, ph, key)
	}
	return v
}

// clone recomputes v in a phase of the backward, by a copy of its node whose inputs are recomputed or kept in turn.
func (p *policy) clone(v *Value, block int, ph Phase, key use) *Value {
	c := &Node{Op: v.Node.Op, Attr: v.Node.Attr, Phase: ph, Block: block, Axes: v.Node.Axes,
		sent: v.Node.sent, cut: v.Node.cut, Clone: true}
	for _, u := range v.Node.In {
		if u != nil {
			u = p.get(u, block, ph)
		}
		c.In = append(c.In, u)
	}
	for _, o := range v.Node.Out {
		k := p.t.fresh(o, c)
		c.Out = append(c.Out, k)
		p.made[use{o, key.ph}] = k
	}
	p.tail = append(p.tail, c)
	return p.made[key]
}

// reload brings v back from the host. The copy to the host is made once, after the last use in the
// forward, whatever number of phases needs it back.
func (p *policy) reload(v *Value, block int, ph Phase, key use) *Value {
	host := p.hosts[v]
	if host == nil {
		n := &Node{Op: opOff, In: []*Value{v}, Phase: F, Block: -1}
		host = p.t.fresh(v, n)
		n.Out = []*Value{host}
		p.hosts[v] = host
		p.after[p.last[v]] = append(p.after[p.last[v]], n)
	}
	n := &Node{Op: opReload, In: []*Value{host}, Phase: ph, Block: block}
	dev := p.t.fresh(v, n)
	n.Out = []*Value{dev}
	p.tail = append(p.tail, n)
	p.made[key] = dev
	return dev
}

// fresh is a copy of v as an output of n.
func (t *Tape) fresh(v *Value, n *Node) *Value {
	k := *v
	k.ID, k.Node = t.nval, n
	t.nval++
	return &k
}
