//go:build cuda

package cuda

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// ProductsVariable names a libcublasLt in the environment; "none" leaves all products to the project's own kernel.
const ProductsVariable = "LFACTOR_LIBCUBLASLT"

// Products is NVIDIA's library of products, cublasLt. It takes those that it has an algorithm for which
// adds terms up in one order.
type Products struct {
	// Path is where it was found.
	Path string
	// Version is the library's number of itself: 130100.
	Version int

	create, destroy, descCreate, descSet, layoutCreate, preferenceCreate, preferenceSet, heuristic, matmul uintptr
}

func (l *Products) symbols() map[string]*uintptr {
	return map[string]*uintptr{"cublasLtCreate": &l.create, "cublasLtDestroy": &l.destroy,
		"cublasLtMatmulDescCreate": &l.descCreate, "cublasLtMatmulDescSetAttribute": &l.descSet,
		"cublasLtMatrixLayoutCreate": &l.layoutCreate, "cublasLtMatmulPreferenceCreate": &l.preferenceCreate,
		"cublasLtMatmulPreferenceSetAttribute": &l.preferenceSet, "cublasLtMatmulAlgoGetHeuristic": &l.heuristic,
		"cublasLtMatmul": &l.matmul}
}

// FindProducts loads the library that LFACTOR_LIBCUBLASLT names, or the machine's. Without one, or with
// "none", there is no error unless the one that was named is not there.
func FindProducts() (*Products, error) {
	l, _, err := find(productLibrary, LoadProducts)
	return l, err
}

// productLibrary says where cublasLt is looked for.
var productLibrary = lookup{variable: ProductsVariable, names: []string{"libcublasLt.so.13", "libcublasLt.so.12"},
	wheels: []string{"cu13/lib", "cublas/lib"}, pip: "nvidia-cublas"}

// LoadProducts loads the library from a path or by its name.
func LoadProducts(path string) (*Products, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, &missingError{fmt.Errorf("%s: %w", path, err)}
	}
	l := &Products{Path: path}
	for name, p := range l.symbols() {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is not cublasLt", path, name)
		}
	}
	version, err := purego.Dlsym(h, "cublasLtGetVersion")
	if err != nil {
		return nil, fmt.Errorf("%s has no cublasLtGetVersion: it is not cublasLt", path)
	}
	v, _, _ := purego.SyscallN(version)
	l.Version = int(v)
	return l, nil
}

// Numbers of the library's interface.
const (
	ltTransA, ltTransB                  = 3, 4 // attributes of a product
	ltEpilogue, ltBias                  = 7, 8 // and of what is added to it
	ltAddBias                    int32  = 4    // an epilogue
	ltMaxWorkspace, ltReductions        = 1, 3 // of what is wanted of an algorithm
	ltAlignment                         = 5    // and three more: of A, B, C and D
	ltCompute32F, ltReal32F             = 68, 0
	ltWorkspace                         = 32 << 20
	ltAlign                             = 16 // bytes, of all operands
	ltNotSupported                      = 15
	ltNoReduction                uint32 = 0
)

// ltTypes are dtypes as the library numbers them.
var ltTypes = map[tensor.DType]uintptr{tensor.F32: ltReal32F, tensor.F16: 2, tensor.BF16: 14}

// call calls a function of the library.
//
//go:uintptrescapes
func (l *Products) call(name string, f uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(f, args...)
	if code := int(int32(r)); code != 0 {
		return fmt.Errorf("%s: status %d", name, code)
	}
	return nil
}

// matrices are the library's descriptions of one shape of product, in its terms: D = A·B, all by columns.
type matrices struct{ desc, a, b, d uintptr }

// engine is the library on one device.
type engine struct {
	lib    *Products
	handle uintptr
	chosen *Chosen
	timed  int // how many of its proposals for a shape are timed; 1 and less is none
	mu     sync.Mutex
	shapes map[shape]*chosenShape
}

// shape is all that an algorithm depends on.
type shape struct {
	in, out   tensor.DType
	m, n, k   int
	a, b      side
	row       int // of the result
	add, bias bool
}

// String is the shape as the run's directory keeps it.
func (s shape) String() string {
	text := fmt.Sprintf("%v %v %dx%dx%d %v%d %v%d %d add=%v", s.in, s.out, s.m, s.n, s.k, s.a.turned, s.a.ld,
		s.b.turned, s.b.ld, s.row, s.add)
	if s.bias {
		text += " bias"
	}
	return text
}

// chosenShape is a shape's description and algorithm; empty where the library has none.
type chosenShape struct {
	matrices
	algorithm []byte
}

func (d *device) newEngine(l *Products, chosen *Chosen, timed int) (*engine, error) {
	e := &engine{lib: l, chosen: chosen, timed: min(timed, timedMost), shapes: map[shape]*chosenShape{}}
	return e, d.do(func() error {
		return l.call("cublasLtCreate", l.create, uintptr(unsafe.Pointer(&e.handle)))
	})
}

// close gives the handle back; nothing is under way.
func (d *device) closeEngine() {
	if e := d.engine; e != nil {
		// a device that failed says so elsewhere
		_ = d.do(func() error { return e.lib.call("cublasLtDestroy", e.lib.destroy, e.handle) })
	}
}

