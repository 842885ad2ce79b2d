// Package kernelstest is the conformance suite of kernel backends: each backend's test calls Run. Every operation has
// cases here, compared with kernels/ref, and golden tensors made with PyTorch for those that PyTorch has.
package kernelstest

import (
	"bytes"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Case is one call of an operation. An output element may differ from the reference by one unit in the last
// place of its dtype, plus (Tol + Half·ε of the activation dtype) times the larger of its value, Terms and
// the output's root mean square.
type Case struct {
	Op   kernels.Op
	Name string // what is special about it
	Call func(g *gen) *kernels.Call
	Tol  float64
	Half float64 // for intermediate results that a backend may round to the activation dtype
	Why  string  // what bounds the error
	Work int     // an output that is scratch, if not 0: what is left in it is not compared
	// Terms is the size of the terms that a result is the difference of, where that may be far above the result.
	Terms float64
	// Types are the activation dtypes to run; nil for all three.
	Types []tensor.DType
	// Leaky operations may spread a NaN to results that do not depend on it (masked scores times a NaN value).
	Leaky bool
}

var cases []Case

// add takes cases, of which no two of an operation have one name: what is kept of a case goes by it.
func add(c ...Case) bool {
	for _, one := range c {
		name := string(one.Op) + "/" + one.Name
		if named[name] {
			panic("kernelstest: two cases " + name)
		}
		named[name] = true
	}
	cases = append(cases, c...)
	return true
}

var named = map[string]bool{}

var activations = []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}

var (
	onlyF32 = activations[:1]
	halfEps = map[tensor.DType]float64{tensor.F32: 0, tensor.BF16: 0x1p-8, tensor.F16: 0x1p-11}
	// lastPlace is one unit in the last place of 1; least is what may be lost by flushing subnormal results
	// to zero, and for f16 the spacing of its subnormal numbers.
	lastPlace = map[tensor.DType]float64{tensor.F32: 0x1p-23, tensor.BF16: 0x1p-7, tensor.F16: 0x1p-10,
		tensor.F64: 0x1p-52}
	least = map[tensor.DType]float64{tensor.F32: 0x1p-126, tensor.BF16: 0x1p-126, tensor.F16: 0x1p-24}
)

// run is one case at one dtype, with the reference's results.
type run struct {
	Case
	name string
	gen  *gen
	// Made when first asked for.
	call   func() *kernels.Call
	wanted func() []*tensor.Tensor
}

// scratch tells whether output i means nothing.
func (c *Case) scratch(i int) bool { return c.Work > 0 && i == c.Work }

var all = sync.OnceValue(func() []*run {
	var l []*run
	for _, c := range cases {
		types := c.Types
		if types == nil {
			types = activations
		}
		for _, a := range types {
			r := &run{Case: c, name: fmt.Sprintf("%s/%s/%v", c.Op, c.Name, a)}
			r.gen = newGen(r.name, a)
			r.call = sync.OnceValue(func() *kernels.Call {
				k := c.Call(r.gen)
				k.Op = c.Op
				return k
			})
			r.wanted = sync.OnceValue(func() []*tensor.Tensor {
				want := r.copyCall()
				ref.New().Run(want)
				return want.Out
			})
			l = append(l, r)
		}
	}
	return l
})

// copyCall clones the outputs, so that a case may run again and again.
func (r *run) copyCall() *kernels.Call {
	c := *r.call()
	c.Out = nil
	for _, t := range r.call().Out {
		c.Out = append(c.Out, clone(t))
	}
	return &c
}

// Run tests every operation on b: results against the reference, the same bits in a second run, operands and
// their surroundings untouched, not-a-number and infinity carried on, operations that may run in place, and
// golden tensors. A call that panics fails its case, and the others run.
func Run(t *testing.T, b kernels.Backend) {
	t.Run("complete", func(t *testing.T) { complete(t, b) })
	Part{}.Run(t, b)
}

// RunEvery is Run with every n-th case at every dtype compared with the reference, and all of what is not a list of
// cases: for backends that compute with the reference's own code, where a case shows how operands travel and what is
// written, not what the numbers are. Each operation keeps one case.
func RunEvery(t *testing.T, b kernels.Backend, n int) {
	t.Run("complete", func(t *testing.T) { complete(t, b) })
	Part{Every: n}.Run(t, b)
}

// Part is a part of the suite, to be run by itself.
type Part struct {
	Has   func(kernels.Op) bool  // the operations; nil for all
	Every int                    // every so many-th case compared with the reference; 0 for all
	Plant int                    // likewise of what is not a number; 0 for all
	Bare  bool                   // without epilogues, which a backend may run by kernels that others test
	Only  func(name string) bool // the cases, as Calls names them; nil for all
}

func (p Part) has(op kernels.Op) bool { return p.Has == nil || p.Has(op) }

// runs are the cases of a part, each n-th of them and the first of every operation.
func (p Part) runs(n int) (l []*run) {
	seen := map[kernels.Op]bool{}
	for i, r := range all() {
		if !p.has(r.Op) || p.Only != nil && !p.Only(r.name) {
			continue
		}
		if i%max(n, 1) == 0 || !seen[r.Op] {
			l = append(l, r)
		}
		seen[r.Op] = true
	}
	return l
}

