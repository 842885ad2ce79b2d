package cost

import (
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/topology/collective"
)

// Measured is a training step of a decoder whose time was measured: Megatron's layers with full recompute,
// 1F1B, half precision. Seconds is 0 where nothing was measured.
type Measured struct {
	GPUs, Batch, Micro, Hidden, Heads, Layers, Seq, TP, DP, PP int
	Seconds                                                    float64
}

// Check says what is impossible about a row: the name of its column and why.
func (r *Measured) Check() (column, why string) {
	for _, f := range []struct {
		name string
		v    int
	}{{"# GPUs", r.GPUs}, {"global batch", r.Batch}, {"micro batch", r.Micro}, {"hidden size", r.Hidden},
		{"attention heads", r.Heads}, {"# layers", r.Layers},
		{"sequence length", r.Seq}, {"tensor parallelism", r.TP}, {"data parallelism", r.DP},
		{"pipeline parallelism", r.PP}} {
		if f.v < 1 || f.v > 1<<24 {
			return f.name, fmt.Sprintf("%d is out of range", f.v)
		}
	}
	switch {
	case r.TP*r.DP*r.PP != r.GPUs:
		return "# GPUs", fmt.Sprintf("%d, but tp %d · dp %d · pp %d = %d", r.GPUs, r.TP, r.DP, r.PP,
			r.TP*r.DP*r.PP)
	case r.Batch%(r.Micro*r.DP) != 0:
		return "global batch", fmt.Sprintf("%d is not a multiple of micro batch %d · data parallelism %d",
			r.Batch, r.Micro, r.DP)
	case r.PP > r.Layers:
		return "pipeline parallelism", fmt.Sprintf("%d stages for %d layers", r.PP, r.Layers)
	}
	return "", ""
}

// Microbatches a step and replica.
func (r *Measured) Microbatches() int { return r.Batch / r.Micro / r.DP }

// Terms are the parts of a step, in seconds; their sum is the prediction.
type Terms struct {
	Compute float64 // layers and logits of the microbatches
	TP      float64 // exposed all-reduces inside layers, in those microbatches
	Bubble  float64 // of the pipeline, with its share of all-reduces
	PP      float64 // activations between stages on the critical path
	DP      float64 // gradient all-reduce
	Step    float64 // optimizer
}

// Sum is the step time.
func (t Terms) Sum() float64 { return t.Compute + t.TP + t.Bubble + t.PP + t.DP + t.Step }

// Constants of a cluster, all positive.
type Constants [numConstants]float64

// The constants: what a machine's description would say, as effective values.
const (
	perFlop   = iota // seconds a flop of a matrix product of unlimited width
	halfWidth        // columns of a shard at which products reach half of that rate
	perByte          // of activations that every tensor-parallel rank reads in full
	perShard         // bytes of activations that are shared among tensor-parallel ranks
	hostLayer        // seconds that launching a layer's kernels takes the host, all passes
	tpInside         // seconds a byte of a ring inside a host
	tpAcross         // between hosts
	ppByte           // seconds a byte between stages
	dpInside         // seconds a byte of gradients inside a host
	dpAcross         // between hosts
	stepParam        // seconds a parameter of the optimizer step
	tpLayer          // seconds a doubling of the tensor-parallel group, a layer
	numConstants
)

// ConstantNames are how the constants are printed, with units.
var ConstantNames = [numConstants]string{"gemm s/flop", "half-rate columns", "activation s/B", "shard s/B",
	"host s/layer", "tp s/B in host", "tp s/B across",
	"pp s/B", "dp s/B in host", "dp s/B across", "optimizer s/parameter", "tp s/layer"}

// start is a guess at the constants of hosts with eight A100 and four 200 Gb/s adapters, from data sheets; a
// constant that no row tells anything about keeps it.
var start = Constants{1 / 200e12, 100, 1 / 1.2e12, 1 / 2e12, 1e-3, 1 / 150e9, 1 / 100e9, 1 / 20e9, 1 / 100e9,
	1 / 15e9, 1e-11, 2e-5}

const (
	vocabulary = 51200 // of Megatron's GPT models, padded
	perHost    = 8
)

// Slots is how long a pipeline of equal stages takes, in times of one microbatch on one stage: the makespan
// of its program.
type Slots func(pp, micro int) (float64, error)

// Pieces are the durations of what a rank does in a step, in seconds: what a simulation of the row's program
// takes as prices.
type Pieces struct {
	Layers  float64 // of a stage for one microbatch, all passes: forward, recomputed forward and backward
	TP      float64 // all-reduces inside them
	Logits  float64 // of the last stage for one microbatch
	Message float64 // between stages
	DP      float64 // all-reduce of a rank's gradients
	Step    float64 // its optimizer step
}

