package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// The operations of Gated DeltaNet (arXiv:2412.06464).
func init() {
	table[kernels.CausalConv] = func(c *kernels.Call) { convolve(c, -1) }
	table[kernels.CausalConvDX] = func(c *kernels.Call) { convolve(c, 1) }
	table[kernels.CausalConvDW] = convDW
	table[kernels.DeltaGates] = deltaGates
	table[kernels.DeltaGatesBwd] = deltaGatesBwd
	table[kernels.DeltaRule] = deltaRule
	table[kernels.DeltaRuleBwd] = deltaRuleBwd
}

// convolve reads rows before (sign -1) or behind a row, as far as its sequence goes.
func convolve(c *kernels.Call, sign int) {
	x, w, cu := load(c.In[0]), load(c.In[1]), c.In[2].I32()
	cols, taps := c.In[1].Shape[0], c.In[1].Shape[1]
	y := make([]float64, len(x))
	for s := range len(cu) - 1 {
		for i := int(cu[s]); i < int(cu[s+1]); i++ {
			for j := range taps {
				at := i + sign*(taps-1-j)
				if at < int(cu[s]) || at >= int(cu[s+1]) {
					continue
				}
				for col := range cols {
					y[i*cols+col] += w[col*taps+j] * x[at*cols+col]
				}
			}
		}
	}
	store(c.Out[0], y)
}

// convDW sets or adds the gradient of the taps of a depthwise causal convolution.
func convDW(c *kernels.Call) {
	dy, x, cu := load(c.In[0]), load(c.In[1]), c.In[2].I32()
	cols, taps := c.Out[0].Shape[0], c.Out[0].Shape[1]
	dw := make([]float64, cols*taps)
	if c.Attr.I[0] == kernels.Accumulate {
		dw = load(c.Out[0])
	}
	for s := range len(cu) - 1 {
		for i := int(cu[s]); i < int(cu[s+1]); i++ {
			for j := range taps {
				if at := i - (taps - 1 - j); at >= int(cu[s]) {
					for col := range cols {
						dw[col*taps+j] += dy[i*cols+col] * x[at*cols+col]
					}
				}
			}
		}
	}
	store(c.Out[0], dw)
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// deltaGates sets the decay g = −exp(A)·softplus(a + dt) and the step β = sigmoid(b) of each head.
func deltaGates(c *kernels.Call) {
	a, b, decay, bias := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3])
	g, beta := make([]float64, len(a)), make([]float64, len(a))
	for i := range a {
		j := i % len(decay)
		g[i], beta[i] = -math.Exp(decay[j])*softplus(a[i]+bias[j]), sigmoid(b[i])
	}
	store(c.Out[0], g)
	store(c.Out[1], beta)
}

// deltaGatesBwd is the gradient of deltaGates for a, b, A and dt.
func deltaGatesBwd(c *kernels.Call) {
	dg, dbeta, a, b, decay, bias := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3]), load(c.In[4]),
		load(c.In[5])
	da, db := make([]float64, len(a)), make([]float64, len(a))
	for i := range a {
		j, s := i%len(decay), sigmoid(b[i])
		da[i], db[i] = -dg[i]*math.Exp(decay[j])*sigmoid(a[i]+bias[j]), dbeta[i]*s*(1-s)
	}
	store(c.Out[0], da)
	store(c.Out[1], db)
}

// unit is x over its length, and one over that.
func unit(x []float64, eps, scale float64) (y []float64, r float64) {
	r = 1 / math.Sqrt(dot(x, x)+eps)
	y = make([]float64, len(x))
	axpy(y, r*scale, x)
	return y, r
}

// unitBwd adds the gradient of x, of which unit gave r, from that of its unit vector.
func unitBwd(dx, dy, x []float64, r, scale float64) {
	axpy(dx, scale*r, dy)
	axpy(dx, -scale*r*r*r*dot(x, dy), x)
}

// deltaWalk is one value head along one sequence: the states before and after each token.
type deltaWalk struct {
	q, k, v, u [][]float64 // unit queries and keys, values, what is written
	rq, rk     []float64
	decayed    [][]float64 // states [d·e] before the update
	after      [][]float64
}

