package cpu

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// directShapes are convolutions whose rows end within a group of places, whose channels fill no panel or no
// pair, whose places lie in few sets of the cache, and that are cut into several tasks.
var directShapes = []struct {
	x, w []int
	wins []kernels.Window
}{
	{[]int{2, 9, 13, 34}, []int{40, 34, 3, 3}, []kernels.Window{{Stride: 1, Dilation: 1, Before: 1,
		After: 1},
		{Stride: 1, Dilation: 1, Before: 1, After: 1}}},
	{[]int{1, 12, 15, 17}, []int{19, 17, 3, 3}, []kernels.Window{{Stride: 2, Dilation: 1, Before: 0,
		After: 1},
		{Stride: 2, Dilation: 1, Before: 0, After: 1}}},
	{[]int{1, 6, 10, 1024}, []int{16, 1024, 2, 3}, []kernels.Window{{Stride: 1, Dilation: 1},
		{Stride: 1, Dilation: 1, Before: 1, After: 1}}},
	{[]int{1, 21, 23, 3}, []int{70, 3, 7, 7}, []kernels.Window{{Stride: 2, Dilation: 1, Before: 3, After: 3},
		{Stride: 2, Dilation: 1, Before: 3, After: 3}}},
	{[]int{1, 10, 12, 20}, []int{33, 20, 3, 2}, []kernels.Window{{Stride: 3, Dilation: 2, Before: 2,
		After: 2},
		{Stride: 1, Dilation: 2, Before: -1, After: 3}}},
	{[]int{1, 5, 7, 8, 18}, []int{20, 18, 3, 3, 3}, []kernels.Window{{Stride: 2, Dilation: 1, Before: 2},
		{Stride: 1, Dilation: 1, Before: 1, After: 1}, {Stride: 1, Dilation: 1, Before: 1, After: 1}}},
	{[]int{2, 3, 9, 9, 5}, []int{24, 5, 3, 3, 3}, []kernels.Window{{Stride: 1, Dilation: 1, Before: 2},
		{Stride: 1, Dilation: 1, Before: 1, After: 1}, {Stride: 1, Dilation: 1, Before: 1, After: 1}}},
	{[]int{1, 33, 130, 96}, []int{64, 96, 4, 4}, []kernels.Window{{Stride: 2, Dilation: 1, Before: 1,
		After: 1},
		{Stride: 2, Dilation: 1, Before: 1, After: 1}}},
	{[]int{3, 50, 32}, []int{48, 32, 5}, []kernels.Window{{Stride: 1, Dilation: 1, Before: 4}}},
	// with results that fill a group of places, and inputs that do not
	{[]int{1, 8, 2, 5, 27}, []int{18, 27, 2, 3, 3}, []kernels.Window{{Stride: 1, Dilation: 1},
		{Stride: 1, Dilation: 1, Before: 3, After: 3}, {Stride: 1, Dilation: 1, Before: 3, After: 3}}},
	{[]int{2, 30, 5, 20}, []int{18, 20, 3, 3}, []kernels.Window{{Stride: 1, Dilation: 1, Before: 1,
		After: 1},
		{Stride: 1, Dilation: 1, Before: 8, After: 8}}},
	// by F(4×4, 3×3) in bfloat16, the last with more sums than fit
	{[]int{2, 23, 38, 20}, []int{37, 20, 3, 3}, []kernels.Window{{Stride: 1, Dilation: 1, Before: 1,
		After: 1},
		{Stride: 1, Dilation: 1, Before: 2, After: 0}}},
	{[]int{2, 5, 18, 30, 24}, []int{32, 24, 3, 3, 3}, []kernels.Window{{Stride: 1, Dilation: 1, Before: 2},
		{Stride: 1, Dilation: 1, Before: 1, After: 1}, {Stride: 1, Dilation: 1, Before: 1, After: 1}}},
	// small pictures of many samples, of few, and of one place; of more than a task's, the last of which are
	// computed twice; of one axis; and by F(2×2, 3×3), whose rows of tiles are less than a group
	{[]int{16, 3, 3, 32}, []int{48, 32, 3, 3}, []kernels.Window{same, same}},
	{[]int{3, 3, 2, 17}, []int{18, 17, 3, 3}, []kernels.Window{same, same}},
	{[]int{7, 6, 5, 40}, []int{34, 40, 3, 2}, []kernels.Window{{Stride: 2, Dilation: 1, Before: 1, After: 2},
		{Stride: 2, Dilation: 2, Before: 2, After: 1}}},
	{[]int{6, 1, 1, 20}, []int{33, 20, 3, 3}, []kernels.Window{same, same}},
	{[]int{17, 9, 9, 200}, []int{20, 200, 3, 3}, []kernels.Window{
		{Stride: 2, Dilation: 1, Before: 1, After: 1}, {Stride: 2, Dilation: 1, Before: 1, After: 1}}},
	{[]int{9, 5, 32}, []int{48, 32, 5}, []kernels.Window{{Stride: 1, Dilation: 1, Before: 2, After: 2}}},
	{[]int{5, 6, 5, 24}, []int{33, 24, 3, 3}, []kernels.Window{same, same}},
	{[]int{0, 23, 38, 20}, []int{37, 20, 3, 3}, []kernels.Window{ // of no picture
		{Stride: 1, Dilation: 1, Before: 1, After: 1}, {Stride: 1, Dilation: 1, Before: 1, After: 1}}},
	{[]int{3, 17, 17, 290}, []int{450, 290, 3, 3}, []kernels.Window{
		{Stride: 1, Dilation: 1, Before: 1, After: 1}, {Stride: 1, Dilation: 1, Before: 1, After: 1}}},
}

