// Package rates measures what training steps, kernels, the simulator and the search for plans take on this
// machine, beside the least that the machine could take.
package rates

import (
	"cmp"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/profile"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology/machine"
)

// stepShapes are the models of bench step with their sequences' length and number.
var stepShapes = map[string]struct{ seq, batch int }{"llama58m": {512, 4}, "qwen3-0.6b": {1024, 1}}

// Step is the model and shape that are timed.
type Step struct {
	Shape, Precision, Recompute, Profile, Device                 string
	Threads, Steps, Layers, Hidden, Inter, Vocab, Seq, Batch, Pp int
	// a directory with config.json, in place of Shape
	Model string
	// tokens that are computed at a time, 0 for all
	Chunk int
	// ranks that share the tokens of a sequence, with keys and values going round
	Cp int
	// what backwards need, and the optimizer's state, wait in files that are mapped into memory, as
	// plan.offload and plan.offload_optimizer say
	Offload, OffloadOptimizer bool
	// tensors that are not computed again, as plan.keep_tensors says
	Keep []string

	// the Python whose numpy is timed beside a step in float32; Asked if it must be there, "" for none
	Numpy string
	Asked bool

	See See // hears how far the measurement is; nil for nobody

	family *family.Model
}

// StepResult is what bench/step.py reads.
type StepResult struct {
	TokensPerSecond float64         `json:"tokens_per_second"` // of the median step
	Best            float64         `json:"best_tokens_per_second"`
	PeakBytes       int64           `json:"peak_bytes"`  // of tensors
	PeakRSS         int64           `json:"peak_rss"`    // of the process
	StateBytes      int64           `json:"state_bytes"` // of float32 parameters, gradients and two moments
	Seconds         []float64       `json:"seconds"`
	Losses          []float64       `json:"losses"`
	Floor           floor           `json:"floor"`
	OfFloor         float64         `json:"of_floor"`          // the floor's share of the median step
	Library         *Library        `json:"library,omitempty"` // of products in float32
	Profile         *profile.Report `json:"profile,omitempty"`
	Median          float64         `json:"median"`
}

// check completes the shape.
func (s *Step) check() error {
	shape, ok := stepShapes[s.Shape]
	if s.Model != "" {
		shape, ok = stepShapes["llama58m"], true
	}
	if !ok {
		return exit.Usagef("--shape %s: want llama58m or qwen3-0.6b", s.Shape)
	}
	if _, ok := fit.Precisions[s.Precision]; !ok {
		return exit.Usagef("--precision %s: want fp32, bf16 or fp16", s.Precision)
	}
	if _, ok := fit.Recomputes[s.Recompute]; !ok {
		return exit.Usagef("--recompute %s: want none, selective or full", s.Recompute)
	}
	for _, text := range s.Keep {
		if _, err := configs.ParseTensor(text); err != nil {
			return exit.Usagef("--keep: %s", err)
		}
	}
	if s.Seq == 0 {
		s.Seq = shape.seq
	}
	if s.Batch == 0 {
		s.Batch = shape.batch
	}
	if s.Seq < 0 || s.Batch < 0 || s.Layers < 0 || s.Steps < 1 || s.Threads < 1 || s.Pp < 1 || s.Batch%s.Pp != 0 {
		return exit.Usagef("--seq, --batch, --layers, --steps, --threads and --pp want positive " +
			"numbers, and --batch a multiple of --pp")
	}
	if s.Model == "" && s.Shape == "llama58m" && (s.Hidden < 64 || s.Hidden%64 != 0 || s.Inter < 1 || s.Vocab < 1) {
		return exit.Usagef("--hidden wants a multiple of 64, the size of a head, and --intermediate and --vocab " +
			"positive numbers")
	}
	if s.Cp = max(1, s.Cp); s.Cp > 1 && (s.Batch/s.Pp*s.Seq%(2*s.Cp) != 0 || s.Chunk%(2*s.Cp) != 0) {
		return exit.Usagef("--cp %d: want microbatches, and chunks, of a multiple of %d tokens", s.Cp, 2*s.Cp)
	}
	if s.Chunk < 0 || s.Chunk > 0 && s.Batch/s.Pp*s.Seq%s.Chunk != 0 {
		return exit.Usagef("--chunk %d: want a part of a microbatch's %d tokens", s.Chunk, s.Batch/s.Pp*s.Seq)
	}
	return nil
}

