package grad

import "github.com/lfactor/lfactor/kernels/tensor"

// Footprint is what one frame holds on one rank, in bytes of the pool's size classes, known before anything is allocated:
// the most during a phase and what stays after it. B follows F; W follows I follows F. Tensors of the microbatch and what
// comes from other ranks are counted by whoever allocates them.
func (tr *Trace) Footprint(p Phase) (peak, after int64) {
	live := map[int]int64{}
	var now int64
	walk := func(ph Phase) (most int64) {
		segs, free := tr.list(ph)
		most = now
		drop := func(n *Node) {
			for _, s := range free[n.ID] {
				now -= live[s]
				delete(live, s)
			}
		}
		for _, s := range segs {
			for _, at := range s.Await {
				now += tr.hold(segs[at.Segment].Comm[at.Comm], live)
				most = max(most, now)
			}
			for _, at := range s.Await {
				drop(segs[at.Segment].Comm[at.Comm])
			}
			for _, n := range s.Ops {
				now += tr.hold(n, live)
				most = max(most, now)
				drop(n)
			}
		}
		return most
	}
	peak = walk(F)
	if p == I || p == W {
		peak = walk(I)
	}
	if p == B || p == W {
		peak = walk(p)
	}
	return peak, now
}

// hold counts what a node allocates.
func (tr *Trace) hold(n *Node, live map[int]int64) (sum int64) {
	switch n.Op.Role {
	case data, recv, recvGrad, importing, exportGrad, sendGrad, export, importGrad, accumulate, reduce, offload:
		return 0
	case alias:
		return 0
	}
	for i, v := range n.Out {
		if n.Acc > 0 && i == len(n.Out)-1 {
			continue // the gradient's accumulator
		}
		b := tensor.ClassBytes(int64(tensor.Len(v.Local) * v.DType.Size()))
		live[v.ID] = b
		sum += b
	}
	for _, e := range n.Then {
		sum += tr.hold(e, live)
	}
	return sum
}
