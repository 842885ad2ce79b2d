// Package calibrate describes the machine that it runs on for the simulator, from the times of small models' segments.
package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/collective"
	"github.com/lfactor/lfactor/topology/cost"
)

// Timed is a segment as it ran.
type Timed struct {
	Flops, Bytes, Calls float64
	Seconds             float64
}

// Fit says how well three rates explain measured segments.
type Fit struct {
	Segments int
	Error    float64 // mean relative error of the best nine tenths
	Rounds   int     // that were measured until two fits agreed
	Others   float64 // share of the machine's processors that other programs took meanwhile
}

// Calibrate measures segments of models of several widths on this machine's processor, or on another device by its
// name, for which it measures copies to and from the host too. Models are computed in a dtype, whose rates those are:
// of float32 and bfloat16 processors and devices have very different ones. The first step of each model warms up.
func Calibrate(device string, threads int, t tensor.DType) (*cost.Machine, Fit, error) {
	b, err := kernels.Open(device, kernels.Options{Threads: threads})
	if err != nil {
		return nil, Fit{}, &host.OpenError{Err: err}
	}
	defer kernels.Close(b)
	widths, rows := []int{64, 192, 384}, 128
	if _, ok := b.(kernels.Device); ok { // until arithmetic takes longer than to ask for it
		widths, rows = []int{512, 1024, 2048}, 8192
	}
	return calibrate(b, widths, rows, t)
}

// calibrate measures blocks of the given widths and fits a machine to them. The links are not
// measured here: they get plain values that the user can overwrite.
func calibrate(b kernels.Backend, widths []int, rows int, t tensor.DType) (*cost.Machine, Fit, error) {
	m := &cost.Machine{Name: "measured", Memory: 4 << 30, Efficiency: 1, Stream: 1, Devices: 64,
		Hosts: 1, Copy: 4e9, Local: collective.Link{Latency: 20e-6, PerByte: 1 / 4e9},
		Remote: collective.Link{Latency: 50e-6, PerByte: 1 / 1e9}}
	if d, ok := b.(kernels.Device); ok {
		if err := measureDevice(m, d); err != nil {
			return nil, Fit{}, err
		}
	}
	fit, err := settle(m, func() (all []Timed, err error) {
		for _, hidden := range widths {
			got, err := measure(b, hidden, rows, t)
			if err != nil {
				return nil, err
			}
			all = append(all, got...)
		}
		return all, nil
	})
	return m, fit, err
}

const copied = 32 << 20 // bytes of a measured copy

// measureDevice takes memory and copies of a device: with the host, and on the device, which is what two
// devices that share a memory or a fast link come near to.
func measureDevice(m *cost.Machine, d kernels.Device) error {
	m.Name = d.Name()
	if s, ok := d.(kernels.Sized); ok && s.Room() > 0 {
		m.Memory, m.Reserve = float64(s.Room()), cost.UsualReserve
	}
	p := tensor.NewPool("calibrate", 0).In(d)
	a, err := p.New("a copy's source", tensor.F32, copied/4)
	if err != nil {
		return err
	}
	defer a.Release()
	b, err := p.New("a copy's result", tensor.F32, copied/4)
	if err != nil {
		return err
	}
	defer b.Release()
	h := make([]byte, copied)
	best := func(bytes float64, do func()) float64 {
		rate := 0.0
		for range 3 {
			began := time.Now()
			do()
			d.Sync()
			rate = max(rate, bytes/time.Since(began).Seconds())
		}
		return rate
	}
	m.Copy = best(2*copied, func() { d.Write(a, h); d.Read(h, a) })
	m.Local.PerByte = 1 / best(copied, func() { d.Copy(b, a) })
	return nil
}

// finished makes a job last until its calls are done: on a device it ends when the last one is issued.
type finished struct {
	host.Device
	b kernels.Backend
}

// Run implements host.Device.
func (f finished) Run(j actors.Job) (host.Result, error) {
	r, err := f.Device.Run(j)
	if err == nil {
		f.b.Sync()
	}
	return r, err
}

