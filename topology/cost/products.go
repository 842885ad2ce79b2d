package cost

import (
	"cmp"
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// tiles are those of which libraries choose: rows, columns, and the share of a full tile's rate, since small
// ones load more than they multiply.
var tiles = [...]struct{ m, n, rate float64 }{{128, 256, 1}, {128, 128, 0.92}, {64, 128, 0.8}, {64, 64, 0.65}}

// A product whose tiles leave multiprocessors idle is cut along its sum, into parts of at least leastDepth
// elements, which are added in memory.
const (
	mostParts  = 8
	leastDepth = 256
)

// Shares of the rate of products that attention in one kernel reaches, between what FlashAttention-2
// (arXiv:2307.08691, A100) and FlashAttention-3 (arXiv:2407.08608, H100) report for causal heads of 128.
const (
	attentionForward  = 0.8
	attentionBackward = 0.7
)

// A score of attention costs at least narrowScore of what it costs for heads of wholeHead, since its
// exponential and maximum take as long whatever the heads' width is. cuDNN on H200 (cudnn-frontend 1.19,
// benchmark/sdpa_benchmark_training/results/h200_919_only_cudnn, 8192 rows): heads of 64 with windows of 1024
// keys reach 349 and 300 TFLOP/s, whole ones of 128 644 and 541, which is 0.61 of the rate with the tiles at
// a window's ends.
const (
	wholeHead   = 128
	narrowScore = 0.82
)

// Kernels says what calls cost the machine that do not keep all its multiprocessors busy, as grad.Options
// takes it; nil where their number is not known, so that all products have one rate. A second kind of devices
// has the multiprocessors of the first.
func (m *Machine) Kernels() func(w kernels.Work) (flops, bytes int64) {
	if m.Units == 0 {
		return nil
	}
	return m.kernel
}

// kernel is a call that takes its arithmetic or its traffic, whichever is longer.
func (m *Machine) kernel(w kernels.Work) (flops, bytes int64) {
	filled := float64(w.Flops)
	switch units := float64(m.Units); {
	case w.Tiles > 0:
		share := attentionForward
		if w.Backward {
			share = attentionBackward
		}
		if own := m.fused(w.Ring); own > 0 {
			share *= own / attentionForward
		}
		if w.Width > 0 {
			filled *= max(1, narrowScore*wholeHead/float64(w.Width))
		}
		if w.Window > 0 { // tiles at both ends of a window are half needed
			filled *= 1 + kernels.AttentionRows/float64(w.Window)
		}
		tiles := float64(w.Tiles)
		filled *= math.Ceil(tiles/units) * units / tiles / share
	case w.Products != nil:
		filled = 0
		for _, p := range w.Products {
			filled += m.product(p)
		}
	}
	if w.Experts && m.Grouped > 0 {
		filled /= m.Grouped
	}
	if w.Bits > 0 {
		flops, bytes = m.fewBits(w, filled)
		return flops + m.perExpert(w), bytes
	}
	filled += float64(m.perExpert(w))
	if filled/(m.Flops*m.Efficiency) < float64(w.Bytes)/(m.Bandwidth*m.Stream) {
		return 0, w.Bytes
	}
	return int64(math.Round(filled)), 0
}

// perExpert is the operations that the device could do in the time of the calls that experts have of their own.
func (m *Machine) perExpert(w kernels.Work) (flops int64) {
	if w.Experts {
		for _, p := range w.Products {
			flops += int64(math.Round(float64(p.Count) * m.PerExpert * m.Flops * m.Efficiency))
		}
	}
	return flops
}

// fewBits is a product of operands of few bits, whose arithmetic is so much shorter as the device multiplies them
// faster. Activations and their gradients are read once and written twice, as they are and turned for the product of
// the weights' gradient; weights are rounded once a step (TransformerEngine's cast_transpose, and its cache of weights
// over microbatches), which is not counted. NVFP4 reads three times: for the largest elements, which the scale of a
// whole tensor wants first (arXiv:2509.25149, section 2), for the rows, and for the columns, which are rounded after a
// Hadamard transform (TransformerEngine 2.12, NVFP4Quantizer::quantize_impl: three calls on the input).
func (m *Machine) fewBits(w kernels.Work, filled float64) (flops, bytes int64) {
	peak := m.Flops8
	if w.Bits == 4 && m.Flops4 > 0 {
		peak = m.Flops4
	}
	if peak == 0 {
		if filled/(m.Flops*m.Efficiency) < float64(w.Bytes)/(m.Bandwidth*m.Stream) {
			return 0, w.Bytes
		}
		return int64(math.Round(filled)), 0
	}
	share := m.Share8
	if share == 0 {
		share = m.Efficiency
	}
	filled *= m.Flops * m.Efficiency / (peak * share)
	if w.Rounded {
		read := 16
		if w.Bits == 4 {
			read *= 3
		}
		for _, p := range w.Products {
			bytes += p.Count * p.M * p.K * int64(read+2*w.Bits) / 8
		}
		bytes = int64(float64(bytes) * cmp.Or(m.Software.Rounding, 1))
	}
	return int64(math.Round(filled)), bytes
}

// product is the operations that the device could do in the time of a product: waves of tiles over all
// multiprocessors, each as deep as the sum and a prologue, by the best of the tiles and cuts of the sum.
func (m *Machine) product(p kernels.Product) float64 {
	units, best := float64(m.Units), math.Inf(1)
	perByte := m.Flops * m.Efficiency / (m.Bandwidth * m.Stream)
	for _, t := range tiles {
		rows := math.Ceil(float64(p.M) / t.m)
		if p.Ragged { // the last tile of each is half full in the mean
			rows = float64(p.M)/t.m + 0.5
		}
		all := float64(p.Count) * rows * math.Ceil(float64(p.N)/t.n)
		for parts := 1.0; parts == 1 || parts <= mostParts && float64(p.K)/parts >= leastDepth; parts *= 2 {
			waves := math.Ceil(all * parts / units)
			x := waves * units * t.m * t.n / t.rate * 2 * (float64(p.K)/parts + m.Prologue)
			if parts > 1 { // float32, written and read
				x += perByte * 4 * (parts + 1) * float64(p.Count*p.M) * float64(p.N)
			}
			best = min(best, x)
		}
	}
	return best
}
