package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// Format is a way to keep the parameters of a model in a directory. A format registers itself; its claim is
// the round trip: what was written to Create's Sink, Open returns, to the byte.
type Format struct {
	Name   string
	Spec   string                                         // where the format is described
	Detect func(dir string) bool                          // whether dir looks like this format
	Open   func(dir string) (Source, error)               // parameters only, no optimizer state
	Create func(dir string, tensors []Info) (Sink, error) // Name, DType and Shape count
}

var formats []Format

// register enters a format. They are kept sorted, because the order in which files are initialized must not show.
func register(f Format) struct{} {
	formats = append(formats, f)
	slices.SortFunc(formats, func(a, b Format) int { return strings.Compare(a.Name, b.Name) })
	return struct{}{}
}

// Formats returns every format, sorted by name.
func Formats() []Format { return slices.Clone(formats) }

// Detect returns the format of a directory.
func Detect(dir string) (Format, error) {
	var names []string
	for _, f := range formats {
		if f.Detect(dir) {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Format{}, &Error{File: dir, Fault: Missing, Why: "no checkpoint that is known: " + strings.Join(names, ", ")}
}

// copyBytes bounds what Copy holds in memory, unless a single row of a tensor is larger.
const copyBytes = 64 << 20

// Copy writes every tensor of src to dst, which was created for the same tensors, a few rows at a time.
func Copy(dst Sink, src Source) error {
	var buf []byte
	for _, t := range src.Tensors() {
		err := eachRows(t, func(box [][2]int, n int64) error {
			if int64(cap(buf)) < n {
				buf = make([]byte, n)
			}
			if err := src.ReadRanges(t.Name, box, buf[:n]); err != nil {
				return err
			}
			return dst.WriteRanges(t.Name, box, buf[:n])
		})
		if err != nil {
			return fmt.Errorf("copying %s: %w", quoteOdd(t.Name), err)
		}
	}
	return nil
}

// eachRows calls f for boxes of whole rows of axis 0 that together are the tensor, each of about copyBytes at most.
func eachRows(t Info, f func(box [][2]int, bytes int64) error) error {
	n, err := ByteSize(t.DType, t.Shape)
	if err != nil || n == 0 {
		return err
	}
	if len(t.Shape) == 0 || n <= copyBytes || t.DType.Bits()%8 != 0 {
		return f(Whole(t.Shape), n)
	}
	row := n / int64(t.Shape[0])
	step := int(max(1, copyBytes/row))
	for at := 0; at < t.Shape[0]; at += step {
		box := Whole(t.Shape)
		box[0] = [2]int{at, min(at+step, t.Shape[0])}
		if err := f(box, row*int64(box[0][1]-at)); err != nil {
			return err
		}
	}
	return nil
}
