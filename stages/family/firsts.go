package family

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"

	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// firsts are what adapters begin with, which each rank makes of whole weights, all of them the same.
type firsts struct {
	lora *block.Lora
	fill FillFunc
	mu   sync.Mutex
	made map[string][2]*mat.Dense // A and B of a linear
}

// of fills a region of an adapter's A or B, or of what it began with; other parameters are as they were.
func (f *firsts) of(weights map[string]*grad.Param, p *grad.Param, g Region, dst []float32) (bool, error) {
	names := [][2]string{{".lora_A.weight", ".lora_B.weight"}, block.First}
	for k := range 4 {
		base, ok := strings.CutSuffix(p.Name, names[k/2][k%2])
		switch l := f.lora.Of(base); {
		case !ok || l == nil:
		case l.Starts():
			m, err := f.make(base, l, weights[base+".weight"])
			if err != nil {
				return false, err
			}
			iv := g.Intervals(p)
			for i := iv[0][0]; i < iv[0][1]; i++ {
				for _, x := range m[k%2].RawRowView(i)[iv[1][0]:iv[1][1]] {
					dst[0], dst = float32(x), dst[1:]
				}
			}
			return true, nil
		case l.Init == "gaussian" && k == 0: // a deviation of 1/r in place of 1/√(3 in)
			ok, err := f.fill("param", p, g, dst)
			for i := range dst {
				dst[i] *= float32(math.Sqrt(3*float64(p.Shape[len(p.Shape)-1])) / float64(l.Rank))
			}
			return ok, err
		}
	}
	return f.fill("param", p, g, dst)
}

// make makes A and B of a linear once.
func (f *firsts) make(base string, l *block.Lora, w *grad.Param) (m [2]*mat.Dense, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.made[base]; ok {
		return m, nil
	}
	read := func(p *grad.Param) *mat.Dense {
		v, widened := make([]float32, p.Shape[0]*p.Shape[1]), make([]float64, p.Shape[0]*p.Shape[1])
		_, bad := f.fill("param", p, Region{To: p.Shape[0]}, v)
		for i, x := range v {
			widened[i] = float64(x)
		}
		err = errors.Join(err, bad)
		return mat.NewDense(p.Shape[0], p.Shape[1], widened)
	}
	weight, draw := read(w), read(&grad.Param{Name: base + ".lora_A.weight", Shape: []int{l.Rank, w.Shape[1]}})
	if err == nil {
		if m = beginnings(weight, l, draw); m[0] == nil {
			err = errors.New("lora.init: no singular values are found of " + w.Name + "; name other layers in lora.targets")
		}
		f.made[base] = m
	}
	return m, err
}

// beginnings are A [r in] and B [out r] as PEFT begins them for a weight [out in] (tuners/lora/layer.py, olora_init and
// pissa_init); draw [r in] are random numbers. They are nil where a decomposition fails.
func beginnings(w *mat.Dense, l *block.Lora, draw *mat.Dense) (m [2]*mat.Dense) {
	if l.Init == "olora" {
		q, r := columns(w, l.Rank)
		return [2]*mat.Dense{r, q}
	}
	var a, b, u, v, small mat.Dense
	basis, of := mat.Matrix(nil), mat.Matrix(w)
	if _, rounds, found := strings.Cut(l.Init, "_niter_"); found { // torch.svd_lowrank
		n, _ := strconv.Atoi(rounds) // its section has seen it
		basis = draw.T()
		for k := range 2*n + 1 {
			var next mat.Dense
			next.Mul([]mat.Matrix{w, w.T()}[k%2], basis)
			basis, _ = columns(&next, l.Rank) // R is not asked for
		}
		small.Mul(basis.T(), w)
		of = &small
	}
	var svd mat.SVD
	if !svd.Factorize(of, mat.SVDThin) {
		return m
	}
	roots := mat.NewDiagDense(l.Rank, svd.Values(nil)[:l.Rank])
	for i := range l.Rank {
		roots.SetDiag(i, math.Sqrt(roots.At(i, i)/l.Scale()))
	}
	svd.UTo(&u)
	svd.VTo(&v)
	a.Mul(roots, v.Slice(0, v.RawMatrix().Rows, 0, l.Rank).T())
	if basis != nil {
		inner := mat.DenseCopyOf(&u)
		u.Reset()
		u.Mul(basis, inner)
	}
	b.Mul(u.Slice(0, u.RawMatrix().Rows, 0, l.Rank), roots)
	return [2]*mat.Dense{&a, &b}
}

// columns are the first n columns of Q and the first n rows of R of a matrix' QR decomposition.
func columns(x *mat.Dense, n int) (q, r *mat.Dense) {
	q = mat.DenseCopyOf(x)
	rows, cols := q.Dims()
	tau, work := make([]float64, min(rows, cols)), make([]float64, 64*cols)
	lapack64.Geqrf(q.RawMatrix(), tau, work, len(work))
	r = mat.NewDense(n, cols, nil)
	for i := range n {
		copy(r.RawRowView(i)[i:], q.RawRowView(i)[i:])
	}
	q = mat.DenseCopyOf(q.Slice(0, rows, 0, n))
	lapack64.Orgqr(q.RawMatrix(), tau[:n], work, len(work))
	return q, r
}
