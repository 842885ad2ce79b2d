package objective

import "math"

// infonce trains embeddings: the vector of a query is to be nearer to that of its own positive text than to
// all other texts of the microbatch, the positives of other queries and the negatives that the data has.
var _ = register(Loss{Name: "infonce", Source: "arXiv:1807.03748; in-batch negatives arXiv:1705.00652",
	Doc: "−log softmax of cos(q, p)/temperature over the positives and negatives of the microbatch; of texts {query, " +
		"positive, negatives}; a mean over queries", Reads: []string{"temperature", "pooling"}, Vectors: contrast})

// The roles of a sequence, which the column Margin has of each of its rows. The first positive behind a query
// is its own.
// In the words of the field: contrastive loss.
const (
	Query    = 0
	Positive = 1
	Negative = -1
)

// The ways to make one vector of a sequence's.
const (
	PoolMean = iota // the mean of all
	PoolLast        // that of the last token
)

// Poolings are their names, as objective.pooling has them.
var Poolings = []string{PoolMean: "mean", PoolLast: "last"}

// Vectors are the rows of a microbatch with a vector each, X [rows D]. Row i is a token of sequence Seq[i], -1
// for none, and Weight the share of its query in the step.
type Vectors struct {
	X      []float32
	D      int
	Seq    []int32
	Weight []float32
	More   []float32 // [rows Columns]
}

// pooled is a sequence's vector of length 1.
type pooled struct {
	rows   []int // that it is made of
	unit   []float64
	length float64 // before it was divided by it
	weight float64
	role   float64
	grad   []float64
}

// Pool makes one vector of length 1 of the vectors x [n d] of a sequence; one of zeros stays.
func Pool(x []float32, d, pooling int) []float64 {
	n := len(x) / d
	rows := make([]int, 0, n)
	for i := range n {
		rows = append(rows, i)
	}
	p := pooled{rows: rows}
	p.pool(x, d, pooling)
	return p.unit
}

// pool sets the vector.
func (s *pooled) pool(x []float32, d, pooling int) {
	if pooling == PoolLast {
		s.rows = s.rows[len(s.rows)-1:]
	}
	s.unit = make([]float64, d)
	for _, i := range s.rows {
		for k, v := range x[i*d : (i+1)*d] {
			s.unit[k] += float64(v) / float64(len(s.rows))
		}
	}
	s.length = 0
	for _, v := range s.unit {
		s.length += v * v
	}
	if s.length = math.Sqrt(s.length); s.length == 0 {
		return
	}
	for k := range s.unit {
		s.unit[k] /= s.length
	}
}

// spread adds the derivatives by the rows' vectors to grad.
func (s *pooled) spread(grad []float64) {
	if s.length == 0 {
		return
	}
	along := dot(s.grad, s.unit)
	for k, g := range s.grad {
		g = (g - along*s.unit[k]) / s.length / float64(len(s.rows))
		for _, i := range s.rows {
			grad[i*len(s.grad)+k] += g
		}
	}
}

func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// contrast is the loss of the queries of a microbatch, and adds its derivatives by v.X to grad.
func contrast(p *Params, v *Vectors, grad []float64) (loss float64) {
	all := sequences(p, v)
	var texts []*pooled
	for _, s := range all {
		if s.role != Query {
			texts = append(texts, s)
		}
	}
	z, own := make([]float64, len(texts)), 0
	for i, q := range all {
		if q.role != Query || i+1 == len(all) || all[i+1].role != Positive {
			continue
		}
		for k, t := range texts {
			if z[k] = dot(q.unit, t.unit) / p.Temperature; t == all[i+1] {
				own = k
			}
		}
		lse := logSum(z)
		loss += q.weight * (lse - z[own])
		for k, t := range texts {
			g := math.Exp(z[k] - lse)
			if k == own {
				g--
			}
			g *= q.weight / p.Temperature
			for j := range q.grad {
				q.grad[j] += g * t.unit[j]
				t.grad[j] += g * q.unit[j]
			}
		}
	}
	for _, s := range all {
		s.spread(grad)
	}
	return loss
}

// sequences are the vectors of a microbatch's sequences, in order.
func sequences(p *Params, v *Vectors) (all []*pooled) {
	last := int32(-1)
	for i, s := range v.Seq {
		if s < 0 {
			continue
		}
		if len(all) == 0 || s != last {
			all = append(all, &pooled{weight: float64(v.Weight[i]), role: float64(v.More[i*Columns+Margin]),
				grad: make([]float64, v.D)})
			last = s
		}
		x := all[len(all)-1]
		x.rows = append(x.rows, i)
	}
	for _, s := range all {
		s.pool(v.X, v.D, int(p.Pooling))
	}
	return all
}

// logSum is log Σ e^z.
func logSum(z []float64) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, x := range z {
		top = max(top, x)
	}
	for _, x := range z {
		sum += math.Exp(x - top)
	}
	return top + math.Log(sum)
}
