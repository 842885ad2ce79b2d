package features

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Statistics say how far drawn pictures lie from reference ones, by vectors that describe them.
type Statistics struct {
	Drawn     int `json:"drawn"`     // pictures
	Reference int `json:"reference"` // pictures
	Width     int `json:"width"`     // of a vector
	// Frechet is the distance of the normal distributions that have the sets' means and covariances
	// (arXiv:1706.08500): FID with Inception's vectors. It depends on the number of pictures.
	Frechet float64 `json:"frechet"`
	// Kernel is the unbiased estimate of the squared maximum mean discrepancy under the kernel (x·y/d+1)³
	// (arXiv:1801.01401): KID with Inception's vectors. It may be negative, and is over no more than
	// CloseMost pictures of each set.
	Kernel float64 `json:"kernel"`
	// Precision is the share of drawn pictures among the reference ones, and Recall the converse: within the distance
	// from one of them to its third nearest (arXiv:1904.06991), over no more than CloseMost of each set.
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
}

// CloseMost bounds the pictures of a set that are compared pair by pair: the first ones.
const CloseMost = 2000

// nearest is the neighbour whose distance is the reach of a picture.
const nearest = 3

// Compare gives the statistics of drawn and reference vectors, of one width. Four of each are the least.
func Compare(drawn, reference [][]float32) (*Statistics, error) {
	for _, set := range [][][]float32{drawn, reference} {
		if len(set) <= nearest {
			return nil, fmt.Errorf("%d pictures have no statistics: %d of each set are the least", len(set), nearest+1)
		}
	}
	s := &Statistics{Drawn: len(drawn), Reference: len(reference), Width: len(drawn[0])}
	for _, v := range slices.Concat(drawn, reference) {
		if len(v) != s.Width {
			return nil, fmt.Errorf("vectors of %d and of %d numbers", s.Width, len(v))
		}
		for _, x := range v {
			if x != x || math.IsInf(float64(x), 0) {
				return nil, fmt.Errorf("a picture's vector is not finite")
			}
		}
	}
	var err error
	if s.Frechet, err = frechet(drawn, reference); err != nil {
		return nil, err
	}
	a, b := dense(drawn[:min(len(drawn), CloseMost)]), dense(reference[:min(len(reference), CloseMost)])
	s.Kernel = kernelDistance(a, b)
	s.Precision, s.Recall = within(a, b)
	return s, nil
}

func dense(rows [][]float32) *mat.Dense {
	m := mat.NewDense(len(rows), len(rows[0]), nil)
	for i, r := range rows {
		for j, v := range r {
			m.Set(i, j, float64(v))
		}
	}
	return m
}

// frechet is |μ₁-μ₂|² + tr Σ₁ + tr Σ₂ - 2 tr (Σ₁Σ₂)^½. With Σ = FᵀF the last trace is the sum of the singular
// values of F₁F₂ᵀ, which needs no root of a matrix that may be singular.
func frechet(a, b [][]float32) (float64, error) {
	meanA, fa, err := factor(a)
	if err != nil {
		return 0, err
	}
	meanB, fb, err := factor(b)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for i, m := range meanA {
		sum += (m - meanB[i]) * (m - meanB[i])
	}
	for _, f := range []*mat.Dense{fa, fb} {
		for _, v := range f.RawMatrix().Data {
			sum += v * v
		}
	}
	var cross mat.Dense
	cross.Mul(fa, fb.T())
	var svd mat.SVD
	if !svd.Factorize(&cross, mat.SVDNone) {
		return 0, fmt.Errorf("the singular values of the sets' product are not found")
	}
	for _, v := range svd.Values(nil) {
		sum -= 2 * v
	}
	return max(0, sum), nil
}

// factor gives the mean of vectors and F with FᵀF their covariance: as many rows as there are vectors, or as
// they have numbers if that is less.
func factor(rows [][]float32) (mean []float64, f *mat.Dense, err error) {
	n, d := len(rows), len(rows[0])
	f = dense(rows)
	mean = make([]float64, d)
	for j := range d {
		for i := range n {
			mean[j] += f.At(i, j)
		}
		mean[j] /= float64(n)
	}
	f.Apply(func(_, j int, v float64) float64 { return (v - mean[j]) / math.Sqrt(float64(n-1)) }, f)
	if n <= d {
		return mean, f, nil
	}
	var cov mat.SymDense
	cov.SymOuterK(1, f.T())
	var eigen mat.EigenSym
	if !eigen.Factorize(&cov, true) {
		return nil, nil, fmt.Errorf("the eigenvalues of a covariance are not found")
	}
	var v mat.Dense
	eigen.VectorsTo(&v)
	f = mat.DenseCopyOf(v.T())
	values := eigen.Values(nil)
	f.Apply(func(i, _ int, x float64) float64 { return x * math.Sqrt(max(0, values[i])) }, f)
	return mean, f, nil
}

// kernelDistance is the unbiased squared discrepancy of two sets' rows.
func kernelDistance(a, b *mat.Dense) float64 {
	total := func(x, y *mat.Dense, same bool) float64 {
		m, d := x.Dims()
		n := rowsOf(y)
		var p mat.Dense
		p.Mul(x, y.T())
		sum := 0.0
		for i := range m {
			for j := range n {
				if !same || i != j {
					sum += math.Pow(p.At(i, j)/float64(d)+1, 3)
				}
			}
		}
		if same {
			n--
		}
		return sum / float64(m) / float64(n)
	}
	return total(a, a, true) + total(b, b, true) - 2*total(a, b, false)
}

// within is the share of a's rows within reach of one of b's, and of b's within reach of one of a's.
func within(a, b *mat.Dense) (ofA, ofB float64) {
	between, reachA, reachB := squares(a, b), reach(a), reach(b)
	m, n := between.Dims()
	foundA, foundB := make([]bool, m), make([]bool, n)
	for i := range m {
		for j := range n {
			d := between.At(i, j)
			foundA[i] = foundA[i] || d <= reachB[j]
			foundB[j] = foundB[j] || d <= reachA[i]
		}
	}
	share := func(found []bool) float64 {
		k := 0
		for _, f := range found {
			if f {
				k++
			}
		}
		return float64(k) / float64(len(found))
	}
	return share(foundA), share(foundB)
}

// reach is the squared distance from each row to its third nearest other one.
func reach(x *mat.Dense) []float64 {
	d := squares(x, x)
	n := rowsOf(d)
	out := make([]float64, n)
	for i := range out {
		row := slices.Clone(d.RawRowView(i))
		slices.Sort(row)
		out[i] = row[nearest] // the first is its own
	}
	return out
}

// squares are the squared distances between rows.
func squares(x, y *mat.Dense) *mat.Dense {
	m, d := x.Dims()
	n := rowsOf(y)
	out := mat.NewDense(m, n, nil)
	for i := range m {
		for j := range n {
			sum := 0.0
			for k := range d {
				v := x.At(i, k) - y.At(j, k)
				sum += v * v
			}
			out.Set(i, j, sum)
		}
	}
	return out
}

func rowsOf(m *mat.Dense) int { return m.RawMatrix().Rows }
