package grad

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opAttnBias, opAttnBiasBwd *Op

func init() {
	opAttnBiasBwd = &Op{Name: "attention_bias_bwd", Kernel: kernels.AttentionBiasBwd}
	opAttnBias = &Op{Name: "attention_bias", Kernel: kernels.AttentionBias, VJP: attentionBiasVJP}
}

// AttentionBias is packed attention whose scores are scale·q·k and a bias by the distance of key and query:
// bias [2m+1 h] has a row for each distance from -m to m, and farther ones take the last. Shapes as
// Attention's, whose sequences are whole: members may share out heads. The bias learns.
//
//lfvet:params the operands of one operation, by the names of its contract
func (t *Tape) AttentionBias(q, k, v, cuQ, cuK, bias *Value, scale float64, causal bool) *Value {
	q = t.only(q, 1)
	k, v = t.keys(k, q, false), t.keys(v, q, false)
	at := kernels.Attr{F: [2]float64{scale}}
	if causal {
		at.I[0] = 1
	}
	in := []*Value{q, k, v, cuQ, cuK, t.sinks(bias, q)}
	return t.emit(opAttnBias, at, in, spec{[]int{q.Shape[0], q.Shape[1], v.Shape[2]}, q.DType, q.Place},
		spec{q.Shape[:2], tensor.F32, q.Place}).Out[0]
}

// attentionBiasVJP is the gradient of attention with a table of biases by distance. It is that of
// attention with the table's gradient as a fourth result.
func attentionBiasVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	q, k, v, bias := n.In[0], n.In[1], n.In[2], n.In[5]
	g := make([]*Value, len(n.In))
	if !leg(0) && !leg(1) && !leg(2) && !leg(5) {
		return g
	}
	t.phase = I
	d := t.to(dy[0], n.Out[0].Place)
	b := t.emit(opAttnBiasBwd, n.Attr, append([]*Value{d, q, k, v, n.Out[0], n.Out[1]}, n.In[3:]...),
		spec{q.Shape, q.DType, q.Place}, spec{k.Shape, k.DType, k.Place}, spec{v.Shape, v.DType, v.Place},
		spec{bias.Shape, tableType(bias), bias.Place})
	copy(g, b.Out[:3])
	g[5] = b.Out[3]
	return g
}

// RelativeBuckets are T5's buckets of the distances from -most to most, key less query: half of them for either side,
// or all for keys before the query with causal; half of a side's for its nearest distances, and the others up to most
// in steps of one ratio. Rows of a table of buckets by them are the bias of AttentionBias.
func RelativeBuckets(buckets, most int, causal bool) []int32 {
	l := make([]int32, 2*most+1)
	for i := range l {
		x, first, n := i-most, 0, buckets
		if causal {
			x = max(0, -x)
		} else if n /= 2; x > 0 {
			first = n
		} else {
			x = -x
		}
		near := n / 2
		if x >= near {
			ratio := float32(math.Log(float64(float32(x)/float32(near)))) /
				float32(math.Log(float64(most)/float64(near)))
			x = min(n-1, near+int(ratio*float32(n-near)))
		}
		l[i] = int32(first + x)
	}
	return l
}
