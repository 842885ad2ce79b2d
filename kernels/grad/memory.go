package grad

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Footprint is what one frame holds on one rank, in bytes of the pool's size classes, known before anything
// is allocated. Tensors of the microbatch are not counted. What a frame hands over to another stage is its
// rank's memory until both have let it go.
type Footprint struct {
	Peak [B + 1]int64 // by phase: the most during it, without what was handed over before
	// the same where the gradients that the phase makes have no accumulators yet: with Made, what these take,
	// but for those that an earlier phase of the frame makes
	First, Made [B + 1]int64
	// Course is Peak segment by segment, for phases that run in turns with another frame's
	Course [B + 1][]Moment
	Grads  int64 // of all accumulators that the backward makes
	// Trail is what members that are behind may still have to take when a phase has ended, by the axes that they
	// are members of, as bits; a phase with none that it awaits along those axes has no entry for them
	Trail [B + 1]map[uint64]int64
	// Early are Peak and First up to the segment in which the phase has awaited something along all axes of Lands: members
	// have taken by then what phases before have sent along these.
	Early [B + 1][2]int64
	Lands [B + 1]map[uint64]bool
	After [B + 1]int64 // what the frame still holds then, likewise
	// Gives are the activations of output ports, handed over when F ends; Sends the cotangents of input
	// ports, when I or B ends.
	Gives, Sends map[string]Handed
	// Takes is the last phase that holds the activation of an input port; Gets that of the cotangent of an output port.
	Takes, Gets map[string]Phase
}

// Moment is what a frame holds at its worst in one segment, and when that has ended; Made is what the
// accumulators take by then that the phase has made, where the step's gradients had none yet. Late is behind Early.
type Moment struct {
	Most, After, Made int64
	Late              bool
}

// Handed is storage that another stage gets.
type Handed struct {
	Bytes int64
	Until Phase // the last phase of the giver's frame that holds it too
}

// footprint walks the phases of a trace with the frees that the runner carries out.
type footprint struct {
	tr      *Trace
	share   float64
	out     *Footprint
	ph      Phase
	at      map[int]int   // storage of a live slot: the slot that allocated it
	refs    map[int]int   // live slots, and other holders, of a storage
	size    map[int]int64 // of a storage that counts for this frame
	now     int64
	most    int64
	part    int64         // most of the segment
	end     map[int]Phase // when a storage lost its last holder
	made    map[int]bool  // parameters whose accumulators the frame has made
	grads   int64
	first   int64 // most with accumulators
	sent    []portStorage
	kept    []int               // storages that exports hold until the frame is closed
	flight  map[uint64][]flying // storages of which members may still take their parts, by axes
	carried int64               // gradients of other chunks' keys and values
}

// portStorage is the storage of a cotangent that is sent to a port's giver.
type portStorage struct {
	port string
	s    int
}

// flying is a storage of which members take their parts as they await a communication, which they do in a segment.
type flying struct{ storage, await int }

// Memory is the footprint of a frame whose backward is one piece (B follows F), or split (W follows I
// follows F). Where data decides the number of rows, it is that under even sharing, times share.
func (tr *Trace) Memory(split bool, share float64) *Footprint {
	f := &footprint{tr: tr, share: share, at: map[int]int{}, refs: map[int]int{}, size: map[int]int64{},
		end: map[int]Phase{}, made: map[int]bool{}, flight: map[uint64][]flying{},
		out: &Footprint{Gives: map[string]Handed{}, Sends: map[string]Handed{}, Takes: map[string]Phase{},
			Gets: map[string]Phase{}}}
	phases := []Phase{F, B}
	if split {
		phases = []Phase{F, I, W}
	}
	gives, sends := map[string]int{}, map[string]int{}
	for i, ph := range phases {
		f.walk(ph, i == len(phases)-1)
		switch {
		case ph == F:
			for _, p := range tr.Out {
				s := f.at[p.Value.ID]
				gives[p.Name] = s
				f.out.Gives[p.Name] = Handed{Bytes: f.hand(s)}
				if !p.Late {
					f.drop(p.Value.ID)
				}
			}
		case ph != W:
			for _, x := range f.sent {
				sends[x.port] = x.s
				f.out.Sends[x.port] = Handed{Bytes: f.hand(x.s)}
				f.release(x.s)
			}
		}
		f.out.After[ph] = f.now
	}
	for port, h := range f.out.Gives {
		h.Until = f.end[gives[port]]
		f.out.Gives[port] = h
	}
	for port, h := range f.out.Sends {
		h.Until = f.end[sends[port]]
		f.out.Sends[port] = h
	}
	for _, n := range tr.nodes {
		switch n.Op.Role {
		case recv:
			f.out.Takes[n.Attr.Name] = f.end[n.Out[0].ID]
		case recvGrad:
			f.out.Gets[n.Attr.Name] = f.end[n.Out[0].ID]
		}
	}
	return f.out
}