// same is the axis of a convolution whose result is as long as its input.
var same = kernels.Window{Stride: 1, Dilation: 1, Before: 1, After: 1}

// TestSamplesAlone: a picture is convolved to the same bits, and so is its gradient, whatever others are with it.
func TestSamplesAlone(t *testing.T) {
	const n = 17
	for _, k := range tested() {
		for _, s := range [][]int{{3, 3, 32, 1}, {6, 6, 24, 1}, {5, 2, 520, 2}, {9, 9, 200, 2}} {
			win := same
			win.Stride = s[3]
			of := func(n int) []*kernels.Call {
				l := directCalls(tensor.F32, []int{n, s[0], s[1], s[2]}, []int{33, s[2], 3, 3},
					[]kernels.Window{win, win})
				run(k, 2, l)
				return l[:2] // of the result and its gradient to the input
			}
			all := of(n)
			for _, some := range []int{1, 3, 5, 12} {
				for i, c := range of(some) {
					got, want := c.Out[0].Bytes(), all[i].Out[0].Bytes()
					require.True(t, bytes.Equal(got, want[:len(got)]), "%s: %s of %d of %d pictures of %v",
						k.name, c.Op, some, n, s)
				}
			}
		}
	}
}

// TestShortTiles: clips of so few rows and columns that a row of Winograd's tiles is less than a group of the
// kernel, and so many that rows could be chunks, are convolved as one of them is.
func TestShortTiles(t *testing.T) {
	for _, k := range tested() {
		if k.wino == nil {
			continue
		}
		of := func(n int) []byte {
			l := directCalls(tensor.F32, []int{n, 2, 6, 6, 16}, []int{16, 16, 3, 3, 3},
				[]kernels.Window{same, same, same})
			run(k, 2, l[:1])
			return l[0].Out[0].Bytes()
		}
		one := of(1)
		require.True(t, bytes.Equal(one, of(winoRoom / 4600)[:len(one)]), k.name)
	}
}

// TestWinogradRoom: chunks of a narrow picture with many rows keep the room of transforms, and each, the last
// among them, has as many tiles as a group of the kernel.
func TestWinogradRoom(t *testing.T) {
	for _, k := range tested() {
		for _, m := range k.wino {
			for _, to := range []grid{{1, 20000, 6}, {1, 12000, 10}, {1, 5000, 24}, {1, 7, 6}, {1, 4099, 2}} {
				b := newBackend(k, 1)
				g := b.winoPlanOf(&wino{n: 1, c: 64, f: 64, from: to, to: to, frames: 1,
					frame: func(int, int) int { return 0 }}, m)
				least := min(k.mr/3, g.down*g.across)
				for first := 0; first < g.down; first += g.rows {
					require.GreaterOrEqual(t, g.chunk(first)*g.across, least, "%s %v", k.name, to)
				}
				require.Less(t, g.places*(g.stepV+g.stepM), winoRoom*5/4, "%s %v", k.name, to)
				b.Close()
			}
		}
	}
}

