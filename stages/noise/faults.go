package noise

import (
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/configs/source"
)

// faults collects what is wrong with a file of settings.
type faults struct {
	file string
	line map[string]int // of the keys that the file has
	list []error
}

// add reports a key. Try may be empty.
func (f *faults) add(key, try, why string, args ...any) {
	f.list = append(f.list,
		&source.Error{File: f.file, Line: f.line[key], Key: key, Why: fmt.Sprintf(why, args...), Try: try})
}

// oneOf reports a value that is none of those known.
func (f *faults) oneOf(key, value string, known ...string) {
	for _, k := range known {
		if k == value {
			return
		}
	}
	f.add(key, source.Nearest(value, known), "%s is unknown", source.Quoted(value))
}

// within reports a number outside of a closed interval.
func (f *faults) within(key string, v, low, high float64) {
	if !(v >= low && v <= high) {
		f.add(key, fmt.Sprintf("set a number from %g to %g", low, high), "%g is out of range", v)
	}
}

func (f *faults) err() error { return errors.Join(f.list...) }

// Check reports every key of a scheduler that is out of range or contradicts another. File is what errors
// call it.
func Check(s Scheduler, file string) error {
	f := &faults{file: file}
	s.check(f)
	return f.err()
}

// Fits refuses a scheduler for a denoiser that was trained to give another target than the scheduler reads
// from it: the samples would be wrong without any other sign.
func Fits(s Scheduler, file, trained string) error {
	if s.Predicts() == trained {
		return nil
	}
	f := &faults{file: file}
	f.add("prediction_type", "take the scheduler that the checkpoint came with, or set its prediction_type",
		"the scheduler %s reads %s, and the denoiser was trained to give %s", s.Class(), s.Predicts(), trained)
	return f.err()
}
