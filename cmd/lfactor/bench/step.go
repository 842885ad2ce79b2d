package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/process"
	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/profile"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// stepShapes are the models of bench step with their sequences' length and number.
var stepShapes = map[string]struct{ seq, batch int }{"llama58m": {512, 4}, "qwen3-0.6b": {1024, 1}}

func stepBenchCommand() *cobra.Command {
	c := &cobra.Command{Use: "step", Short: "Time training steps beside the least that this machine could take; bench/step.py times the same model in PyTorch beside it",
		Long: "Trains llama58m (hidden 512, 8 layers, 8 heads, 1408 inner, 32000 tokens; 4 sequences of 512) or qwen3-0.6b (1 sequence of 1024) on random tokens.\n" +
			"The floor is products and attention at the measured peak plus the memory that must move, once, at the measured rate.", Args: cobra.NoArgs}
	var s stepBench
	f := c.Flags()
	f.StringVar(&s.shape, "shape", "llama58m", "llama58m or qwen3-0.6b")
	f.StringVar(&s.precision, "precision", "fp32", "fp32, bf16 or fp16")
	f.StringVar(&s.recompute, "recompute", "selective", "none, selective or full")
	f.IntVar(&s.threads, "threads", 1, "kernel threads")
	f.IntVar(&s.steps, "steps", 5, "steps that count; one more warms up")
	f.IntVar(&s.layers, "layers", 0, "decoder layers, 0 for the shape's")
	f.IntVar(&s.hidden, "hidden", 512, "hidden size of llama58m")
	f.IntVar(&s.inter, "intermediate", 1408, "intermediate size of llama58m")
	f.IntVar(&s.vocab, "vocab", 32000, "vocabulary of llama58m")
	f.IntVar(&s.seq, "seq", 0, "tokens of a sequence, 0 for the shape's")
	f.IntVar(&s.batch, "batch", 0, "sequences of a step, 0 for the shape's")
	f.IntVar(&s.pp, "pp", 1, "pipeline stages")
	f.StringVar(&s.profile, "profile", "", "write where the time went to FILE.txt, .json and .svg")
	f.Lookup("profile").NoOptDefVal = "profile"
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		return s.run(form)
	}
	return c
}

// stepBench is the model and shape that are timed.
type stepBench struct {
	shape, precision, recompute, profile                         string
	threads, steps, layers, hidden, inter, vocab, seq, batch, pp int
}

// stepResult is what bench/step.py reads.
type stepResult struct {
	TokensPerSecond float64         `json:"tokens_per_second"` // of the median step
	Best            float64         `json:"best_tokens_per_second"`
	PeakBytes       int64           `json:"peak_bytes"`  // of tensors
	PeakRSS         int64           `json:"peak_rss"`    // of the process
	StateBytes      int64           `json:"state_bytes"` // of float32 parameters, gradients and two moments
	Seconds         []float64       `json:"seconds"`
	Losses          []float64       `json:"losses"`
	Floor           floor           `json:"floor"`
	OfFloor         float64         `json:"of_floor"` // the floor's share of the median step
	Profile         *profile.Report `json:"profile,omitempty"`
}

// check completes the shape.
func (s *stepBench) check() error {
	shape, ok := stepShapes[s.shape]
	if !ok {
		return exit.Usagef("--shape %s: want llama58m or qwen3-0.6b", s.shape)
	}
	if _, ok := layout.Precisions[s.precision]; !ok {
		return exit.Usagef("--precision %s: want fp32, bf16 or fp16", s.precision)
	}
	if _, ok := layout.Recomputes[s.recompute]; !ok {
		return exit.Usagef("--recompute %s: want none, selective or full", s.recompute)
	}
	if s.seq == 0 {
		s.seq = shape.seq
	}
	if s.batch == 0 {
		s.batch = shape.batch
	}
	if s.seq < 0 || s.batch < 0 || s.layers < 0 || s.steps < 1 || s.threads < 1 || s.pp < 1 || s.batch%s.pp != 0 {
		return exit.Usagef("--seq, --batch, --layers, --steps, --threads and --pp want positive numbers, and --batch a multiple of --pp")
	}
	return nil
}

// model is the one that is trained.
func (s *stepBench) model() (*family.Model, error) {
	if s.shape == "llama58m" {
		heads := s.hidden / 64
		layers := s.layers
		if layers == 0 {
			layers = 8
		}
		return family.Decoder("llama", family.Spec{Layers: layers, Hidden: s.hidden, Inter: s.inter, Heads: heads, KV: heads, HeadDim: 64, Vocab: s.vocab, Eps: 1e-5,
			Rope: block.Rope{Dim: 64, Theta: 10000}}), nil
	}
	c, err := configs.Published("qwen/3-0.6b")
	if err != nil {
		return nil, err
	}
	if s.layers > 0 {
		c.Layers = s.layers
	}
	s.vocab = c.Vocab
	return family.Build(c, s.seq)
}