// side is an operand as the library sees it: a matrix of columns that are ld elements apart, turned or not.
type side struct {
	rows, cols, ld int
	turned         bool
}

// sideOf is an operand with rows of a product's results, whose terms are colStep apart; ok is false for
// one that the library cannot take. Seen by columns, what lies by rows is turned: an operand whose terms
// lie side by side is a matrix of terms by rows.
func sideOf(n, k, rowStep, colStep int, turnIfTerms bool) (s side, ok bool) {
	switch {
	case colStep == 1 && rowStep >= k:
		return side{k, n, rowStep, turnIfTerms}, true
	case rowStep == 1 && colStep >= n:
		return side{n, k, colStep, !turnIfTerms}, true
	}
	return side{}, false
}

// op is how the library names that it is turned.
func (s side) op() int32 {
	if s.turned {
		return 1
	}
	return 0
}

// bytes is from the first to behind the last element.
func (s side) bytes(size int) int { return ((s.cols-1)*s.ld + s.rows) * size }

// byLibrary runs a product by the library and reports whether it has; what decides is the shape, not
// where operands lie, so that equal operands give equal bits anywhere.
func (x *issue) byLibrary(d tensor.DType, p product) bool {
	e := x.d.engine
	if e == nil || x.err != nil || p.m == 0 || p.n == 0 || p.k == 0 {
		return false
	}
	out := d
	if p.wide {
		out = tensor.F32
	}
	bias := orNil(p.bias) != nil
	if bias && (out != d || p.add) { // the library has a bias of the result's dtype
		return false
	}
	a, okA := sideOf(p.n, p.k, p.bRow, p.bCol,
		true) // the library's first operand is our second: it computes yᵀ
	b, okB := sideOf(p.m, p.k, p.aRow, p.aCol, false)
	if !okA || !okB || a.ld*d.Size()%ltAlign != 0 || b.ld*d.Size()%ltAlign != 0 || p.yRow*out.Size()%ltAlign != 0 {
		return false
	}
	s := shape{d, out, p.m, p.n, p.k, a, b, p.yRow, p.add, bias}
	var m *chosenShape
	x.err = x.d.do(func() (err error) {
		m, err = e.of(s, x.d.info.Name, func(m matrices, all []result) (int, error) {
			return x.fastest(e, m, all, p, s)
		})
		if err == nil && len(m.algorithm) > 0 {
			err = x.multiply(e, m, p, s)
		}
		return err
	})
	return x.err != nil || len(m.algorithm) > 0
}

// of describes a shape and finds its algorithm, once; fastest picks among the library's proposals.
func (e *engine) of(s shape, device string, fastest func(m matrices, all []result) (int, error)) (*chosenShape, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.shapes[s]; m != nil {
		return m, nil
	}
	c := &chosenShape{}
	var err error
	if c.matrices, err = e.describe(s); err != nil {
		return nil, err
	}
	text, err := e.chosen.algorithm(device, e.lib.Version, s.String(), func() (string, error) {
		all, err := e.propose(c.matrices, max(e.timed, 1))
		if err != nil || len(all) == 0 {
			return "", err
		}
		i, err := fastest(c.matrices, all)
		return hex.EncodeToString(all[i].algorithm[:]), err
	})
	if err != nil {
		return nil, err
	}
	if c.algorithm, err = hex.DecodeString(text); err != nil {
		return nil, err
	}
	e.shapes[s] = c
	return c, nil
}

// validAlgorithm reports whether a text is 64 bytes in hexadecimal digits.
func validAlgorithm(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == len(result{}.algorithm)
}

