//go:build xpu || cuda

package xpu

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// operationsOf tells of an operation whether the plug-in's first device has it.
func (p *Plugin) operationsOf(t testing.TB) func(kernels.Op) bool {
	d, err := p.open(0)
	require.NoError(t, err)
	defer d.Close()
	return func(op kernels.Op) bool { return d.ops[op] != 0 }
}

// conforms holds all operations of a plug-in to their definitions; operands that it refuses are the processor's.
func conforms(t *testing.T, path string) {
	p, err := Load(path)
	require.NoError(t, err)
	d, said := opened(t, path, 0)
	pool := tensor.NewPool("device", 0).In(d)
	kernelstest.Part{Has: p.operationsOf(t)}.Run(t, kernelstest.Carried(t, d, pool))
	d.Sync()
	require.Zero(t, pool.Live())
	t.Logf("%s: operands that went to the processor:\n%s", d.Name(), said)
}

// TestPlugin: the plug-in that LFACTOR_XPU names has operations that are as they are defined.
func TestPlugin(t *testing.T) {
	path := os.Getenv(Variable)
	if path == "" {
		t.Skipf("skipped: %s names no plug-in", Variable)
	}
	require.True(t, filepath.IsAbs(path), "%s=%s: tests run in another folder; name the whole path",
		Variable, path)
	conforms(t, path)
}

// TestWritten: so have those of the tutorial and of one that was written from the documents alone.
func TestWritten(t *testing.T) {
	for _, name := range []string{"tutorial.c", "written.c"} {
		t.Run(name, func(t *testing.T) {
			conforms(t, build(t, name, "", "-ffp-contract=off", "-Wno-misleading-indentation"))
		})
	}
}

// slow is a plug-in whose function wait always fails, after a moment, and whose error says whether the
// thread that asks is the one that failed.
const slow = `#define _GNU_SOURCE
#include <unistd.h>
static _Thread_local int failed;
static lfx_status wait_event(lfx_event *e) { return usleep(100), failed = 1, LFX_DEVICE_LOST; }
static const char *error(void) { return failed ? (failed = 0, "mine") : "another thread's"; }
`

// TestErrorOfThread: error is called by the thread whose call failed, also where many wait at once.
func TestErrorOfThread(t *testing.T) {
	text, err := os.ReadFile("plugin/tutorial.c")
	require.NoError(t, err)
	for _, cut := range []string{`static lfx_status wait_event\(.*\n`, `static const char \*error\(.*\n`} {
		text = regexp.MustCompile(cut).ReplaceAll(text, nil)
	}
	text = regexp.MustCompile(`static int event;`).ReplaceAll(text, []byte("static int event;\n"+slow))
	p, err := Load(build(t, "slow.c", "#define _GNU_SOURCE\n"+string(text), "-Wno-misleading-indentation",
		"-Wno-unused"))
	require.NoError(t, err)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var all sync.WaitGroup
	wrong := make(chan error, 8)
	for range 8 {
		all.Go(func() {
			for range 200 {
				if err := p.call("wait", p.table.wait, 0); err == nil || err.(*Error).Text != "mine" {
					wrong <- fmt.Errorf("%w", err)
					return
				}
			}
		})
	}
	all.Wait()
	close(wrong)
	for err := range wrong {
		t.Error(err)
	}
}

// TestDocumented: the number of operations that docs/devices.md shows is the one that doctor counts.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/devices.md")
	require.NoError(t, err)
	said := regexp.MustCompile(`of (\d+) operations`).FindAllSubmatch(text, -1)
	require.NotEmpty(t, said)
	for _, n := range said {
		require.Equal(t, fmt.Sprint(len(kernels.Specs())), string(n[1]),
			"docs/devices.md has another number of operations: put in the one that there is")
	}
}
