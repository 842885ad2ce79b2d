// Package checkpoint moves named tensors between memory and files. It knows formats, not models: names, shapes and
// element types are plain values, and a tensor is the bytes of its elements in row-major order, little-endian.
//
// Three formats live here, one file each: safetensors (a Hugging Face directory, one file or sharded
// with an index), lfactor's own checkpoint (safetensors shards plus a manifest that says which part of which
// logical tensor each shard holds, so that any plan loads what any other plan saved), and PEFT adapters.
//
// Reading trusts nothing: sizes are checked before anything is allocated, names may not leave their
// directory, and every fault is an *Error that names file and tensor.
package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Info describes one tensor of a file or of a directory.
type Info struct {
	Name   string
	DType  DType
	Shape  []int
	File   string // base name of the file that holds it; "" for a logical tensor in several pieces
	Offset int64  // of the first element, from the beginning of File
	Bytes  int64
}

// Source is a set of tensors to read from. Its methods may be called from several goroutines at once.
type Source interface {
	// Tensors returns every tensor, sorted by name.
	Tensors() []Info
	// ReadRanges copies the box ranges (one half-open interval an axis) of a tensor to dst, row-major.
	// len(dst) must be the box's bytes.
	ReadRanges(name string, ranges [][2]int, dst []byte) error
	// Close releases the files.
	Close() error
}

// Sink takes the tensors it was created for. WriteRanges may be called from several goroutines, in any
// order; every element is to be written exactly once.
type Sink interface {
	// WriteRanges places the box ranges of a tensor; src is row-major.
	WriteRanges(name string, ranges [][2]int, src []byte) error
	// Commit makes the files durable and gives them their names; it fails if elements are missing.
	Commit() error
	// Abort removes what was written. After Commit it does nothing.
	Abort() error
}

// Fault is the kind of damage an Error reports.
type Fault string

// The faults. All of them mean that the state on disk cannot be used as it is.
const (
	Missing   Fault = "missing"   // a tensor or file that should be there is not
	Extra     Fault = "extra"     // a tensor or file that nothing accounts for
	Misshapen Fault = "misshapen" // shape or dtype differ from what is wanted
	Truncated Fault = "truncated" // the file ends before the tensor does
	Malformed Fault = "malformed" // the file is not what its format says
	Altered   Fault = "altered"   // size or hash differ from the manifest's
	Unsafe    Fault = "unsafe"    // a name or link that leaves the directory
)

// Error says which tensor of which file is at fault, why, and what to do.
type Error struct {
	File   string // path as far as known
	Tensor string // "" if the file as a whole is meant
	Fault  Fault
	Why    string
	Try    string // "" if there is nothing but to take another file
	Err    error  // the cause, or nil
}

// Error implements error: "file: tensor: fault: why; try".
func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString(e.File)
	if e.Tensor != "" {
		fmt.Fprintf(&s, ": tensor %s", quoteOdd(e.Tensor))
	}
	fmt.Fprintf(&s, ": %s: %s", e.Fault, e.Why)
	if e.Err != nil {
		fmt.Fprintf(&s, ": %v", e.Err)
	}
	if e.Try != "" {
		fmt.Fprintf(&s, "; %s", e.Try)
	}
	return s.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// quoteOdd quotes a name that would not print as itself, so that a hostile file cannot write to the terminal.
func quoteOdd(name string) string {
	const shown = 200
	if len(name) > shown {
		name = name[:shown] + "…"
	}
	if q := fmt.Sprintf("%q", name); q != `"`+name+`"` {
		return q
	}
	return name
}

// Match compares the tensors a model wants with those a source has and reports every difference at once,
// each as an *Error of kind Missing, Extra or Misshapen. A dtype of "" in want accepts any. path names the source.
func Match(path string, want, have []Info) error {
	var errs []error
	at := map[string]Info{}
	for _, h := range have {
		at[h.Name] = h
	}
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w.Name] = true
		h, ok := at[w.Name]
		switch {
		case !ok:
			errs = append(errs, &Error{File: path, Tensor: w.Name, Fault: Missing,
				Why: fmt.Sprintf("the model needs it, with shape %v", w.Shape)})
		case !slices.Equal(w.Shape, h.Shape):
			errs = append(errs, &Error{File: join(path, h.File), Tensor: w.Name, Fault: Misshapen,
				Why: fmt.Sprintf("shape %v, the model needs %v", h.Shape, w.Shape)})
		case w.DType != "" && w.DType != h.DType:
			errs = append(errs, &Error{File: join(path, h.File), Tensor: w.Name, Fault: Misshapen,
				Why: fmt.Sprintf("dtype %s, want %s", h.DType, w.DType)})
		}
	}
	for _, h := range have {
		if !wanted[h.Name] {
			errs = append(errs, &Error{File: join(path, h.File), Tensor: h.Name, Fault: Extra,
				Why: "the model has no such parameter"})
		}
	}
	return errors.Join(errs...)
}

// join names a file in a directory for messages; without a file it is the directory itself.
func join(dir, file string) string {
	if file == "" {
		return dir
	}
	return dir + "/" + file
}