// Pieces prices a row. A layer's kernels take the device or the host, whichever is slower, with a smooth
// corner; forward, recomputed forward and the two products of backward make four times the forward's work.
// Collectives are rings.
func (k *Constants) Pieces(r *Measured) (p Pieces) {
	b, s, h, t := float64(r.Micro), float64(r.Seq), float64(r.Hidden), float64(r.TP)
	tok, layers := float64(r.Micro*r.Seq), float64(r.Layers)/float64(r.PP)
	flops := 4 * (24*tok*h*h + 4*tok*s*h) / t
	gpu := k[perFlop]*flops*(1+k[halfWidth]*t/h) + k[perByte]*tok*h*8 +
		k[perShard]*(tok*h*32/t+b*float64(r.Heads)/t*s*s*4)
	gpu, host := gpu*gpu, k[hostLayer]*k[hostLayer]
	p.Layers = layers * math.Sqrt(math.Sqrt(gpu*gpu+host*host))
	activation := int64(2 * tok * h)
	if r.TP > 1 {
		const reduces = 6 // two in each of forward, recomputed forward and backward
		p.TP = layers * (reduces*collective.RingTime(collective.AllReduce, r.TP, activation,
			k.ring(tpInside, tpAcross, r.TP)) + k[tpLayer])
	}
	p.Logits = 6 * tok * h * vocabulary / t * k[perFlop]
	if r.PP > 1 {
		p.Message = collective.Link{PerByte: k[ppByte]}.Of(activation)
	}
	params := (12*h*h*layers + vocabulary*h) / t
	if r.DP > 1 {
		p.DP = collective.RingTime(collective.AllReduce, r.DP, int64(2*params),
			k.ring(dpInside, dpAcross, r.TP*r.DP))
	}
	p.Step = k[stepParam] * params
	return
}

// ring is the link that limits a ring over ranks, which lie on one host or on several.
func (k *Constants) ring(inside, across, ranks int) collective.Link {
	if ranks > perHost {
		return collective.Link{PerByte: k[across]}
	}
	return collective.Link{PerByte: k[inside]}
}

// Predict gives the terms of a step whose program is slots long. Its sum is what the row's program takes in
// a simulation with the row's Pieces.
func (k *Constants) Predict(r *Measured, slots float64) Terms {
	p, m := k.Pieces(r), float64(r.Microbatches())
	return Terms{Compute: m * (p.Layers + p.Logits), TP: m * p.TP, Bubble: (slots - m) * (p.Layers + p.TP),
		PP: 2 * slots * p.Message, DP: p.DP, Step: p.Step}
}

// Calibrate fits the constants to measured steps: a pattern search over their logarithms that takes only
// steps which lessen the mean relative error (with a tenth of its root mean square). It is deterministic.
func Calibrate(rows []Measured, slots Slots) (*Constants, error) {
	if len(rows) == 0 {
		return nil, fmt.Errorf("calibration: no rows")
	}
	long := make([]float64, len(rows))
	for i := range rows {
		var err error
		if long[i], err = slots(rows[i].PP, rows[i].Microbatches()); err != nil {
			return nil, err
		}
		if !(rows[i].Seconds > 0) {
			return nil, fmt.Errorf("calibration: row %d has no measured time", i)
		}
	}
	loss := func(k *Constants) float64 {
		sum, square := 0.0, 0.0
		for i := range rows {
			e := math.Abs(k.Predict(&rows[i], long[i]).Sum()/rows[i].Seconds - 1)
			sum, square = sum+e, square+e*e
		}
		n := float64(len(rows))
		return sum/n + 0.1*math.Sqrt(square/n)
	}
	k := start
	best := loss(&k)
	step := [numConstants]float64{}
	for j := range step {
		step[j] = 0.5
	}
	const rounds = 250
	for range rounds {
		for j := range k {
			moved := false
			for _, sign := range []float64{1, -1} {
				c := k
				if c[j] *= math.Exp(sign * step[j]); c[j] < 1e-30 {
					continue
				}
				if x := loss(&c); x < best {
					k, best, moved = c, x, true
					break
				}
			}
			if moved {
				step[j] = min(2, 1.5*step[j])
			} else {
				step[j] = max(1e-4, 0.6*step[j])
			}
		}
	}
	return &k, nil
}

// Fold deals a row to one of n folds by its columns, so that folds do not depend on the order of rows.
func (r *Measured) Fold(n int) int {
	h := uint64(14695981039346656037)
	for _, v := range []int{r.GPUs, r.Batch, r.Micro, r.Hidden, r.Heads, r.Layers, r.Seq, r.TP, r.DP, r.PP} {
		h = (h ^ uint64(v)) * 1099511628211
	}
	return int((h >> 32) % uint64(n))
}

// CrossValidate predicts every row by constants that were fitted without its fold, and returns the relative
// errors.
func CrossValidate(rows []Measured, folds int, slots Slots) ([]float64, error) {
	out := make([]float64, len(rows))
	for f := range folds {
		var train []Measured
		for _, r := range rows {
			if r.Fold(folds) != f {
				train = append(train, r)
			}
		}
		k, err := Calibrate(train, slots)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			if rows[i].Fold(folds) == f {
				n, err := slots(rows[i].PP, rows[i].Microbatches())
				if err != nil {
					return nil, err
				}
				out[i] = math.Abs(k.Predict(&rows[i], n).Sum()/rows[i].Seconds - 1)
			}
		}
	}
	return out, nil
}

// Quantiles of relative errors: mean, median and the worst.
func Quantiles(errs []float64) (mean, median, worst float64) {
	if len(errs) == 0 {
		return
	}
	s := slices.Sorted(slices.Values(errs))
	for _, e := range s {
		mean += e / float64(len(s))
	}
	return mean, s[len(s)/2], s[len(s)-1]
}
