package family

import (
	"cmp"
	"math"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Step is the time at which step k of n from noise to actions begins, and how far it goes.
func (d *Denoiser) Step(k, n int) (t, by float64) {
	return Shifted(d.Shift, k, n)
}

// Shifted is Step of levels that are shifted towards noise, 0 for equal steps.
func Shifted(shift float64, k, n int) (t, by float64) {
	at := func(k int) float64 {
		if shift == 0 {
			return 1 - float64(k)/float64(n)
		}
		s := float32(1 - float64(k)/float64(n)) // in float32, as what is told is of a thousand times as much
		return float64(float32(float32(shift)*s) / (1 + float32(float32(shift-1)*s)))
	}
	return at(k), at(k) - at(k+1)
}

// Still is how many numbers of a sample's actions, from the first, are given without noise: those before what it sees.
func (d *Denoiser) Still(x *Encoded) int { return x.Clean * x.Grid[1] * x.Grid[2] * d.Width() }

// Advance takes a policy's noisy actions x from time t to t - by, of what it said of them: in a step of
// Euler, or, of a policy that says what the actions are, to a mix of these with the noise that the first
// step began with. Time 1 is noise. Numbers of an action from the real one on are those that the robot has
// not, 0 for a robot that has as many as any that the policy learnt of.
func (d *Denoiser) Advance(x, start, said []float32, real int, t, by float64) {
	real = cmp.Or(real, d.Real, d.Width())
	rest := float32(max(0, t-by))
	if t-by < 1e-6 {
		rest = 0
	}
	for i := range x {
		if d.Restart {
			x[i] = rest*start[i] + (1-rest)*said[i]
		} else {
			x[i] -= float32(by) * said[i]
		}
		if d.Quiet && i%d.Width() >= real {
			x[i] = 0
		}
	}
}

// Finish ends what steps gave: some numbers of an action are squashed to lie from 0 to 1.
func (d *Denoiser) Finish(x []float32) {
	for at := 0; at < len(x); at += d.Width() {
		for _, k := range d.Squash {
			x[at+k] = float32(1 / (1 + math.Exp(-float64(x[at+k]))))
		}
	}
}

// Robot is which robot each level's sample is of, [levels].
func (d *Denoiser) Robot(r *block.Rec) *grad.Value {
	return r.T.Data("dif.robot", tensor.I32, Levels(r.Shape))
}

// WordIDs are the tokens of tasks, [levels·Words.Rows], -1 for padding; the second are those of padding, -1 for words.
func (d *Denoiser) WordIDs(r *block.Rec) (words, pads *grad.Value) {
	n := Levels(r.Shape) * d.Words.Rows
	return r.T.Data("dif.words", tensor.I32, n), r.T.Data("dif.pads", tensor.I32, n)
}

// placed is how many rows of what is seen a prompt has places for.
func (d *Denoiser) placed(x *Encoded) (n int) {
	for _, id := range x.IDs {
		if id == d.Words.Image {
			n++
		}
	}
	return n
}

// There is 1 for each view that is there and 0 for one that is missing, [levels·Views 1] in float32.
func (d *Denoiser) There(r *block.Rec) *grad.Value {
	n := Levels(r.Shape) * d.Sight.Views
	return r.T.View(r.T.Data("dif.there", tensor.F32, n), n, 1)
}
