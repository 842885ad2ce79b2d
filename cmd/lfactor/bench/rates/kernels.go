package rates

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// KernelTime is one kernel as measured; bench/kernels.py reads it.
type KernelTime struct {
	Name    string  `json:"name"`
	DType   string  `json:"dtype"`
	Threads int     `json:"threads"`
	Seconds float64 `json:"seconds"` // the median of the rounds
	Flops   float64 `json:"flops"`   // 0 for a kernel that is bound by memory
	Bytes   float64 `json:"bytes"`
	Peak    float64 `json:"of_peak"` // share of the measured peak of its kind: products, or memory
}

// kernelCase is a kernel of the training step of bench step: batch 4, length 512, 512 wide, 8 heads of 64,
// 1408 inner, 32000 tokens.
type kernelCase struct {
	name         string
	flops, bytes float64
	run          func(kernels.Backend)
}

// Kernels measures every case; the rounds go over all cases, so that a disturbance does not hit one alone.
func Kernels(b kernels.Backend, p kernels.Peaks, d tensor.DType, only string, threads, rounds int,
	see See) (out []KernelTime) {
	cases := kernelCases(d, only)
	all := make([][]float64, len(cases))
	for n := range rounds {
		for i, c := range cases {
			see.tell("timing "+c.name, n*len(cases)+i, rounds*len(cases))
			all[i] = append(all[i], timeRun(b, c.run))
		}
	}
	for i, c := range cases {
		slices.Sort(all[i])
		k := KernelTime{Name: c.name, DType: d.String(), Threads: threads, Seconds: all[i][rounds/2],
			Flops: c.flops, Bytes: c.bytes}
		peak := p.MultiplyAdd
		if d == tensor.BF16 && p.Tiles > 0 {
			peak = p.Tiles
		}
		if k.Peak = k.Bytes / k.Seconds / p.Memory; c.flops > 0 {
			k.Peak = c.flops / k.Seconds / (peak * float64(threads))
		}
		out = append(out, k)
	}
	return
}

// timeRun repeats a kernel for about 100 ms, as bench/kernels.py does those of PyTorch, and gives the
// shortest time of one run.
func timeRun(b kernels.Backend, run func(kernels.Backend)) float64 {
	began := time.Now()
	if run(b); time.Since(began) > time.Second {
		return time.Since(began).Seconds() // what it warms up is a small part of it
	}
	best := time.Hour
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
		t := time.Now()
		run(b)
		best = min(best, time.Since(t))
	}
	return best.Seconds()
}

// randomTensor is a tensor of random numbers.
func randomTensor(r *rand.Rand, d tensor.DType, shape ...int) *tensor.Tensor {
	t := tensor.Make(tensor.F32, shape...)
	for i := range t.F32() {
		t.F32()[i] = float32(r.NormFloat64()) / 8
	}
	if d == tensor.F32 {
		return t
	}
	h := tensor.Make(d, shape...)
	tensor.Narrow(d, t.F32(), h.Bytes())
	return h
}

// kernelGroup builds the cases of some kernels; a group of which none is wanted is not built, for it may
// need much memory.
type kernelGroup struct {
	names []string
	build func(k *kernelSet)
	long  bool // wanted only by name: it takes seconds
}

// kernelSet collects cases.
type kernelSet struct {
	r   *rand.Rand
	d   tensor.DType
	out []kernelCase
}

func (k *kernelSet) randomTensor(shape ...int) *tensor.Tensor {
	return randomTensor(k.r, k.d, shape...)
}

func (k *kernelSet) f32(shape ...int) *tensor.Tensor { return randomTensor(k.r, tensor.F32, shape...) }

// add adds the measurement of one call. Its bytes are those of all operands, so a kernel that reads
// one twice shows a lower rate.
func (k *kernelSet) add(name string, flops float64, c *kernels.Call) {
	size := 0
	for _, x := range append(c.In[:len(c.In):len(c.In)], c.Out...) {
		size += len(x.Bytes())
	}
	k.out = append(k.out, kernelCase{name, flops, float64(size), func(b kernels.Backend) { b.Run(c) }})
}

// The shape of the timed kernels: tokens, width, inner width and vocabulary.
const benchT, benchW, benchF, benchV = 2048, 512, 1408, 32000

