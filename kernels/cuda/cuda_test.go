//go:build cuda

package cuda

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	_ "github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// emulated opens a device of an emulated driver; what it does not have is an error unless absent says otherwise.
func emulated(t testing.TB, index int, absent accel.Absent, flags ...string) (*accel.Device,
	*emulate.Driver) {
	t.Helper()
	e := emulate.New(t, flags...)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	d, err := l.New(index, Settings{Absent: absent})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, e
}

var strict = accel.Absent{Strict: true}

var long = flag.Bool("long", false,
	"run the whole suite in every order of threads, and with products by a library")

// own is what the device has a kernel for.
func own(op kernels.Op) bool { return table[op] != nil }

// TestConformance: every operation with a kernel gives on the device what the definition gives, whatever the
// order of a block's threads. Orders beyond the first give the same bits. By default a few cases of each
// operation are run; -long puts all through every order, those of the processor among them.
func TestConformance(t *testing.T) {
	part := kernelstest.Part{Has: own, Every: 7, Plant: 15}
	if *long {
		part = kernelstest.Part{}
	}
	first := map[string][]byte{}
	for order, name := range []string{"ascending", "descending", "random"} {
		t.Run(name, func(t *testing.T) {
			d, e := emulated(t, 0, lenient)
			e.Set(t, "order", int64(order), 0)
			pool := tensor.NewPool("device", 0).In(d)
			b := kernelstest.Carried(t, d, pool)
			if order == 0 || *long {
				part.Run(t, b)
			}
			part.Calls(func(name string, c *kernels.Call) {
				b.Run(c)
				for i, o := range c.Out {
					switch {
					case o == nil || c.Op == kernels.LinearCE && i == 1: // work has no meaning
					case order == 0:
						first[fmt.Sprint(name, i)] = o.Bytes()
					default:
						require.Equal(t, first[fmt.Sprint(name, i)], o.Bytes(), "%s: out %d", name, i)
					}
				}
			})
			d.Sync()
			require.Zero(t, pool.Live())
		})
	}
}

// TestTorch holds an emulated device's own kernels to PyTorch on 300 random shapes of each operation on places.
func TestTorch(t *testing.T) {
	if !*long {
		t.Skip("skipped: -long makes results of PyTorch for 300 random shapes of each operation")
	}
	d, _ := emulated(t, 0, strict)
	pool := tensor.NewPool("device", 0).In(d)
	seen := kernelstest.Golden(t, kernelstest.Carried(t, d, pool), bytes.NewReader(kernelstest.Torch(t)))
	t.Log(seen)
	require.GreaterOrEqual(t, seen[kernels.Conv], 900)
	d.Sync()
	require.Zero(t, pool.Live())
}

// TestHopperProducts: products by Hopper's tensor cores are what the suite wants of those whose weights have
// few columns too, which other kernels take else. The emulated tensor cores take their time: the ordinary
// tier leaves out losses, which have the same products, and epilogues, which have kernels of their own.
func TestHopperProducts(t *testing.T) {
	defer func(n int) { hopperColumns = n }(hopperColumns)
	hopperColumns = 1
	d, e := emulated(t, 0, lenient)
	pool := tensor.NewPool("device", 0).In(d)
	b := kernelstest.Carried(t, d, pool)
	products := func(op kernels.Op) bool {
		return strings.HasPrefix(string(op), "linear") || strings.HasPrefix(string(op), "grouped_linear")
	}
	part := kernelstest.Part{Every: 6, Plant: 15, Bare: true, Has: func(op kernels.Op) bool {
		return products(op) && !strings.HasPrefix(string(op), "linear_ce") && op != kernels.LinearLSE
	}}
	if *long {
		part = kernelstest.Part{Has: products}
	}
	part.Run(t, b)
	first := map[string][]byte{}
	for order := range int64(3) {
		e.Set(t, "order", order, 0)
		part.Calls(func(name string, c *kernels.Call) {
			b.Run(c)
			for i, o := range c.Out {
				if o == nil || c.Op == kernels.LinearCE && i == 1 { // work has no meaning
					continue
				}
				if at := fmt.Sprint(name, i); order == 0 {
					first[at] = bytes.Clone(o.Bytes())
				} else {
					require.Equal(t, first[at], o.Bytes(), "%s: out %d in order %d", name, i, order)
				}
			}
		})
	}
}