// directCalls are a convolution of a shape and both gradients, with bias and accumulation.
func directCalls(d tensor.DType, x, w []int, wins []kernels.Window) []*kernels.Call {
	var at kernels.Attr
	y := []int{x[0]}
	for i, win := range wins {
		at.I[1+i] = win.Pack()
		win.Size = w[2+i]
		y = append(y, win.Out(x[1+i]))
	}
	y = append(y, w[0])
	xs, ws, ys := filled(d, x...), filled(d, w...), filled(d, y...)
	l := []*kernels.Call{
		{Op: kernels.Conv, In: ts{xs, ws, filled(d, w[0])}, Out: ts{tensor.Make(d, y...)}},
		{Op: kernels.ConvDX, In: ts{ys, ws}, Out: ts{tensor.Make(d, x...)}},
		{Op: kernels.ConvDW, In: ts{ys, xs}, Out: ts{filled(tensor.F32, w...)}}}
	for _, c := range l {
		c.Attr = at
	}
	l[2].Attr.I[0] = kernels.Accumulate
	return l
}

// TestDirect holds convolutions that are multiplied where they lie to those of gathered rows, which differ
// in the order of sums, and to themselves with other numbers of threads, to the bit.
func TestDirect(t *testing.T) {
	for _, k := range tested() {
		if k.convTile == nil {
			continue
		}
		gathers := *k
		gathers.convTile, gathers.sumTile, gathers.convPairs, gathers.sumPairs = nil, nil, nil, nil
		gathers.wino = nil
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
			for _, s := range directShapes {
				want := directCalls(d, s.x, s.w, s.wins)
				run(&gathers, 1, want)
				one := directCalls(d, s.x, s.w, s.wins)
				run(k, 1, one)
				for _, n := range []int{2, 5} {
					more := directCalls(d, s.x, s.w, s.wins)
					run(k, n, more)
					for i := range one {
						require.True(t, bytes.Equal(one[i].Out[0].Bytes(), more[i].Out[0].Bytes()),
							"%s %v: %s of %v by %v with %d threads", k.name, d, one[i].Op, s.x, s.w, n)
					}
				}
				lost := 3e-6 // of the largest number
				if d == tensor.BF16 {
					lost = 2e-5 // by transforms
				}
				for i, c := range one {
					name := fmt.Sprintf("%s %v: %s of %v by %v", k.name, d, c.Op, s.x, s.w)
					requireAlike(t, name, c.Out[0], want[i].Out[0], lost)
				}
			}
		}
	}
}

func run(k *isa, threads int, l []*kernels.Call) {
	b := newBackend(k, threads)
	defer b.Close()
	for _, c := range l {
		b.Run(c)
	}
}

// requireAlike wants differences of what is lost of the largest number, and of one place of the dtype.
func requireAlike(t *testing.T, name string, got, want *tensor.Tensor, lost float64) {
	t.Helper()
	x, y := make([]float32, got.Len()), make([]float32, want.Len())
	portable.read(x, viewOf(got), 0)
	portable.read(y, viewOf(want), 0)
	top, eps := 0.0, map[tensor.DType]float64{tensor.F32: 0, tensor.BF16: 1.0 / 128, tensor.F16: 1.0 / 1024}
	for _, v := range y {
		top = max(top, math.Abs(float64(v)))
	}
	for i := range x {
		e := math.Abs(float64(x[i]) - float64(y[i]))
		if !(e <= lost*top+eps[got.DType]*math.Abs(float64(y[i]))) {
			t.Fatalf("%s: element %d is %v, gathered %v, of %v at most", name, i, x[i], y[i], top)
		}
	}
}
