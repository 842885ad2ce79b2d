package cpu

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// stepShape is a Llama-like model and batch; 58.5 M parameters.
const (
	stepTokens, stepSeq                  = 2048, 512
	stepDim, stepInner, stepLayers       = 512, 1408, 8
	stepHeads, stepWidth, stepVocabulary = 8, 64, 32000
)

// stepRun is the list of calls of one training step, as a tape would issue them, with the time each operation takes.
type stepRun struct {
	a     tensor.DType
	calls []*kernels.Call
	big   map[string]*tensor.Tensor // activations by name, shared by the layers
	flops float64
}

func (s *stepRun) do(op kernels.Op, attr kernels.Attr, in, out ts) {
	s.calls = append(s.calls, &kernels.Call{Op: op, In: in, Out: out, Attr: attr})
}

func (s *stepRun) act(name string, shape ...int) *tensor.Tensor { return s.tensor(s.a, name, shape...) }

func (s *stepRun) tensor(d tensor.DType, name string, shape ...int) *tensor.Tensor {
	if s.big[name] == nil {
		s.big[name] = filled(d, shape...)
	}
	return s.big[name]
}

// param is a weight with its gradient and optimizer state.
type param struct{ w, q, g, m, v *tensor.Tensor }

func (s *stepRun) param(n, k int) param {
	p := param{w: filled(tensor.F32, n, k), g: tensor.Make(tensor.F32, n, k),
		m: tensor.Make(tensor.F32, n, k), v: tensor.Make(tensor.F32, n, k)}
	for i := range p.w.F32() {
		p.w.F32()[i] *= 0.03
	}
	p.q = p.w
	if s.a != tensor.F32 {
		p.q = filled(s.a, n, k)
	}
	return p
}

func (s *stepRun) update(p param) {
	flat := func(t *tensor.Tensor) *tensor.Tensor { return t.Alias(t.Len()) }
	hyper := tensor.Of(tensor.F64, []float64{1e-6, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5, 0}, 8)
	out := ts{flat(p.w), flat(p.m), flat(p.v)}
	if s.a != tensor.F32 {
		out = append(out, flat(p.q))
	}
	s.do(kernels.SumSquares, kernels.Attr{}, ts{p.g}, ts{tensor.Make(tensor.F64, 1)})
	s.do(kernels.AdamW, kernels.Attr{}, ts{flat(p.g), hyper, tensor.Of(tensor.F64, []float64{1, 1, 0}, 3)},
		out)
}

func (s *stepRun) linear(p param, x, y *tensor.Tensor) {
	s.do(kernels.Linear, kernels.Attr{}, ts{x, p.q}, ts{y})
	s.flops += 6 * float64(x.Rows()) * float64(p.q.Len())
}

func (s *stepRun) linearBwd(p param, x, dy, dx *tensor.Tensor) {
	s.do(kernels.LinearDX, kernels.Attr{}, ts{dy, p.q}, ts{dx})
	s.do(kernels.LinearDW, kernels.Attr{I: [4]int{1}}, ts{dy, x}, ts{p.g})
}

type layerParams struct{ q, k, v, o, gate, up, down, n1, n2 param }

func newStep(a tensor.DType) *stepRun {
	s := &stepRun{a: a, big: map[string]*tensor.Tensor{}}
	emb, head := s.param(stepVocabulary, stepDim), s.param(stepVocabulary, stepDim)
	var layers []layerParams
	for range stepLayers {
		d, f := stepDim, stepInner
		layers = append(layers, layerParams{s.param(d, d), s.param(d, d), s.param(d, d), s.param(d, d),
			s.param(f, d), s.param(f, d), s.param(d, f), s.param(1, d), s.param(1, d)})
	}
	ids := tensor.Make(tensor.I32, stepTokens)
	for i := range ids.I32() {
		ids.I32()[i] = int32(i * 7919 % stepVocabulary)
	}
	x := s.act("x", stepTokens, stepDim)
	s.do(kernels.Embed, kernels.Attr{}, ts{ids, emb.q}, ts{x})
	for i := range layers {
		s.forward(&layers[i], i)
	}
	s.loss(head, ids, x)
	for i := range layers {
		s.backward(&layers[i], i)
	}
	s.do(kernels.EmbedDW, kernels.Attr{I: [4]int{1}}, ts{x, ids}, ts{emb.g})
	s.update(emb)
	s.update(head)
	for _, l := range layers {
		for _, p := range []param{l.q, l.k, l.v, l.o, l.gate, l.up, l.down} {
			s.update(p)
		}
	}
	return s
}