// walk carries the state of one value head through the tokens from … to−1 of a sequence, and keeps what
// each of them read and wrote.
//
//lfvet:params the operands of one operation, by the names of its contract
func walk(c *kernels.Call, q, k, v heads, g, beta []float64, from, to, head int) (w deltaWalk) {
	d, e, n := q.d, v.d, v.h
	key, scale := head*q.h/n, 1/math.Sqrt(float64(q.d))
	s := make([]float64, d*e)
	for i := from; i < to; i++ {
		qi, rq := unit(q.row(i, key), c.Attr.F[0], scale)
		ki, rk := unit(k.row(i, key), c.Attr.F[0], 1)
		decayed, u := make([]float64, d*e), make([]float64, e)
		axpy(decayed, math.Exp(g[i*n+head]), s)
		axpy(u, beta[i*n+head], v.row(i, head))
		for a := range d {
			axpy(u, -beta[i*n+head]*ki[a], decayed[a*e:(a+1)*e])
		}
		s = append([]float64(nil), decayed...)
		for a := range d {
			axpy(s[a*e:(a+1)*e], ki[a], u)
		}
		w.q, w.k, w.v, w.u = append(w.q, qi), append(w.k, ki), append(w.v, v.row(i, head)), append(w.u, u)
		w.rq, w.rk = append(w.rq, rq), append(w.rk, rk)
		w.decayed, w.after = append(w.decayed, decayed), append(w.after, s)
	}
	return w
}

// deltaRule sets o_t = S_t·q_t with S_t = exp(g_t)·S_{t−1} + β_t·(v_t − exp(g_t)·S_{t−1}·k_t)·k_tᵀ.
func deltaRule(c *kernels.Call) {
	q, k, v, o := loadHeads(c.In[0]), loadHeads(c.In[1]), loadHeads(c.In[2]), zeroHeads(c.Out[0])
	g, beta, cu := load(c.In[3]), load(c.In[4]), c.In[5].I32()
	for s := range len(cu) - 1 {
		for head := range v.h {
			w := walk(c, q, k, v, g, beta, int(cu[s]), int(cu[s+1]), head)
			for i, state := range w.after {
				for a, x := range w.q[i] {
					axpy(o.row(int(cu[s])+i, head), x, state[a*v.d:(a+1)*v.d])
				}
			}
		}
	}
	store(c.Out[0], o.v)
}

// deltaRuleBwd goes back through the same recurrence, from the states that a forward keeps.
func deltaRuleBwd(c *kernels.Call) {
	do, q, k, v := loadHeads(c.In[0]), loadHeads(c.In[1]), loadHeads(c.In[2]), loadHeads(c.In[3])
	g, beta, cu := load(c.In[4]), load(c.In[5]), c.In[6].I32()
	dq, dk, dv := zeroHeads(c.Out[0]), zeroHeads(c.Out[1]), zeroHeads(c.Out[2])
	dg, dbeta := make([]float64, len(g)), make([]float64, len(g))
	d, e, n := q.d, v.d, v.h
	for s := range len(cu) - 1 {
		for head := range n {
			w, key := walk(c, q, k, v, g, beta, int(cu[s]), int(cu[s+1]), head), head*q.h/n
			ds := make([]float64, d*e) // of the state behind the token
			for i := len(w.q) - 1; i >= 0; i-- {
				row := int(cu[s]) + i
				b, out := beta[row*n+head], do.row(row, head)
				dqi, dki, du := make([]float64, d), make([]float64, d), make([]float64, e)
				for a := range d {
					at := ds[a*e : (a+1)*e]
					axpy(at, w.q[i][a], out)
					dqi[a] = dot(w.after[i][a*e:(a+1)*e], out)
					dki[a] = dot(at, w.u[i])
					axpy(du, w.k[i][a], at)
				}
				axpy(dv.row(row, head), b, du)
				left := append([]float64(nil), w.v[i]...) // v - Sᵀk
				for a := range d {
					old := w.decayed[i][a*e : (a+1)*e]
					axpy(left, -w.k[i][a], old)
					dki[a] -= b * dot(old, du)
					axpy(ds[a*e:(a+1)*e], -b*w.k[i][a], du)
				}
				dbeta[row*n+head] = dot(du, left)
				dg[row*n+head] = dot(ds, w.decayed[i])
				for a := range ds {
					ds[a] *= math.Exp(g[row*n+head])
				}
				unitBwd(dq.row(row, key), dqi, q.row(row, key), w.rq[i], 1/math.Sqrt(float64(d)))
				unitBwd(dk.row(row, key), dki, k.row(row, key), w.rk[i], 1)
			}
		}
	}
	for i, x := range [][]float64{dq.v, dk.v, dv.v, dg, dbeta} {
		store(c.Out[i], x)
	}
}
