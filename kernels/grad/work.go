package grad

import "github.com/lfactor/lfactor/kernels"

// Attended is what attention costs of a node on one rank: the work of one pair of a query and a key, and
// which pairs there are.
type Attended struct {
	Data    string // the microbatch's tensor with the borders of its sequences
	PerPair float64
	Causal  bool
	Window  int // keys that a query sees at most, 0 for all
	// Share is that of the pairs which the nodes of the trace for one attention share, where context
	// parallelism made several of it; else 1.
	Share float64
}

// Attends describes a node of attention; ok is false for any other.
func (o *Options) Attends(n *Node) (a Attended, ok bool) {
	at := 0
	switch n.Op.Kernel {
	case kernels.Attention, kernels.AttentionPart, kernels.AttentionBias:
	case kernels.AttentionBwd, kernels.AttentionPartBwd, kernels.AttentionBiasBwd:
		at = 1
	default:
		return a, false
	}
	q, k, cu := local(o.Mesh, n.In[at].Shape, n.In[at].Place),
		local(o.Mesh, n.In[at+1].Shape, n.In[at+1].Place), n.In[3]
	if at == 1 {
		cu = n.In[6]
	}
	s, _ := kernels.Lookup(n.Op.Kernel)
	var in [][]int
	for _, v := range n.In[:at+2] {
		in = append(in, local(o.Mesh, v.Shape, v.Place))
	}
	a = Attended{Share: 1, Causal: n.Attr.I[0] == 1, Window: n.Attr.I[1]}
	if c := n.cut; c != nil {
		cu, a.Share = cu.Node.In[0], 1/float64(c.nodes())
	}
	a.Data = cu.Node.Attr.Name
	// the contract counts half of all pairs of the packed rows
	a.PerPair = float64(s.Flops(in, nil)) / (float64(q[0]) * float64(k[0]) / 2)
	return a, true
}

// Pairs is the number of queries and keys that see each other in a sequence of t queries, the last of s keys.
func (a Attended) Pairs(t, s int) float64 {
	w := s
	if a.Window > 0 {
		w = min(s, a.Window)
	}
	if !a.Causal {
		return float64(t) * float64(w)
	}
	// Query i sees s-t+i+1 keys, or w.
	short := max(0, min(t, w-(s-t))) // queries that see less than a window
	first := float64(s - t + 1)
	return float64(short)*(first+float64(short-1)/2) + float64(t-short)*float64(w)
}

// attention is the work of a node of attention. Rows whose sequences Options.SeqLen knows are that many sequences.
func (o *Options) attention(n *Node) (int64, bool) {
	a, ok := o.Attends(n)
	if !ok {
		return 0, false
	}
	at := 0
	if backwardAttention(n) {
		at = 1
	}
	if n.cut != nil {
		return int64(a.PerPair * a.Share * o.busiest(a, n.cut, n.In[at].Shape[0], n.In[at+1].Shape[0])), true
	}
	t, s := local(o.Mesh, n.In[at].Shape, n.In[at].Place)[0], local(o.Mesh, n.In[at+1].Shape, n.In[at+1].Place)[0]
	if o.Chunks > 1 && a.Causal && s >= t {
		return int64(a.PerPair * a.pairs(s-t, s, o.lengthOf(a, s))), true
	}
	count := 1.0
	if n := min(o.Sequences, t); n > 1 {
		count, t, s = float64(n), max(1, t/n), max(1, s/n)
	}
	if o.SeqLen != nil && t == s {
		if l := o.SeqLen(a.Data); l > 0 && l < t {
			count, t, s = float64(t)/float64(l), l, l
		}
	}
	return int64(a.PerPair * a.Pairs(t, s) * count), true
}

// unfused is the products and the traffic of attention whose scores go through memory: products of all queries with
// all keys of a sequence, and Options.Scores passes over what they give, of which the backward makes twice as many.
// Where recompute is selective the scores are not kept, and the backward does the forward once more.
func (o *Options) unfused(n *Node) (p []kernels.Product, bytes int64, ok bool) {
	a, ok := o.Attends(n)
	if !ok || o.Scores == 0 || n.cut != nil {
		return nil, 0, false
	}
	at, passes := 0, o.Scores
	if backwardAttention(n) {
		at, passes = 1, 2*o.Scores
	}
	q, v := local(o.Mesh, n.In[at].Shape, n.In[at].Place), n.In[at+2].Shape
	l := o.lengthOf(a, q[0])
	s, d, e := int64(l), int64(q[2]), int64(v[2])
	heads := int64(q[1]) * int64((q[0]+l-1)/l)
	forward := []kernels.Product{{Count: heads, M: s, N: s, K: d}, {Count: heads, M: s, N: e, K: s}}
	if p = forward; at == 1 {
		p = []kernels.Product{{Count: heads, M: s, N: s, K: e}, {Count: heads, M: s, N: e, K: s},
			{Count: 2 * heads, M: s, N: d, K: s}}
		if o.Recompute == RecomputeSelective {
			p, passes = append(p, forward...), passes+o.Scores
		}
	}
	width := float64(n.In[at].DType.Size())
	return p, int64(passes * width * float64(heads) * float64(s) * float64(s)), true
}

