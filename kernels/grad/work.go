package grad

import "github.com/lfactor/lfactor/kernels"

// Attended is what attention costs of a node on one rank: the work of one pair of a query and a key, and which pairs there are.
type Attended struct {
	Data    string // the microbatch's tensor with the borders of its sequences
	PerPair float64
	Causal  bool
	Window  int // keys that a query sees at most, 0 for all
}

// Attends describes a node of attention; ok is false for any other.
func (o *Options) Attends(n *Node) (a Attended, ok bool) {
	at := 0
	switch n.Op.Kernel {
	case kernels.Attention:
	case kernels.AttentionBwd:
		at = 1
	default:
		return a, false
	}
	q, k, cu := local(o.Mesh, n.In[at].Shape, n.In[at].Place), local(o.Mesh, n.In[at+1].Shape, n.In[at+1].Place), n.In[3]
	if at == 1 {
		cu = n.In[6]
	}
	s, _ := kernels.Lookup(n.Op.Kernel)
	var in [][]int
	for _, v := range n.In[:at+2] {
		in = append(in, local(o.Mesh, v.Shape, v.Place))
	}
	a = Attended{Data: cu.Node.Attr.Name, Causal: n.Attr.I[0] == 1, Window: n.Attr.I[1]}
	a.PerPair = float64(s.Flops(in, nil)) / (float64(q[0]) * float64(k[0]) / 2) // the contract counts half of all pairs of the packed rows
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
	if n.Op.Kernel == kernels.AttentionBwd {
		at = 1
	}
	t, s := local(o.Mesh, n.In[at].Shape, n.In[at].Place)[0], local(o.Mesh, n.In[at+1].Shape, n.In[at+1].Place)[0]
	count := 1.0
	if whole := n.In[at].Shape[0]; whole > t { // its share of the pairs of all queries, as if they were evenly spread
		count, t = float64(t)/float64(whole), whole
	}
	if o.SeqLen != nil && t == s {
		if l := o.SeqLen(a.Data); l > 0 && l < t {
			count, t, s = count*float64(t)/float64(l), l, l
		}
	}
	return int64(a.PerPair * a.Pairs(t, s) * count), true
}