// layout is the plan: pipeline stages, and as many microbatches.
func (s *stepBench) layout(m *family.Model) (*layout.Layout, error) {
	return layout.Plan(&layout.Job{Model: m, Mesh: topology.Grid(s.pp, 1, 1), Schedule: "1f1b", Micro: s.pp, Rows: s.batch / s.pp * s.seq, DType: layout.Precisions[s.precision], Recompute: layout.Recomputes[s.recompute],
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}})
}

func (s *stepBench) run(form string) error {
	if err := s.check(); err != nil {
		return err
	}
	m, err := s.model()
	if err != nil {
		return err
	}
	l, err := s.layout(m)
	if err != nil {
		return err
	}
	res := stepResult{StateBytes: 16 * m.Count()}
	began := time.Now()
	before := s.peaks()
	debug.FreeOSMemory() // what the probes took is none of the run's
	prof, err := s.train(m, l, &res)
	if err != nil {
		return err
	}
	sorted := slices.Clone(res.Seconds)
	slices.Sort(sorted)
	median, tokens := sorted[len(sorted)/2], float64(s.batch*s.seq)
	res.PeakRSS = process.PeakRSS() // before the probes take memory
	peaks := best(before, s.peaks())
	res.TokensPerSecond, res.Best = tokens/median, tokens/sorted[0]
	res.Floor = s.floor(l, m.Count(), peaks)
	res.OfFloor = res.Floor.Seconds / median
	var report profiler.ProfileReport
	if prof != nil {
		var ok bool
		if report, ok = prof.With(peaks); ok {
			res.Profile = report.Report
			if err := prof.Write(s.profile, report); err != nil {
				return err
			}
		}
	}
	if form != "text" {
		return cli.PrintJSON(res)
	}
	s.print(res, median)
	if res.Profile != nil {
		report.PrintPhases(os.Stdout)
		report.PrintKernels(os.Stdout, 0)
		fmt.Printf("profile %s.txt, .json and .svg\n", s.profile)
	}
	fmt.Fprintf(os.Stderr, "took %v\n", time.Since(began).Round(time.Millisecond))
	return nil
}

// peaks are what the threads of the bench can do, before or after it.
func (s *stepBench) peaks() cpu.Peaks {
	b := cpu.New(s.threads)
	defer b.Close()
	return b.Peaks()
}

// best is the highest of each rate: a probe that was disturbed must not make steps look good.
func best(a, b cpu.Peaks) cpu.Peaks {
	return cpu.Peaks{MultiplyAdd: max(a.MultiplyAdd, b.MultiplyAdd), Tiles: max(a.Tiles, b.Tiles), Memory: max(a.Memory, b.Memory),
		TeamMultiplyAdd: max(a.TeamMultiplyAdd, b.TeamMultiplyAdd), TeamTiles: max(a.TeamTiles, b.TeamTiles)}
}

func (s *stepBench) print(res stepResult, median float64) {
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	fmt.Printf("%s %s %d threads: %.0f tokens/s (median of %d; best %.0f), loss %.4f → %.4f\n", s.shape, s.precision, s.threads, res.TokensPerSecond,
		len(res.Seconds), res.Best, res.Losses[0], res.Losses[len(res.Losses)-1])
	fmt.Printf("memory  tensors at most %.0f MiB, process %.0f MiB; above parameters, gradients and moments (%.0f MiB): %.0f and %.0f MiB\n", mib(res.PeakBytes), mib(res.PeakRSS),
		mib(res.StateBytes), mib(res.PeakBytes-res.StateBytes), mib(res.PeakRSS-res.StateBytes))
	f := res.Floor
	fmt.Printf("floor   %s: %.1f GFLOP of products and %.1f of attention at %.1f GFLOP/s, %.2f GB at %.1f GB/s; a step takes %s, the floor is %s of it\n", unit.Seconds(f.Seconds),
		f.Products/1e9, f.Attention/1e9, f.Peak/1e9, f.Bytes/1e9, f.Memory/1e9, unit.Seconds(median), unit.Percent(res.OfFloor))
}

// train runs the steps and fills in what they took; the profiler is nil unless a profile is wanted.
func (s *stepBench) train(m *family.Model, l *layout.Layout, res *stepResult) (*profiler.Profiler, error) {
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
	var made []*cpu.Backend
	o.Backend = func(int) kernels.Backend {
		made = append(made, cpu.New(s.threads))
		return made[len(made)-1]
	}
	var prof *profiler.Profiler
	if s.profile != "" {
		prof = profiler.NewProfiler(s.steps)
		prof.Attach(l, &o)
	}
	err := host.Run(l, o)
	for _, b := range made {
		b.Close()
	}
	return prof, err
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
