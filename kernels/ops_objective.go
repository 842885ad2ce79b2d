package kernels

import (
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Operations of post-training: losses of single tokens, and losses over answers that are made of them.
const (
	TokenNLL     Op = "token_nll"
	LogitsNLL    Op = "logits_nll"
	Objective    Op = "objective"
	ObjectiveBwd Op = "objective_bwd"

	Divergence    Op = "divergence"
	DivergenceBwd Op = "divergence_bwd"

	Contrast    Op = "contrast"
	ContrastBwd Op = "contrast_bwd"
)

var _ = register(Spec{Op: TokenNLL, Sig: "lse[t]f32 hit[t]f32 target[t]i32 -> y[t]f32",
	Doc: "y = lse - hit in float32, minus the log-probability of the target; 0 where target < 0."},
	Spec{Op: LogitsNLL, Sig: "z[t,v]f32 target[t]i32 -> y[t]f32", Doc: "y = log Σ exp z - z[target], 0 where " +
		"target < 0, with z under a soft cap F[0] > 0 as in linear_lse. The bits are those of linear_lse, lse_join " +
		"and token_nll of an unsharded vocabulary with logits z, whose activations have the dtype of number " +
		"I[0]. With I[1] = p > 1 they are those of a vocabulary in p shards of equal numbers of rows, rounded up."},
	Spec{Op: Objective, Sig: "x[t]f32 seq[t]i32 weight[t]f32 more[t,c]f32 p[n]f32 z[t]f32? -> loss[k]f32",
		Doc: "The loss of number I[0] of package objective over rows with log-probabilities F[0]·x, in float64, " +
			"in row order, rounded once; of k > 1 numbers what Look gives, which reads z, " +
			"means of rows of logits, too. p are its parameters, more its columns."},
	Spec{Op: ObjectiveBwd, Sig: "x[t]f32 seq[t]i32 weight[t]f32 more[t,c]f32 p[n]f32 seed[1]f32 -> dx[t]f32",
		Doc: "The gradient of objective to x, times seed, in float64, rounded once."})

var _ = register(Spec{Op: Divergence, Sig: "z[t,v]f32 teacher[t,v]f32 weight[t]f32 p[n]f32 -> loss[1]f32",
	Doc: "Σ weight·f over rows, f the loss of number I[0] of package objective on two rows of logits, " +
		"in float64, in row order, rounded once. p are its parameters. Rows of weight 0 are not read."},
	Spec{Op: DivergenceBwd, Sig: "z[t,v]f32 teacher[t,v]f32 weight[t]f32 p[n]f32 seed[1]f32 -> dz[t,v]f32",
		Doc: "The gradient of divergence to z, times seed, in float64, rounded once."})

var _ = register(Spec{Op: Contrast, Sig: "x[t,d]f32 seq[t]i32 weight[t]f32 more[t,c]f32 p[n]f32 -> loss[1]f32",
	Doc: "The loss of number I[0] of package objective over the vectors of sequences, of which " +
		"x has the rows, in float64, in row order, rounded once. p are its parameters, more its columns."},
	Spec{Op: ContrastBwd, Sig: "x[t,d]f32 seq[t]i32 weight[t]f32 more[t,c]f32 p[n]f32 seed[1]f32 -> dx[t,d]f32",
		Doc: "The gradient of contrast to x, times seed, in float64, rounded once."})

// StoreContrast is contrast or contrast_bwd on the processor.
func StoreContrast(c *Call) {
	f, p := objective.Numbered(c.Attr.I[0]).Vectors, objective.ParamsOf(c.In[4].F32())
	v := &objective.Vectors{X: c.In[0].F32(), D: c.In[0].Shape[1], Seq: c.In[1].I32(), Weight: c.In[2].F32(),
		More: c.In[3].F32()}
	grad, out := make([]float64, len(v.X)), c.Out[0].F32()
	loss := f(&p, v, grad)
	if c.Op == Contrast {
		out[0] = float32(loss)
		return
	}
	seed := float64(c.In[5].F32()[0])
	for i, g := range grad {
		out[i] = float32(seed * g)
	}
}

// StoreDivergence is divergence or divergence_bwd on the processor.
func StoreDivergence(c *Call) {
	f, p := objective.Numbered(c.Attr.I[0]).Logits, objective.ParamsOf(c.In[3].F32())
	z, teacher, weight, out := c.In[0].F32(), c.In[1].F32(), c.In[2].F32(), c.Out[0].F32()
	v := c.In[0].Shape[1]
	grad, loss := make([]float64, v), 0.0
	for i, w := range weight {
		row := z[i*v : (i+1)*v]
		if w != 0 {
			loss += float64(w) * f(&p, row, teacher[i*v:(i+1)*v], grad)
		}
		if c.Op == Divergence {
			continue
		}
		by := float64(w) * float64(c.In[4].F32()[0])
		for k := range row {
			if out[i*v+k] = 0; w != 0 {
				out[i*v+k] = float32(by * grad[k])
			}
		}
	}
	if c.Op == Divergence {
		out[0] = float32(loss)
	}
}

// StoreObjective is objective or objective_bwd on the processor: operations on a few numbers a row.
func StoreObjective(c *Call) {
	x, out, by := c.In[0].F32(), c.Out[0].F32(), c.Attr.F[0]
	r := &objective.Rows{LogP: make([]float32, len(x)), Seq: c.In[1].I32(), Weight: c.In[2].F32(), More: c.In[3].F32()}
	for i, v := range x {
		r.LogP[i] = float32(by) * v
	}
	p, l := objective.ParamsOf(c.In[4].F32()), objective.Numbered(c.Attr.I[0])
	dx := make([]float64, len(x))
	switch {
	case c.Op == ObjectiveBwd:
		by *= float64(c.In[5].F32()[0])
		l.Of(&p, r, dx)
	case len(out) > 1:
		if len(c.In) > 5 && c.In[5] != nil {
			r.Logit = c.In[5].F32()
		}
		by, dx = 1, l.Look(&p, r)
	default:
		by, dx = 1, []float64{l.Of(&p, r, dx)}
	}
	for i := range out {
		out[i] = float32(by * dx[i])
	}
}

// StoreTokenNLL is token_nll on the processor.
func StoreTokenNLL(c *Call) {
	lse, hit, target, y := c.In[0].F32(), c.In[1].F32(), c.In[2].I32(), c.Out[0].F32()
	for i := range y {
		if y[i] = 0; target[i] >= 0 {
			y[i] = lse[i] - hit[i]
		}
	}
}

// activationNumbers are the numbers of I[0] of logits_nll.
var activationNumbers = []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}

// ActivationNumber is that of a dtype.
func ActivationNumber(d tensor.DType) int {
	for i, a := range activationNumbers {
		if a == d {
			return i
		}
	}
	panic("kernels: no activation has that dtype")
}

// NumberedActivation is the dtype of a number.
func NumberedActivation(n int) tensor.DType { return activationNumbers[n] }
