package noise

import (
	"fmt"

	"github.com/lfactor/lfactor/configs/source"
)

// Weighting is the weight of a sample's loss by its noise level. The loss is the mean of a sample's squared
// errors, times the weight, and then the mean over samples.
type Weighting struct {
	Kind  string  // a registered Weight
	Gamma float64 // of min_snr; 0 stands for 5
}

// Weight is such a weight.
type Weight struct {
	Name, Source string
	// Of gives the weight of a level, for a denoiser of a target and the levels of its training.
	Of func(w Weighting, target string, all Levels) (func(Level) float32, error)
}

// For gives the weight of a level for a denoiser of a target that is trained at some levels.
func (w Weighting) For(target string, all Levels) (func(Level) float32, error) {
	kind, ok := weights.m[w.Kind]
	if !ok {
		return nil, fmt.Errorf("a weight of the loss by noise level, %s: unknown; take %s",
			source.Quoted(w.Kind), source.OneOf(Weights()))
	}
	return kind.Of(w, target, all)
}

// plain is a weight that depends on the level alone.
func plain(of func(Level) float32) func(Weighting, string, Levels) (func(Level) float32, error) {
	return func(Weighting, string, Levels) (func(Level) float32, error) { return of, nil }
}