func (s *stepRun) norm(name string, p param, x *tensor.Tensor) *tensor.Tensor {
	y := s.act(name, stepTokens, stepDim)
	s.do(kernels.RMSNorm, kernels.Attr{F: [2]float64{1e-5}}, ts{x, p.q.Alias(stepDim)},
		ts{y, s.tensor(tensor.F32, "rstd", stepTokens)})
	return y
}

func (s *stepRun) normBwd(p param, dy, x, dx *tensor.Tensor) {
	r := s.tensor(tensor.F32, "rstd", stepTokens)
	s.do(kernels.RMSNormDX, kernels.Attr{}, ts{dy, x, p.q.Alias(stepDim), r}, ts{dx})
	s.do(kernels.RMSNormDW, kernels.Attr{I: [4]int{1}}, ts{dy, x, r}, ts{p.g.Alias(stepDim)})
}

func (s *stepRun) heads(name string) (flat, split *tensor.Tensor) {
	flat = s.act(name, stepTokens, stepDim)
	return flat, flat.Alias(stepTokens, stepHeads, stepWidth)
}

func (s *stepRun) rope(t *tensor.Tensor, sign int) {
	c := s.tensor(tensor.F32, "cos", stepTokens, stepWidth/2)
	s.do(kernels.Rope, kernels.Attr{I: [4]int{sign}}, ts{t, c, c}, ts{t})
}

var stepAttn = kernels.Attr{I: [4]int{1}, F: [2]float64{0.125}}

func stepCu() *tensor.Tensor { return tensor.Of(tensor.I32, []int32{0, 512, 1024, 1536, 2048}, 5) }

func (s *stepRun) forward(l *layerParams, i int) {
	x, n := s.act("x", stepTokens, stepDim), strconv.Itoa(i)
	h := s.norm("h1"+n, l.n1, x)
	q, q3 := s.heads("q" + n)
	k, k3 := s.heads("k" + n)
	v, v3 := s.heads("v" + n)
	o, o3 := s.heads("o" + n)
	s.linear(l.q, h, q)
	s.linear(l.k, h, k)
	s.linear(l.v, h, v)
	s.rope(q3, 1)
	s.rope(k3, 1)
	s.do(kernels.Attention, stepAttn, ts{q3, k3, v3, stepCu(), stepCu()},
		ts{o3, s.tensor(tensor.F32, "lse"+n, stepTokens, stepHeads)})
	y := s.act("y", stepTokens, stepDim)
	s.linear(l.o, o, y)
	s.do(kernels.Sum, kernels.Attr{}, ts{x, y}, ts{s.act("x1"+n, stepTokens, stepDim)})
	h2 := s.norm("h2"+n, l.n2, s.act("x1"+n))
	g, u, m := s.act("g"+n, stepTokens, stepInner), s.act("u"+n, stepTokens, stepInner),
		s.act("m"+n, stepTokens, stepInner)
	s.linear(l.gate, h2, g)
	s.linear(l.up, h2, u)
	s.do(kernels.SwiGLU, kernels.Attr{}, ts{g, u}, ts{m})
	s.linear(l.down, m, y)
	s.do(kernels.Sum, kernels.Attr{}, ts{s.act("x1" + n), y}, ts{s.act("x2"+n, stepTokens, stepDim)})
}

func (s *stepRun) loss(head param, ids, x *tensor.Tensor) {
	lse, hit := s.tensor(tensor.F32, "ce", stepTokens, 1), s.tensor(tensor.F32, "hit", stepTokens)
	e, top := s.act("e", stepTokens, stepVocabulary), s.tensor(tensor.F32, "top", stepTokens,
		ceilDiv(stepVocabulary, kernels.LSEBlock))
	s.do(kernels.LinearLSE, kernels.Attr{}, ts{x, head.q, ids}, ts{lse, hit, e, top})
	s.do(kernels.LinearCEBwd, kernels.Attr{I: [4]int{0, 1}}, ts{x, head.q, ids, lse.Alias(stepTokens), hit,
		tensor.Of(tensor.F32, []float32{1e-3}, 1), e, top},
		ts{s.act("dx", stepTokens, stepDim), head.g})
	s.flops += 6 * float64(stepTokens) * float64(head.w.Len())
}