// backwardAttention tells whether the node is the backward of some kind of attention.
func backwardAttention(n *Node) bool {
	switch n.Op.Kernel {
	case kernels.AttentionBwd, kernels.AttentionPartBwd, kernels.AttentionBiasBwd:
		return true
	}
	return false
}

// work is what a device is told of a call that is bound by arithmetic.
func (o *Options) work(n *Node, s *kernels.Spec, in, out [][]int, flops, moved int64) kernels.Work {
	w := kernels.Work{Flops: flops, Bytes: moved}
	if a, ok := o.Attends(n); ok {
		rows, l := in[0], 0
		if w.Backward = backwardAttention(n); w.Backward {
			rows = in[2]
		}
		l, w.Ring = o.lengthOf(a, rows[0]), o.Size("cp")*o.Size("ulysses") > 1
		if w.Width = int64(rows[2]); a.Window > 0 && a.Window < l {
			w.Window = int64(a.Window)
		}
		const tile = kernels.AttentionRows
		w.Tiles = int64(local(o.Mesh, n.In[0].Shape, n.In[0].Place)[1]) * int64((rows[0]+l-1)/l) *
			int64((l+tile-1)/tile)
	} else if s.Products != nil {
		w.Products = s.Products(in, out)
		w.Bits, w.Rounded = fewBits(n)
		switch n.Op.Kernel {
		case kernels.GroupedLinear, kernels.GroupedLinearDX, kernels.GroupedLinearDW, kernels.PackedGrouped,
			kernels.PackedGroupedDX:
			w.Experts = true
		}
	}
	return w
}

// lowProducts are the operations that round their operands, by which product of a layer they are.
var lowProducts = map[kernels.Op]int{kernels.LowLinear: kernels.OperandsForward,
	kernels.LowLinearDX: kernels.OperandsDX, kernels.LowLinearDW: kernels.OperandsDW}

// fewBits are those of a product's operands where they are rounded to fewer than their type has, by the call
// itself or by a call before it. The gradient of weights finds both of its operands rounded.
func fewBits(n *Node) (bits int, rounds bool) {
	if product, low := lowProducts[n.Op.Kernel]; low {
		return kernels.Precisions[n.Attr.I[1]].Bits(product), product != kernels.OperandsDW
	}
	for _, v := range n.In {
		if v != nil && v.Node != nil && v.Node.Op == opRounded {
			return kernels.Precisions[v.Node.Attr.I[1]].Bits(v.Node.Attr.I[0]), false
		}
	}
	return 0, false
}

// filled is what the device could do in the time of some products.
func (o *Options) filled(p []kernels.Product) (n int64) {
	if o.Device == nil {
		return kernels.FlopsOf(p)
	}
	for i := range p { // one call each
		x, _ := o.Device(kernels.Work{Products: p[i : i+1], Flops: p[i].Flops()})
		n += x
	}
	return n
}

// nodes is the number of attention's nodes among which a member's pairs are divided.
func (c *cutOf) nodes() int {
	if !c.ring {
		return c.pieces
	}
	return (1+c.earlier)*c.members*c.pieces*c.pieces - (c.pieces - 1)
}

// pairs is the number of pairs of queries [from, to) of a microbatch's rows with the keys that they see;
// length is that of its sequences.
func (a Attended) pairs(from, to, length int) float64 {
	until := func(row int) float64 {
		n := row % length
		return float64(row/length)*a.Pairs(length, length) + a.Pairs(n, n)
	}
	return until(to) - until(from)
}

// lengthOf is that of the sequences that attention is within, of so many rows in all.
func (o *Options) lengthOf(a Attended, rows int) int {
	if o.SeqLen != nil {
		if l := o.SeqLen(a.Data); l > 0 && l < rows {
			return l
		}
	}
	return max(1, rows)
}

// busiest is the number of pairs of the member that has most of them, for which the others wait. Queries
// and keys are the rows of a node's operands over all members.
func (o *Options) busiest(a Attended, c *cutOf, queries, keys int) (most float64) {
	t := queries * c.pieces
	if !a.Causal { // of a sequence each query sees all keys
		seen := keys
		if c.key >= 0 {
			seen *= c.pieces
		}
		return float64(t/c.members) * float64(o.lengthOf(a, t)) * float64(seen) / float64(t)
	}
	before := c.before // rows of earlier chunks
	if c.key < 0 {
		before = keys - t
	}
	length, rows := o.lengthOf(a, before+t), t/(c.members*c.pieces)
	for m := range c.members {
		sum := 0.0
		for j := range c.pieces {
			at := before + c.piece(m, j)*rows
			sum += a.pairs(at, at+rows, length)
		}
		most = max(most, sum)
	}
	return most
}
