package policies

import (
	"fmt"
	"math"
)

// Failure is an action that no robot can carry out: the policy's own fault, whatever it acts in.
type Failure struct {
	Action, Number int // the place of the first such number in a chunk
	Value          float64
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("the policy fails: number %d of action %d is %g; its weights have diverged, or the state "+
		"lies far from those that it was trained on", f.Number, f.Action, f.Value)
}

// Fault is the *Failure of actions, nil where all their numbers are finite as float32, in which they are sent.
func Fault(actions [][]float64) error {
	for i, a := range actions {
		for k, x := range a {
			if !(math.Abs(x) <= math.MaxFloat32) {
				return &Failure{i, k, x}
			}
		}
	}
	return nil
}
