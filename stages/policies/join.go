package policies

import "math"

// Join has a chunk go on from the one that a robot carries out while the policy computes: real-time chunking
// (arXiv:2506.07339) as lerobot has it (policies/rtc, guided, with linear weights). In each step of Euler
// what the policy would give is drawn to what is left of the chunk under way: wholly for the actions that
// will be carried out before the new ones come, less and less for those up to the horizon.
//
// The paper multiplies the difference by the derivative of the prediction; lerobot's code takes it for 1,
// and so does this.
type Join struct {
	Before   Chunk   // the chunk under way
	Executed int     // its actions that were carried out when the robot looked
	Delay    int     // its further actions that will have been before the new ones come
	Horizon  int     // actions over which the chunks are joined
	Most     float64 // how strongly at most; lerobot's is 10
}

// Usual values of Join's fields, as lerobot has them.
const (
	JoinHorizon = 10
	JoinMost    = 10.0
)

// guide changes the velocity v of noisy actions x, [chunk width] both, at a time from 1 to 0. Numbers that
// no action has are drawn to 0.
func (j *Join) guide(v, x []float32, width int, time float64) {
	left := j.Before.scaled[min(j.Executed, len(j.Before.scaled)):]
	weights := j.weights(len(x)/width, min(j.Horizon, len(left)))
	by := strength(time, j.Most)
	for k, w := range weights {
		if w == 0 {
			continue
		}
		for i := range width {
			want := 0.0
			if i < len(left[k]) {
				want = left[k][i]
			}
			at := k*width + i
			clean := float64(x[at]) - time*float64(v[at])
			v[at] -= float32(by * w * (want - clean))
		}
	}
}

// weights are those of a chunk's actions: 1 for those that the delay takes, falling to 0 at the horizon.
func (j *Join) weights(chunk, horizon int) []float64 {
	out := make([]float64, chunk)
	first, end := min(j.Delay, horizon), min(horizon, chunk)
	for k := range end {
		out[k] = 1
		if k >= first {
			out[k] = 1 - float64(k-first+1)/float64(end-first+1)
		}
	}
	return out
}

// strength is how much a difference counts at a time from 1 (noise) to 0.
func strength(time, most float64) float64 {
	done := 1 - time
	if done <= 0 {
		return most
	}
	c := time / done
	return min(c*(time*time+done*done)/(time*time), most, math.MaxFloat64)
}
