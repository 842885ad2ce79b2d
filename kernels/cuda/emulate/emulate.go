//go:build cuda

package emulate

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lfactor/lfactor/kernels/cuda/source"
)

//go:embed src
var files embed.FS

var built struct {
	sync.Mutex
	byFlags map[string]*Driver
}

// Driver is a built library, loaded.
type Driver struct {
	// Path is the library.
	Path                        string
	set, blocks, launches, sent uintptr
	reads, allocations          uintptr
	peers, ranges, kernel       uintptr
}

// New builds the library with further flags of the compiler, or takes one that was built from the same
// sources, and loads it. Without g++ the test is skipped, and says so.
func New(t testing.TB, flags ...string) *Driver {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: the emulated CUDA driver switches stacks on amd64 alone")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("skipped: the emulated CUDA driver is built with g++, which is not installed")
	}
	built.Lock()
	defer built.Unlock()
	key := strings.Join(flags, " ")
	if d := built.byFlags[key]; d != nil {
		return d
	}
	path, err := build(compiler, flags)
	if err != nil {
		t.Fatal(err)
	}
	d, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	if built.byFlags == nil {
		built.byFlags = map[string]*Driver{}
	}
	built.byFlags[key] = d
	return d
}

// build compiles the sources in a folder of their hash; libraries of earlier calls, also of other
// processes, are used again.
func build(compiler string, flags []string) (string, error) {
	args := append([]string{"-std=c++17", "-O2", "-mfma", "-ffp-contract=off", "-Wall", "-Wno-unused",
		"-shared", "-fPIC", "-DLF_HOST"}, flags...)
	h := sha256.New()
	fmt.Fprintln(h, args, source.Hash(), os.Getuid())
	own, err := fs.Sub(files, "src")
	if err != nil {
		return "", err
	}
	if err := each(own, func(name string, text []byte) error {
		_, err := fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
		return err
	}); err != nil {
		return "", err
	}
	home := filepath.Join(os.TempDir(), "lfactor-emulate-"+hex.EncodeToString(h.Sum(nil))[:24])
	path := filepath.Join(home, "libcuda.so")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "lfactor-emulate-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for _, f := range []fs.FS{own, source.Files} {
		if err := each(f, func(name string, text []byte) error {
			return os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}); err != nil {
			return "", err
		}
	}
	c := exec.Command(compiler, append(args, "-x", "c++", "all.cu", "fibers.cc", "driver.cc",
		"cublaslt.cc", "cudnn.cc", "nccl.cc", "nvml.cc", "nvtx.cc", "-o", "libcuda.so", "-lpthread", "-ldl")...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the emulated driver: %w\n%s", err, out)
	}
	if err := os.Mkdir(home, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	return path, os.Rename(filepath.Join(dir, "libcuda.so"), path)
}

func each(f fs.FS, do func(name string, text []byte) error) error {
	entries, err := fs.ReadDir(f, ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := fs.ReadFile(f, e.Name())
		if err != nil {
			return err
		}
		if err := do(e.Name(), text); err != nil {
			return err
		}
	}
	return nil
}

func load(path string) (*Driver, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	d := &Driver{Path: path}
	for name, p := range map[string]*uintptr{"lf_emulate": &d.set, "lf_emulated_blocks": &d.blocks,
		"lf_emulated_launches": &d.launches, "lf_emulated_sent": &d.sent, "lf_emulated_reads": &d.reads,
		"lf_emulated_allocations": &d.allocations, "lf_emulated_peers": &d.peers, "lf_emulated_ranges": &d.ranges,
		"lf_emulated_kernel": &d.kernel} {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Copy loads the library once more from another place, as a driver with a state of its own.
func (d *Driver) Copy(t testing.TB) *Driver {
	t.Helper()
	text, err := os.ReadFile(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libcuda.so")
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Set changes how the driver behaves until the test ends; src/driver.cc lists what there is.
func (d *Driver) Set(t testing.TB, what string, v, after int64) {
	d.put(what, v)
	t.Cleanup(func() { d.put(what, after) })
}

func (d *Driver) put(what string, v int64) {
	name := append([]byte(what), 0)
	purego.SyscallN(d.set, uintptr(unsafe.Pointer(&name[0])), uintptr(v))
}

// Blocks is how many blocks of device memory are taken.
func (d *Driver) Blocks() int {
	r, _, _ := purego.SyscallN(d.blocks)
	return int(r)
}

// Sent is how many bytes the stand-in of NCCL has carried.
func (d *Driver) Sent() int {
	r, _, _ := purego.SyscallN(d.sent)
	return int(r)
}

// Launches is how many kernels have been launched.
func (d *Driver) Launches() int {
	r, _, _ := purego.SyscallN(d.launches)
	return int(r)
}

// Kernels are those of the image, and how often each has been launched.
func (d *Driver) Kernels() map[string]int {
	all := map[string]int{}
	for i := 0; ; i++ {
		var n int64
		name, _, _ := purego.SyscallN(d.kernel, uintptr(i), uintptr(unsafe.Pointer(&n)))
		if name == 0 {
			return all
		}
		b := unsafe.Slice(*(**byte)(unsafe.Pointer(&name)), 64)
		all[string(b[:bytes.IndexByte(b, 0)])] = int(n)
	}
}

// Counts is how many kernels have been launched, copies to the host made, and blocks of the device's and
// of pinned memory taken.
func (d *Driver) Counts() (launches, reads, allocations int) {
	r, _, _ := purego.SyscallN(d.reads)
	a, _, _ := purego.SyscallN(d.allocations)
	return d.Launches(), int(r), int(a)
}

// Peers is how many ways there are from one device's memory to another device.
func (d *Driver) Peers() int {
	r, _, _ := purego.SyscallN(d.peers)
	return int(r)
}

// Ranges is how many ranges the stand-in of NVTX has seen, -1 where one ended on another thread.
func (d *Driver) Ranges() int {
	r, _, _ := purego.SyscallN(d.ranges)
	return int(r)
}
