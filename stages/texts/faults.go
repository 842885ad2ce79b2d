package texts

import (
	"fmt"

	"github.com/lfactor/lfactor/stages/diffusers"
)

// faults collects what is wrong with a config.json.
type faults struct{ *diffusers.Faults }

// size is a key with a number of something, and its largest sensible value.
type size struct {
	key  string
	n    int
	most int
}

// within reports sizes that are not positive, or so large that memory for them would not be had.
func (f *faults) within(sizes ...size) {
	for _, s := range sizes {
		if s.n < 1 || s.n > s.most {
			f.Add(s.key, fmt.Sprintf("set an integer from 1 to %d", s.most), "%d is out of range", s.n)
		}
	}
}

// positive reports an epsilon that a norm cannot have.
func (f *faults) positive(key string, v float64) {
	if !(v > 0 && v < 1) {
		f.Add(key, "set a small positive number, as 1e-6", "%g is out of range", v)
	}
}
