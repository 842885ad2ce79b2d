package checkpoint

import (
	"fmt"
	"io"
	"slices"
)

// A box is one half-open interval an axis of a tensor. The functions here turn boxes into runs of bytes that
// are contiguous on both sides of a copy.

// Whole is the box of a full tensor.
func Whole(shape []int) [][2]int {
	box := make([][2]int, len(shape))
	for i, n := range shape {
		box[i] = [2]int{0, n}
	}
	return box
}

// boxShape returns the extents of a box.
func boxShape(box [][2]int) []int {
	shape := make([]int, len(box))
	for i, r := range box {
		shape[i] = r[1] - r[0]
	}
	return shape
}

// checkBox says why box is not part of shape.
func checkBox(box [][2]int, shape []int) error {
	if len(box) != len(shape) {
		return fmt.Errorf("%d ranges for a tensor with %d axes", len(box), len(shape))
	}
	for i, r := range box {
		if r[0] < 0 || r[0] > r[1] || r[1] > shape[i] {
			return fmt.Errorf("range [%d,%d) of axis %d lies outside of its %d", r[0], r[1], i, shape[i])
		}
	}
	return nil
}

// BoxBytes checks box and dtype against shape and returns the box's bytes. Types narrower than a byte can
// only be taken whole.
func BoxBytes(d DType, shape []int, box [][2]int) (int64, error) {
	if err := checkBox(box, shape); err != nil {
		return 0, err
	}
	if d.Bits()%8 != 0 && !slices.Equal(boxShape(box), shape) {
		return 0, fmt.Errorf("%s elements are narrower than a byte: only the whole tensor can be read", d)
	}
	return ByteSize(d, boxShape(box))
}

// intersect returns the common part of two boxes and whether there is one.
func intersect(a, b [][2]int) ([][2]int, bool) {
	out := make([][2]int, len(a))
	for i := range a {
		out[i] = [2]int{max(a[i][0], b[i][0]), min(a[i][1], b[i][1])}
		if out[i][0] >= out[i][1] {
			return nil, false
		}
	}
	return out, true
}

// run is n elements that are contiguous at element src of the one tensor and at element dst of the other.
type run struct{ src, dst, n int64 }

// runs calls f for every run of the box common, which lies inside both srcBox and dstBox, each of which is
// stored row-major by itself. It stops at the first error.
func runs(common, srcBox, dstBox [][2]int, f func(run) error) error {
	axes := len(common)
	// Axes at the end that common fills in both tensors join into one run.
	inner, last := int64(1), axes
	for last > 0 {
		last--
		inner *= int64(common[last][1] - common[last][0])
		if common[last] != srcBox[last] || common[last] != dstBox[last] {
			break
		}
	}
	srcStride, dstStride := strides(srcBox), strides(dstBox)
	at := make([]int, last) // position in the outer axes
	for i := range at {
		at[i] = common[i][0]
	}
	for {
		r := run{n: inner}
		for i := range common {
			pos := common[i][0]
			if i < last {
				pos = at[i]
			}
			r.src += int64(pos-srcBox[i][0]) * srcStride[i]
			r.dst += int64(pos-dstBox[i][0]) * dstStride[i]
		}
		if err := f(r); err != nil || !advance(at, common) {
			return err
		}
	}
}

// advance moves at to the next position of the box in row-major order; false at the end.
func advance(at []int, box [][2]int) bool {
	for i := len(at) - 1; i >= 0; i-- {
		if at[i]++; at[i] < box[i][1] {
			return true
		}
		at[i] = box[i][0]
	}
	return false
}

// strides are the distances between neighbours along each axis of a box, in elements, with the last axis dense.
func strides(box [][2]int) []int64 {
	out := make([]int64, len(box))
	step := int64(1)
	for i := len(box) - 1; i >= 0; i-- {
		out[i] = step
		step *= int64(box[i][1] - box[i][0])
	}
	return out
}

// windowBytes bounds what one read of many short runs fetches at once.
const windowBytes = 256 << 10

// windowReader reads short runs that lie close together through one buffer, long ones directly.
type windowReader struct {
	r    io.ReaderAt
	end  int64 // of the tensor
	from int64 // offset of buf[0]
	buf  []byte
}

// read fills dst from offset off. stride is the distance to the next run, as far as the caller knows.
func (w *windowReader) read(dst []byte, off, stride int64) error {
	n := int64(len(dst))
	if off >= w.from && off+n <= w.from+int64(len(w.buf)) {
		copy(dst, w.buf[off-w.from:])
		return nil
	}
	if n*2 > windowBytes || stride > 4*n {
		return readFull(w.r, dst, off)
	}
	if cap(w.buf) == 0 {
		w.buf = make([]byte, 0, windowBytes)
	}
	w.from, w.buf = off, w.buf[:min(windowBytes, w.end-off)]
	if err := readFull(w.r, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		return err
	}
	copy(dst, w.buf)
	return nil
}

// readFull reads exactly len(dst) bytes; a file that ends early is io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, dst []byte, off int64) error {
	n, err := r.ReadAt(dst, off)
	switch {
	case n == len(dst):
		return nil
	case err == io.EOF || err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}

// BoxLen is the number of elements of a box.
func BoxLen(ranges [][2]int) int {
	n := 1
	for _, r := range ranges {
		n *= r[1] - r[0]
	}
	return n
}
