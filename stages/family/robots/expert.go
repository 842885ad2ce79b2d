package robots

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// octoLevels are the levels of noise that Octo (arXiv:2405.12213) diffuses actions in, and octoMost the
// range, on both sides of 0, that what it makes of them is held to.
const (
	octoLevels = 20
	octoMost   = 5
)

// The heads of actions that stand behind any vision-language model (policy.expert) are GR00T N1.5's (arXiv:2503.14734)
// without the transformer of what is seen and told and without rows of the future: the language model has done
// that work. With flow it draws actions out of noise in 4 steps, as GR00T does; with l1 it gives them at once,
// as OpenVLA-OFT (arXiv:2502.19645) does, and with diffusion it draws them in 20 levels of DDPM, as Octo does.
// What it attends to are the rows of a question, or Octo's readout tokens behind them.
var (
	_ = family.RegisterHead("flow", func(width int, p *configs.Policy) family.Head {
		e := newExpert(width, p)
		e.d.Feature, e.d.Steps, e.d.Learns = func(t float64) []float32 {
			return grootTime(t, p.ExpertWidth)
		}, 4, grootLearns
		return e
	})
	_ = family.RegisterHead("l1", func(width int, p *configs.Policy) family.Head {
		e := newExpert(width, p)
		e.d.Feature = func(float64) []float32 { return grootTime(0, p.ExpertWidth) } // it is told no time
		e.d.Once, e.d.Learns = true, func(p *family.Process) {
			p.Loss, p.Times, p.Levels = kernels.AbsoluteLoss, noise.Times{Kind: "uniform"},
				noise.Flow{Shift: 1, Times: 1}
			p.Target, _ = noise.Lookup("sample") // it is one of the package's own
		}
		return e
	})
	_ = family.RegisterHead("diffusion", func(width int, p *configs.Policy) family.Head {
		e := newExpert(width, p)
		s := noise.New("DDPMScheduler").(*noise.DDPM)
		s.Betas = noise.Betas{TrainSteps: octoLevels, Schedule: "squaredcos_cap_v2"}
		s.Clip, s.Prediction = noise.Clip{On: true, Range: octoMost}, "epsilon"
		e.d.Scheduler, e.d.Steps = s, octoLevels
		e.d.Feature = func(t float64) []float32 { return grootTime(grootBuckets-t, p.ExpertWidth) }
		e.d.Learns = func(p *family.Process) {
			p.Loss, p.Times = kernels.SquaredLoss, noise.Times{Kind: "uniform"}
			p.Levels, _ = s.Levels() // the schedule is one of the package's own
			p.Target, _ = noise.Lookup(s.Prediction)
		}
		return e
	})
)

// expert is such a head.
type expert struct{ *dit }

func newExpert(width int, p *configs.Policy) expert {
	d := &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: p.ExpertActions,
		FeatureWidth: grootWaves + p.ExpertWidth, Policy: family.Policy{Chunk: p.Horizon, Robots: p.ExpertRobots,
			Readouts: p.ExpertReads, Sight: &family.Sight{Views: p.ViewsMax(), Patches: p.ViewSize * p.ViewSize,
				Pixels: 3, State: p.ExpertState}}}
	return expert{&dit{d: d, robots: &ofRobots{d: d, weight: ".W", bias: ".b"}, name: family.ExpertName,
		port: family.ToldPort, told: width, width: p.ExpertWidth, heads: p.ExpertHeads, layers: p.ExpertLayers,
		out: p.ExpertWidth, places: p.Horizon}}
}

// Denoiser implements family.Head.
func (e expert) Denoiser() *family.Denoiser { return e.d }

// Blocks implements family.Head.
func (e expert) Blocks() ([]family.Block, map[string]family.Port) {
	norm := family.Block{Name: e.name + "vlln", Takes: []string{e.port}, Gives: []string{e.port}, Weight: 0.02,
		Record: func(r *block.Rec, env map[string]*grad.Value) { env[e.port] = e.first(r, env[e.port]) }}
	return append([]family.Block{norm}, e.blocks()...), e.ports()
}
