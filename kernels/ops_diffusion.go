package kernels

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Operations of diffusion models beside convolutions: rows that a vector of their sample or token scales,
// shifts and gates, features of a time, and losses of numbers.
const (
	Modulate    Op = "modulate"
	ModulateDX  Op = "modulate_dx"
	ModulateDW  Op = "modulate_dw"
	Gate        Op = "gate"
	Sinusoids   Op = "sinusoids"
	PointLoss   Op = "point_loss"
	PointLossDX Op = "point_loss_dx"
)

// Norms that modulate takes of its rows first, I[0]. They have no parameters: what modulates them is theirs.
// Fused, a row is read once and no normed row is kept for the backward.
const (
	PlainRows = iota // x itself
	LayerRows        // (x - mean)·rstd
	RMSRows          // x·rstd
)

// Kinds of loss, I[0] of point_loss, of e = x - y.
const (
	SquaredLoss  = iota // e²
	AbsoluteLoss        // |e|; its gradient is 0 at 0
	HuberLoss           // e²/2 where |e| <= F[0], else F[0]·(|e| - F[0]/2)
	LogisticLoss        // log(1 + exp(x)) - x·y: binary cross entropy of a logit
	// (exp(e) - 1 - e)/2, what a log-variance e adds to the divergence of a normal distribution from the
	// standard one; half the square of the mean is the rest
	VarianceLoss
)

var _ = register(Spec{Op: Modulate, Sig: "x[...,d]A s[g,d]A|f32 b[g,d]A|f32? at[m]i32 -> y[...,d]A " +
	"rstd[...]f32? mean[...]f32?", Source: "arXiv:2212.09748 (adaptive norm)", Doc: "y = z·(F[1] + s[at]) " +
	"+ b[at], where z is x normed as I[0] says, with F[0] under the root, and rstd and mean are wanted with " +
	"the norms that have them. at has m indices for as many runs of rows of one length, of samples or of " +
	"tokens, and rows take those rows of s and b. One outside them counts as zeros. In float32, rounded once."},
	Spec{Op: ModulateDX, Sig: "dy[...,d]A x[...,d]A s[g,d]A|f32 at[m]i32 rstd[...]f32? mean[...]f32? -> dx[...,d]A",
		Doc: "The gradient of modulate to x: with g = dy·(F[1] + s[at]), g itself, " +
			"rstd·(g - mean(g) - z·mean(g·z)), or rstd·(g - z·mean(g·z))."}, Spec{Op: ModulateDW,
		Sig: "dy[...,d]A x[...,d]A at[m]i32 rstd[...]f32? mean[...]f32? -> ds[g,d]A|f32 db[g,d]A|f32?",
		Doc: "ds[g] = Σ dy·z and db[g] = Σ dy over the rows with at = g, in their order in float32, rounded once."},
	Spec{Op: Gate, Sig: "y[...,d]A g[g,d]A|f32 at[m]i32 x[...,d]A? -> z[...,d]A", Doc: "z = x + g[at]·y, " +
		"where an absent x is 0; rows outside g count as zeros. The gradient to y is the same call on dz without " +
		"x, that to g is modulate_dw of plain rows dz and y."}, Spec{Op: Sinusoids, Sig: "t[n]f32 f[h]f32 -> y[n,m]A",
		Source: "arXiv:2006.11239", Doc: "The features of n times: with a = F[0]·(t·f), rounded " +
			"to float32 as it goes, sin(a) and then cos(a); cos first with I[0] = 1. m = 2h. No gradient."},
	Spec{Op: PointLoss, Sig: "x[...,d]A y[...,d]A|f32 weight[m]f32 mask[...,d]A|f32? -> loss[1]f32",
		Doc: "m weights are of as many runs of rows of one length: of samples or of rows. loss = Σ weight·mask·l(x, " +
			"y) over all elements, l as I[0] and F[0] say; an absent mask is 1. An element whose weight or mask is " +
			"0 counts as nothing, whatever x and y hold. As in nll the division by what is counted is in the weights."},
	Spec{Op: PointLossDX, Sig: "x[...,d]A y[...,d]A|f32 weight[m]f32 mask[...,d]A|f32? seed[1]f32 -> dx[...,d]A",
		Doc: "dx = seed·weight·mask·∂l/∂x, 0 where weight or mask is 0. The loss and its gradient read x and y " +
			"once each: one call for both would write what the backward only reads again, and hold it until then."})

// optional is operand i of a list, nil where it is left out.
func optional(l []*tensor.Tensor, i int) *tensor.Tensor {
	if i < len(l) {
		return l[i]
	}
	return nil
}

// checkNormed wants the statistics that a norm has, and no others.
func checkNormed(kind int, mean, rstd *tensor.Tensor) error {
	if kind < PlainRows || kind > RMSRows {
		return fmt.Errorf("norm I[0] is %d, want %d to %d", kind, PlainRows, RMSRows)
	}
	if m, r := mean != nil, rstd != nil; m != (kind == LayerRows) || r != (kind != PlainRows) {
		return fmt.Errorf("mean is %v and rstd %v with norm %d", mean, rstd, kind)
	}
	return nil
}

// checkRuns wants rows that m runs share out evenly.
func checkRuns(x, of *tensor.Tensor) error {
	if rows, m := x.Rows(), of.Len(); m == 0 && rows > 0 || m > 0 && rows%m != 0 {
		return fmt.Errorf("%d rows of %v in %d runs of one length", rows, x, m)
	}
	return nil
}

func init() {
	extra[Modulate] = func(c *Call) error {
		if err := checkRuns(c.In[0], c.In[3]); err != nil {
			return err
		}
		return checkNormed(c.Attr.I[0], optional(c.Out, 2), optional(c.Out, 1))
	}
	extra[ModulateDX] = func(c *Call) error {
		if err := checkRuns(c.In[0], c.In[3]); err != nil {
			return err
		}
		return checkNormed(c.Attr.I[0], optional(c.In, 5), optional(c.In, 4))
	}
	extra[Gate] = func(c *Call) error { return checkRuns(c.In[0], c.In[2]) }
	extra[ModulateDW] = func(c *Call) error {
		if err := checkRuns(c.In[0], c.In[2]); err != nil {
			return err
		}
		return checkNormed(c.Attr.I[0], optional(c.In, 4), optional(c.In, 3))
	}
	extra[Sinusoids] = func(c *Call) error {
		if h, m := c.In[1].Len(), c.Out[0].Shape[1]; m != 2*h {
			return fmt.Errorf("%d features of %d frequencies", m, h)
		}
		return nil
	}
	loss := func(c *Call) error {
		switch kind := c.Attr.I[0]; {
		case kind < SquaredLoss || kind > VarianceLoss:
			return fmt.Errorf("loss I[0] is %d, want %d to %d", kind, SquaredLoss, VarianceLoss)
		case kind == HuberLoss && !(c.Attr.F[0] > 0):
			return fmt.Errorf("a Huber loss with a border of F[0] = %g", c.Attr.F[0])
		}
		return checkRuns(c.In[0], c.In[2])
	}
	extra[PointLoss], extra[PointLossDX] = loss, loss
}
