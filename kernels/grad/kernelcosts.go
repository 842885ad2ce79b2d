package grad

import "github.com/lfactor/lfactor/kernels"

// KernelCost is what one kind of kernel costs in a segment.
type KernelCost struct {
	Kernel kernels.Op
	Again  bool // run a second time, for a backward that saved nothing
	Cost
}

// Plus is two costs together.
func (c Cost) Plus(d Cost) Cost {
	return Cost{Flops: c.Flops + d.Flops, Filled: c.Filled + d.Filled, Bytes: c.Bytes + d.Bytes, Comm: c.Comm + d.Comm,
		Calls: c.Calls + d.Calls}
}

// Times is the cost of so many of it.
func (c Cost) Times(n int) Cost {
	m := int64(n)
	return Cost{Flops: m * c.Flops, Filled: m * c.Filled, Bytes: m * c.Bytes, Comm: m * c.Comm, Calls: n * c.Calls}
}

// KernelCosts are the parts of a segment's cost, by kernel in the order of their first calls; together they
// are the segment's arithmetic, traffic and calls.
func (tr *Trace) KernelCosts(s *Segment) (out []KernelCost) {
	t := Tape{Options: tr.Options}
	at := map[KernelCost]int{}
	var add func(n *Node, again bool)
	add = func(n *Node, again bool) {
		alone := *n
		alone.Then = nil
		var c Cost
		if t.cost(&c, &alone); c.Calls > 0 {
			key := KernelCost{Kernel: n.Op.Kernel, Again: again}
			i, known := at[key]
			if !known {
				i, at[key] = len(out), len(out)
				out = append(out, key)
			}
			out[i].Cost = out[i].Cost.Plus(c)
		}
		for _, e := range n.Then {
			add(e, again)
		}
	}
	for _, n := range s.Ops {
		add(n, n.Clone)
	}
	return out
}
