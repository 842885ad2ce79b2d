package layout

import (
	"cmp"
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/fit"
)

// The segments of the optimizer step. Each ends with a communication among one group, or none.
const (
	SumTP     = iota // send gradients that are partial over axes without samples of their own
	SumDP            // take them in; send gradients to the ranks that sum them
	SumWhole         // take them in; send sums to the ranks that need them too
	SumTies          // take them in; exchange gradients of tied parameters and of experts' copies
	SumNorm          // take them in; report squared norms to the coordinator and keep the gradients
	Apply            // the step is committed: update; send updated rows
	Gather           // take them in
	numUpdate        // Gather has a segment only if Apply communicates

	// Directions stands behind SumNorm, and moves those behind it on, where an optimizer needs whole matrices:
	// make directions of the rank's own numbers, and send them to all that have others of the same matrices.
	Directions = -1
)

// Exchange is a communication of the optimizer step: parameters of one side that are sent along the same
// axes at one time.
type Exchange struct {
	Side    int
	Axes    []int
	Group   int // index into core.RankLayout.Groups
	Members int
	Params  []int // places in the rank's list
	// InTwo says that several members need the same sum, and that each sums a part of its rows: the parts are
	// sent to these replicas in a second exchange. So a member sends 2(n-1)/n of the gradients, as in a ring, and
	// not n-1 times as much. The order of each sum is that of the members either way, and so are its bits.
	InTwo bool
	// Bucket other than 0 is sent by a job of the program, before the optimizer step
	Bucket int
}

// Exchanges lists what a segment of the optimizer step communicates, in order.
func (l *Layout) Exchanges(part *RankPart, segment int) (out []Exchange) {
	var buckets []bucket
	if segment == SumDP || segment == SumWhole {
		buckets = l.buckets(part)
	}
	for i, p := range part.Params {
		var axes []int
		switch segment {
		case SumTP:
			axes = p.Sum
		case SumDP:
			axes = p.Reduce
		case SumWhole:
			axes = p.replicas()
		case Apply:
			axes = p.Gather
		case Directions:
			axes = p.Whole
		}
		if len(axes) == 0 {
			continue
		}
		b := bucketOf(buckets, &p)
		at := slices.IndexFunc(out, func(x Exchange) bool {
			return x.Side == p.Side && x.Bucket == b && slices.Equal(x.Axes, axes)
		})
		if at < 0 {
			o := grad.Options{Mesh: l.meshes[p.Side]}
			at, out = len(out), append(out, Exchange{Side: p.Side, Axes: axes, Group: l.Group(p.Side, axes),
				Members: o.Members(axes), Bucket: b})
			// between two members a part and its sum weigh as much as the whole, and take longer
			out[at].InTwo = (segment == SumDP || segment == SumWhole) && o.Members(p.replicas()) > 1 &&
				o.Members(p.Reduce) > 2
		}
		out[at].Params = append(out[at].Params, i)
	}
	if segment == SumWhole {
		out = slices.DeleteFunc(out, func(x Exchange) bool { return !x.InTwo })
	}
	slices.SortStableFunc(out, samePlaces)
	return
}

// samePlaces sorts exchanges so that each is at the same place on all its members, which stand for it by its place:
// parts' come first, because their members may lie on several stages of the decoder, which have buckets of their own.
func samePlaces(a, b Exchange) int {
	decoder := func(x Exchange) bool { return x.Side == DecoderSide }
	return cmp.Or(boolOrder(decoder(a), decoder(b)), boolOrder(a.Bucket > 0, b.Bucket > 0),
		cmp.Compare(a.Group, b.Group))
}

// replicas are the axes of a parameter's reduction whose members update the same rows: all of them without ZeRO, none
// where its state is shared out over all of them.
func (p *ParamPlan) replicas() (axes []int) {
	for _, m := range p.Reduce {
		if !slices.Contains(p.Zero, m) {
			axes = append(axes, m)
		}
	}
	return
}

// Rows is the part of a gradient's rows on this rank that a member of its reduction sums: all of them without ZeRO, those
// that the member updates with it, and of either, where its replicas need them too, the member's part (inTwo).
func (l *Layout) Rows(p ParamPlan, member int, inTwo bool) (from, to int) {
	o, rows := grad.Options{Mesh: l.meshes[p.Side]}, p.Local[0]
	pos := make([]int, len(o.Mesh))
	for i := len(p.Reduce) - 1; i >= 0; i-- {
		m := p.Reduce[i]
		pos[m], member = member%o.Mesh[m].Size, member/o.Mesh[m].Size
	}
	if l.Design.Zero > 1 { // the gradient has this rank's rows alone
		rows = p.Own.To - p.Own.From
	}
	from, to = 0, rows
	if l.Design.Zero == 1 {
		from, to = grad.ShardRows(rows, o.Member(pos, p.Zero), o.Members(p.Zero))
	}
	if inTwo {
		again := p.replicas()
		a, b := grad.ShardRows(to-from, o.Member(pos, again), o.Members(again))
		from, to = from+a, from+b
	}
	return
}

