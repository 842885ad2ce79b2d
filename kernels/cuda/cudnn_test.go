//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// attending opens a device with the stand-in of cuDNN.
func attending(t *testing.T, dir string, set ...func(e *emulate.Driver)) (*accel.Device, *emulate.Driver) {
	t.Helper()
	e := emulate.New(t)
	for _, f := range set {
		f(e)
	}
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	a, err := LoadAttentions(e.Path)
	require.NoError(t, err)
	d, err := l.New(0, Settings{Absent: strict, Attentions: a, Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, e
}

// attends is one attention and its backward, with operands and results on the host.
type attends struct {
	q, k, v, do, o, lse, dq, dk, dv *tensor.Tensor
	cu                              []int32
	attr                            kernels.Attr
}

func newAttends(d tensor.DType, t, h, g, w int, cu []int32, attr kernels.Attr) attends {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(heads int) *tensor.Tensor {
		x := tensor.Make(tensor.F32, t, heads, w)
		for i := range x.F32() {
			x.F32()[i] = float32(r.NormFloat64())
		}
		y := tensor.Make(d, t, heads, w)
		ref.New().Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{y}})
		return y
	}
	return attends{q: draw(h), k: draw(g), v: draw(g), do: draw(h), o: tensor.Make(d, t, h, w),
		lse: tensor.Make(tensor.F32, t, h), dq: tensor.Make(d, t, h, w), dk: tensor.Make(d, t, g, w),
		dv: tensor.Make(d, t, g, w), cu: cu, attr: attr}
}

// run computes both directions with a backend; on a device operands lie at an odd element where odd is set,
// and queries and keys share their borders unless apart is set.
func (a *attends) run(t *testing.T, b kernels.Backend, odd, apart bool) {
	place := func(x *tensor.Tensor) *tensor.Tensor { return x }
	cu := tensor.Of(tensor.I32, a.cu, len(a.cu))
	cuK := cu
	back := func() {}
	if d, ok := b.(*accel.Device); ok {
		p := tensor.NewPool("device", 0).In(d)
		var there, here []*tensor.Tensor
		place = func(x *tensor.Tensor) *tensor.Tensor {
			skip := 0
			if odd && x.DType != tensor.I32 {
				skip = 1
			}
			whole, err := p.New("operand", x.DType, x.Len()+skip)
			require.NoError(t, err)
			y := whole.RowSlice(skip, x.Len()+skip).Alias(x.Shape...)
			d.Write(y, x.Bytes())
			there, here = append(there, y), append(here, x)
			t.Cleanup(y.Release)
			return y
		}
		back = func() {
			for i, y := range there {
				d.Read(here[i].Bytes(), y)
			}
		}
		h := cu
		cu = place(h)
		if cuK = cu; apart {
			cuK = place(h)
		}
	}
	q, k, v, do, o, lse := place(a.q), place(a.k), place(a.v), place(a.do), place(a.o), place(a.lse)
	dq, dk, dv := place(a.dq), place(a.dk), place(a.dv)
	b.Run(&kernels.Call{Op: kernels.Attention, In: []*tensor.Tensor{q, k, v, cu, cuK},
		Out: []*tensor.Tensor{o, lse}, Attr: a.attr})
	b.Run(&kernels.Call{Op: kernels.AttentionBwd, In: []*tensor.Tensor{do, q, k, v, o, lse, cu, cuK},
		Out: []*tensor.Tensor{dq, dk, dv}, Attr: a.attr})
	back()
}

func (a *attends) results() map[string]*tensor.Tensor {
	return map[string]*tensor.Tensor{"o": a.o, "lse": a.lse, "dq": a.dq, "dk": a.dk, "dv": a.dv}
}

func (a *attends) bytes() (all string) {
	for _, n := range []string{"o", "lse", "dq", "dk", "dv"} {
		all += string(a.results()[n].Bytes())
	}
	return all
}

// inFloat32 is a tensor in float32.
func inFloat32(x *tensor.Tensor) []float32 {
	y := tensor.Make(tensor.F32, x.Shape...)
	ref.New().Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{y}})
	return y.F32()
}

// broad is a width of heads of which the library does both directions.
const broad = 72

