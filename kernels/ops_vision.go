package kernels

import "fmt"

// Operations that encoders of images need beyond those of decoders: layer norm, plain activations, rows by index.
const (
	LayerNorm   Op = "layernorm"
	LayerNormDX Op = "layernorm_dx"
	LayerNormDW Op = "layernorm_dw"
	Act         Op = "act"
	ActBwd      Op = "act_bwd"
	Take        Op = "take"
	TakeBwd     Op = "take_bwd"
	ScaleRows   Op = "scale_rows"
	MulCols     Op = "mul_cols"
	MulColsDW   Op = "mul_cols_dw"
	RopeAxes    Op = "rope_axes"
	Turn        Op = "turn"
	TurnDW      Op = "turn_dw"
)

// Kinds of activation, Attr.I[0] of act.
const (
	GELU      = iota // x·Φ(x), Φ by the error function
	GELUTanh         // 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
	QuickGELU        // x·sigmoid(1.702·x)
	SiLU             // x·sigmoid(x)
	ReLU             // max(x, 0)
	Tanh             // tanh(x)
	Mish             // x·tanh(log(1 + exp(x)))
	Exp              // exp(x)
)

var _ = register(Spec{Op: LayerNorm, Sig: "x[...,d]A w[d]A b[d]A? -> y[...,d]A mean[...]f32 rstd[...]f32",
	Source: "arXiv:1607.06450", Doc: "mean = mean(x); rstd = 1/sqrt(mean((x-mean)²) " +
		"+ F[0]); y = (x-mean)·rstd·w + b. All in float32, rounded once."},
	Spec{Op: LayerNormDX, Sig: "dy[...,d]A x[...,d]A w[d]A mean[...]f32 rstd[...]f32 -> dx[...,d]A",
		Doc: "With g = dy·w and z = (x-mean)·rstd: dx = rstd·(g - mean(g) - z·mean(g·z))."},
	Spec{Op: LayerNormDW, Sig: "dy[...,d]A x[...,d]A mean[...]f32 rstd[...]f32 -> dw[d]f32", Doc: "dw = Σ " +
		"over rows of dy·(x-mean)·rstd. I[0] = Accumulate adds into dw. The gradient of b is col_sum."}, Spec{Op: Act,
		Sig: "x[...]A -> y[...]A", Source: "arXiv:1606.08415", Doc: "y = f(x), elementwise; I[0] is the kind: GELU, " +
			"GELUTanh, QuickGELU, SiLU, ReLU, Tanh, Mish, Exp."}, Spec{Op: ActBwd, Sig: "dy[...]A x[...]A -> dx[...]A",
		Doc: "dx = dy·f'(x), with the kind of act."}, Spec{Op: Take, Sig: "x[*]A idx[t]i32 -> y[*]A",
		Doc: "y[i] = x[idx[i]], rows along the first axis; a row of zeros where idx[i] lies outside x."},
	Spec{Op: TakeBwd, Sig: "dy[*]A idx[t]i32 -> dx[*]A", Doc: "dx[j] = Σ of dy[i] over idx[i] = j, in order " +
		"of i in float32, rounded once: the gradient of take. Indices outside dx are skipped."}, Spec{Op: ScaleRows,
		Sig: "x[t,d]A s[t]f32 -> y[t,d]A", Doc: "y[i] = s[i]·x[i]. The gradient to x is the same call on dy."},
	Spec{Op: MulCols, Sig: "x[...,d]A w[d]A -> y[...,d]A", Source: "arXiv:2103.17239 (LayerScale)",
		Doc: "y = x·w, the same vector for every row. The gradient to x is the same call on dy."}, Spec{Op: MulColsDW,
		Sig: "dy[...,d]A x[...,d]A -> dw[d]f32", Doc: "dw = Σ over rows of dy·x. I[0] = Accumulate adds into dw."},
	Spec{Op: RopeAxes, Sig: "pos[t,a]i32 inv[r]f32 axis[r]i32 -> cos[t,r]f32 sin[t,r]f32",
		Source: "arXiv:2409.12191 (M-RoPE)", Doc: "rope_table with several positions a row: frequency " +
			"j turns with pos[i, axis[j]]. The angle is taken in float32; cos and sin are multiplied by F[0]."},
	Spec{Op: Turn, Sig: "x[t,h,d]A angle[r]A mark[t]i32 -> y[t,h,d]A",
		Source: "arXiv:2507.20025 (the class token's position in RICE-ViT)",
		Doc: "Rows with mark[i] != 0 turn by one angle: with s = I[0] = 1 or -1 (the gradient), pairs (j, j+r) " +
			"become x[j]·cos - s·x[j+r]·sin and x[j+r]·cos + s·x[j]·sin of angle[j]; d = 2r. Other rows are copied."},
	Spec{Op: TurnDW, Sig: "dy[t,h,d]A y[t,h,d]A mark[t]i32 -> dw[r]f32",
		Doc: "The gradient of turn's angle from its output: dw[j] = Σ over marked rows and heads, in order, of " +
			"dy[j+r]·y[j] - dy[j]·y[j+r]; d = 2r. I[0] = Accumulate adds into dw."})

func init() {
	extra[Take] = func(c *Call) error { return checkTake(c.In[0], c.Out[0], c.In[1]) }
	extra[TakeBwd] = func(c *Call) error { return checkTake(c.Out[0], c.In[0], c.In[1]) }
	extra[RopeAxes] = func(c *Call) error {
		if !c.In[2].OnHost() {
			return nil // a constant of the model, checked when it was made
		}
		for j, a := range c.In[2].I32() {
			if a < 0 || int(a) >= c.In[0].Shape[1] {
				return fmt.Errorf("axis[%d] is %d of %d positions a row", j, a, c.In[0].Shape[1])
			}
		}
		return nil
	}
	extra[Act] = func(c *Call) error { return checkAct(c.Attr.I[0]) }
	extra[ActBwd] = extra[Act]
	extra[Turn] = func(c *Call) error {
		if s := c.Attr.I[0]; s != 1 && s != -1 {
			return fmt.Errorf("direction I[0] is %d, want 1 or -1", s)
		}
		return checkTurn(c.In[0], c.In[1])
	}
	extra[TurnDW] = func(c *Call) error { return checkTurn(c.In[0], c.Out[0]) }
}