// model is the one that is trained.
func (s *Step) model() (*family.Model, error) {
	if s.Model != "" {
		c, err := configs.ReadModel(s.Model)
		if err != nil {
			return nil, err
		}
		if s.Layers > 0 {
			c.Layers = s.Layers
		}
		s.Vocab = max(1, c.Vocab)
		return family.Build(c, s.Seq)
	}
	if s.Shape == "llama58m" {
		heads := s.Hidden / 64
		layers := s.Layers
		if layers == 0 {
			layers = 8
		}
		return family.Decoder("llama", family.Spec{Layers: layers, Hidden: s.Hidden, Inter: s.Inter, Heads: heads,
			KV: heads, HeadDim: 64, Vocab: s.Vocab, Eps: 1e-5, Rope: block.Rope{Dim: 64, Theta: 10000}}), nil
	}
	c, err := configs.Published("qwen/3-0.6b")
	if err != nil {
		return nil, err
	}
	if s.Layers > 0 {
		c.Layers = s.Layers
	}
	s.Vocab = c.Vocab
	return family.Build(c, s.Seq)
}

// layout is the plan: pipeline stages, and as many microbatches.
func (s *Step) layout(m *family.Model) (*layout.Layout, error) {
	schedule, chunks := "1f1b", 1
	if s.Chunk > 0 {
		schedule, chunks = "chunkpipe", s.Batch/s.Pp*s.Seq/s.Chunk
	}
	mesh := layout.MeshOf(&configs.Plan{PP: s.Pp, DP: 1, TP: 1, CP: s.Cp, Ulysses: 1, EP: 1, ETP: 1})
	job := &layout.Design{Model: m, Mesh: mesh, Schedule: schedule, Micro: s.Pp, Chunks: chunks,
		Ring: s.Cp > 1, Zigzag: s.Cp > 1, Zero: min(1, s.Cp-1), Rows: s.Batch / s.Pp * s.Seq,
		SeqLen: s.Seq, DType: fit.Precisions[s.Precision], Recompute: fit.Recomputes[s.Recompute],
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}}
	if s.Offload {
		job.Offload = layout.OffloadFrom
	}
	job.Chosen = layout.ChosenOf(&configs.Plan{KeepTensors: s.Keep})
	if s.OffloadOptimizer {
		job.OffloadState = 1
	}
	return layout.New(job)
}

// Measure trains and times the steps. With s.profile the report says where the time went; it lies in files
// of that name.
func (s *Step) Measure() (res StepResult, report profiler.ProfileReport, err error) {
	if err := s.check(); err != nil {
		return res, report, err
	}
	m, err := s.model()
	if err != nil {
		return res, report, err
	}
	denoises(m)
	l, err := s.layout(m)
	if err != nil {
		return res, report, err
	}
	res.StateBytes = 16 * m.Count()
	var before kernels.Peaks
	if s.onProcessor() {
		s.See.tell("measuring what the processor can do", 0, 0)
		before = s.peaks()
		if s.Numpy != "" && s.Precision == "fp32" {
			if res.Library, err = MeasureLibrary(s.Numpy, s.Asked, s.Threads*s.Cp); err != nil {
				return res, report, err
			}
		}
	}
	debug.FreeOSMemory() // what the probes took is none of the run's
	prof, err := s.train(m, l, &res)
	if err != nil {
		return res, report, err
	}
	sorted := slices.Clone(res.Seconds)
	slices.Sort(sorted)
	tokens := float64(s.Batch * s.Seq)
	res.Median = sorted[len(sorted)/2]
	res.PeakRSS = machine.PeakRSS() // before the probes take memory
	res.TokensPerSecond, res.Best = tokens/res.Median, tokens/sorted[0]
	if !s.onProcessor() {
		// what the processor could do at most says nothing about another device
		return res, report, s.profiled(prof, kernels.DeviceRates(s.Device), &res, &report)
	}
	peaks := best(before, s.peaks())
	whole := *s // the least work does not depend on how sequences are cut
	whole.Chunk, whole.Cp = 0, 1
	if l, err = whole.layout(m); err != nil {
		return res, report, err
	}
	res.Floor = s.floor(l, m.Count(), peaks)
	res.OfFloor = res.Floor.Seconds / res.Median
	if res.Library != nil {
		res.Library.under(&res.Floor, res.Median)
	}
	return res, report, s.profiled(prof, peaks, &res, &report)
}

