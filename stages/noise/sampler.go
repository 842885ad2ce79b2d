package noise

import (
	"fmt"
	"math"
	"slices"
)

// Options are what a run of the denoiser chooses beside the scheduler's settings. The zero value of each but
// Steps is diffusers' default.
type Options struct {
	Steps int // noise levels to visit; Heun evaluates the denoiser 2·Steps−1 times
	// Sigmas are the levels themselves, before shifts and the largest first. Schedulers of flow matching
	// take them; diffusers' pipelines of Qwen-Image and Flux.1 pass 1, …, 1/Steps ([FlowLevels]).
	Sigmas []float64
	Mu     float64 // the logarithm of the shift where it is dynamic ([FlowMatchEuler.Mu])
	Eta    float64 // DDIM's share of DDPM's noise: 0 is deterministic, 1 is DDPM
	// FromClipped lets DDIM derive its noise from the clipped prediction.
	FromClipped bool
	Churn       Churn // of Euler and EDM
}

// Churn adds noise before each step (arXiv:2206.00364, algorithm 2).
type Churn struct {
	S        float32 // 0 turns it off
	Min, Max float32 // levels between which it acts; Max 0 stands for infinity
	Noise    float32 // standard deviation; 0 stands for 1
}

// stepsMax bounds a run of the denoiser.
const stepsMax = 10_000

// Sampler is a run of the denoiser, laid out: a value without state. Begin, then as long as Done says no, evaluate the
// denoiser at Input and Time and give the result to Step. Everything is float32, in the order of diffusers' operations.
// A Sampler treats one sample at a time, so that its neighbours in a batch do not change it.
type Sampler struct {
	Times  []float32 // what the denoiser is told, an evaluation each
	Sigmas []float32 // noise levels in the scheduler's own units, one more than Times where it has them
	Scale  float32   // what noise of variance 1 is multiplied with to begin
	Noisy  bool      // Step adds noise and wants some

	width func(n int) int // elements of the denoiser's output for n of the sample; nil: as many
	past  func(done int) int
	input func(i int, x []float32) []float32
	step  func(s State, out, noise []float32) State
}

// State is where a run stands: a plain value, which can be saved after any evaluation and resumed to the
// same bits. Step never writes into the slices of the state that it is given.
type State struct {
	From int         `json:"from"` // evaluation that the run began at: 0 unless it starts from an image
	Done int         `json:"done"` // the next evaluation
	X    []float32   `json:"x"`    // the sample
	Past [][]float32 `json:"past"` // what earlier evaluations gave, the newest first
	Base []float32   `json:"base"` // the sample before the last prediction, where it is corrected later
}

// Begin is the state before the first evaluation, from noise of variance 1.
func (p *Sampler) Begin(noise []float32) State { return State{X: axpy(p.Scale, noise, 0, nil)} }

// Resume is the state before evaluation i of a run that starts from a sample at that level of noise.
func (p *Sampler) Resume(i int, x []float32) State {
	return State{From: i, Done: i, X: slices.Clone(x)}
}

// Done reports whether s.X is the result.
func (p *Sampler) Done(s State) bool { return s.Done >= len(p.Times) }

// Input is what the denoiser is given beside Times[s.Done].
func (p *Sampler) Input(s State) []float32 {
	if p.input == nil {
		return s.X
	}
	return p.input(s.Done, s.X)
}

// Step is the state after an evaluation whose result is out, of the sample's length (twice that where DDPM
// learned its variance). noise has variance 1 and the sample's length; samplers that are not Noisy do not
// read it. A length, a state or a number that cannot be of this run is an error.
func (p *Sampler) Step(s State, out, noise []float32) (State, error) {
	if err := p.fits(s); err != nil {
		return State{}, err
	}
	want := len(s.X)
	if p.width != nil {
		want = p.width(want)
	}
	if len(out) != want {
		return State{}, fmt.Errorf("step %d of a sampler: the denoiser gave %d numbers where %d belong",
			s.Done, len(out), want)
	}
	if p.Noisy && len(noise) != len(s.X) {
		return State{}, fmt.Errorf("step %d of a sampler: %d numbers of noise where %d belong",
			s.Done, len(noise), len(s.X))
	}
	for i, v := range out {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return State{}, fmt.Errorf("step %d of a sampler: element %d of the denoiser's output is %g: %s",
				s.Done, i, v, "its weights or its precision are at fault")
		}
	}
	next := p.step(s, out, noise)
	next.From, next.Done = s.From, s.Done+1
	return next, nil
}

// fits refuses a state that this sampler cannot have given.
func (p *Sampler) fits(s State) error {
	if s.From < 0 || s.Done < s.From || s.Done >= len(p.Times) {
		return fmt.Errorf("a sampler of %d evaluations cannot go on from evaluation %d of a run from %d",
			len(p.Times), s.Done, s.From)
	}
	want := 0
	if p.past != nil {
		want = p.past(s.Done - s.From)
	}
	bad := len(s.Past) != want || s.Base != nil && len(s.Base) != len(s.X)
	for _, v := range s.Past {
		bad = bad || len(v) != len(s.X)
	}
	if bad {
		return fmt.Errorf("the state after %d evaluations is not of this sampler: %d earlier results of %d",
			s.Done, len(s.Past), want)
	}
	return nil
}

// pushed puts the newest result before those kept, and keeps n.
func pushed(v []float32, past [][]float32, n int) [][]float32 {
	out := append([][]float32{v}, past...)
	return out[:min(n, len(out))]
}

// axpy is a·x + b·y in float32, each product rounded; y may be nil where b is 0.
func axpy(a float32, x []float32, b float32, y []float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		if out[i] = float32(a * v); y != nil {
			out[i] += float32(b * y[i])
		}
	}
	return out
}

// add adds a·x to y in place and returns y.
func add(y []float32, a float32, x []float32) []float32 {
	for i, v := range x {
		y[i] += float32(a * v)
	}
	return y
}

// over divides each element.
func over(x []float32, by float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = v / by
	}
	return out
}

// checkSteps refuses a number of steps that no grid has.
func checkSteps(n, most int) error {
	if n < 1 || n > most {
		return fmt.Errorf("a sampler of %d steps: take from 1 to %d", n, most)
	}
	return nil
}

func exp32(x float32) float32   { return float32(math.Exp(float64(x))) }
func expm132(x float32) float32 { return float32(math.Expm1(float64(x))) }
func log32(x float32) float32   { return float32(math.Log(float64(x))) }

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
