//go:build xpu || cuda

package xpu

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// build compiles a plug-in of this folder, or of a text, with a C compiler; without one the test is
// skipped, and says so.
func build(t testing.TB, name, text string, flags ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped: plug-ins are built with gcc, which is not installed")
	}
	dir, err := filepath.Abs("plugin")
	require.NoError(t, err)
	source := filepath.Join(dir, name)
	if text != "" {
		source = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
	}
	out := filepath.Join(t.TempDir(), "plugin.so")
	args := append([]string{"-std=c11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-I", dir}, flags...)
	c := exec.Command(compiler, append(args, source, "-o", out, "-lm", "-lpthread")...)
	said, err := c.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return out
}

// opened opens a device of a plug-in; what it does not have runs on the definition, and is named in the buffer.
func opened(t testing.TB, path string, index int) (*accel.Device, *bytes.Buffer) {
	t.Helper()
	p, err := Load(path)
	require.NoError(t, err)
	said := &bytes.Buffer{}
	d, err := p.New(index, accel.Absent{Tell: said, Open: func() (kernels.Backend,
		error) {
		return ref.New(), nil
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, said
}

// TestReference: the reference plug-in, with the processor for what it does not have, gives what the
// definition gives, and each operation that ran on the processor is named once.
func TestReference(t *testing.T) {
	path := build(t, "reference.c", "")
	d, said := opened(t, path, 0)
	pool := tensor.NewPool("device", 0).In(d)
	b := kernelstest.Carried(t, d, pool)
	p, err := Load(path)
	require.NoError(t, err)
	have := p.operationsOf(t)
	t.Run("own", func(t *testing.T) { kernelstest.Part{Has: have}.Run(t, b) })
	t.Run("others", func(t *testing.T) { kernelstest.Part{Every: 40, Plant: 40}.Run(t, b) })
	d.Sync()
	require.Zero(t, pool.Live())
	refuses, err := p.New(1, accel.Absent{Strict: true})
	require.NoError(t, err)
	defer refuses.Close()
	x, w, y, rstd := tensor.Make(tensor.F32, 2, 3), tensor.Make(tensor.F32, 3), tensor.Make(tensor.F32, 2,
		3), tensor.Make(tensor.F32, 2)
	norm := &kernels.Call{Op: kernels.RMSNorm, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y, rstd}}
	kernelstest.Carried(t, refuses, tensor.NewPool("device", 0).In(refuses)).Run(norm) // the plug-in has it

	name := "xpu:" + path + ", device 0 (reference)"
	line := name +
		": operation attention runs on the processor, with copies there and back: the device does not " +
		"have it\n"
	require.Equal(t, 1, bytes.Count(said.Bytes(), []byte(line)))
}

// TestEvents: work of a plug-in's devices is in turn, and a copy that waits for the other device's event
// finds what was written.
func TestEvents(t *testing.T) {
	path := build(t, "reference.c", "")
	a, _ := opened(t, path, 0)
	b, _ := opened(t, path, 1)
	n := 1 << 18
	x, err := tensor.NewPool("first", 0).In(a).New("x", tensor.F32, n)
	require.NoError(t, err)
	y, err := tensor.NewPool("second", 0).In(b).New("y", tensor.F32, n)
	require.NoError(t, err)
	for i := range 20 {
		a.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x},
			Attr: kernels.Attr{F: [2]float64{float64(i)}}})
		b.Await(a.Record())
		b.Copy(y, x)
		require.Equal(t, float32(i), kernels.Host(b, y).F32()[n-1])
	}
	x.Release()
	y.Release()
}

// TestTutorial: the plug-in of one operation is one of at most 60 lines, and runs that operation; another
// type of it runs on the processor.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile("plugin/tutorial.c")
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(text, []byte("\n")), 60)
	d, said := opened(t, build(t, "tutorial.c", "", "-Wno-misleading-indentation"), 0)
	b := kernelstest.Carried(t, d, tensor.NewPool("device", 0).In(d))
	x, y := tensor.Of(tensor.F32, []float32{1, 2, 3}, 3), tensor.Make(tensor.F32, 3)
	call := func(x, y *tensor.Tensor) *kernels.Call {
		return &kernels.Call{Op: kernels.Scale, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{y},
			Attr: kernels.Attr{F: [2]float64{2}}}
	}
	b.Run(call(x, y))
	require.Equal(t, []float32{2, 4, 6}, y.F32())
	require.Empty(t, said.String())
	half, out := tensor.Of(tensor.BF16, []uint16{0x3f80}, 1), tensor.Make(tensor.BF16, 1)
	b.Run(call(half, out))
	require.Equal(t, []uint16{0x4000}, out.U16())
	require.Contains(t, said.String(), "operation scale runs on the processor")
}