// walk counts the bytes held through one phase, node by node, in the order in which the runner
// allocates and frees. last tells that nothing is kept for a later phase.
func (f *footprint) walk(ph Phase, last bool) {
	f.ph, f.most = ph, f.now
	f.grads, f.first = 0, f.now
	lands, behind := map[uint64]bool{}, 0
	segs, free := f.tr.list(ph)
	f.carried = 0
	if ph == I || ph == B {
		f.carry()
	}
	done := func(n *Node) {
		for _, slot := range free[n.ID] {
			f.drop(slot)
		}
	}
	for i, s := range segs {
		// Arrived results are all held before the first is used, because the message brings them at once.
		f.part = f.now
		for _, at := range s.Await {
			n := segs[at.Segment].Comm[at.Comm]
			f.land(n, at.Segment)
			if !lands[axesOf(n)] {
				lands[axesOf(n)], behind = true, i
			}
			f.hold(n)
		}
		for _, at := range s.Await {
			n := segs[at.Segment].Comm[at.Comm]
			f.fly(n, free[n.ID], i)
			done(n)
		}
		for _, n := range s.Ops {
			f.hold(n)
			done(n)
		}
		f.out.Course[ph] = append(f.out.Course[ph], Moment{f.part, f.now, f.grads, false})
		if behind == i {
			f.out.Early[ph] = [2]int64{f.most, f.first}
		}
	}
	for i := range f.out.Course[ph] {
		f.out.Course[ph][i].Late = i > behind
	}
	f.out.Lands[ph] = lands
	f.now -= f.carried
	f.landAll()
	if last {
		for _, s := range f.kept {
			f.release(s)
		}
	}
	f.out.Peak[ph], f.out.First[ph] = f.most, f.first
	f.out.Made[ph] = f.grads
	f.out.Grads += f.grads
}

// fly keeps what a communication has sent, and nothing else here needs: members that are behind take their parts
// of it later.
func (f *footprint) fly(n *Node, slots []int, await int) {
	for _, slot := range slots {
		if s, ok := f.at[slot]; ok && f.size[s] > 0 {
			f.converted(n, s)
			f.refs[s]++
			f.flight[axesOf(n)] = append(f.flight[axesOf(n)], flying{s, await})
		}
	}
}

// land lets go what earlier communications over the same axes have sent: who sends its part of this one, behind the
// segment that issues it, has taken what is awaited up to there.
func (f *footprint) land(n *Node, issued int) {
	f.flight[axesOf(n)] = slices.DeleteFunc(f.flight[axesOf(n)], func(x flying) bool {
		if x.await <= issued {
			f.release(x.storage)
		}
		return x.await <= issued
	})
}

// landAll ends a phase: what is still under way then counts beside all that its rank does next.
func (f *footprint) landAll() {
	under := map[uint64]int64{}
	for axes, ss := range f.flight {
		under[axes] = 0
		for _, x := range ss {
			if f.refs[x.storage] == 1 {
				under[axes] += f.size[x.storage]
			}
			f.release(x.storage)
		}
		delete(f.flight, axes)
	}
	f.out.Trail[f.ph] = under
}

// axesOf names the axes of a communication, as bits.
func axesOf(n *Node) (bits uint64) {
	for _, m := range n.Axes {
		bits |= 1 << m
	}
	return bits
}

