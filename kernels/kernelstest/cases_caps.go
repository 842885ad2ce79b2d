package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
)

// Soft caps and norms with a constant: what Gemma's layers need beyond Llama's. The caps are as large as
// the numbers under them, so that slopes reach from near 0 to 1.

const capWhy = "as without a cap; tanh from one exponential and a quotient errs by an ulp of the cap"

// capped is a case's call with a soft cap in place of F[i].
func capped(c Case, i int, most float64) Case {
	inner := c.Call
	c.Name, c.Why = fmt.Sprintf("%s cap%g", c.Name, most), capWhy
	c.Call = func(g *gen) *kernels.Call {
		call := inner(g)
		call.Attr.F[i] = most
		return call
	}
	return c
}

// cappedAttention are some of the shapes of attention again, with scores that are capped.
func cappedAttention() []Case {
	var l []Case
	for i, s := range attnShapes {
		if i == 1 || i == 4 || i >= 6 {
			name := fmt.Sprintf("%d_q%vk%vh%dg%dd%de%d", i, s.q, s.k, s.h, s.g, s.d, s.e)
			l = append(l, capped(attnForward(name, s, 1.5), 1, 1.5), capped(attnBackward(name, s, 1.5), 1, 1.5))
		}
	}
	return l
}

// cappedLosses are the cases of the loss again, with logits that are capped; what the backward
// takes from the forward has to be capped as well.
func cappedLosses() []Case {
	var l []Case
	for _, c := range ceCases() {
		inner := c.Call
		switch c.Op {
		case kernels.LinearCEDX, kernels.LinearCEDW, kernels.LinearCEBwd:
			// lse and numerators are those of capped logits
			c.Call = func(g *gen) *kernels.Call {
				g.cap = 2
				return inner(g)
			}
		}
		l = append(l, capped(c, 0, 2))
	}
	return l
}

// plusCases are the cases of the RMS norm again, with weights that count from 1.
func plusCases() []Case {
	var l []Case
	for _, c := range rowCases() {
		if c.Op == kernels.RMSNorm || c.Op == kernels.RMSNormDX {
			inner := c.Call
			c.Name += " plus"
			c.Call = func(g *gen) *kernels.Call {
				call := inner(g)
				call.Attr.F[1] = 1
				return call
			}
			l = append(l, c)
		}
	}
	return l
}

var _ = add(cappedAttention()...)
var _ = add(cappedLosses()...)
var _ = add(plusCases()...)