var (
	borders = []int32{2, 9, 9, 20} // two sequences, one without rows between them, rows outside all of them
	plain   = kernels.Attr{F: [2]float64{0.3}}
	causal  = kernels.Attr{I: [4]int{1}, F: [2]float64{0.3}}
	window  = kernels.Attr{I: [4]int{1, 3}, F: [2]float64{0.3}}
)

// TestAttentionByLibrary: what the graphs say to cuDNN is attention as it is defined, in both directions,
// packed, causal, with a window, with grouped heads; the bits are the same wherever operands lie. The
// tolerance is that of one rounding of results to 16 bits, of numbers up to 8.
func TestAttentionByLibrary(t *testing.T) {
	d, e := attending(t, "")
	for name, attr := range map[string]kernels.Attr{"plain": plain, "causal": causal, "window": window} {
		for _, dtype := range []tensor.DType{tensor.BF16, tensor.F16} {
			t.Run(fmt.Sprint(name, dtype), func(t *testing.T) {
				draw := func() attends { return newAttends(dtype, 21, 4, 2, broad, borders, attr) }
				want, got, again := draw(), draw(), draw()
				want.run(t, ref.New(), false, false)
				before := e.Launches()
				got.run(t, d, false, false)
				again.run(t, d, true, false)
				require.Equal(t, before, e.Launches(), "no kernel of the project's takes part")
				require.Equal(t, got.bytes(), again.bytes(), "other places")
				for n, x := range want.results() {
					require.InDeltaSlice(t, inFloat32(x), inFloat32(got.results()[n]), 8.0/256, n)
				}
			})
		}
	}
}

// TestNarrowBackward: heads of 64 and less have the project's backward behind the library's forward, from the
// sums of exponentials that this left; wider ones have the library's.
func TestNarrowBackward(t *testing.T) {
	d, e := attending(t, "")
	for width, kernels := range map[int]int{8: 3, 64: 3, 72: 0} {
		want, got, again := newAttends(tensor.BF16, 21, 4, 2, width, borders, causal),
			newAttends(tensor.BF16, 21, 4, 2, width, borders, causal),
			newAttends(tensor.BF16, 21, 4, 2, width, borders, causal)
		want.run(t, ref.New(), false, false)
		before := e.Launches()
		got.run(t, d, false, false)
		require.Equal(t, before+kernels, e.Launches(), "width %d", width)
		again.run(t, d, true, false)
		require.Equal(t, got.bytes(), again.bytes(), "width %d, other places", width)
		for n, x := range want.results() {
			require.InDeltaSlice(t, inFloat32(x), inFloat32(got.results()[n]), 8.0/256, "%s, width %d", n,
				width)
		}
	}
}

// TestAttentionByKernel: what the library is not asked for, and what it has no engine for, is done by
// the project's kernel.
func TestAttentionByKernel(t *testing.T) {
	d, e := attending(t, "")
	capped := causal
	capped.F[1] = 20
	loose := kernels.Attr{I: [4]int{0, 3}, F: [2]float64{0.3}}
	for name, c := range map[string]struct {
		dtype tensor.DType
		width int
		attr  kernels.Attr
		apart bool
		none  int64
	}{"float32": {dtype: tensor.F32, width: 8, attr: causal},
		"width":                {dtype: tensor.BF16, width: 12, attr: causal},
		"cap":                  {dtype: tensor.BF16, width: 8, attr: capped},
		"window, not causal":   {dtype: tensor.BF16, width: 8, attr: loose},
		"borders of their own": {dtype: tensor.BF16, width: 8, attr: causal, apart: true},
		"no engine":            {dtype: tensor.F16, width: 16, attr: causal, none: 1}} {
		t.Run(name, func(t *testing.T) {
			e.Set(t, "no attention", c.none, 0)
			want, got := newAttends(c.dtype, 21, 4, 2, c.width, borders, c.attr),
				newAttends(c.dtype, 21, 4, 2,
					c.width, borders, c.attr)
			want.run(t, ref.New(), false, false)
			before := e.Launches()
			got.run(t, d, false, c.apart)
			require.Equal(t, before+4, e.Launches(), "one kernel forward, three backward")
			for n, x := range want.results() {
				require.InDeltaSlice(t, inFloat32(x), inFloat32(got.results()[n]), 8.0/256, n)
			}
		})
	}
}