// TestOperations: every operation has a launch here. One that is new may do without: name it, and it runs
// on the processor.
func TestOperations(t *testing.T) {
	onProcessor := []kernels.Op{kernels.Objective, kernels.ObjectiveBwd, kernels.Contrast,
		kernels.ContrastBwd, kernels.GroupNLL,
		kernels.LowError, kernels.LowChoice, kernels.FixedAdd, kernels.FixedSum, kernels.FixedRead,
		kernels.FixedSquares}
	var lacks []kernels.Op
	for _, s := range kernels.Specs() {
		if table[s.Op] == nil {
			lacks = append(lacks, s.Op)
		}
	}
	require.ElementsMatch(t, onProcessor, lacks, "operations without a kernel")
}

// lenient lets operations without a kernel run by their definition.
var lenient = accel.Absent{Open: func() (kernels.Backend, error) { return ref.New(), nil }}

// TestConformanceOfLibrary: the same with products by the stand-in of cublasLt, which takes aligned operands alone.
func TestConformanceOfLibrary(t *testing.T) {
	if !*long {
		t.Skip("skipped: the whole suite with products by a library takes a minute; -long runs it")
	}
	e := emulate.New(t)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	products, err := LoadProducts(e.Path)
	require.NoError(t, err)
	d, err := l.New(0, Settings{Absent: lenient, Products: products})
	require.NoError(t, err)
	defer d.Close()
	require.Equal(t, "cuda:0 (emulated device, cublasLt 130100)", d.Name())
	pool := tensor.NewPool("device", 0).In(d)
	kernelstest.Run(t, kernelstest.Carried(t, d, pool))
	d.Sync()
	require.Zero(t, pool.Live())
}

// TestChosenAlgorithms: a run that goes on has the algorithms that it began with, and with them the bits,
// where the library would choose others by now.
func TestChosenAlgorithms(t *testing.T) {
	e := emulate.New(t)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	products, err := LoadProducts(e.Path)
	require.NoError(t, err)
	dir := t.TempDir()
	run := func(dir string, algorithm int64) []float32 {
		e.Set(t, "algorithm", algorithm, 0)
		d, err := l.New(0, Settings{Absent: strict, Products: products, Dir: dir})
		require.NoError(t, err)
		defer d.Close()
		p := tensor.NewPool("device", 0).In(d)
		x, w, y := place(t, d, p, numbers(8, 500)), place(t, d, p, numbers(16, 500)), place(t, d, p,
			tensor.Make(tensor.F32, 8, 16))
		launches := e.Launches()
		d.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y}})
		require.Equal(t, launches, e.Launches(), "no kernel of the project's takes part")
		chosenIn.files = nil // as a process that starts
		return kernels.Host(d, y).F32()
	}
	first := run(dir, 0)
	require.Equal(t, first, run(dir, 1), "the algorithm that was kept")
	require.NotEqual(t, first, run(t.TempDir(), 1), "another algorithm has other bits")

	text, err := os.ReadFile(filepath.Join(dir, chosenProducts))
	require.NoError(t, err)
	require.Contains(t, string(text),
		`{"device":"emulated device","library":130100,"shape":"f32 f32 8x16x500 true500 false500 16 add=false",`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, chosenProducts), append(text,
		`{"shape":"x","algorithm":"00"}`...), 0o600))
	_, err = OpenChosen(dir, chosenProducts, validAlgorithm)
	require.ErrorContains(t, err, chosenProducts+":2: this is not an algorithm for a shape")
	_, err = LoadProducts("libm.so.6")
	require.ErrorContains(t, err, "it is not cublasLt")
}

// place copies a tensor to a device.
func place(t testing.TB, d *accel.Device, p *tensor.Pool, h *tensor.Tensor) *tensor.Tensor {
	x, err := p.New("operand", h.DType, h.Shape...)
	require.NoError(t, err)
	d.Write(x, h.Bytes())
	t.Cleanup(x.Release)
	return x
}

// numbers is a float32 tensor of many different values.
func numbers(shape ...int) *tensor.Tensor {
	x := tensor.Make(tensor.F32, shape...)
	for i, v := 0, x.F32(); i < len(v); i++ {
		v[i] = float32(i*7919%1013)/500 - 1
	}
	return x
}

