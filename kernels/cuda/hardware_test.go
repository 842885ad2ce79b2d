//go:build cuda

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// driver is the machine's own, if it has a device; else the test is skipped, and says why. A test before
// this one may have loaded a library by the driver's name that has none.
func driver(t testing.TB) *Library {
	t.Helper()
	if err := absent(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	l, err := Load()
	require.NoError(t, err)
	return l
}

// hardware opens the machine's own first device, with NVIDIA's libraries where they are found; without a
// device the test is skipped, and says why.
func hardware(t testing.TB) *accel.Device {
	t.Helper()
	l := driver(t)
	products, err := FindProducts()
	require.NoError(t, err)
	attentions, err := FindAttentions()
	require.NoError(t, err)
	d, err := l.New(0, Settings{Absent: lenient, Products: products, Attentions: attentions})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// TestHardware: what TestConformance holds of the emulated device, of the machine's own, operation by
// operation. What has no kernel there is on the processor by design and is not of this test.
func TestHardware(t *testing.T) {
	l := driver(t)
	left, absent := newTally()
	d, err := l.New(0, Settings{Absent: absent})
	require.NoError(t, err)
	visit(t, d, left)
}

// TestHardwareLean: attention by the kernels for devices whose blocks have little shared memory, on the machine's own.
func TestHardwareLean(t *testing.T) {
	own, err := driver(t).open(0)
	require.NoError(t, err)
	own.info.SharedMemory = cards[fewest].shared
	d := accel.New(own, own, strict)
	wide := func(name string) bool { return strings.Contains(name, "d256") }
	kernelstest.Part{Only: wide, Has: ofAttention}.Run(t, kernelstest.Carried(t, d, tensor.NewPool("device", 0).In(d)))
	require.NoError(t, d.Close())
}

func ofAttention(op kernels.Op) bool { return op == kernels.Attention || op == kernels.AttentionBwd }

// TestHardwareLibraries: the same with products and attention by NVIDIA's libraries, where the machine has them.
func TestHardwareLibraries(t *testing.T) {
	l := driver(t)
	products, err := FindProducts()
	require.NoError(t, err)
	attentions, err := FindAttentions()
	require.NoError(t, err)
	if products == nil && attentions == nil {
		t.Skipf("skipped: %s; %s", describeProducts(), describeAttentions())
	}
	left, absent := newTally()
	d, err := l.New(0, Settings{Absent: absent, Products: products, Attentions: attentions})
	require.NoError(t, err)
	t.Log(d.Name())
	t.Run("repeats", func(t *testing.T) { attentionsRepeat(t, d) })
	visit(t, d, left)
}

// attentionsRepeat: attention by the library gives the same bits twice.
func attentionsRepeat(t *testing.T, d *accel.Device) {
	for _, attr := range []kernels.Attr{plain, causal, window} {
		want, got, again := newAttends(tensor.BF16, 21, 4, 2, 64, borders, attr),
			newAttends(tensor.BF16, 21, 4,
				2, 64, borders, attr), newAttends(tensor.BF16, 21, 4, 2, 64, borders, attr)
		want.run(t, ref.New(), false, false)
		got.run(t, d, false, false)
		again.run(t, d, true, false)
		require.Equal(t, got.bytes(), again.bytes())
		for n, x := range want.results() {
			require.InDeltaSlice(t, inFloat32(x), inFloat32(got.results()[n]), 32.0/256, n)
		}
	}
}

// TestHardwareExchange: NCCL on the machine's own device, with one rank.
func TestHardwareExchange(t *testing.T) {
	l := driver(t)
	x, err := FindExchange()
	require.NoError(t, err)
	if x == nil {
		t.Skip("skipped: ", describeExchange())
	}
	t.Log(describeExchange())
	toItself(t, l, x)
}

// BenchmarkOffload is how much longer products take while activations go to the host and come back beside
// them: 1 is no longer.
func BenchmarkOffload(b *testing.B) {
	d := hardware(b)
	p := tensor.NewPool("device", 0).In(d)
	m, err := d.Parking()
	require.NoError(b, err)
	host := tensor.NewPool("parked", 0).In(m)
	get := func(p *tensor.Pool, shape ...int) *tensor.Tensor {
		x, err := p.New("operand", tensor.BF16, shape...)
		require.NoError(b, err)
		b.Cleanup(x.Release)
		return x
	}
	x, w, y, a, back, h := get(p, 8192, 4096), get(p, 4096, 4096), get(p, 8192, 4096), get(p, 8<<20),
		get(p, 8<<20), get(host, 8<<20)
	run := func(copies bool) time.Duration {
		began := time.Now()
		for range 10 {
			if copies {
				d.Copy(h, a)
				d.Copy(back, h)
			}
			for range 8 {
				d.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w},
					Out: []*tensor.Tensor{y}})
			}
		}
		d.Sync()
		return time.Since(began)
	}
	run(true)
	var alone, beside time.Duration
	for range b.N {
		alone += run(false)
		beside += run(true)
	}
	b.ReportMetric(float64(beside)/float64(alone), "times")
}