// describe makes the library's descriptions of a shape.
func (e *engine) describe(of shape) (m matrices, err error) {
	l := e.lib
	if err = l.call("cublasLtMatmulDescCreate", l.descCreate, uintptr(unsafe.Pointer(&m.desc)),
		ltCompute32F, ltReal32F); err != nil {
		return m, err
	}
	attributes := map[uintptr]int32{ltTransA: of.a.op(), ltTransB: of.b.op()}
	if of.bias {
		attributes[ltEpilogue] = ltAddBias
	}
	for attribute, v := range attributes {
		if err = l.call("cublasLtMatmulDescSetAttribute", l.descSet, m.desc, attribute,
			uintptr(unsafe.Pointer(&v)), 4); err != nil {
			return m, err
		}
	}
	for _, o := range []struct {
		to *uintptr
		t  tensor.DType
		s  side
	}{{&m.a, of.in, of.a}, {&m.b, of.in, of.b}, {&m.d, of.out, side{of.n, of.m, of.row, false}}} {
		err = l.call("cublasLtMatrixLayoutCreate", l.layoutCreate, uintptr(unsafe.Pointer(o.to)), ltTypes[o.t],
			uintptr(o.s.rows), uintptr(o.s.cols), uintptr(o.s.ld))
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// result is cublasLtMatmulHeuristicResult_t.
type result struct {
	algorithm [64]byte
	workspace uint64
	state     int32
	waves     float32
	reserved  [4]int32
}

// propose asks the library for algorithms that add terms up in one order, the best by its judgement first;
// none is no error.
func (e *engine) propose(m matrices, most int) ([]result, error) {
	l := e.lib
	var wants uintptr
	if err := l.call("cublasLtMatmulPreferenceCreate", l.preferenceCreate,
		uintptr(unsafe.Pointer(&wants))); err != nil {
		return nil, err
	}
	set := func(attribute uintptr, v uint64, size uintptr) error {
		return l.call("cublasLtMatmulPreferenceSetAttribute", l.preferenceSet, wants, attribute,
			uintptr(unsafe.Pointer(&v)), size)
	}
	err := set(ltMaxWorkspace, ltWorkspace, 8)
	if err == nil {
		err = set(ltReductions, uint64(ltNoReduction), 4)
	}
	for i := range uintptr(4) {
		if err == nil {
			err = set(ltAlignment+i, ltAlign, 4)
		}
	}
	if err != nil {
		return nil, err
	}
	r := make([]result, most)
	var n int32
	code, _, _ := purego.SyscallN(l.heuristic, e.handle, m.desc, m.a, m.b, m.d, m.d, wants, uintptr(most),
		uintptr(unsafe.Pointer(&r[0])), uintptr(unsafe.Pointer(&n)))
	switch {
	case int32(code) == ltNotSupported || int32(code) == 0 && n == 0:
		return nil, nil
	case int32(code) != 0:
		return nil, fmt.Errorf("cublasLtMatmulAlgoGetHeuristic: status %d", int32(code))
	}
	return slices.DeleteFunc(r[:min(int(n), most)], func(x result) bool { return x.state != 0 }), nil
}

// multiply runs a product with an algorithm. Operands that are not aligned are copied, so that the
// algorithm is the same.
func (x *issue) multiply(e *engine, m *chosenShape, p product, s shape) error {
	at, err := x.locate(e, m.matrices, p, s)
	if err != nil {
		return err
	}
	err = x.start(e, m, at, p.add)
	if err == nil && at.to != at.y {
		err = x.d.Copy(at.y, at.to, at.size)
	}
	return err
}

// located are the addresses of a product: its operands, where the library puts the result, where that
// belongs, the bytes from its first to behind its last, and work.
type located struct {
	first, second, to, y, work uint64
	size                       int
}

// locate finds a product's operands, or copies of them where the library wants them.
func (x *issue) locate(e *engine, m matrices, p product, s shape) (at located, err error) {
	if at.first, err = x.aligned(p.b, s.a.bytes(s.in.Size())); err != nil {
		return at, err
	}
	if at.second, err = x.aligned(p.a, s.b.bytes(s.in.Size())); err != nil {
		return at, err
	}
	l := e.lib
	if s.bias { // calls of an engine are one after another
		bias, err := x.aligned(p.bias, p.n*s.in.Size())
		if err == nil {
			err = l.call("cublasLtMatmulDescSetAttribute", l.descSet, m.desc, ltBias, uintptr(unsafe.Pointer(&bias)), 8)
		}
		if err != nil {
			return at, err
		}
	}
	at.y = x.address(p.y)
	at.to, at.size = at.y, side{p.n, p.m, p.yRow, false}.bytes(s.out.Size())
	if at.y%ltAlign != 0 { // what lies between rows stays as it is
		if at.to, err = x.aligned(at.y, at.size); err != nil {
			return at, err
		}
	}
	at.work = x.q.Work(ltWorkspace)
	return at, x.q.Failed()
}

// start puts a product of the library into the device's sequence.
func (x *issue) start(e *engine, m *chosenShape, at located, add bool) error {
	one, beta := float32(1), float32(0)
	if add {
		beta = 1
	}
	l := e.lib
	return l.call("cublasLtMatmul", l.matmul, e.handle, m.desc, uintptr(unsafe.Pointer(&one)), uintptr(at.first),
		m.a, uintptr(at.second), m.b, uintptr(unsafe.Pointer(&beta)), uintptr(at.to), m.d, uintptr(at.to), m.d,
		uintptr(unsafe.Pointer(&m.algorithm[0])), uintptr(at.work), ltWorkspace, x.d.stream)
}

// address is where an operand lies, a tensor or an address.
func (x *issue) address(a any) uint64 {
	if t, ok := a.(*tensor.Tensor); ok {
		return x.q.Addr(t)
	}
	return a.(uint64)
}

// aligned is an operand's bytes where the library wants them.
func (x *issue) aligned(a any, bytes int) (uint64, error) {
	at := x.address(a)
	if at%ltAlign == 0 {
		return at, x.q.Failed()
	}
	to := x.q.Work(bytes)
	if err := x.q.Failed(); err != nil {
		return 0, err
	}
	return to, x.d.Copy(to, at, bytes)
}

// describeProducts says in a line what does the products.
func describeProducts() string {
	return describeLibrary(productLibrary, LoadProducts, "products by the project's kernel", func(l *Products) string {
		return fmt.Sprintf("products by cublasLt %d.%d.%d, %s", l.Version/10000, l.Version/100%100,
			l.Version%100, l.Path)
	})
}
