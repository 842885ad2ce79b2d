package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opConvolve, opConvolveDX, opConvolveDW, opConvT *Op

func init() {
	fuses[kernels.ConvDW] = true
	opConvolveDX = &Op{Name: "conv_dx", Kernel: kernels.ConvDX}
	opConvolveDW = &Op{Name: "conv_dw", Kernel: kernels.ConvDW}
	opConvolve = &Op{Name: "conv", Kernel: kernels.Conv, VJP: convolveVJP}
	opConvT = &Op{Name: "conv_transpose", Kernel: kernels.ConvDX, VJP: convTransposeVJP}
}

// convLetters name the axes of a convolution with weights w, for product: of weights, of x and of y. Groups
// tie inputs to outputs, so that the channels of both are one letter, and each group has inputs of its own.
// An axis of space of which members have runs of x, with their halo, has the runs of y.
func convLetters(w []int, groups int, x Place) (lw, lx, ly string) {
	rank := len(w) - 2
	in, out, kernel := "abc"[:rank], []byte("ABC")[:rank], "xyz"[:rank]
	for i := range out {
		if len(x.Cuts(1+i)) > 0 {
			out[i] = in[i]
		}
	}
	if groups > 1 {
		return "fq" + kernel, "n" + in + "f", "n" + string(out) + "f"
	}
	return "fi" + kernel, "n" + in + "i", "n" + string(out) + "f"
}

// groupWeights brings the weights of a convolution in groups to where members have whole groups.
func (t *Tape) groupWeights(w *Value, groups int) *Value {
	if w = t.full(w); groups > 1 && groups%t.Members(w.Place.Cuts(0)) != 0 {
		w = t.to(w, Place{})
	}
	if groups > 1 {
		w = t.only(w, 0)
	}
	return w
}

// biasPlace is the placement of a vector of the last axis of a value placed p.
func biasPlace(p Place, last int) (b Place) {
	for m := range p {
		if p[m] == (Part{Sharded, int8(last)}) {
			b[m] = Part{Sharded, 0}
		}
	}
	return b
}

func windowAttr(wins []kernels.Window) (at kernels.Attr) {
	for i, w := range wins {
		w.Size = 0
		at.I[1+i] = w.Pack()
	}
	return at
}

// Conv is the convolution of x [n s… c] with weights w [f c/g k…] along one, two or three axes of space,
// plus bias [f], which may be nil -> [n o… f]. wins are the axes' windows, the outermost first; their sizes
// are those of w. The groups of channels follow from the shapes. Members may have some of the samples, of
// the outputs' channels (weights sharded along their first axis), or of the inputs' (along the second: the
// result is then a sum over them), and whole groups of both.
func (t *Tape) Conv(x, w, bias *Value, wins ...kernels.Window) *Value {
	at := windowAttr(wins)
	last := len(w.Shape) - 1
	if len(wins) != last-1 || len(x.Shape) != last+1 {
		panic(fmt.Sprintf("grad: a convolution of %v with %v along %d axes", x.Shape, w.Shape, len(wins)))
	}
	shape := []int{x.Shape[0]}
	for i, win := range kernels.Windows(at, w.Shape) {
		shape = append(shape, win.Out(x.Shape[1+i]))
	}
	groups := kernels.Groups(x.Shape[last], w.Shape)
	w = t.groupWeights(w, groups)
	x, wins = t.haloed(t.apart(t.full(x), w), w.Shape, wins)
	at = windowAttr(wins)
	lw, lx, ly := convLetters(w.Shape, groups, x.Place)
	w, x, p := t.product(w, x, lw, lx, ly)
	in := []*Value{x, w, nil}
	if bias != nil {
		in[2] = t.to(bias, biasPlace(p, last))
	}
	return t.one(opConvolve, at, x.DType, append(shape, w.Shape[0]), p, in...)
}

func convolveVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, 3)
	d, x, w := t.to(dy[0], n.Out[0].Place.dual()), n.In[0], n.In[1]
	lw, lx, ly := convLetters(w.Shape, kernels.Groups(lastOf(x), w.Shape), x.Place)
	if leg(0) {
		w, d, p := t.product(w, d, lw, ly, lx)
		g[0] = t.one(opConvolveDX, n.Attr, x.DType, x.Shape, p, d, w)
	}
	if leg(1) {
		d, x, p := t.product(d, x, ly, lx, lw)
		g[1] = t.one(opConvolveDW, n.Attr, tensor.F32, w.Shape, p, d, x)
	}
	if n.In[2] != nil && leg(2) {
		g[2] = t.rowSum(opColSum, d, n.In[2].Shape)
	}
	return g
}

// sampled keeps the samples and channels of a value sharded, and resolves its axes of space.
func (t *Tape) sampled(x *Value) *Value { return t.only(x, 0, len(x.Shape)-1) }

func lastOf(x *Value) int { return x.Shape[len(x.Shape)-1] }

// ConvTranspose is the transposed convolution of x [n s… f] in groups with weights w [f c/g k…], as PyTorch
// stores them, plus bias [c], which may be nil -> [n o… c] with o = (s-1)·stride + (k-1)·dilation + 1 -
// before - after + rest, where rest may be nil for none. Members may have what those of Conv have.
func (t *Tape) ConvTranspose(x, w, bias *Value, groups int, rest []int, wins ...kernels.Window) *Value {
	at := windowAttr(wins)
	last := len(w.Shape) - 1
	if len(wins) != last-1 || len(x.Shape) != last+1 {
		panic(fmt.Sprintf("grad: a transposed convolution of %v with %v along %d axes", x.Shape, w.Shape, len(wins)))
	}
	lw, lx, ly := convLetters(w.Shape, groups, Place{})
	w, x, p := t.product(t.groupWeights(w, groups), t.sampled(x), lw, ly, lx)
	shape := []int{x.Shape[0]}
	for i, win := range kernels.Windows(at, w.Shape) {
		more := 0
		if rest != nil {
			more = rest[i]
		}
		shape = append(shape, win.In(x.Shape[1+i], more))
	}
	in := []*Value{x, w, nil}
	if bias != nil {
		in[2] = t.to(bias, biasPlace(p, last))
	}
	return t.one(opConvT, at, x.DType, append(shape, w.Shape[1]*groups), p, in...)
}

func convTransposeVJP(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
	g := make([]*Value, 3)
	d, x, w := t.sampled(dy[0]), n.In[0], n.In[1]
	lw, lx, ly := convLetters(w.Shape, lastOf(n.Out[0])/max(1, w.Shape[1]), Place{})
	if leg(0) {
		w, d, p := t.product(w, d, lw, lx, ly)
		g[0] = t.one(opConvolve, n.Attr, x.DType, x.Shape, p, d, w)
	}
	if leg(1) {
		d, x, p := t.product(d, x, lx, ly, lw)
		g[1] = t.one(opConvolveDW, n.Attr, tensor.F32, w.Shape, p, x, d)
	}
	if n.In[2] != nil && leg(2) {
		g[2] = t.rowSum(opColSum, d, n.In[2].Shape)
	}
	return g
}
