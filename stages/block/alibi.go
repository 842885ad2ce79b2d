package block

import (
	"math"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Alibi is attention with linear biases (arXiv:2108.12409) in place of rotary embedding: the score of a
// query and a key has its head's slope times the key's place added, which under a softmax is the same as
// the slope times their distance.
type Alibi struct {
	Slopes []float64 // of scores by tokens, one for each head; nil for a layer without
	Places int       // tokens of the longest sequence: every token's place is below it
}

// Slopes are those of the paper for n heads: powers of 2^(-8/m) for the greatest power of two m that n
// has room for, and every other power of 2^(-4/m) for the heads beyond.
func Slopes(n int) (l []float64) {
	m := 1
	for 2*m <= n {
		m *= 2
	}
	for i := range m {
		l = append(l, math.Exp2(-8*float64(i+1)/float64(m)))
	}
	for i := range n - m {
		l = append(l, math.Exp2(-4*float64(2*i+1)/float64(m)))
	}
	return l
}

// placeColumns are the numbers that biases add to a head's query and key: two that are used, and as many
// more as keep rows of 16-bit numbers aligned to 16 bytes.
const placeColumns = 8

// placeBase is the base in which a key's place is written as two digits, each a whole number that bfloat16 has exactly.
const placeBase = 256

// record puts columns before q and k [t h d] whose product, times the scale of scores, is the
// bias. Data: positions [t].
func (a Alibi) record(r *Rec, q, k *grad.Value, scale float64) (wideQ, wideK *grad.Value) {
	if a.Slopes == nil {
		return q, k
	}
	t, h := r.T, q.Shape[1]
	if r.places == nil {
		digits := make([]float32, a.Places*placeColumns)
		for i := range a.Places {
			digits[i*placeColumns] = float32(i / placeBase)
			digits[i*placeColumns+1] = float32(i % placeBase)
		}
		factors := make([]float32, r.Shape.Rows*h*placeColumns)
		for i := range r.Shape.Rows * h {
			s := a.Slopes[i%h] / scale
			factors[i*placeColumns], factors[i*placeColumns+1] = float32(placeBase*s), float32(s)
		}
		own := t.OwnTokens(t.Data("positions", tensor.I32, r.Shape.Rows))
		keys := t.Embed(own, t.ConstOf("alibi.places", digits, a.Places, placeColumns))
		r.places = &places{keys: t.Heads(keys, placeColumns),
			queries: t.ConstOf("alibi.slopes", factors, r.Shape.Rows, h, placeColumns)}
	}
	return t.Concat(2, t.Like(r.places.queries, q), q), t.JoinHeads(r.places.keys, k)
}

// places are the columns of queries and keys, the same for all layers of a stage.
type places struct{ queries, keys *grad.Value }