// benched is the machine's own device for a benchmark, with NVIDIA's libraries or without.
func benched(b *testing.B, own bool) *accel.Device {
	if !own {
		return hardware(b)
	}
	d, err := driver(b).New(0, Settings{Absent: lenient})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, d.Close()) })
	return d
}

// noise is a tensor on the device of numbers that are about as large as activations; it is not constant,
// since products of constants are faster.
func noise(b *testing.B, p *tensor.Pool, t tensor.DType, shape ...int) *tensor.Tensor {
	x, err := p.New("operand", t, shape...)
	require.NoError(b, err)
	b.Cleanup(x.Release)
	r := rand.New(rand.NewPCG(7, 8))
	bytes := make([]byte, x.Size())
	for i := range x.Len() {
		bits := math.Float32bits(float32(r.Float64()*2 - 1))
		if t == tensor.F32 {
			binary.LittleEndian.PutUint32(bytes[4*i:], bits)
		} else {
			binary.LittleEndian.PutUint16(bytes[2*i:], uint16(bits>>16))
		}
	}
	kernels.Write(x, bytes)
	return x
}

// timeCall reports what a call does a second: work is floating-point operations or bytes.
func timeCall(b *testing.B, dev *accel.Device, c *kernels.Call, rate string, work float64) {
	dev.Run(c)
	dev.Sync()
	b.ResetTimer()
	for range b.N {
		dev.Run(c)
	}
	dev.Sync()
	b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()/1e9, rate)
}

// bench times a call whose operands have these shapes, the outputs last, and says what it moves or computes a second.
func bench(b *testing.B, name string, own bool, c kernels.Call, d tensor.DType, outs int, rate string,
	work float64, shapes ...[]int) {
	b.Run(name, func(b *testing.B) {
		dev := benched(b, own)
		p := tensor.NewPool("device", 0).In(dev)
		var all []*tensor.Tensor
		for i, s := range shapes {
			t := d
			if i == len(shapes)-1 && c.Op == kernels.LinearDW {
				t = tensor.F32
			}
			all = append(all, noise(b, p, t, s...))
		}
		c.In, c.Out = all[:len(all)-outs], all[len(all)-outs:]
		timeCall(b, dev, &c, rate, work)
	})
}

// BenchmarkCopy is the ceiling of kernels that move memory: what a copy on the device reads and writes.
func BenchmarkCopy(b *testing.B) {
	const n = 256 << 20
	bench(b, "bf16", true, kernels.Call{Op: kernels.Cast}, tensor.BF16, 1, "GB/s", 4*n, []int{n}, []int{n})
}

// BenchmarkMap are kernels that move memory, with the bytes that they must move.
func BenchmarkMap(b *testing.B) {
	t, d := 16384, 3072
	n := float64(t * d)
	row := []int{t, d}
	bench(b, "swiglu", true, kernels.Call{Op: kernels.SwiGLU}, tensor.BF16, 1, "GB/s", 6*n, row, row, row)
	bench(b, "swiglu_bwd", true, kernels.Call{Op: kernels.SwiGLUBwd}, tensor.BF16, 2, "GB/s", 10*n, row, row,
		row, row, row)
	bench(b, "sum", true, kernels.Call{Op: kernels.Sum}, tensor.BF16, 1, "GB/s", 6*n, row, row, row)
	bench(b, "col_sum", true, kernels.Call{Op: kernels.ColSum}, tensor.F32, 1, "GB/s", 4*n, row, []int{d})
}

