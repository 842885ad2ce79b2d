package diffusers

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
)

// Faults collects what is wrong with a file of settings.
type Faults struct {
	file string
	line map[string]int // of the keys that the file has
	list []error
}

// New is an empty collection; file is what errors call the settings.
func New(file string) *Faults { return &Faults{file: file, line: map[string]int{}} }

// Add reports a key; "" is the file as a whole. Try is what would be right and may be empty.
func (f *Faults) Add(key, try, why string, args ...any) {
	f.list = append(f.list,
		&source.Error{File: f.file, Line: f.line[key], Key: key, Why: fmt.Sprintf(why, args...), Try: try})
}

// OneOf reports a value that is none of those known, and gives false then.
func (f *Faults) OneOf(key, value string, known ...string) bool {
	if slices.Contains(known, value) {
		return true
	}
	f.Add(key, source.Nearest(value, known), "%s is unknown", source.Quoted(value))
	return false
}

// Within reports a number outside of a closed interval.
func (f *Faults) Within(key string, v, low, high float64) {
	if !(v >= low && v <= high) {
		f.Add(key, fmt.Sprintf("set a number from %g to %g", low, high), "%g is out of range", v)
	}
}

// At is the place of a key, as "config.json:5".
func (f *Faults) At(key string) string { return fmt.Sprintf("%s:%d", f.file, f.line[key]) }

// Has reports whether the file gives the key a value, be it null.
func (f *Faults) Has(key string) bool { return f.line[key] > 0 }

// Any reports whether there is a fault so far.
func (f *Faults) Any() bool { return len(f.list) > 0 }

// Err is all faults as one error, each a *source.Error, or nil.
func (f *Faults) Err() error { return errors.Join(f.list...) }