// hold counts what a node allocates, and who else holds what it reads.
func (f *footprint) hold(n *Node) {
	f.accumulator(n)
	switch n.Op.Role {
	case alias, piece, stack:
		if n.Op.Role == stack && n.Attr.I[0] > 1 {
			break
		}
		if s, ok := f.at[n.In[0].ID]; ok {
			f.at[n.Out[0].ID] = s
			f.refs[s]++
		}
		return
	case sendGrad:
		if s, ok := f.at[n.In[0].ID]; ok {
			f.refs[s]++
			f.sent = append(f.sent, portStorage{n.Attr.Name, s})
		}
		return
	case export:
		if s, ok := f.at[n.In[0].ID]; ok {
			f.refs[s]++
			f.kept = append(f.kept, s)
		}
		return
	case importGrad:
		if f.newest() && len(n.In) > 0 {
			f.carried += f.bytesOf(n.In[0])
			f.now += f.bytesOf(n.In[0])
			f.count()
		}
		return
	case exportGrad:
		f.at[n.Out[0].ID], f.refs[n.Out[0].ID] = n.Out[0].ID, 1
		f.size[n.Out[0].ID] = f.bytesOf(n.Out[0])
		return
	case reduce:
		f.converts(n)
		return
	case accumulate:
		return
	}
	for i, v := range n.Out {
		if n.Acc > 0 && i == n.sumsInto() {
			continue // the gradient's accumulator
		}
		f.at[v.ID], f.refs[v.ID] = v.ID, 1
		switch n.Op.Role {
		case data, recv, recvGrad, importing, offload: // somebody else's, or the host's
		default:
			b := tensor.ClassBytes(f.elements(v) * int64(v.DType.Size()))
			f.size[v.ID] = b
			f.now += b
		}
	}
	if n.Op.Role == unshard && n.Attr.I[1] > 0 { // codes of the shard, until the others have them
		b := tensor.ClassBytes(f.tr.CommBytes(n) / int64(max(1, f.tr.GroupSize(n)-1)))
		f.now += b
		f.count()
		f.now -= b
	}
	for _, e := range n.Then {
		f.hold(e)
	}
	term := f.term(n)
	f.now += term
	f.count()
	f.now -= term
}

// count takes in what is held now.
func (f *footprint) count() {
	f.most, f.part, f.first = max(f.most, f.now), max(f.part, f.now), max(f.first, f.now+f.grads)
}

// newest reports whether the frame is of its sequence's last chunk, whose backward is the first.
func (f *footprint) newest() bool { return f.tr.Chunk == f.tr.Chunks-1 }

func (f *footprint) bytesOf(v *Value) int64 {
	return tensor.ClassBytes(f.elements(v) * int64(v.DType.Size()))
}

// carry counts the gradients of keys and values that chunks share, which the newest chunk's backward makes:
// from then on until its own backward an older chunk's are there.
func (f *footprint) carry() {
	for _, n := range f.tr.nodes {
		switch {
		case n.Op.Role == exportGrad:
			f.now += f.bytesOf(n.Out[0])
		case n.Op.Role == importGrad && len(n.In) > 0 && !f.newest():
			f.carried += f.bytesOf(n.In[0])
			f.now += f.bytesOf(n.In[0])
		}
	}
	f.most, f.first = max(f.most, f.now), max(f.first, f.now)
}

// elements counts those of a value on one rank.
func (f *footprint) elements(v *Value) int64 {
	if !v.Ragged {
		return int64(tensor.Len(v.Local))
	}
	return int64(Rows(v.Local[0], f.share)) * int64(tensor.Len(v.Local[1:]))
}

// Rows is so many rows times share, rounded up.
func Rows(rows int, share float64) int { return int(math.Ceil(float64(rows)*share - 1e-9)) }

// accumulator counts the gradient that a node is the first to add to.
func (f *footprint) accumulator(n *Node) {
	if n.Acc == 0 || f.made[n.Acc] {
		return
	}
	f.made[n.Acc] = true
	shape := append([]int(nil), f.tr.Params[n.Acc-1].Local...)
	if n.Op.Role == reduce {
		size := f.tr.GroupSize(n)
		shape[0] = (shape[0] + size - 1) / size
	}
	f.grads += tensor.ClassBytes(int64(f.tr.GradType(f.tr.Params[n.Acc-1]).Size() * tensor.Len(shape)))
}

// drop takes a slot out.
func (f *footprint) drop(slot int) {
	if s, ok := f.at[slot]; ok {
		delete(f.at, slot)
		f.release(s)
	}
}

// release takes one holder of a storage away.
func (f *footprint) release(s int) {
	if f.refs[s]--; f.refs[s] == 0 {
		f.now -= f.size[s]
		f.size[s], f.end[s] = 0, f.ph
	}
}

// hand makes a storage count for who is given it, and gives its size.
func (f *footprint) hand(s int) int64 {
	b := f.size[s]
	f.now -= b
	f.size[s] = 0
	return b
}