// TestChosenEngines: a run that goes on has the engines that it began with, also where the library would
// propose others by now.
func TestChosenEngines(t *testing.T) {
	dir := t.TempDir()
	run := func(dir string, algorithm int64) string {
		chosenIn.files = nil // as a process that starts
		d, e := attending(t, dir)
		e.Set(t, "algorithm", algorithm, 0)
		a := newAttends(tensor.F16, 21, 4, 2, broad, borders, causal)
		a.run(t, d, false, false)
		return a.bytes()
	}
	first := run(dir, 0)
	require.Equal(t, first, run(dir, 1), "the engines that were kept")
	require.NotEqual(t, first, run(t.TempDir(), 1), "other engines have other bits")
	file := filepath.Join(dir, chosenAttentions)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, `{"device":"emulated device","library":92801,"shape":"attention f16 21x21 sequences=3 `+
		`heads=4/2 width=72 causal=true window=0","algorithm":"9 24=2"}
{"device":"emulated device","library":92801,"shape":"attention_bwd f16 21x21 sequences=3 `+
		`heads=4/2 width=72 causal=true window=0","algorithm":"9 24=2 14=4"}
`, string(text), "the engine whose bits differ from run to run is not taken")
	chosenIn.files = nil
	require.NoError(t, os.WriteFile(file, append(text, `{"shape":"attention","algorithm":"best"}`...), 0o600))
	_, err = OpenChosen(dir, chosenAttentions, validEngine)
	require.ErrorContains(t, err, chosenAttentions+":3: this is not an algorithm for a shape")
}

// TestForwardAlone: a library of before 9.28 has attention's forward, and is not asked for the backward.
func TestForwardAlone(t *testing.T) {
	dir := t.TempDir()
	chosenIn.files = nil // as a process that starts
	d, _ := attending(t, dir, func(e *emulate.Driver) { e.Set(t, "cudnn", 92501, 92801) })
	want, got := newAttends(tensor.F16, 21, 4, 2, broad, borders, causal),
		newAttends(tensor.F16, 21, 4, 2, broad, borders, causal)
	want.run(t, ref.New(), false, false)
	got.run(t, d, false, false)
	for n, x := range want.results() {
		require.InDeltaSlice(t, inFloat32(x), inFloat32(got.results()[n]), 8.0/256, n)
	}
	text, err := os.ReadFile(filepath.Join(dir, chosenAttentions))
	require.NoError(t, err)
	require.Contains(t, string(text), `"shape":"attention f16`)
	require.NotContains(t, string(text), "attention_bwd")
}

// TestWrongAttentions: libraries that cannot be used say why, and doctor does.
func TestWrongAttentions(t *testing.T) {
	t.Setenv(ProductsVariable, "/nowhere/libcublasLt.so.13")
	_, err := LoadAttentions("libm.so.6")
	require.ErrorContains(t, err, "libm.so.6 needs cublasLt, which was not found: pip install nvidia-cublas")
	e := emulate.New(t)
	e.Set(t, "cudnn", 91900, 92801)
	_, err = LoadAttentions(e.Path)
	require.ErrorContains(t, err, "is cuDNN 9.19.0, and 9.25.0 is needed: pip install --upgrade "+
		"nvidia-cudnn-cu13")
	t.Setenv(AttentionVariable, e.Path)
	require.Contains(t, describeAttentions(),
		"attention by the project's kernel: "+e.Path+" is cuDNN 9.19.0")
	_, err = FindAttentions()
	require.Error(t, err, "the library that was named")
	e.Set(t, "cudnn", 92801, 92801)
	require.Equal(t, "attention by cuDNN 9.28.1, "+e.Path+", where it has an engine that repeats its bits",
		describeAttentions())
	t.Setenv(AttentionVariable, "none")
	require.Equal(t, "attention by the project's kernel, as LFACTOR_LIBCUDNN says", describeAttentions())
}