// norm is a call that depends on barriers, on a device or on the host.
func norm(x, w, y, rstd *tensor.Tensor) *kernels.Call {
	return &kernels.Call{Op: kernels.RMSNorm, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y, rstd},
		Attr: kernels.Attr{F: [2]float64{1e-5}}}
}

// TestMissingBarrier: a kernel that lacks a barrier gives wrong results under some order of threads;
// under all with every barrier in place it gives the same.
func TestMissingBarrier(t *testing.T) {
	d, e := emulated(t, 0, strict)
	p := tensor.NewPool("device", 0).In(d)
	x, w, want := numbers(3, 512), numbers(512), tensor.Make(tensor.F32, 3, 512)
	ref.New().Run(norm(x, w, want, tensor.Make(tensor.F32, 3)))
	in, weight := place(t, d, p, x), place(t, d, p, w)
	got, rstd := place(t, d, p, tensor.Make(tensor.F32, 3, 512)), place(t, d, p, tensor.Make(tensor.F32, 3))
	for _, skip := range []int64{0,
		2} { // the second barrier of a sum over a block stands before its parts are read
		wrong := 0
		for order := range int64(3) {
			e.Set(t, "order", order, 0)
			e.Set(t, "skip barrier", skip, 0)
			d.Run(norm(in, weight, got, rstd))
			h := kernels.Host(d, got)
			for i, v := range h.F32() {
				if math.Abs(float64(v-want.F32()[i])) > 1e-5 {
					wrong++
					break
				}
			}
		}
		require.Equal(t, skip > 0, wrong > 0, "%d of 3 orders are wrong where barrier %d is left out",
			wrong, skip)
	}
}

// TestMissingEvent: a device that does not wait for another's event reads what is not there yet; one that
// does never does.
func TestMissingEvent(t *testing.T) {
	a, e := emulated(t, 0, strict)
	b, _ := emulated(t, 1, strict)
	e.Set(t, "jitter", 300, 0)
	pa, pb := tensor.NewPool("first", 0).In(a), tensor.NewPool("second", 0).In(b)
	x, y := place(t, a, pa, numbers(64)), place(t, b, pb, tensor.Make(tensor.F32, 64))
	wrong := map[bool]int{}
	for _, waits := range []bool{false, true} {
		for i := range 40 {
			a.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x},
				Attr: kernels.Attr{F: [2]float64{float64(i + 1)}}})
			if waits {
				b.Await(a.Record())
			}
			b.Copy(y, x)
			if h := kernels.Host(b, y); h.F32()[63] != float32(i+1) {
				wrong[waits]++
			}
			a.Sync()
		}
	}
	require.NotZero(t, wrong[false], "copies that did not wait")
	require.Zero(t, wrong[true], "copies that waited")
}

// TestHostCannotRead: device memory is out of the host's reach, and the emulator sees to it that a
// pointer to it is no pointer.
func TestHostCannotRead(t *testing.T) {
	d, _ := emulated(t, 0, strict)
	x := place(t, d, tensor.NewPool("device", 0).In(d), numbers(4))
	require.PanicsWithValue(t,
		"tensor: the host reads f32[4], which lies in memory of CUDA devices: only the device's Read "+
			"and Write may", func() { x.F32() })
	q := &accel.Queue{}
	at := q.Addr(x)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	require.Panics(t, func() { _ = *(*float32)(*(*unsafe.Pointer)(unsafe.Pointer(&at))) })
}

// TestLargeCopies: what is larger than all staging memory comes back as it was, also past a call that changes it.
func TestLargeCopies(t *testing.T) {
	d, e := emulated(t, 0, strict)
	e.Set(t, "jitter", 50, 0)
	h := numbers(3<<20 + 5)
	x := place(t, d, tensor.NewPool("device", 0).In(d), h)
	require.Equal(t, h.F32(), kernels.Host(d, x).F32())
	d.Run(&kernels.Call{Op: kernels.Scale, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{x},
		Attr: kernels.Attr{F: [2]float64{2}}})
	got := kernels.Host(d, x).F32()
	require.Equal(t, 2*h.F32()[12345], got[12345])
	require.Equal(t, 2*h.F32()[len(got)-1], got[len(got)-1])
}

