package cpu

import (
	"fmt"
	"testing"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// convShapes are those of bench/conv.py: Wan's autoencoder, Stable Diffusion's, SDXL's U-Net, ResNet-18, and ACT's,
// with the stride and the padding of each axis at either end.
var convShapes = []struct {
	name        string
	x, w        []int
	stride, pad int
}{
	{"wan in", []int{1, 9, 64, 64, 3}, []int{96, 3, 3, 3, 3}, 1, 1},
	{"wan 96", []int{1, 5, 64, 64, 96}, []int{96, 96, 3, 3, 3}, 1, 1},
	{"wan 192", []int{1, 5, 32, 32, 192}, []int{192, 192, 3, 3, 3}, 1, 1},
	{"wan 384", []int{1, 5, 16, 16, 384}, []int{384, 384, 3, 3, 3}, 1, 1},
	{"sd 128", []int{1, 128, 128, 128}, []int{128, 128, 3, 3}, 1, 1},
	{"sd 256", []int{1, 64, 64, 256}, []int{256, 256, 3, 3}, 1, 1},
	{"sd 512", []int{1, 32, 32, 512}, []int{512, 512, 3, 3}, 1, 1},
	{"sdxl 320", []int{1, 64, 64, 320}, []int{320, 320, 3, 3}, 1, 1},
	{"sdxl 640", []int{1, 32, 32, 640}, []int{640, 640, 3, 3}, 1, 1},
	{"sdxl down", []int{1, 64, 64, 320}, []int{320, 320, 3, 3}, 2, 1},
	{"resnet in", []int{4, 224, 224, 3}, []int{64, 3, 7, 7}, 2, 3},
	{"resnet 128", []int{4, 28, 28, 128}, []int{128, 128, 3, 3}, 1, 1},
	{"act 64", []int{16, 24, 24, 64}, []int{64, 64, 3, 3}, 1, 1},
	{"act 128", []int{16, 12, 12, 128}, []int{128, 128, 3, 3}, 1, 1},
	{"act 256", []int{16, 6, 6, 256}, []int{256, 256, 3, 3}, 1, 1},
	{"act 512", []int{16, 3, 3, 512}, []int{512, 512, 3, 3}, 1, 1},
	{"act down 256", []int{16, 12, 12, 128}, []int{256, 128, 3, 3}, 2, 1},
	{"act down 512", []int{16, 6, 6, 256}, []int{512, 256, 3, 3}, 2, 1},
}

// BenchmarkConv gives the times of convolutions and of their gradients at this machine's best level.
func BenchmarkConv(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, a := range []tensor.DType{tensor.F32, tensor.BF16} {
			be := newBackend(levels()[0], threads)
			for _, s := range convShapes {
				var at kernels.Attr
				y := []int{s.x[0]}
				for i, k := range s.w[2:] {
					w := kernels.Window{Stride: s.stride, Dilation: 1, Before: s.pad, After: s.pad}
					at.I[1+i] = w.Pack()
					w.Size = k
					y = append(y, w.Out(s.x[1+i]))
				}
				y = append(y, s.w[0])
				flops := 2 * float64(tensor.Len(y)) * float64(tensor.Len(s.w[1:]))
				run := func(name string, c func() *kernels.Call) {
					b.Run(fmt.Sprintf("%v/%d/%s/%s", a, threads, s.name, name), func(b *testing.B) {
						call := c()
						call.Attr = at
						bench(b, be, call, flops, "GF/s")
					})
				}
				xs := func() *tensor.Tensor { return filled(a, s.x...) }
				ws := func() *tensor.Tensor { return filled(a, s.w...) }
				ys := func() *tensor.Tensor { return filled(a, y...) }
				run("forward", func() *kernels.Call {
					return &kernels.Call{Op: kernels.Conv, In: ts{xs(), ws()}, Out: ts{ys()}}
				})
				run("dx", func() *kernels.Call {
					return &kernels.Call{Op: kernels.ConvDX, In: ts{ys(), ws()}, Out: ts{xs()}}
				})
				run("dw", func() *kernels.Call {
					return &kernels.Call{Op: kernels.ConvDW, In: ts{ys(), xs()}, Out: ts{filled(tensor.F32,
						s.w...)}}
				})
			}
			be.Close()
		}
	}
}