// measure trains a model of four layers for four steps and returns the segments of the last three.
func measure(b kernels.Backend, hidden, rows int, t tensor.DType) (out []Timed, err error) {
	m := family.Decoder("llama", family.Spec{Layers: 4, Hidden: hidden, Inter: 3 * hidden, Heads: hidden / 32,
		KV: hidden / 32, HeadDim: 32, Vocab: 1024, Eps: 1e-6, Rope: block.Rope{Dim: 32, Theta: 10000}, InitStd: 0.02})
	l, err := layout.New(&layout.Design{Model: m, Mesh: topology.Grid(1, 1, 1), Schedule: "1f1b", Micro: 2,
		Rows: rows, DType: t, Recompute: grad.RecomputeNone,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}})
	if err != nil {
		return nil, err
	}
	rl := l.RankLayout(0, 0)
	var mu sync.Mutex
	const steps = 4
	err = host.Run(l, host.RunOptions{Coord: core.RunLayout{First: 1, Last: steps,
		LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 1e-3 }},
		Backend:    func(int) kernels.Backend { return b },
		WrapDevice: func(_ int, d host.Device) host.Device { return finished{d, b} },
		Batches:    RandomBatches(2, rows, 1024),
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				m.Init(7, p, g, dst)
			}
			return kind == "param", nil
		},
		Trace: func(e host.TraceEvent) {
			if e.Job.Kind != actors.RunSegment || e.Job.Step == 1 {
				return
			}
			segs := rl.Lower(e.Job.Action, false, e.Job.Class)
			if int(e.Job.Segment) >= len(segs) {
				return
			}
			s := segs[e.Job.Segment]
			mu.Lock()
			defer mu.Unlock()
			out = append(out, Timed{float64(s.Flops), float64(s.Bytes), float64(s.Calls), (e.End - e.Start).Seconds()})
		}})
	return
}

// RandomBatches makes microbatches of so many tokens, drawn from a vocabulary.
func RandomBatches(micro, rows, vocab int) host.BatchFunc {
	return func(step int64, _ int) (out []family.Microbatch, err error) {
		for i := range micro {
			r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
			mb := family.Microbatch{Cu: []int32{0, int32(rows)}}
			for k := range rows {
				mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(vocab))), append(mb.Targets, int32(r.IntN(vocab)))
				mb.Positions, mb.Weights = append(mb.Positions, int32(k)), append(mb.Weights, 1/float32(micro*rows))
			}
			out = append(out, mb)
		}
		return
	}
}

// FitRates finds the three rates that explain the samples best, by a pattern search over their logarithms on the mean
// relative error of the best nine tenths of at least two samples. Rates stay within what a device can have (bounds).
func FitRates(m *cost.Machine, all []Timed) Fit {
	rates := rates(m)
	m.Flops, m.Bandwidth, m.Overhead = 50e9, 10e9, 2e-6
	loss := func() float64 {
		errs := make([]float64, len(all))
		for i, s := range all {
			errs[i] = math.Abs(m.Segment(int64(s.Flops), int64(s.Bytes), int(s.Calls))/s.Seconds - 1)
		}
		slices.Sort(errs)
		sum, kept := 0.0, errs[:len(errs)*9/10] // without the worst tenth: other programs ran too
		for _, e := range kept {
			sum += e
		}
		return sum / float64(len(kept))
	}
	best := loss()
	for step := 0.5; step > 1e-3; {
		moved := false
		for i, x := range rates {
			for _, f := range []float64{math.Exp(step), math.Exp(-step)} {
				old := *x
				*x = min(max(*x*f, bounds[i].least), bounds[i].most)
				if l := loss(); l < best {
					best, moved = l, true
				} else {
					*x = old
				}
			}
		}
		if !moved {
			step *= 0.6
		}
	}
	return Fit{Segments: len(all), Error: best}
}