// TestRefused: tables and answers that cannot be right are refused when a plug-in is opened, each with its reason.
func TestRefused(t *testing.T) {
	tutorial, err := os.ReadFile("plugin/tutorial.c")
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, new, why string }{
		"another major": {"return major == LFX_MAJOR ? &table : 0;", "return major == 2 ? &table : 0;",
			"does not speak version 1 of the table"},
		"lies about it": {"{sizeof table, LFX_MAJOR,", "{sizeof table, 2,",
			"of version 2.0 and this lfactor speaks 1.0"},
		"truncated": {"{sizeof table,", "{sizeof table - 8,",
			"its table has 128 bytes and version 1.0 has 136"},
		"no size":      {"{sizeof table,", "{0,", "says that it has 0 bytes"},
		"huge":         {"{sizeof table,", "{0xfffffff0,", "says that it has 4294967280 bytes"},
		"no function":  {"await, wait_event,", "0, wait_event,", "has no function await"},
		"no device":    {"i->count = 1;", "i->count = 0;", "it has no device"},
		"many devices": {"i->count = 1;", "i->count = 70000;", "there are 70000 devices"},
		"no memory":    {"i->memory = (uint64_t)4 << 30;", "i->memory = 0;", "has 0 bytes of memory"},
		"alignment":    {"i->align = 64;", "i->align = 65;", "aligned to 65 bytes"},
		"another answer": {"i->align = 64;", "i->align = 64, i->size = 8;",
			"changed the size of its answer to 8"},
		"endless name": {`strcpy(i->name, "tutorial");`, "memset(i->name, 'x', 64);",
			"a name without an end"},
		"info fails":     {"index != 0", "index == 0", "info: a bad argument: there is one device"},
		"other contract": {"x[...]A -> y[...]A", "x[t]A -> y[t]A", "none of this lfactor's operations"},
		"no open":        {"return *d = (lfx_device *)&event, index", "return index", "open gave no device"},
		"strange status": {"return *d = (lfx_device *)&event, index ? LFX_BAD_ARGUMENT : LFX_OK;",
			"return (lfx_status)17;",
			"open: status 17, which lfx.h does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, string(tutorial), c.old)
			text := bytes.Replace(tutorial, []byte(c.old), []byte(c.new), 1)
			path := build(t, "bad.c", string(text), "-Wno-unused", "-Wno-misleading-indentation")
			p, err := Load(path)
			if err == nil {
				_, err = p.New(0, accel.Absent{})
			}
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, c.why)
		})
	}
	_, err = kernels.Open("xpu:/nowhere/p.so", kernels.Options{})
	require.ErrorContains(t, err, "plug-in /nowhere/p.so: stat")
	t.Setenv(Variable, "")
	_, err = kernels.Open("xpu", kernels.Options{})
	require.EqualError(t, err, "device xpu: no plug-in is named; set device: xpu:PATH, or LFACTOR_XPU=PATH")
	none := build(t, "none.c", "int lfx_version = 1;\n")
	_, err = Load(none)
	require.ErrorContains(t, err, "has no function lfx_get")
}

// TestCrash: a plug-in that crashes ends the process that its rank lives in, and nothing hangs.
func TestCrash(t *testing.T) {
	const variable = "LFACTOR_TEST_CRASH"
	if path := os.Getenv(variable); path != "" {
		d, _ := opened(t, path, 0)
		x, err := tensor.NewPool("device", 0).In(d).New("x", tensor.F32, 1)
		require.NoError(t, err)
		d.Run(&kernels.Call{Op: kernels.Scale, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{x}})
		t.Fatal("the plug-in did not crash")
	}
	tutorial, err := os.ReadFile("plugin/tutorial.c")
	require.NoError(t, err)
	text := bytes.Replace(tutorial, []byte("  int64_t n = 1;"),
		[]byte("  int64_t n = 1; *(volatile int *)8 = 1;"), 1)
	path := build(t, "crash.c", string(text), "-Wno-unused", "-Wno-misleading-indentation",
		"-Wno-array-bounds")
	c := exec.Command(os.Args[0], "-test.run", "^TestCrash$")
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s", variable, path))
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.NotContains(t, string(out), "the plug-in did not crash")
	require.Contains(t, string(out), "SIGSEGV")
}