// profiled writes the profile, where one is wanted, beside what the device can do; none is known where it is 0.
func (s *Step) profiled(p *profiler.Profiler, peaks kernels.Peaks, res *StepResult,
	report *profiler.ProfileReport) (err error) {
	if p == nil {
		return nil
	}
	var ok bool
	if *report, ok = p.With(peaks); ok {
		res.Profile = report.Report
		err = p.Write(s.Profile, *report)
	}
	return err
}

// onProcessor tells whether the peaks that are probed are those of the device that trains.
func (s *Step) onProcessor() bool { return s.Device == "" || s.Device == kernels.CPU }

// peaks are what the threads of the bench can do, before or after it.
func (s *Step) peaks() kernels.Peaks {
	b := kernels.OpenProber(s.Threads * max(1, s.Cp))
	defer kernels.Close(b)
	return b.Peaks()
}

// best is the highest of each rate: a probe that was disturbed must not make steps look good.
func best(a, b kernels.Peaks) kernels.Peaks {
	return kernels.Peaks{MultiplyAdd: max(a.MultiplyAdd, b.MultiplyAdd), Tiles: max(a.Tiles, b.Tiles),
		Memory:          max(a.Memory, b.Memory),
		TeamMultiplyAdd: max(a.TeamMultiplyAdd, b.TeamMultiplyAdd), TeamTiles: max(a.TeamTiles, b.TeamTiles)}
}

// train runs the steps and fills in what they took; the profiler is nil unless a profile is wanted.
func (s *Step) train(m *family.Model, l *layout.Layout, res *StepResult) (*profiler.Profiler, error) {
	s.family = m
	o := host.RunOptions{Coord: core.RunLayout{First: 1, Last: int64(s.Steps + 1),
		LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 1e-4 }}, Batches: s.batches, Ahead: 1,
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				m.Init(1, p, g, dst)
			}
			return kind == "param", nil
		}, Observe: func(msg actors.Message) {
			if msg.Text != core.TopicStep {
				return
			}
			s.See.tell("training steps", int(msg.Step), s.Steps+1)
			res.Losses = append(res.Losses, core.SummaryOf(msg.Values).Loss)
			if msg.Step > 1 {
				res.Seconds = append(res.Seconds, core.SummaryOf(msg.Values).Time/1e9)
				res.PeakBytes = int64(core.SummaryOf(msg.Values).Peak)
			}
		}}
	of, closeAll, err := host.OpenBackends(cmp.Or(s.Device, kernels.CPU), host.Ranks(l.World()),
		kernels.Options{Threads: s.Threads})
	if err != nil {
		return nil, err
	}
	defer closeAll()
	o.Backend = of
	if s.Offload || s.OffloadOptimizer {
		o.Files = os.TempDir()
	}
	var prof *profiler.Profiler
	if s.Profile != "" {
		prof = profiler.NewProfiler(s.Steps)
		prof.Attach(l, &o)
	}
	return prof, host.Run(l, o)
}

// batches are random tokens, the same for every step, as in bench/step.py.
func (s *Step) batches(int64, int) (out []family.Microbatch, _ error) {
	r := rand.New(rand.NewPCG(1, 1))
	for range s.Pp {
		mb := family.Microbatch{Cu: []int32{0}}
		for range s.Batch / s.Pp {
			for p := range s.Seq {
				mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(s.Vocab))), append(mb.Targets, int32(r.IntN(s.Vocab)))
				mb.Positions, mb.Weights = append(mb.Positions, int32(p)), append(mb.Weights, 1/float32(s.Batch*s.Seq))
			}
			mb.Cu = append(mb.Cu, int32(len(mb.IDs)))
		}
		if s.family.Task().OwnRows {
			s.latents(&mb, r)
		}
		out = append(out, mb)
	}
	return out, nil
}