// TestAttentionPlans: cuDNN itself builds plans for an H100 from the project's graphs, without a device:
// both directions, plain, causal and with a window, whole and packed, the backward with and without an order
// of its sums. It wants the library, and a compiler for a driver that does nothing.
func TestAttentionPlans(t *testing.T) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped: the driver that does nothing is built with gcc, which is not installed")
	}
	l, err := FindAttentions()
	require.NoError(t, err)
	if l == nil {
		t.Skipf("skipped: 18 plans of attention for an H100, because %s",
			strings.TrimPrefix(describeAttentions(), "attention by the project's kernel: "))
	}
	emptyDriver(t, compiler)
	properties, err := os.ReadFile("testdata/h100.json")
	require.NoError(t, err)
	plans := 0
	for _, sequences := range []int{0, 4} {
		for _, mask := range []attentionShape{{}, {causal: true}, {causal: true, window: 256}} {
			for _, way := range []attentionShape{{}, {backward: true}, {backward: true, loose: true}} {
				s := attentionShape{backward: way.backward, loose: way.loose, causal: mask.causal,
					window: mask.window, dtype: tensor.BF16, sequences: sequences, rows: 1024, keys: 1024,
					heads: 16, keyHeads: 8, width: 128}
				if s.backward && l.Version < wholeCuDNN {
					continue
				}
				p, err := l.plan(s, described(string(properties)), "")
				require.NoError(t, err, "%v", s)
				require.NotNil(t, p, "%v: no engine", s)
				require.Equal(t, s.backward && !s.loose, strings.HasSuffix(p.engine, inOrder))
				if way.loose {
					p.graph.close()
					plans++
					continue
				}
				q, err := l.plan(s, described(string(properties)), p.engine)
				require.NoError(t, err, "%v: the engine that was kept: %s", s, p.engine)
				require.Equal(t, p.workspace, q.workspace)
				t.Logf("%v: engine %s, %s of workspace", s, p.engine, tensor.Bytes(int64(p.workspace)))
				p.graph.close()
				q.graph.close()
				plans++
			}
		}
	}
	want := 18
	if l.Version < wholeCuDNN { // forward alone
		want = 6
	}
	require.Equal(t, want, plans)
}

// emptyDriver loads, under the name of NVIDIA's driver, one whose functions do nothing: those that load
// kernels succeed, the others say that there is no device.
func emptyDriver(t *testing.T, compiler string) {
	dir := t.TempDir()
	source, path := filepath.Join(dir, "driver.c"), filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(source, []byte(emptyDriverText(t)), 0o600))
	said, err := exec.Command(compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o",
		path).CombinedOutput()
	require.NoError(t, err, "%s", said)
	_, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	require.NoError(t, err)
}

// emptyDriverText is the source of a driver with all functions.
func emptyDriverText(t *testing.T) string {
	names, err := os.ReadFile("testdata/driver_names.txt")
	require.NoError(t, err)
	var c strings.Builder
	for _, n := range strings.Fields(string(names)) {
		switch {
		case n == "cuDriverGetVersion":
			c.WriteString("int cuDriverGetVersion(int *v) { *v = 13000; return 0; }\n")
		case strings.HasSuffix(n, "LoadData") || n == "cuLibraryGetKernel" ||
			strings.HasSuffix(n, "GetFunction"):
			fmt.Fprintf(&c, "int %s(void **p) { *p = (void *)64; return 0; }\n", n)
		case n == "cuInit" || strings.HasPrefix(n, "cuCtx") || strings.HasPrefix(n, "cuDevicePrimary") ||
			strings.HasPrefix(n, "cuFunc") || strings.HasPrefix(n, "cuKernel") ||
			strings.HasPrefix(n, "cuLi") || strings.HasPrefix(n, "cuModule"):
			fmt.Fprintf(&c, "int %s(void) { return 0; }\n", n)
		default:
			fmt.Fprintf(&c, "int %s(void) { return 100; }\n", n)
		}
	}
	return c.String()
}

// described is a device by its properties, without one at hand: the test of plans.
func described(json string) func(g *graph) uintptr {
	return func(g *graph) uintptr {
		d := g.new(dnnDevice)
		text := append([]byte(json), 0)
		g.put(d, deviceJSON, typeChar, len(text), unsafe.Pointer(&text[0]))
		return g.finish(d)
	}
}
