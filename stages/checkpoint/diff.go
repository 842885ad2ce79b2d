package checkpoint

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// Difference is one way in which two sources disagree about a tensor.
type Difference struct {
	Name  string
	What  Fault   // Missing: only in the first; Extra: only in the second; Misshapen; Altered
	A, B  Info    // the zero Info where there is none
	Count int64   // Altered: elements whose bits differ
	Max   float64 // Altered, floats: largest |a-b|; +Inf where exactly one of the two is a NaN or an infinity
}

// String is one line for people.
func (d Difference) String() string {
	switch d.What {
	case Missing:
		return fmt.Sprintf("%s: only in the first (%s %v)", d.Name, d.A.DType, d.A.Shape)
	case Extra:
		return fmt.Sprintf("%s: only in the second (%s %v)", d.Name, d.B.DType, d.B.Shape)
	case Misshapen:
		return fmt.Sprintf("%s: %s %v, then %s %v", d.Name, d.A.DType, d.A.Shape, d.B.DType, d.B.Shape)
	}
	if d.A.DType != d.B.DType {
		return fmt.Sprintf("%s: %d elements differ, by at most %g, beyond rounding (%s, then %s)", d.Name, d.Count,
			d.Max, d.A.DType, d.B.DType)
	}
	return fmt.Sprintf("%s: %d elements differ, by at most %g", d.Name, d.Count, d.Max)
}

// Diff compares two sources tensor by tensor, to the bit, and returns the differences sorted by name. It
// holds only a few rows of each at a time.
func Diff(a, b Source) ([]Difference, error) { return diff(a, b, false) }

// DiffNumbers is Diff of numbers: where types differ, those of the wider one are rounded to the narrower
// first, and float16 and bfloat16 are compared in float32.
func DiffNumbers(a, b Source) ([]Difference, error) { return diff(a, b, true) }

func diff(a, b Source, numbers bool) ([]Difference, error) {
	inB := map[string]Info{}
	for _, t := range b.Tensors() {
		inB[t.Name] = t
	}
	var out []Difference
	for _, t := range a.Tensors() {
		u, ok := inB[t.Name]
		delete(inB, t.Name)
		switch {
		case !ok:
			out = append(out, Difference{Name: t.Name, What: Missing, A: t})
		case t.DType != u.DType && !(numbers && castable(t.DType) && castable(u.DType)) ||
			!slices.Equal(t.Shape, u.Shape):
			out = append(out, Difference{Name: t.Name, What: Misshapen, A: t, B: u})
		default:
			d, err := diffTypes(a, b, t, u)
			if err != nil {
				return nil, err
			}
			if d.Count > 0 {
				out = append(out, d)
			}
		}
	}
	for _, t := range inB {
		out = append(out, Difference{Name: t.Name, What: Extra, B: t})
	}
	slices.SortFunc(out, func(x, y Difference) int { return bytes.Compare([]byte(x.Name), []byte(y.Name)) })
	return out, nil
}

// castable reports whether Cast takes a type.
func castable(d DType) bool { return d == F32 || d == F16 || d == BF16 }

// diffTypes compares two tensors, of which one is rounded to the type of the other where that is narrower.
func diffTypes(a, b Source, t, u Info) (Difference, error) {
	to := func(src Source, x *Info, d DType) Source {
		if x.DType == d {
			return src
		}
		c := &cast{Source: src, loose: true, to: map[string]DType{x.Name: d}, from: map[string]Info{x.Name: *x}}
		x.DType, x.Bytes = d, x.Bytes/int64(x.DType.Bits())*int64(d.Bits())
		return c
	}
	x, y := t, u
	switch {
	case t.DType == u.DType:
	case t.DType.Bits() == u.DType.Bits():
		a, b = to(a, &x, F32), to(b, &y, F32)
	case t.DType.Bits() > u.DType.Bits():
		a = to(a, &x, u.DType)
	default:
		b = to(b, &y, t.DType)
	}
	d, err := diffValues(a, b, x, y)
	d.A, d.B = t, u
	return d, err
}

// diffValues compares two tensors of equal type and shape piece by piece, so that even large ones
// need little memory. A result without counted elements means that they are equal.
func diffValues(a, b Source, t, u Info) (Difference, error) {
	d := Difference{Name: t.Name, What: Altered, A: t, B: u}
	err := eachRows(t, func(box [][2]int, n int64) error {
		x, y := make([]byte, n), make([]byte, n)
		if err := a.ReadRanges(t.Name, box, x); err != nil {
			return err
		}
		if err := b.ReadRanges(t.Name, box, y); err != nil {
			return err
		}
		if !bytes.Equal(x, y) {
			d.add(t.DType, x, y)
		}
		return nil
	})
	return d, err
}

// add counts the differing elements of two equally long runs.
func (d *Difference) add(dtype DType, x, y []byte) {
	size := max(1, dtype.Bits()/8)
	_, decode := FloatDecoder(dtype)
	for i := 0; i < len(x); i += size {
		if bytes.Equal(x[i:i+size], y[i:i+size]) {
			continue
		}
		d.Count++
		if decode == nil {
			continue
		}
		delta := math.Abs(decode(x[i:]) - decode(y[i:]))
		if delta != delta {
			delta = math.Inf(1)
		}
		d.Max = max(d.Max, delta)
	}
}

// copyBytes bounds what Diff holds in memory of a tensor, unless a single row of a tensor is larger.
const copyBytes = 64 << 20

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