// kernelGroups lists the measurements by group, with the names that each will give, so that a
// choice by name makes only the tensors that it needs.
func kernelGroups() (l []kernelGroup) {
	// the last are queries, keys and values as one product
	for _, s := range [][2]int{{benchW, benchW}, {benchF, benchW}, {benchW, benchF}, {3 * benchW, benchW}} {
		name := fmt.Sprintf(" %d×%d×%d", benchT, s[0], s[1])
		l = append(l, kernelGroup{[]string{"linear" + name, "linear dx" + name, "linear dw" + name},
			func(k *kernelSet) { linearCases(k, name, s[0], s[1]) }, false})
	}
	for _, s := range [][2]int{{4, 512}, {1, 4096}} {
		name := fmt.Sprintf(" %d×%d", s[0], s[1])
		l = append(l, kernelGroup{[]string{"attention" + name, "attention backward" + name},
			func(k *kernelSet) { attentionCases(k, name, s[0], s[1]) }, false})
	}
	for _, n := range []int{4 << 10, 16 << 10, 64 << 10} {
		l = append(l, longGroup("attention", n, longAttention), longGroup("delta rule", n, deltaCases))
	}
	for _, n := range []int{4 << 10, 32 << 10} {
		l = append(l, longGroup("latent attention", n, latentAttention), longGroup("latent heads", n, latentHeads),
			longGroup("sparse attention", n, sparseAttention))
	}
	return append(l, kernelGroup{[]string{"rmsnorm", "layernorm"}, normCases, false},
		kernelGroup{[]string{"swiglu", "swiglu backward", "gelu"}, activationCases, false},
		kernelGroup{[]string{"cross-entropy", "cross-entropy backward"}, lossCases, false},
		kernelGroup{[]string{"cross-entropy of logits"}, logitCases, false},
		kernelGroup{[]string{"adamw, 8 Mi"}, optimizerCases, false})
}

// kernelCases are the cases whose name contains only.
func kernelCases(d tensor.DType, only string) []kernelCase {
	k := &kernelSet{r: rand.New(rand.NewPCG(5, 6)), d: d}
	other := func(name string) bool { return !strings.Contains(name, only) }
	for _, g := range kernelGroups() {
		if g.long && only == "" {
			continue
		}
		if len(slices.DeleteFunc(g.names, other)) > 0 {
			g.build(k)
		}
	}
	return slices.DeleteFunc(k.out, func(c kernelCase) bool { return other(c.name) })
}

// linearCases adds a linear layer from d to n columns, its gradient to the input, and its gradient
// to the weights. All three take the same number of operations.
func linearCases(k *kernelSet, name string, n, d int) {
	x, m, y := k.randomTensor(benchT, d), k.randomTensor(n, d), k.randomTensor(benchT, n)
	flops := 2 * float64(benchT) * float64(n) * float64(d)
	k.add("linear"+name, flops, &kernels.Call{Op: kernels.Linear, In: operands(x, m), Out: operands(y)})
	k.add("linear dx"+name, flops, &kernels.Call{Op: kernels.LinearDX, In: operands(y, m),
		Out: operands(k.randomTensor(benchT, d))})
	k.add("linear dw"+name, flops, &kernels.Call{Op: kernels.LinearDW, In: operands(y, x),
		Out: operands(k.f32(n, d)), Attr: kernels.Attr{I: [4]int{kernels.Accumulate}}})
}

func operands(x ...*tensor.Tensor) []*tensor.Tensor { return x }

// normCases adds the two norms over the width of the model. They have no count of operations,
// because memory bounds them.
func normCases(k *kernelSet) {
	x, y, w, b := k.randomTensor(benchT, benchW), k.randomTensor(benchT, benchW), k.randomTensor(benchW),
		k.randomTensor(benchW)
	at := kernels.Attr{F: [2]float64{1e-5}}
	k.add("rmsnorm", 0, &kernels.Call{Op: kernels.RMSNorm, In: operands(x, w),
		Out: operands(y, k.f32(benchT)), Attr: at})
	k.add("layernorm", 0, &kernels.Call{Op: kernels.LayerNorm, In: operands(x, w, b),
		Out: operands(y, k.f32(benchT), k.f32(benchT)), Attr: at})
}

