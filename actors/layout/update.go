package layout

import (
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// The segments of the optimizer step. Each ends with a communication among one group, or none.
const (
	SumTP     = iota // send gradients that are partial over tensor parallelism
	SumDP            // take them in; send gradients to the ranks that update them
	SumTies          // take them in; exchange gradients of tied parameters
	SumNorm          // take them in; report squared norms to the coordinator and keep the gradients
	Apply            // the step is committed: update; send updated rows
	Gather           // take them in
	numUpdate        // Gather has a segment only if Apply communicates
)

// Groups of a rank, indices into core.RankLayout.Groups; tie groups follow.
const (
	GroupTP = iota
	GroupDP
	GroupEncoderTP
	GroupEncoderDP
	GroupTie
)

// sideGroups are the groups of tensor and data parallelism of each side.
var sideGroups = [NumSides][2]int{{GroupTP, GroupDP}, {GroupEncoderTP, GroupEncoderDP}}

// has says what a rank trains on a side: anything at all, and anything whose gradient is partial over tensor parallelism.
func has(ps []ParamPlan, side int) (any, partial bool) {
	for _, p := range ps {
		if p.Side == side {
			any, partial = true, partial || p.TPSum
		}
	}
	return
}

// Exchanges lists the sides with which segments SumTP, SumDP and Apply communicate, in order.
func Exchanges(ps []ParamPlan, sides [NumSides]Side, zero, segment int) (out []int) {
	for s, m := range sides {
		any, partial := has(ps, s)
		switch {
		case segment == SumTP && partial && m.TP > 1,
			segment == SumDP && any && m.DP > 1 && zero < 2,
			segment == Apply && any && m.DP > 1 && (zero == 1 || zero == 2):
			out = append(out, s)
		}
	}
	return
}

// updateSegments lists the optimizer step of a rank: its segments with who communicates, what is sent and what is moved. Host and simulator
// read this one description; the host carries it out, and the simulator prices its bytes.
func (l *Layout) updateSegments(part *RankPart) []core.Segment {
	segs := make([]core.Segment, numUpdate-1)
	zero, trained := l.Job.Zero, trainedOn(part)
	for _, s := range Exchanges(part.Params, part.Sides, zero, SumTP) {
		segs[SumTP].Comms = append(segs[SumTP].Comms, core.Comm{Group: sideGroups[s][0], Bytes: l.smallBytes()})
	}
	for _, s := range Exchanges(part.Params, part.Sides, zero, SumDP) {
		members, own := int64(part.Sides[s].DP), trained[s]
		sent := 4 * trained[s] * (members - 1) / members // gradients are float32, summed in a ring
		if zero == 0 {
			sent *= 2
		} else {
			own /= members
		}
		segs[SumDP].Comms = append(segs[SumDP].Comms, core.Comm{Group: sideGroups[s][1], Bytes: sent})
		segs[SumDP+1].Bytes += 4 * own * (members + 1) // the sum of what has come
	}
	for i := range part.Ties {
		segs[SumTies].Comms = append(segs[SumTies].Comms, core.Comm{Group: GroupTie + i, Bytes: l.smallBytes()})
	}
	segs[SumNorm].Ready = true
	for _, s := range Exchanges(part.Params, part.Sides, zero, Apply) {
		members := int64(part.Sides[s].DP)
		sent := trained[s] * int64(l.Job.DType.Size()) * (members - 1) / members // updated weights have the training precision
		segs[Apply].Comms = append(segs[Apply].Comms, core.Comm{Group: sideGroups[s][1], Bytes: sent})
	}
	for s, m := range part.Sides {
		n := trained[s]
		if zero > 0 {
			n = 0
			for _, p := range part.Params {
				if p.Side == s {
					n += int64(tensor.Len(p.Local)) / int64(m.DP)
				}
			}
		}
		segs[Apply].Bytes += l.Optimizer.Traffic() * n
	}
	segs[Apply].Calls = len(part.Params)
	return core.Chain(segs)
}

// trainedOn counts the elements of the parameters that a rank trains, by side.
func trainedOn(part *RankPart) (out [NumSides]int64) {
	for _, p := range part.Params {
		out[p.Side] += int64(tensor.Len(p.Local))
	}
	return
}

// smallBytes stands for sums of norms' weights and of tied parameters, which are priced alike.
func (l *Layout) smallBytes() int64 { return 8 * int64(l.Job.Model.Spec.Hidden) }

// Norms lists the parameters whose squared norms a rank reports.
func Norms(ps []ParamPlan) []int32 {
	out := []int32{}
	for _, p := range ps {
		if p.Counts {
			out = append(out, int32(p.Index))
		}
	}
	return out
}