func (s *stepRun) backward(l *layerParams, i int) {
	n := strconv.Itoa(i)
	dx, dy := s.act("dx"), s.act("dy", stepTokens, stepDim)
	dg, du, dm := s.act("dg", stepTokens, stepInner), s.act("du", stepTokens, stepInner),
		s.act("dm", stepTokens, stepInner)
	s.linearBwd(l.down, s.act("m"+n), dx, dm)
	s.do(kernels.SwiGLUBwd, kernels.Attr{}, ts{dm, s.act("g" + n), s.act("u" + n)}, ts{dg, du})
	dh1, dh2 := s.act("dh1", stepTokens, stepDim), s.act("dh2", stepTokens, stepDim)
	s.linearBwd(l.gate, s.act("h2"+n), dg, dh1)
	s.linearBwd(l.up, s.act("h2"+n), du, dh2)
	s.do(kernels.Sum, kernels.Attr{}, ts{dh1, dh2}, ts{dy})
	s.normBwd(l.n2, dy, s.act("x1"+n), dh1)
	s.do(kernels.Sum, kernels.Attr{}, ts{dx, dh1}, ts{dx})
	do, do3 := s.heads("do")
	s.linearBwd(l.o, s.act("o"+n), dx, do)
	q, q3 := s.heads("dq")
	k, k3 := s.heads("dk")
	v, v3 := s.heads("dv")
	three := func(name string) *tensor.Tensor { return s.act(name+n).Alias(stepTokens, stepHeads, stepWidth) }
	s.do(kernels.AttentionBwd, stepAttn, ts{do3, three("q"), three("k"), three("v"), three("o"),
		s.big["lse"+n], stepCu(), stepCu()}, ts{q3, k3, v3})
	s.rope(q3, -1)
	s.rope(k3, -1)
	d3 := s.act("dh3", stepTokens, stepDim)
	s.linearBwd(l.q, s.act("h1"+n), q, dh1)
	s.linearBwd(l.k, s.act("h1"+n), k, dh2)
	s.linearBwd(l.v, s.act("h1"+n), v, d3)
	s.do(kernels.Sum, kernels.Attr{}, ts{dh1, dh2, d3}, ts{dy})
	s.normBwd(l.n1, dy, s.act("x"), dh1)
	s.do(kernels.Sum, kernels.Attr{}, ts{dx, dh1}, ts{dx})
}

// TestStepRate prints the rate of a whole step of kernels; LFACTOR_STEP is the number of threads. It is no
// test of anything.
func TestStepRate(t *testing.T) {
	threads, _ := strconv.Atoi(os.Getenv("LFACTOR_STEP"))
	if threads == 0 {
		t.Skip("LFACTOR_STEP is not set")
	}
	a := tensor.F32
	if os.Getenv("LFACTOR_STEP_DTYPE") == "bf16" {
		a = tensor.BF16
	}
	b := New(threads)
	defer b.Close()
	s := newStep(a)
	best, byOp := time.Duration(1<<62), map[kernels.Op]time.Duration{}
	for range 6 {
		start, ops := time.Now(), map[kernels.Op]time.Duration{}
		cpu := cpuTime()
		for _, c := range s.calls {
			at := time.Now()
			b.Run(c)
			ops[c.Op] += time.Since(at)
		}
		if d := time.Since(start); d < best {
			best, byOp = d, ops
		}
		fmt.Printf("%v %s %d threads: wall %v cpu %v, %.0f tokens/s\n", a, b.Name(), threads,
			time.Since(start).Round(time.Millisecond), (cpuTime() - cpu).Round(time.Millisecond),
			stepTokens/time.Since(start).Seconds())
	}
	for _, sp := range kernels.Specs() {
		if d := byOp[sp.Op]; d > 0 {
			fmt.Printf("  %-16s %8.1f ms %5.1f %%\n", sp.Op, float64(d)/1e6, 100*float64(d)/float64(best))
		}
	}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