// BenchmarkProduct are the products of Llama-3.2-1B's layers for 16384 tokens, by cublasLt where it is there
// and by the project's own kernel.
func BenchmarkProduct(b *testing.B) {
	const t = 16384
	for _, own := range []bool{false, true} {
		who := map[bool]string{false: "library", true: "own"}[own]
		for _, s := range [][2]int{{2048, 2048}, {512, 2048}, {8192, 2048}, {2048, 8192}} {
			n, k := s[0], s[1]
			flops := 2 * float64(t) * float64(n) * float64(k)
			at := fmt.Sprintf("%s/%dx%d", who, n, k)
			x, w, y := []int{t, k}, []int{n, k}, []int{t, n}
			bench(b, "linear/"+at, own, kernels.Call{Op: kernels.Linear}, tensor.BF16, 1, "GFLOP/s", flops,
				x, w, y)
			bench(b, "linear_dx/"+at, own, kernels.Call{Op: kernels.LinearDX}, tensor.BF16, 1, "GFLOP/s",
				flops,
				y, w, x)
			bench(b, "linear_dw/"+at, own, kernels.Call{Op: kernels.LinearDW}, tensor.BF16, 1, "GFLOP/s",
				flops,
				y, x, w)
		}
		bench(b, "linear_f32/"+who, own, kernels.Call{Op: kernels.Linear}, tensor.F32, 1, "GFLOP/s",
			2*t*2048*2048, []int{t, 2048}, []int{2048, 2048}, []int{t, 2048})
	}
}

// BenchmarkAttention is causal attention of 8 sequences of 2048 tokens, and one of 16384, by cuDNN where it
// is there and by the project's own kernel; operations are counted as FlashAttention's authors do, half of
// all scores, 4 a score and element of a head forward and 10 backward.
func BenchmarkAttention(b *testing.B) {
	for _, own := range []bool{false, true} {
		for _, s := range []struct{ seqs, tokens, h, g, w int }{{8, 2048, 32, 8, 64}, {8, 2048, 16, 8, 128},
			{1, 16384, 16, 8, 128}} {
			at := fmt.Sprintf("%s/%dx%dx%dx%d", map[bool]string{false: "library", true: "own"}[own], s.seqs,
				s.tokens, s.h, s.w)
			flops := 2 * float64(s.seqs*s.h*s.w) * float64(s.tokens) * float64(s.tokens)
			for _, back := range []bool{false, true} {
				name, work := "forward/"+at, flops
				if back {
					name, work = "backward/"+at, flops*2.5
				}
				b.Run(name, func(b *testing.B) {
					dev := benched(b, own)
					forward, backward := attendCalls(b, dev, s.seqs, s.tokens, s.h, s.g, s.w)
					dev.Run(forward)
					if back {
						forward = backward
					}
					timeCall(b, dev, forward, "GFLOP/s", work)
				})
			}
		}
	}
}

// attendCalls are attention and its gradient on the device.
func attendCalls(b *testing.B, dev *accel.Device, seqs, tokens, h, g, w int) (forward,
	backward *kernels.Call) {
	p := tensor.NewPool("device", 0).In(dev)
	n := seqs * tokens
	of := func(heads int) *tensor.Tensor { return noise(b, p, tensor.BF16, n, heads, w) }
	q, k, v, do, o, lse := of(h), of(g), of(g), of(h), of(h), noise(b, p, tensor.F32, n, h)
	dq, dk, dv := of(h), of(g), of(g)
	cu := tensor.Make(tensor.I32, seqs+1)
	for i := range cu.I32() {
		cu.I32()[i] = int32(i * tokens)
	}
	l := func(t ...*tensor.Tensor) []*tensor.Tensor { return t }
	return &kernels.Call{Op: kernels.Attention, In: l(q, k, v, cu, cu), Out: l(o, lse), Attr: causal},
		&kernels.Call{Op: kernels.AttentionBwd, In: l(do, q, k, v, o, lse, cu, cu), Out: l(dq, dk, dv),
			Attr: causal}
}
