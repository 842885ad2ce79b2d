package texts

import (
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/configs/source"
)

// faults collects what is wrong with a config.json.
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
func (f *faults) oneOf(key, value string, known []string) bool {
	for _, k := range known {
		if k == value {
			return true
		}
	}
	f.add(key, source.Nearest(value, known), "%s is unknown", source.Quoted(value))
	return false
}

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
			f.add(s.key, fmt.Sprintf("set an integer from 1 to %d", s.most), "%d is out of range", s.n)
		}
	}
}

// positive reports an epsilon that a norm cannot have.
func (f *faults) positive(key string, v float64) {
	if !(v > 0 && v < 1) {
		f.add(key, "set a small positive number, as 1e-6", "%g is out of range", v)
	}
}

func (f *faults) err() error { return errors.Join(f.list...) }
