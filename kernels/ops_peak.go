package kernels

import (
	"fmt"
	"math"
)

// Operations that keep scores of attention from growing (QK-clip); their specifications say what they compute.
const (
	AttentionPeak Op = "attention_peak"
	PeakClip      Op = "peak_clip"
)

// Shrink is what is taken of rows of a parameter whose group's greatest score is peak, so that scores are
// limit at most: to the power that the rows have.
func Shrink(peak float32, limit, power float64) float32 {
	if !(float64(peak) > limit) { // a NaN is no score
		return 1
	}
	return float32(math.Pow(limit/float64(peak), power))
}

// ShrinkOf is what row i of a call of PeakClip is multiplied with.
func ShrinkOf(c *Call, peak []float32, i int) float32 {
	at := i + c.Attr.I[0]
	power := c.Attr.F[1]
	if at%c.Attr.I[1] < c.Attr.I[2] {
		power = 1
	}
	each, most := c.Attr.I[3], float32(0)
	for _, x := range peak[at/c.Attr.I[1]*each:][:each] {
		most = max(most, x) // a NaN stays, and is no score
	}
	return Shrink(most, c.Attr.F[0], power)
}

var _ = register(Spec{Op: AttentionPeak, Sig: "q[t,h,d]A k[s,g,d]A cu_q[c+1]i32 cu_k[c+1]i32 -> e[1,m]f32",
	Source: "arXiv:2507.20534, section 2.1", Flops: func(in, _ [][]int) int64 { return prod(in[0]) * int64(in[1][0]) },
	Doc: "The greatest score F[0]·q·k of attention, with I[0] and I[1] as it has them and no cap, of all " +
		"queries of a head: 0 at least. The heads are those from I[2] on of the m that e has; of the others it is 0."},
	Spec{Op: PeakClip, Sig: "peak[1,h]f32 clip[3]f64 -> p[n,...]f32 q[n,...]A?",
		Source: "arXiv:2507.20534, algorithm 1; Megatron-LM's clip_qk",
		Doc: "In place: row i of p is one of the group (i+I[0])/I[1] of rows, which belongs to I[3] heads, and the " +
			"greatest peak P of these brings it to p·min(1, F[0]/P)^y, with y = 1 for the first I[2] rows of a group and " +
			"F[1] for the others; q = p in the model's dtype. With overflow = 1 nothing changes."})

func init() {
	extra[PeakClip] = func(c *Call) error {
		at, p, g := c.Attr, c.Out[0], c.In[0].Len()
		if at.I[0] < 0 || at.I[1] < 1 || at.I[2] < 0 || at.I[3] < 1 || !(at.F[0] > 0) || at.F[1] < 0 || at.F[1] > 1 {
			return fmt.Errorf("rows from %d in groups of %d of %d heads, %d of them whole, limit %g, power %g", at.I[0],
				at.I[1], at.I[3], at.I[2], at.F[0], at.F[1])
		}
		if n := p.Shape[0]; n > 0 && ((at.I[0]+n-1)/at.I[1]+1)*at.I[3] > g {
			return fmt.Errorf("rows %d to %d in groups of %d, and peaks of %d heads", at.I[0], at.I[0]+n, at.I[1], g)
		}
		return nil
	}
	extra[AttentionPeak] = func(c *Call) error { return checkPeak(c) }
}

func checkPeak(c *Call) error {
	q, k := c.In[0], c.In[1]
	if g := k.Shape[1]; g == 0 || q.Shape[1]%g != 0 {
		return fmt.Errorf("%d heads of queries for %d of keys", q.Shape[1], g)
	}
	if first := c.Attr.I[2]; first < 0 || first+q.Shape[1] > c.Out[0].Len() {
		return fmt.Errorf("heads %d to %d of %d", first, first+q.Shape[1], c.Out[0].Len())
	}
	if c.Attr.I[0] < 0 || c.Attr.I[0] > 1 || c.Attr.I[1] < 0 {
		return fmt.Errorf("causal %d, window %d", c.Attr.I[0], c.Attr.I[1])
	}
	if err := checkCu("cu_q", c.In[2], q.Shape[0]); err != nil {
		return err
	}
	return checkCu("cu_k", c.In[3], k.Shape[0])
}
