package sample

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology/machine"
)

// smol is the shape of SmolLM2-135M.
var smol = family.Spec{Layers: 30, Hidden: 576, Inter: 1536, Heads: 9, KV: 3, HeadDim: 64, Vocab: 49152,
	Eps: 1e-5, InitStd: 0.04, Tie: true, Rope: block.Rope{Dim: 64, Theta: 10000}}

// decoding gives an engine on a generator with so many answers under way that none of them ends.
func decoding(b *testing.B, g *Generator, batch int, temperature float64) *Engine {
	e, err := NewEngine(g, EngineOptions{Pages: 1024, Running: batch, Rows: 512})
	if err != nil {
		b.Fatal(err)
	}
	for i := range batch {
		prompt := make([]int32, 48)
		for k := range prompt {
			prompt[k] = int32((i*977 + k*k*31 + 5) % 49152)
		}
		r := &Request{Prompt: prompt, Params: Params{Temperature: temperature, Max: 400, Seed: uint64(i)},
			Emit: func(Token) bool { return true }, Done: func(End) {}}
		if err := e.Submit(r); err != nil {
			b.Fatal(err)
		}
	}
	for e.Stats().Drawn < int64(2*batch) { // prompts, and what is packed first
		if err := e.Step(); err != nil {
			b.Fatal(err)
		}
	}
	return e
}

// BenchmarkSumAs is what it costs to take sums in the order of two or three ranks of tensor parallelism: a step of
// decoding each on one thread, by turns with one in one rank's order; the median of their ratios, of processor time.
func BenchmarkSumAs(b *testing.B) {
	be := cpu.New(1)
	defer be.Close() //nolint:errcheck // it ends threads
	m := family.Decoder("smol", smol)
	for _, batch := range []int{1, 8, 32} {
		for _, ranks := range []int{2, 3} {
			b.Run(fmt.Sprintf("%d answers, %d ranks", batch, ranks), func(b *testing.B) {
				var both [2]*Engine
				for i := range both {
					g, err := New(m, nil, tensor.F32, be, tensor.NewPool("smol", 0), func(p *grad.Param,
						r family.Region, dst []float32) error {
						m.Init(3, p, r, dst)
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
					g.SumAs(map[string]int{grad.TP: []int{1, ranks}[i]}, nil)
					both[i] = decoding(b, g, batch, 1)
					defer both[i].Close()
				}
				var took [2][]float64
				var ratio []float64
				for b.Loop() {
					var now [2]float64
					for i := range both {
						k := (i + len(ratio)) % 2
						at := machine.CPUSeconds()
						if err := both[k].Step(); err != nil {
							b.Fatal(err)
						}
						now[k] = machine.CPUSeconds() - at
					}
					ratio = append(ratio, now[1]/now[0])
					for i := range now {
						took[i] = append(took[i], now[i])
					}
				}
				for i := range took {
					slices.Sort(took[i])
				}
				slices.Sort(ratio)
				b.ReportMetric(took[0][len(ratio)/2]*1e3, "ms-one")
				b.ReportMetric(took[1][len(ratio)/2]*1e3, "ms-ranks")
				b.ReportMetric(100*(ratio[len(ratio)/2]-1), "%-more")
			})
		}
	}
}

// BenchmarkDecode is a step of decoding, greedy and drawn, on one thread.
func BenchmarkDecode(b *testing.B) {
	be := cpu.New(1)
	defer be.Close() //nolint:errcheck // it ends threads
	m := family.Decoder("smol", smol)
	for _, temperature := range []float64{0, 1} {
		for _, batch := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("temperature %g, %d answers", temperature, batch), func(b *testing.B) {
				g, err := New(m, nil, tensor.F32, be, tensor.NewPool("smol", 0), func(p *grad.Param,
					r family.Region, dst []float32) error {
					m.Init(3, p, r, dst)
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				e := decoding(b, g, batch, temperature)
				defer e.Close()
				at := machine.CPUSeconds()
				for b.Loop() {
					if err := e.Step(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((machine.CPUSeconds()-at)*1e3/float64(b.N), "ms-of-processor")
			})
		}
	}
}