// activationCases adds the activations between the layers of an MLP.
func activationCases(k *kernelSet) {
	act := func() *tensor.Tensor { return k.randomTensor(benchT, benchF) }
	g, u, m := act(), act(), act()
	k.add("swiglu", 0, &kernels.Call{Op: kernels.SwiGLU, In: operands(g, u), Out: operands(m)})
	k.add("swiglu backward", 0, &kernels.Call{Op: kernels.SwiGLUBwd, In: operands(m, g, u),
		Out: operands(act(), act())})
	k.add("gelu", 0, &kernels.Call{Op: kernels.Act, In: operands(g), Out: operands(m)})
}

// targets are random classes, one per token.
func (k *kernelSet) targets() *tensor.Tensor {
	t := tensor.Make(tensor.I32, benchT)
	for i := range t.I32() {
		t.I32()[i] = int32(k.r.IntN(benchV))
	}
	return t
}

// lossCases adds the head with its loss in one kernel, which never stores the logits. Its backward
// computes two products of the forward's size.
func lossCases(k *kernelSet) {
	x, head, target := k.randomTensor(benchT, benchW), k.randomTensor(benchV, benchW), k.targets()
	lse, e, top := tensor.Make(tensor.F32, benchT, 1), tensor.Make(k.d, benchT, benchV),
		tensor.Make(tensor.F32, benchT, (benchV+kernels.LSEBlock-1)/kernels.LSEBlock)
	const flops = 2. * benchT * benchW * benchV
	k.add("cross-entropy", flops, &kernels.Call{Op: kernels.LinearLSE, In: operands(x, head, target),
		Out: operands(lse, tensor.Make(tensor.F32, benchT), e, top)})
	k.add("cross-entropy backward", 2*flops, &kernels.Call{Op: kernels.LinearCEBwd,
		Out: operands(k.randomTensor(benchT, benchW), k.f32(benchV, benchW)), In: operands(x, head, target,
			lse.Alias(benchT), k.f32(benchT), tensor.Of(tensor.F32, []float32{1}, 1), e, top)})
}

// logitCases adds the loss over one block of logits that are there already.
func logitCases(k *kernelSet) {
	rows := cpu.NewLossRows(k.d, k.targets(), benchV)
	k.out = append(k.out, kernelCase{"cross-entropy of logits", 0, rows.Bytes(),
		func(b kernels.Backend) { rows.Run(b.(*cpu.Backend)) }})
}

// optimizerCases adds an AdamW step over eight million parameters, which is the same for all
// precisions and so is measured in one.
func optimizerCases(k *kernelSet) {
	if k.d != tensor.F32 {
		return
	}
	const n = 8 << 20
	hyper, clip := tensor.Of(tensor.F64, []float64{1e-3, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5, 0}, 8),
		tensor.Of(tensor.F64, []float64{1, 1, 0}, 3)
	k.add("adamw, 8 Mi", 0, &kernels.Call{Op: kernels.AdamW, In: operands(k.randomTensor(n), hyper, clip),
		Out: operands(k.randomTensor(n), k.randomTensor(n), tensor.Make(k.d, n))})
}

// attentionCases adds causal attention over packed sequences of equal length. Half of the pairs
// count, and the backward is taken as 2.5 times the forward, as is usual.
func attentionCases(k *kernelSet, name string, sequences, length int) {
	const h, e = 8, 64
	t := sequences * length
	var cu []int32
	for i := range sequences + 1 {
		cu = append(cu, int32(i*length))
	}
	c := tensor.Of(tensor.I32, cu, len(cu))
	act := func() *tensor.Tensor { return k.randomTensor(t, h, e) }
	q, keys, v, o, lse := act(), act(), act(), act(), tensor.Make(tensor.F32, t, h)
	at := kernels.Attr{I: [4]int{1}, F: [2]float64{1 / math.Sqrt(e)}}
	flops := float64(sequences) * float64(length) * float64(length) / 2 * h * e * 2 * 2
	k.add("attention"+name, flops, &kernels.Call{Op: kernels.Attention, In: operands(q, keys, v, c, c),
		Out: operands(o, lse), Attr: at})
	k.add("attention backward"+name, 2.5*flops, &kernels.Call{Op: kernels.AttentionBwd,
		In: operands(o, q, keys, v, o, lse, c, c), Attr: at, Out: operands(act(), act(), act())})
}
