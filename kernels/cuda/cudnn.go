//go:build cuda

package cuda

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// AttentionVariable names a libcudnn in the environment; "none" leaves attention to the project's own kernel.
const AttentionVariable = "LFACTOR_LIBCUDNN"

// Versions by what their attention takes, which TestAttentionPlans tells: from 9.21 on they have the graph at
// all, from 9.25 on with borders of packed sequences, as every call here has, and from 9.28 on in both directions
// with sums in one order. Before that the backward is the project's own.
const (
	oldestCuDNN = 92500
	wholeCuDNN  = 92800
)

// Attentions is NVIDIA's library of attention, cuDNN. It takes the shapes and masks that it has an engine
// for which gives the same bits each time.
type Attentions struct {
	// Path is where it was found.
	Path string
	// Version is the library's number of itself: 92801.
	Version int

	create, destroy, setStream, newDescriptor, endDescriptor, set, get, finalize, execute, name, why uintptr
}

func (l *Attentions) symbols() map[string]*uintptr {
	return map[string]*uintptr{"cudnnCreate": &l.create, "cudnnDestroy": &l.destroy, "cudnnSetStream": &l.setStream,
		"cudnnBackendCreateDescriptor": &l.newDescriptor, "cudnnBackendDestroyDescriptor": &l.endDescriptor,
		"cudnnBackendSetAttribute": &l.set, "cudnnBackendGetAttribute": &l.get, "cudnnBackendFinalize": &l.finalize,
		"cudnnBackendExecute": &l.execute, "cudnnGetErrorString": &l.name, "cudnnGetLastErrorString": &l.why}
}

// attentionLibrary says where cuDNN is looked for.
var attentionLibrary = lookup{variable: AttentionVariable, names: []string{"libcudnn.so.9"},
	wheels: []string{"cudnn/lib"}, pip: "nvidia-cudnn-cu13"}

// FindAttentions loads the library that LFACTOR_LIBCUDNN names, or the machine's. Without one, with "none",
// or with one on the machine that is too old, there is none and no error; the one that was named has to do.
func FindAttentions() (*Attentions, error) {
	l, _, err := find(attentionLibrary, LoadAttentions)
	return l, err
}

// LoadAttentions loads the library from a path or by its name.
func LoadAttentions(path string) (*Attentions, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, &missingError{fmt.Errorf("%s: %w", path, err)}
	}
	if _, err := purego.Dlsym(h, "cublasLtGetVersion"); err != nil && !productLibrary.loads() {
		// cuDNN would end the process
		return nil, fmt.Errorf("%s needs cublasLt, which was not found: pip install %s, or name the library "+
			"in %s", path, productLibrary.pip, ProductsVariable)
	}
	l := &Attentions{Path: path}
	for name, p := range l.symbols() {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is not cuDNN 9", path, name)
		}
	}
	version, err := purego.Dlsym(h, "cudnnGetVersion")
	if err != nil {
		return nil, fmt.Errorf("%s has no cudnnGetVersion: it is not cuDNN", path)
	}
	v, _, _ := purego.SyscallN(version)
	if l.Version = int(v); l.Version < oldestCuDNN {
		return nil, fmt.Errorf("%s is cuDNN %s, and %s is needed: pip install --upgrade %s", path,
			cudnnVersion(l.Version), cudnnVersion(oldestCuDNN), attentionLibrary.pip)
	}
	return l, nil
}

// cudnnVersion is a number of cuDNN's as it is written.
func cudnnVersion(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// status is a call of cuDNN that failed.
type status struct {
	call, name, why string
	code            int
}

// Error gives the library's own words.
func (e *status) Error() string { return fmt.Sprintf("%s: %s (%d) %s", e.call, e.name, e.code, e.why) }

// unsupported reports whether the library has nothing for a graph, as against a failure.
func (e *status) unsupported() bool { return e.code >= 3000 && e.code < 4000 }

// call calls a function of the library.
//
//go:uintptrescapes
func (l *Attentions) call(name string, f uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(f, args...)
	code := int(int32(r))
	if code == 0 {
		return nil
	}
	e := &status{call: name, code: code}
	if p, _, _ := purego.SyscallN(l.name, uintptr(code)); p != 0 {
		e.name = cString(*(**byte)(unsafe.Pointer(&p)))
	}
	text := make([]byte, 512)
	purego.SyscallN(l.why, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
	text[len(text)-1] = 0
	e.why = cString(&text[0])
	return e
}

// describeAttentions says in a line what does attention.
func describeAttentions() string {
	return describeLibrary(attentionLibrary, LoadAttentions, "attention by the project's kernel",
		func(l *Attentions) string {
			return fmt.Sprintf("attention by cuDNN %s, %s, where it has an engine that repeats its bits",
				cudnnVersion(l.Version), l.Path)
		})
}
