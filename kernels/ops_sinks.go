package kernels

import "fmt"

// What gpt-oss has beside other decoders: attention with a logit that belongs to no key, a gate with bounds,
// and biases of experts.
const (
	AttentionSink    Op = "attention_sink"
	AttentionSinkBwd Op = "attention_sink_bwd"
	BoundedGLU       Op = "bounded_glu"
	BoundedGLUBwd    Op = "bounded_glu_bwd"
	GroupIDs         Op = "group_ids"
)

var _ = register(Spec{Op: AttentionSink, Sig: "o[t,h,e]A lse[t,h]f32 sink[1,h]A -> y[t,h,e]A all[t,h]f32",
	Source: "arXiv:2309.17453", Doc: "Attention whose softmax has one logit more for each head, of " +
		"no key and no value, from o and lse of attention without: all = log(exp(lse) + exp(sink)), y = " +
		"exp(lse-all)·o, in float32. attention_bwd of y and all gives the gradients of queries, keys and values."},
	Spec{Op: AttentionSinkBwd, Sig: "dy[t,h,e]A y[t,h,e]A all[t,h]f32 sink[1,h]A -> dsink[1,h]f32", Doc: "dsink " +
		"= -Σ over rows of exp(sink-all)·(dy·y): the gradient of attention_sink's logits. I[0] = Accumulate " +
		"adds into dsink."}, Spec{Op: BoundedGLU, Sig: "g[...]A u[...]A -> y[...]A", Source: "gpt-oss's reference",
		Doc: "With a = min(g, F[0]) and b = min(max(u, -F[0]), F[0]): y = a·sigmoid(F[1]·a)·(b + 1)."},
	Spec{Op: BoundedGLUBwd, Sig: "dy[...]A g[...]A u[...]A -> dg[...]A du[...]A",
		Doc: "The gradients of bounded_glu; 0 beyond a bound, and as within at the bound."},
	Spec{Op: GroupIDs, Sig: "off[g+1]i32 -> ids[t]i32",
		Doc: "ids[i] is the group that row i is of, off[ids[i]] <= i < off[ids[i]+1], and -1 if of none."})

func init() {
	bounded := func(c *Call) error {
		if !(c.Attr.F[0] > 0) || c.Attr.F[1] == 0 {
			return fmt.Errorf("a bound of %g and a slope of %g", c.Attr.F[0], c.Attr.F[1])
		}
		return nil
	}
	extra[BoundedGLU], extra[BoundedGLUBwd] = bounded, bounded
}
