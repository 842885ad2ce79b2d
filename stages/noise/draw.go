package noise

import (
	"fmt"

	"github.com/lfactor/lfactor/configs/source"
)

// Times are the distribution of the noise levels that training sees: a name and its parameters, of which each
// [Draw] reads those that it says.
type Times struct {
	Kind  string  // a registered Draw
	Mean  float64 // of logit_normal
	Std   float64 // of logit_normal; 0 stands for 1
	Scale float64 // of mode; 0 stands for 1.29
	Shift float64 // of shifted and waver; 0 stands for 1
	Alpha float64 // of beta; 0 stands for 1.5
	Beta  float64 // of beta; 0 stands for 1
}

// Draw is a distribution of training's noise levels.
type Draw struct {
	Name, Source string
	// Reads names the fields of Times that U reads.
	Reads []string
	// U is the number 0 <= u < 1 of a key, for [Levels.At]: near 0 is noise.
	U func(t Times, k Key) float64
}

// At is the number of a sample's key. It depends on the key alone.
func (t Times) At(k Key) (float64, error) {
	d, ok := draws.m[t.Kind]
	if !ok {
		return 0, fmt.Errorf("a draw of training's noise levels, %s: unknown; take %s",
			source.Quoted(t.Kind), source.OneOf(Draws()))
	}
	return min(max(d.U(t, k), 0), 1-1.0/(1<<53)), nil
}

// Reads names the fields of Times that a kind reads; nil for a kind that is unknown.
func Reads(kind string) []string { return draws.m[kind].Reads }

// or is v, or what stands for 0.
func or(v, absent float64) float64 {
	if v == 0 {
		return absent
	}
	return v
}
