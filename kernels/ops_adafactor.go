package kernels

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Adafactor is the update whose second moment is kept by rows and columns.
const Adafactor Op = "adafactor"

// What else the hyper-parameters of Adafactor are: HyperBeta2 is how much of a moment a step is, 1-β2.
const (
	HyperFloor     = HyperEps         // of the root mean square of a parameter that steps are measured by
	HyperClipAbove = HyperCorrection1 // root mean square that a direction has at most
	HyperMeasured  = HyperCorrection2 // 1 where directions are multiplied with the parameter's root mean square
)

// AdafactorLeast is the least mean of rows' moments that they are divided by, and its square the least
// second moment: float32's epsilon, torch.optim.Adafactor's default.
const AdafactorLeast = 1.1920929e-7

var _ = register(Spec{Op: Adafactor, Sig: "g[...,n,k]f32 square[e]f64 hyper[H]f64 clip[3]f64 -> " +
	"u[...,n,k]f32 row[...,n,r]f32 col[...,1,k]f32?", Source: "arXiv:1804.04235, as torch.optim.Adafactor",
	Doc: "Of each of e matrices: g *= clip factor; row, its numbers' mean squares by row, and col by column, move " +
		"towards those of g by b = hyper[2]; v = row·col/max(mean(row), eps); without col, row is [...,n,k] and v moves " +
		"towards g². u = g/sqrt(max(v, eps²)), divided by max(1, rms(u)/hyper[5]) and, with hyper[6] = 1, multiplied " +
		"with max(hyper[3], sqrt(square/(n·k))), the root mean square of the parameter whose squares sum to square. u " +
		"may be g. A matrix without numbers has moments as they are. With overflow = 1 moments do not change, and u is 0."})

func init() {
	extra[Adafactor] = func(c *Call) error {
		g, row := c.In[0], c.Out[1]
		n := len(g.Shape)
		if e := c.In[1].Len(); n < 2 || e != tensor.Len(g.Shape[:n-2]) {
			return fmt.Errorf("sums of squares of %d matrices for %v", e, g)
		}
		if want := map[bool]int{true: 1, false: g.Shape[n-1]}[optional(c.Out, 2) != nil]; row.Shape[n-1] != want {
			return fmt.Errorf("moments %v of gradients %v, want %d a row", row, g, want)
		}
		return nil
	}
}
