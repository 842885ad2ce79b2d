//go:build cuda

package cuda

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// RangesVariable names a library of NVTX in the environment; "none" leaves ranges out.
const RangesVariable = "LFACTOR_LIBNVTX"

// injection is what NVIDIA's tools set for the processes that they watch: ranges go to the library that it
// names. Without one nobody reads them.
const injection = "NVTX_INJECTION64_PATH"

// rangesLibrary says where NVTX is looked for: it is a header for C, and this a library of its functions.
var rangesLibrary = lookup{variable: RangesVariable, names: []string{"libnvtx3interop.so.1", "libnvToolsExt.so.1"},
	wheels: []string{"cu13/lib", "nvtx/lib"}, pip: "nvidia-nvtx"}

// Ranges are names that NVIDIA's tools (Nsight Systems, ncu --nvtx) show beside the kernels that were
// launched within them.
type Ranges struct {
	// Path is where the library was found.
	Path      string
	push, pop uintptr
	names     sync.Map // of operations, with the byte 0 behind them
}

// FindRanges loads the library that LFACTOR_LIBNVTX names, or, where a tool watches the process, the machine's.
// nil is none.
func FindRanges() (*Ranges, error) {
	if os.Getenv(RangesVariable) == "" && os.Getenv(injection) == "" {
		return nil, nil
	}
	l, _, err := find(rangesLibrary, LoadRanges)
	return l, err
}

// LoadRanges loads the library from a path or by its name.
func LoadRanges(path string) (*Ranges, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, &missingError{fmt.Errorf("%s: %w", path, err)}
	}
	l := &Ranges{Path: path}
	for name, p := range map[string]*uintptr{"nvtxRangePushA": &l.push, "nvtxRangePop": &l.pop} {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is not NVTX", path, name)
		}
	}
	return l, nil
}

// over begins a range of a name and gives what ends it. Ranges are a thread's: the goroutine stays on it.
func (l *Ranges) over(name string) func() {
	text, ok := l.names.Load(name)
	if !ok {
		text, _ = l.names.LoadOrStore(name, append([]byte(name), 0)) // whoever came first has the same
	}
	runtime.LockOSThread()
	purego.SyscallN(l.push, uintptr(unsafe.Pointer(&text.([]byte)[0])))
	return func() {
		purego.SyscallN(l.pop)
		runtime.UnlockOSThread()
	}
}

// describeRanges says whether operations have ranges.
func describeRanges() string {
	const own = "no ranges for NVIDIA's tools"
	if os.Getenv(RangesVariable) == "" && os.Getenv(injection) == "" {
		return own + ": none watches this process, as " + injection + " would say, nor is a library named in " +
			RangesVariable
	}
	return describeLibrary(rangesLibrary, LoadRanges, own, func(l *Ranges) string {
		return "operations have ranges for NVIDIA's tools by " + l.Path
	})
}