// Run tests the part's operations on b, as the function Run does all.
func (p Part) Run(t *testing.T, b kernels.Backend) {
	t.Run("reference", func(t *testing.T) {
		for _, r := range p.runs(p.Every) {
			t.Run(r.name, func(t *testing.T) { caught(t, func() { reference(t, b, r) }) })
		}
	})
	t.Run("nonfinite", func(t *testing.T) { nonfinite(t, b, p) })
	t.Run("large", func(t *testing.T) { large(t, b, p) })
	t.Run("inplace", func(t *testing.T) { caught(t, func() { inPlace(t, b, p) }) })
	t.Run("cebwd", func(t *testing.T) { caught(t, func() { sameGradients(t, b, p) }) })
	if p.has(kernels.Linear) && !p.Bare {
		t.Run("epilogues", func(t *testing.T) { caught(t, func() { epilogues(t, b) }) })
	}
	t.Run("golden", func(t *testing.T) { caught(t, func() { golden(t, b, p) }) })
}

// caught makes of a panic a failure of this test alone.
func caught(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	f()
}

// Calls gives every case to f as a call with fresh outputs: for tests that compare a backend with itself.
func Calls(f func(name string, c *kernels.Call)) { Part{}.Calls(f) }

// Calls gives the part's cases to f.
func (p Part) Calls(f func(name string, c *kernels.Call)) {
	for _, r := range p.runs(p.Every) {
		f(r.name, r.copyCall())
	}
}

func complete(t *testing.T, b kernels.Backend) {
	have := map[kernels.Op]bool{}
	for _, c := range cases {
		have[c.Op] = true
	}
	for _, s := range kernels.Specs() {
		require.True(t, have[s.Op], "operation %s has no conformance case", s.Op)
	}
	require.Panics(t, func() { b.Run(&kernels.Call{Op: "nonsense"}) }, "an unknown operation is a bug of the caller")
	require.Panics(t, func() { b.Run(&kernels.Call{Op: kernels.Linear}) }, "so are missing operands")
}

func reference(t *testing.T, b kernels.Backend, r *run) {
	before := image(r.call().In)
	c := *r.call()
	second := r.copyCall()
	c.Out = nil
	for _, out := range r.call().Out {
		if out == nil {
			c.Out = append(c.Out, nil)
			continue
		}
		g := r.gen.raw(out.DType, out.Shape...)
		copy(g.Bytes(), out.Bytes())
		c.Out = append(c.Out, g)
	}
	b.Run(&c)
	b.Run(second)
	b.Sync()
	require.True(t, r.gen.intact(), "%s wrote outside its operands", r.name)
	require.Equal(t, before, image(r.call().In), "%s changed its input", r.name)
	for i := range c.Out {
		if c.Out[i] != nil && !r.scratch(i) {
			requireClose(t, fmt.Sprintf("%s out %d", r.name, i), c.Out[i], r.wanted()[i], r.bound(false))
			require.True(t, bytes.Equal(c.Out[i].Bytes(), second.Out[i].Bytes()),
				"%s: out %d differs in a second run", r.name, i)
		}
	}
}

// bound is how far a result may be from the wanted one.
type bound struct {
	tol, terms float64
	why        string
	leaky      bool // do not compare finite elements
}

func (r *run) bound(leaky bool) bound {
	return bound{r.Tol + r.Half*halfEps[r.gen.a], r.Terms, r.Why, leaky}
}

// image is a copy of the bytes of tensors.
func image(ts []*tensor.Tensor) [][]byte {
	var l [][]byte
	for _, t := range ts {
		if t != nil {
			l = append(l, bytes.Clone(t.Bytes()))
		}
	}
	return l
}

// requireClose compares element by element.
func requireClose(t *testing.T, name string, got, want *tensor.Tensor, b bound) {
	t.Helper()
	require.Equal(t, want.DType, got.DType, name)
	if !want.DType.Float() {
		require.True(t, bytes.Equal(want.Bytes(), got.Bytes()), "%s: integers differ", name)
		return
	}
	g, w := values(got), values(want)
	scale := max(rms(w), b.terms)
	for i := range w {
		if !finite(w[i]) {
			require.False(t, finite(g[i]), "%s[%d] is %v, want %v", name, i, g[i], w[i])
			continue
		}
		most := lastPlace[want.DType]*math.Abs(w[i]) + b.tol*max(scale, math.Abs(w[i])) + least[want.DType]
		if e := math.Abs(g[i] - w[i]); !b.leaky && !(e <= most) {
			require.Failf(t, "too far", "%s[%d] of %v = %.9g, want %.9g: error %.3g over %.3g (%s)", name, i,
				want, g[i], w[i], e, most, b.why)
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// rms is the root mean square of the finite elements.
func rms(v []float64) float64 {
	s, n := 0.0, 0
	for _, x := range v {
		if finite(x) {
			s += x * x
			n++
		}
	}
	return math.Sqrt(s / float64(max(n, 1)))
}