// updateSegments lists the optimizer step of a rank: its segments with who communicates, what is sent and what is
// moved. Host and simulator read this one description; the host carries it out, and the simulator prices its bytes.
func (l *Layout) updateSegments(part *RankPart) []core.Segment {
	segs := make([]core.Segment, numUpdate-1)
	for _, x := range l.Exchanges(part, SumTP) {
		segs[SumTP].Comms = append(segs[SumTP].Comms,
			core.Comm{Group: x.Group, Bytes: l.summed(part.elements(x.Params), x.Members)})
	}
	for _, x := range l.Exchanges(part, SumDP) {
		o, here, own := grad.Options{Mesh: l.meshes[x.Side]}, int64(0), int64(0) // elements of gradients, and summed of these
		for _, i := range x.Params {
			p := &part.Params[i]
			n := int64(tensor.Len(p.Local))
			own += n / int64(o.Members(p.Zero))
			if l.Design.Zero > 1 {
				n /= int64(o.Members(p.Zero))
			}
			here += n
		}
		members, copies := int64(x.Members), int64(o.Members(part.Params[x.Params[0]].replicas()))
		parts := members / copies
		if x.InTwo {
			parts = members
			segs[SumTies].Bytes += 2 * l.gradBytes() * own // the sums are put together
			own /= copies
		}
		segs[SumDP].Comms = append(segs[SumDP].Comms,
			core.Comm{Group: x.Group, Bytes: l.gradBytes() * here * (members - 1) / parts, Early: x.Bucket > 0})
		segs[SumWhole].Bytes += l.gradBytes() * own * (members + 1) // the sum of what has come
	}
	for _, x := range l.Exchanges(part, SumWhole) {
		o, own, members := grad.Options{Mesh: l.meshes[x.Side]}, int64(0), int64(x.Members)
		for _, i := range x.Params {
			own += int64(tensor.Len(part.Params[i].Local)) / int64(o.Members(part.Params[i].Zero))
		}
		segs[SumWhole].Comms = append(segs[SumWhole].Comms,
			core.Comm{Group: x.Group, Bytes: l.gradBytes() * own * (members - 1) / members})
	}
	for i, members := range part.Ties {
		n := int64(0)
		for _, p := range part.Params {
			if p.Tie == i+1 {
				o := grad.Options{Mesh: l.meshes[p.Side]}
				n += int64(tensor.Len(p.Local)) / int64(o.Members(p.Zero))
			}
		}
		segs[SumTies].Comms = append(segs[SumTies].Comms, core.Comm{Group: len(l.axes) + i,
			Bytes: l.summed(n, len(members))})
	}
	segs[SumTies].Comms = append(segs[SumTies].Comms, l.copyComm(part)...)
	segs[SumNorm].Ready = true
	for _, x := range l.Exchanges(part, Apply) {
		members := int64(x.Members)
		// updated weights have the training precision
		sent := part.elements(x.Params) * int64(l.Design.DType.Size()) * (members - 1) / members
		segs[Apply].Comms = append(segs[Apply].Comms, core.Comm{Group: x.Group, Bytes: sent})
	}
	for _, p := range part.Params {
		o := grad.Options{Mesh: l.meshes[p.Side]}
		segs[Apply].Bytes += l.Design.traffic(p.Optim, int64(tensor.Len(p.Local))/int64(o.Members(p.Zero)))
	}
	segs[Apply].Calls, segs[Apply].Through = len(part.Params), l.through(part)
	if l.Turning() {
		segs[Apply].Flops = l.turns(part)
		segs = slices.Insert(segs, Apply, l.turningSegment(part))
	}
	return core.Chain(segs)
}

// elements counts those of some of the rank's parameters.
func (part *RankPart) elements(params []int) (n int64) {
	for _, i := range params {
		n += int64(tensor.Len(part.Params[i].Local))
	}
	return
}

// summed is what a member sends of n gradients when every other sums them by itself.
func (l *Layout) summed(n int64, members int) int64 { return l.gradBytes() * n * int64(members-1) }

// What a run may ask for is what a commit has room for.
var _ = [1]struct{}{}[core.ClipsMost-fit.ClipsMost]

// Clips are the gradient norms that groups of parameters are clipped by, and by parameter, in the model's order,
// 1 + its place in them; 0 for one that has none. Nil where there is no such group.
func (l *Layout) Clips() (limits []float64, of []uint8) {
	if l.Design.ClipOf == nil {
		return nil, nil
	}
	of = make([]uint8, len(l.Order), kernels.FixedWords*len(l.Order))
	for i, name := range l.Order {
		limit, g := l.Design.ClipOf(name)
		if of[i] = uint8(g); g > 0 {
			for len(limits) < g {
				limits = append(limits, 0)
			}
			limits[g-1] = limit
		}
	}
	return limits, append(of, of...) // of further words of norms
}

// Norms lists the parameters whose squared norms a rank reports whole; those of experts are reported one by one. In
// fixed point a norm has more words, which stand behind all first ones, as further parameters of the model.
func (l *Layout) Norms(ps []ParamPlan) []int32 {
	out, words := []int32{}, 1
	if l.Design.FixedPoint {
		words = kernels.FixedWords
	}
	for w := range words {
		for _, p := range ps {
			if p.Counts && !p.Experts {
				out = append(out, int32(p.Index+w*len(l.Order)))
			}
		}
	}
	return out
}
