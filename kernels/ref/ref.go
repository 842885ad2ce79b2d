// Package ref defines every operation of kernels: plain loops with sums in float64, each result rounded
// once. It is the oracle of the other backends, and slow by intent.
package ref

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Backend runs operations on the calling goroutine. Its values hold no state and may be shared.
type Backend struct{}

// New returns the reference backend.
func New() kernels.Backend { return Backend{} }

// Name is "ref".
func (Backend) Name() string { return "ref" }

// Sync does nothing: Run returns when results are there.
func (Backend) Sync() {}

// Run carries out one call; an unknown operation or operands that break the contract panic.
func (b Backend) Run(c *kernels.Call) {
	f, ok := table[c.Op]
	if !ok {
		panic(fmt.Sprintf("ref: no operation %q", c.Op))
	}
	if err := kernels.Check(c); err != nil {
		panic("ref: " + err.Error())
	}
	f(c)
	for _, t := range c.Then {
		b.Run(t)
	}
}

// Ops lists the operations that this backend has.
func Ops() []kernels.Op {
	var l []kernels.Op
	for _, s := range kernels.Specs() {
		if table[s.Op] != nil {
			l = append(l, s.Op)
		}
	}
	return l
}

var table = map[kernels.Op]func(*kernels.Call){
	kernels.Linear: linear, kernels.LinearDX: linearDX, kernels.LinearDW: linearDW, kernels.ColSum: colSum,
	kernels.RMSNorm: rmsNorm, kernels.RMSNormDX: rmsNormDX, kernels.RMSNormDW: rmsNormDW,
	kernels.RopeTable: ropeTable, kernels.Rope: rope,
	kernels.Attention: attention, kernels.AttentionBwd: attentionBwd,
	kernels.SwiGLU: swiglu, kernels.SwiGLUBwd: swigluBwd, kernels.Embed: embed, kernels.EmbedDW: embedDW,
	kernels.LinearLSE: linearLSE, kernels.LSEJoin: lseJoin, kernels.NLL: nll, kernels.LogitsNLL: logitsNLL,
	kernels.Contrast: kernels.StoreContrast, kernels.ContrastBwd: kernels.StoreContrast,
	kernels.Divergence: kernels.StoreDivergence, kernels.DivergenceBwd: kernels.StoreDivergence,
	kernels.TokenNLL: kernels.StoreTokenNLL, kernels.GroupNLL: kernels.StoreGroupNLL, kernels.Objective: kernels.StoreObjective,
	kernels.ObjectiveBwd: kernels.StoreObjective,
	kernels.LinearCEDX:   linearCE, kernels.LinearCEDW: linearCE, kernels.LinearCEBwd: linearCE,
	kernels.LinearCE: lossAndGradients,
	kernels.Sum:      sum, kernels.Mul: mul, kernels.Scale: scale, kernels.Cast: cast, kernels.Fill: fill,
	kernels.Dropout: dropout, kernels.Slice: slice, kernels.Concat: concat, kernels.AddTo: addTo,
	kernels.SumSquares: sumSquares, kernels.AdamW: adamW, kernels.AdamWNarrow: adamWNarrow,
	kernels.AdamW8: adamW8, kernels.ScheduleFree: scheduleFree, kernels.SGD: sgd,
	kernels.Average:      average,
	kernels.Lion:         lion,
	kernels.MuonMomentum: muonMomentum, kernels.MuonStep: muonStep, kernels.Orthogonalize: orthogonalize,
}

// load copies the elements of a floating-point tensor to float64, which is exact.
func load(t *tensor.Tensor) []float64 {
	v := make([]float64, t.Len())
	switch t.DType {
	case tensor.F32:
		for i, x := range t.F32() {
			v[i] = float64(x)
		}
	case tensor.F64:
		copy(v, t.F64())
	case tensor.BF16:
		for i, x := range t.U16() {
			v[i] = float64(tensor.BF16Value(x))
		}
	case tensor.F16:
		for i, x := range t.U16() {
			v[i] = float64(tensor.F16Value(x))
		}
	default:
		panic(fmt.Sprintf("ref: %v is no floating-point tensor", t))
	}
	return v
}

// store rounds v once to the dtype of t.
func store(t *tensor.Tensor, v []float64) {
	switch t.DType {
	case tensor.F32:
		for i, d := 0, t.F32(); i < len(d); i++ {
			d[i] = float32(v[i])
		}
	case tensor.F64:
		copy(t.F64(), v)
	case tensor.BF16:
		for i, d := 0, t.U16(); i < len(d); i++ {
			d[i] = tensor.BF16Bits(tensor.RoundOdd(v[i]))
		}
	case tensor.F16:
		for i, d := 0, t.U16(); i < len(d); i++ {
			d[i] = tensor.F16Bits(tensor.RoundOdd(v[i]))
		}
	default:
		panic(fmt.Sprintf("ref: %v is no floating-point tensor", t))
	}
}

// storeOrAdd stores v, or adds it to what t holds if mode is kernels.Accumulate.
func storeOrAdd(t *tensor.Tensor, v []float64, mode int) {
	if mode == kernels.Accumulate {
		for i, x := range load(t) {
			v[i] += x
		}
	}
	store(t, v)
}

func lastDim(t *tensor.Tensor) int { return t.Shape[len(t.Shape)-1] }
