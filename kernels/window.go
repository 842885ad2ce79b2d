package kernels

import "fmt"

// Window is how a convolution or a pooling goes along one axis of space: the output at o is of the inputs at
// o·Stride - Before + κ·Dilation for κ < Size, where those outside the input count as padding.
type Window struct {
	Size          int // of the kernel; 0 where the weights have it
	Stride        int // at least 1
	Dilation      int // at least 1
	Before, After int // padding at either end; a negative one leaves inputs out
}

// windowMost bounds the numbers of a Window: twelve bits each, so that a Window is one number of Attr.I.
const windowMost = 1<<12 - 1

// Pack is the window as a number for Attr.I.
func (w Window) Pack() int {
	n := 0
	for _, v := range []int{w.Size, w.Stride, w.Dilation, w.Before + windowMost/2, w.After + windowMost/2} {
		if v < 0 || v > windowMost {
			panic(fmt.Sprintf("kernels: a window %+v is beyond what an attribute holds", w))
		}
		n = n<<12 | v
	}
	return n
}

// WindowOf is the inverse of Pack; of 0 it is the window of stride 1 and no padding.
func WindowOf(n int) (w Window) {
	if n == 0 {
		return Window{Stride: 1, Dilation: 1}
	}
	next := func() int { v := n & windowMost; n >>= 12; return v }
	w.After = next() - windowMost/2
	w.Before = next() - windowMost/2
	w.Dilation, w.Stride = next(), next()
	w.Size = next()
	return w
}

// Out is the number of outputs along an axis of so many inputs; never below 0.
func (w Window) Out(in int) int {
	reach := (w.Size-1)*w.Dilation + 1
	if n := in + w.Before + w.After - reach; n >= 0 && w.Size > 0 {
		return n/w.Stride + 1
	}
	return 0
}

// In is the number of inputs of which a transposed convolution gives as many outputs, and more of them by
// rest: its output's length, of so many inputs.
func (w Window) In(out, rest int) int {
	return max(0, (out-1)*w.Stride+(w.Size-1)*w.Dilation+1-w.Before-w.After+rest)
}

// check says what is wrong with a window.
func (w Window) check() error {
	if w.Stride < 1 || w.Dilation < 1 {
		return fmt.Errorf("a window of stride %d and dilation %d", w.Stride, w.Dilation)
	}
	return nil
}
