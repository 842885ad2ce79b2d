package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

var _ = add(func() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure lfactor on this machine"}
	step := &cobra.Command{Use: "step", Short: "Time training steps of a small Llama; bench/step.py times the same model in PyTorch beside it", Args: cobra.NoArgs}
	var s stepBench
	f := step.Flags()
	f.StringVar(&s.precision, "precision", "fp32", "fp32, bf16 or fp16")
	f.IntVar(&s.threads, "threads", 1, "kernel threads")
	f.IntVar(&s.steps, "steps", 5, "steps that count; one more warms up")
	f.IntVar(&s.layers, "layers", 8, "decoder layers")
	f.IntVar(&s.hidden, "hidden", 512, "hidden size")
	f.IntVar(&s.inter, "intermediate", 1408, "intermediate size")
	f.IntVar(&s.vocab, "vocab", 32000, "vocabulary")
	f.IntVar(&s.seq, "seq", 512, "tokens of a sequence")
	f.IntVar(&s.batch, "batch", 4, "sequences of a step")
	f.IntVar(&s.pp, "pp", 1, "pipeline stages")
	step.RunE = func(c *cobra.Command, _ []string) error {
		form, err := output(c)
		if err != nil {
			return err
		}
		return s.run(form)
	}
	c.AddCommand(step, kernelBench(), peakBench(), simBench(), planBench())
	return c
})

// stepBench is the model and shape that are timed.
type stepBench struct {
	precision                                                    string
	threads, steps, layers, hidden, inter, vocab, seq, batch, pp int
}

// stepResult is what bench/step.py reads.
type stepResult struct {
	TokensPerSecond float64   `json:"tokens_per_second"` // of the median step
	Best            float64   `json:"best_tokens_per_second"`
	PeakBytes       int64     `json:"peak_bytes"` // of tensors
	PeakRSS         int64     `json:"peak_rss"`   // of the process
	Seconds         []float64 `json:"seconds"`
	Losses          []float64 `json:"losses"`
}

func (s *stepBench) run(form string) error {
	d, ok := precisions[s.precision]
	if !ok {
		return usage("--precision %s: want fp32, bf16 or fp16", s.precision)
	}
	heads := s.hidden / 64
	m := family.Decoder("llama", family.Spec{Layers: s.layers, Hidden: s.hidden, Inter: s.inter, Heads: heads, KV: heads, HeadDim: 64, Vocab: s.vocab, Eps: 1e-5,
		Rope: block.Rope{Dim: 64, Theta: 10000}})
	l, err := host.Plan(&host.Job{Model: m, Mesh: topology.Mesh{PP: s.pp, DP: 1, TP: 1}, Schedule: "1f1b", Micro: s.pp, Rows: s.batch / s.pp * s.seq, DType: d,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}})
	if err != nil {
		return err
	}
	var res stepResult
	o := host.RunOptions{Coord: core.RunLayout{First: 1, Last: int64(s.steps + 1), LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 1e-4 }},
		Batches: s.batches, Ahead: 1,
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				m.Init(1, p, g, dst)
			}
			return kind == "param", nil
		},
		Observe: func(msg actors.Message) {
			if msg.Text != core.TopicStep {
				return
			}
			res.Losses = append(res.Losses, msg.Values[core.StepLoss])
			if msg.Step > 1 {
				res.Seconds = append(res.Seconds, msg.Values[core.StepTime]/1e9)
				res.PeakBytes = int64(msg.Values[core.StepPeak])
			}
		}}
	o.Backend = func(int) kernels.Backend { return cpu.New(s.threads) }
	began := time.Now()
	if err := host.Run(l, o); err != nil {
		return err
	}
	sorted := slices.Clone(res.Seconds)
	slices.Sort(sorted)
	tokens := float64(s.batch * s.seq)
	res.PeakRSS = peakRSS()
	res.TokensPerSecond, res.Best = tokens/sorted[len(sorted)/2], tokens/sorted[0]
	if form != "text" {
		return printJSON(res)
	}
	fmt.Printf("%s %d threads: %.0f tokens/s (median of %d; best %.0f), tensors at most %.0f MiB, process %.0f MiB, loss %.4f → %.4f\n", s.precision, s.threads, res.TokensPerSecond,
		len(sorted), res.Best, float64(res.PeakBytes)/(1<<20), float64(res.PeakRSS)/(1<<20), res.Losses[0], res.Losses[len(res.Losses)-1])
	fmt.Fprintf(os.Stderr, "took %v\n", time.Since(began).Round(time.Millisecond))
	return nil
}

// batches are random tokens, the same for every step, as in bench/step.py.
func (s *stepBench) batches(int64, int) (out []host.Microbatch, _ error) {
	r := rand.New(rand.NewPCG(1, 1))
	for range s.pp {
		mb := host.Microbatch{Cu: []int32{0}}
		for range s.batch / s.pp {
			for p := range s.seq {
				mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(s.vocab))), append(mb.Targets, int32(r.IntN(s.vocab)))
				mb.Positions, mb.Weights = append(mb.Positions, int32(p)), append(mb.Weights, 1/float32(s.batch*s.seq))
			}
			mb.Cu = append(mb.Cu, int32(len(mb.IDs)))
		}
		out = append(out, mb)
	}
	return out, nil
}
