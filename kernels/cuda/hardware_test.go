//go:build cuda

package cuda

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
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
	d, err := l.New(0, Settings{Absent: lenient})
	require.NoError(t, err)
	visit(t, d)
}

// TestHardwareLibraries: the same with products and attention by NVIDIA's libraries, where the machine has
// them.
func TestHardwareLibraries(t *testing.T) {
	l := driver(t)
	products, err := FindProducts()
	require.NoError(t, err)
	attentions, err := FindAttentions()
	require.NoError(t, err)
	if products == nil && attentions == nil {
		t.Skipf("skipped: %s; %s", describeProducts(), describeAttentions())
	}
	d, err := l.New(0, Settings{Absent: lenient, Products: products, Attentions: attentions})
	require.NoError(t, err)
	t.Log(d.Name())
	t.Run("repeats", func(t *testing.T) { attentionsRepeat(t, d) })
	visit(t, d)
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
				d.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y}})
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

// bench times a call whose operands have these shapes, the outputs last, and says what it moves or
// computes a second.
func bench(b *testing.B, name string, c kernels.Call, d tensor.DType, outs int, rate string, work float64,
	shapes ...[]int) {
	b.Run(name, func(b *testing.B) {
		dev := hardware(b)
		p := tensor.NewPool("device", 0).In(dev)
		var all []*tensor.Tensor
		for _, s := range shapes {
			x, err := p.New("operand", d, s...)
			require.NoError(b, err)
			defer x.Release()
			dev.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x},
				Attr: kernels.Attr{F: [2]float64{0.5}}})
			all = append(all, x)
		}
		c.In, c.Out = all[:len(all)-outs], all[len(all)-outs:]
		dev.Run(&c)
		dev.Sync()
		b.ResetTimer()
		for range b.N {
			dev.Run(&c)
		}
		dev.Sync()
		b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()/1e9, rate)
	})
}

// BenchmarkCopy is the ceiling of kernels that move memory: what a copy on the device reads and writes.
func BenchmarkCopy(b *testing.B) {
	const n = 256 << 20
	bench(b, "bf16", kernels.Call{Op: kernels.Cast}, tensor.BF16, 1, "GB/s", 4*n, []int{n}, []int{n})
}

// BenchmarkMap are kernels that move memory, with the bytes that they must move.
func BenchmarkMap(b *testing.B) {
	t, d := 16384, 3072
	n := float64(t * d)
	row := []int{t, d}
	bench(b, "swiglu", kernels.Call{Op: kernels.SwiGLU}, tensor.BF16, 1, "GB/s", 6*n, row, row, row)
	bench(b, "swiglu_bwd", kernels.Call{Op: kernels.SwiGLUBwd}, tensor.BF16, 2, "GB/s", 10*n, row, row,
		row, row, row)
	bench(b, "sum", kernels.Call{Op: kernels.Sum}, tensor.BF16, 1, "GB/s", 6*n, row, row, row)
	bench(b, "col_sum", kernels.Call{Op: kernels.ColSum}, tensor.F32, 1, "GB/s", 4*n, row, []int{d})
}

// BenchmarkProduct are the products of Qwen3-0.6B's layers for 16384 tokens.
func BenchmarkProduct(b *testing.B) {
	const t = 16384
	for _, s := range [][2]int{{2048, 1024}, {1024, 1024}, {1024, 2048}, {3072, 1024}, {1024, 3072}} {
		n, k := s[0], s[1]
		flops := 2 * float64(t) * float64(n) * float64(k)
		for _, d := range []tensor.DType{tensor.BF16, tensor.F32} {
			bench(b, fmt.Sprintf("%v/%dx%d", d, n, k), kernels.Call{Op: kernels.Linear}, d, 1, "GFLOP/s",
				flops, []int{t, k}, []int{n, k}, []int{t, n})
		}
	}
}