// TestMemory: what is given back is used again, blocks that nothing uses go back to the driver, and a
// full device is one error.
func TestMemory(t *testing.T) {
	d, e := emulated(t, 0, strict)
	before := e.Blocks()
	e.Set(t, "memory", 300<<20, 1<<30)
	p := tensor.NewPool("rank 0", 0).In(d)
	for range 100 {
		x, err := p.New("x", tensor.F32, 10<<20)
		require.NoError(t, err)
		x.Release()
	}
	require.Equal(t, before+1, e.Blocks())
	x, err := p.New("x", tensor.F32, 65<<20) // more than a block: the first goes back
	require.NoError(t, err)
	require.Equal(t, before+1, e.Blocks())
	_, err = p.New("y", tensor.F32, 12<<20)
	require.ErrorContains(t, err,
		"rank 0: tensor y: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): the device's memory is full; "+
			"another process may hold it")
	require.ErrorContains(t, err, "264.0 MiB of the 264.0 MiB that this rank took are in use")
	x.Release()
}

// TestLostDevice: a kernel that fails ends in an error that names the device, and nobody waits for ever.
func TestLostDevice(t *testing.T) {
	d, err := func() (*accel.Device, error) {
		e := emulate.New(t).Copy(t)
		l, err := LoadFrom(e.Path)
		require.NoError(t, err)
		d, err := l.New(1, Settings{Absent: strict})
		e.Set(t, "lost after", 2, -1)
		return d, err
	}()
	require.NoError(t, err)
	x := place(t, d, tensor.NewPool("device", 0).In(d), numbers(4))
	fill := &kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x}}
	d.Run(fill)
	d.Run(fill)
	d.Sync()
	lost := func() (err error) {
		defer func() { err, _ = recover().(*kernels.DeviceError) }()
		d.Run(fill)
		d.Sync()
		return nil
	}()
	require.ErrorContains(t, lost, "device cuda:1 (emulated device): cuEvent")
	require.ErrorContains(t, lost,
		"CUDA_ERROR_LAUNCH_FAILED (719): a kernel failed; the device is lost to this process")
	called := make(chan bool)
	d.Then(func() { close(called) })
	<-called
	require.Panics(t, func() { d.Read(make([]byte, 16), x) })
	require.NoError(t, d.Close())
}

// TestOnProcessor: an operation that the device does not have for its operands runs on the processor, and
// is named once; where that is not wanted it is an error.
func TestOnProcessor(t *testing.T) {
	var said bytes.Buffer
	refuses, _ := emulated(t, 0, strict)
	d, _ := emulated(t, 0, accel.Absent{Tell: &said, Open: func() (kernels.Backend,
		error) {
		return ref.New(), nil
	}})
	q, o, lse := numbers(3, 1, 300), tensor.Make(tensor.F32, 3, 1, 300), tensor.Make(tensor.F32, 3, 1)
	cu := tensor.Of(tensor.I32, []int32{0, 3}, 2)
	call := func(q, cu, o, lse *tensor.Tensor) *kernels.Call {
		return &kernels.Call{Op: kernels.Attention, In: []*tensor.Tensor{q, q, q, cu, cu},
			Out: []*tensor.Tensor{o, lse}, Attr: kernels.Attr{I: [4]int{1}, F: [2]float64{0.1}}}
	}
	ref.New().Run(call(q, cu, o, lse))
	b := kernelstest.Carried(t, d, tensor.NewPool("device", 0).In(d))
	for range 2 {
		got := tensor.Make(tensor.F32, 3, 1, 300)
		b.Run(call(q, cu, got, tensor.Make(tensor.F32, 3, 1)))
		require.Equal(t, o.F32(), got.F32())
	}
	require.Equal(t,
		"cuda:0 (emulated device): operation attention runs on the processor, with copies there and "+
			"back: the device does not have it\n", said.String())
	p := tensor.NewPool("device", 0).In(refuses)
	x := place(t, refuses, p, q)
	c := call(x, place(t, refuses, p, cu), place(t, refuses, p, o), place(t, refuses, p, lse))
	require.PanicsWithError(t,
		"device cuda:0 (emulated device): attention: the device does not have this operation for "+
			"[f32[3 1 300] f32[3 1 300] f32[3 1 300] i32[2] i32[2]], and operations of the processor "+
			"are not wanted", func() { refuses.Run(c) })
}

