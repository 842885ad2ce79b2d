package calibrate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

var _ = register(Method{Name: "gptq", Source: "arXiv:2210.17323, algorithm 1", Doc: "4-bit integers around zero " +
	"with a scale for a group of columns; a column's error goes onto those behind it (GPTQ's layout)", rounded: true,
	Orders: true, block: gptqBlock})

// damping is the share of the mean of the sums' diagonal that is added to it.
const damping = 0.01

// gptqColumns are the columns whose errors are put onto the rest at once.
const gptqColumns = 128

func gptqBlock(b *blockOf) error {
	for _, in := range b.inputs {
		h, order := symmetric(in), []int(nil)
		if b.job.ActOrder {
			order = actOrder(h)
			h = ordered(h, order)
		}
		u, dead, err := gptqFactor(h, damping)
		if err != nil {
			return fmt.Errorf("%s: %w", in.names[0], err)
		}
		for _, name := range b.tensors(in) {
			m, err := b.matrix(name)
			if err != nil {
				return err
			}
			if m != nil {
				gptq(m.w, u, dead, order, m.coded)
			}
		}
	}
	return nil
}

// symmetric are the sums of inputs as a matrix, twice their mean over rows as the paper's Hessian is.
func symmetric(in *inputs) *mat.SymDense {
	k, v := len(in.mags), in.sums.F32()
	h := mat.NewSymDense(k, nil)
	for i := range k {
		for j := i; j < k; j++ {
			h.SetSym(i, j, 2/float64(in.rows)*float64(v[i*k+j]))
		}
	}
	return h
}

// actOrder are the columns from the greatest mean square of what is read down, as the authors' act-order
// takes them; columns that are always 0 count as 1.
func actOrder(h *mat.SymDense) []int {
	order := make([]int, h.SymmetricDim())
	of := func(i int) float64 {
		if x := h.At(i, i); x != 0 {
			return x
		}
		return 1
	}
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of(b), of(a)) })
	return order
}

// ordered has rows and columns of h in an order.
func ordered(h *mat.SymDense, order []int) *mat.SymDense {
	out := mat.NewSymDense(len(order), nil)
	for i, a := range order {
		for j := i; j < len(order); j++ {
			out.SetSym(i, j, h.At(a, order[j]))
		}
	}
	return out
}

// gptqFactor is the upper factor of Cholesky of h's inverse, uᵀu, with a share of the mean of its diagonal
// added to that of h. It is the inverse of the factor of h = f·fᵀ whose f is upper, as h's rows and columns
// in the other order give it. Columns that were always 0 are dead.
func gptqFactor(h *mat.SymDense, damp float64) (u *mat.Dense, dead []bool, err error) {
	k := h.SymmetricDim()
	dead = make([]bool, k)
	sum := 0.0
	for i := range k {
		if h.At(i, i) == 0 {
			dead[i] = true
			h.SetSym(i, i, 1)
		}
		sum += h.At(i, i)
	}
	turned := mat.NewSymDense(k, nil) // rows and columns from the last to the first
	for i := range k {
		h.SetSym(i, i, h.At(i, i)+damp*sum/float64(k))
		for j := range i + 1 {
			turned.SetSym(k-1-i, k-1-j, h.At(i, j))
		}
	}
	var factor mat.Cholesky
	if !factor.Factorize(turned) {
		return nil, nil, fmt.Errorf("the sums of what it reads have no Cholesky factor: the text gives numbers " +
			"that are not finite")
	}
	var lower, inverse mat.TriDense
	factor.LTo(&lower)
	if err := inverse.InverseTri(&lower); err != nil {
		var c mat.Condition
		if !errors.As(err, &c) {
			return nil, nil, err
		}
	}
	u = mat.NewDense(k, k, nil)
	for i := range k {
		for j := range i + 1 {
			u.Set(k-1-i, k-1-j, inverse.At(i, j))
		}
	}
	return u, dead, nil
}

// gptq chooses the codes of w [n k], column by column: the error of each, over the factor's diagonal, is
// taken from the columns behind it as the factor's row says. A group's scale is that of its columns when
// its first one's turn comes, with zero at 8. Columns that are dead become 0. With an order, which u and dead
// are in, columns take their turns in it, and those of a turn are a group. w is used up.
func gptq(w, u *mat.Dense, dead []bool, order []int, out *quant.Coded) {
	n, k := w.Dims()
	if order != nil {
		turned := mat.NewDense(n, k, nil)
		forRows(n, func(r int) {
			from, to := w.RawRowView(r), turned.RawRowView(r)
			for j, c := range order {
				to[j] = from[c]
			}
		})
		w = turned
		out.SetOrder(order)
	}
	for at := 0; at < k; at += gptqColumns {
		end := min(at+gptqColumns, k)
		errs := mat.NewDense(n, end-at, nil)
		forRows(n, func(r int) {
			row, e := w.RawRowView(r), errs.RawRowView(r)
			var scale float32
			for j := at; j < end; j++ {
				if j%out.Group == 0 {
					for i := j; i < j+out.Group; i++ {
						if dead[i] {
							row[i] = 0
						}
					}
					scale = out.SetGroup(r, j/out.Group, gptqScale(row[j:j+out.Group]), 8)
				}
				code, f := 8.0, u.RawRowView(j)
				if scale != 0 {
					code = min(max(math.RoundToEven(row[j]/float64(scale))+8, 0), 15)
				}
				c := j
				if order != nil {
					c = order[j]
				}
				out.Set(r, c, uint8(code))
				e[j-at] = (row[j] - (code-8)*float64(scale)) / f[j]
				for i := j; i < end; i++ {
					row[i] -= e[j-at] * f[i]
				}
			}
		})
		if end < k {
			var change mat.Dense
			change.Mul(errs, u.Slice(at, end, end, k))
			rest := w.Slice(0, n, end, k).(*mat.Dense)
			rest.Sub(rest, &change)
		}
	}
}

// gptqShrinks are the scales that are tried for a group: each is a fiftieth of the first smaller.
const gptqShrinks = 20

// gptqScale is, of the greatest magnitude over 7.5 and those down to 0.62 of it, the scale that leaves the
// least sum of errors to the power of 2.25 (the authors' program, which may search too, has 2.4).
func gptqScale(v []float64) float32 {
	first, best, least := most(v)/7.5, 0.0, math.Inf(1)
	for i := range gptqShrinks {
		scale, sum := first*(1-float64(i)/50), 0.0
		if scale == 0 {
			break
		}
		for _, x := range v {
			d := math.Abs(min(max(math.RoundToEven(x/scale), -8), 7)*scale - x)
			sum += d * d * math.Sqrt(math.Sqrt(d)) // 2.25
		}
		if sum < least {
			best, least = scale, sum
		}
	}
	return float32(best)
}

// most is the greatest magnitude.
func most(v []float64) (out float64) {
	for _, x := range v {
		out = max(out, math.Abs(x))
	}
	return out
}