// TestWrongLibraries: no library, one that is no driver, an old driver, one that cannot load the kernels,
// and a device that is not there are errors that say what to do.
func TestWrongLibraries(t *testing.T) {
	t.Setenv(LibraryVariable, "/nowhere/libcuda.so.1")
	_, err := kernels.Open("cuda", kernels.Options{})
	require.ErrorContains(t, err,
		"no CUDA driver: libcuda.so.1 was looked for as /nowhere/libcuda.so.1; install NVIDIA's driver")
	_, err = kernels.Open("cuda:x", kernels.Options{})
	require.Error(t, err)
	b, err := kernels.Open(kernels.Auto, kernels.Options{Threads: 1})
	require.NoError(t, err)
	require.NotContains(t, b.Name(), "cuda")
	kernels.Close(b)
	_, err = LoadFrom("libm.so.6")
	require.ErrorContains(t, err, "it is not a CUDA driver")

	e := emulate.New(t)
	old := e.Copy(t)
	old.Set(t, "version", 12040, 13000)
	_, err = LoadFrom(old.Path)
	require.ErrorContains(t, err, "speaks CUDA 12.4, and 13.0 is needed: update NVIDIA's driver")
	none := e.Copy(t)
	none.Set(t, "devices", 0, 2)
	_, err = LoadFrom(none.Path)
	require.ErrorContains(t, err, "CUDA_ERROR_NO_DEVICE (100): the driver sees no device")
	stale := e.Copy(t)
	stale.Set(t, "loadable", 0, 1)
	l, err := LoadFrom(stale.Path)
	require.NoError(t, err)
	_, err = l.New(0, Settings{Absent: strict})
	require.ErrorContains(t, err,
		"cuda:0 (emulated device): cuModuleLoadData: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)")
	_, err = l.New(2, Settings{Absent: strict})
	require.EqualError(t, err,
		"there is no device cuda:2; the driver has 2 (CUDA_VISIBLE_DEVICES hides others)")

	t.Setenv(LibraryVariable, e.Path)
	t.Setenv(ProductsVariable, "none")
	t.Setenv(AttentionVariable, "none")
	lines := kernels.Describe()
	require.Contains(t, lines, "cuda: products by the project's kernel, as LFACTOR_LIBCUBLASLT says")
	require.Contains(t, lines, "cuda: driver "+e.Path+" speaks CUDA 13.0 and has 2 devices")
	require.Contains(t, lines,
		"cuda: device cuda:1 (emulated device) has 1.00 GiB, 4 multiprocessors, capability 9.0: kernels "+
			"for sm_90a")
	b, err = kernels.Open(kernels.Auto, kernels.Options{Rank: 3})
	require.NoError(t, err)
	require.Equal(t, "cuda:1 (emulated device)", b.Name())
	kernels.Close(b)
}

// TestSplitTerms: gradients of weights that are added up in chunks of terms are what the suite wants, in
// every order of a block's threads.
func TestSplitTerms(t *testing.T) {
	defer func(n int) { splitChunk = n }(splitChunk)
	splitChunk = 2
	d, e := emulated(t, 0, strict)
	pool := tensor.NewPool("device", 0).In(d)
	b := kernelstest.Carried(t, d, pool)
	part := kernelstest.Part{Has: func(op kernels.Op) bool { return op == kernels.LinearDW }, Every: 3,
		Plant: 7}
	part.Run(t, b)
	first := map[string][]byte{}
	for order := range int64(3) {
		e.Set(t, "order", order, 0)
		part.Calls(func(name string, c *kernels.Call) {
			b.Run(c)
			if order == 0 {
				first[name] = bytes.Clone(c.Out[0].Bytes())
			}
			require.Equal(t, first[name], c.Out[0].Bytes(), "%s in order %d", name, order)
		})
	}
	launches := func() int {
		from := e.Launches()
		part.Calls(func(_ string, c *kernels.Call) { b.Run(c) })
		d.Sync()
		return e.Launches() - from
	}
	inChunks := launches()
	splitChunk = 1 << 20
	require.Greater(t, inChunks, launches(), "launches by chunks, and whole")
}
