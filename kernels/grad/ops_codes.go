package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opEncode, opDecode, opCoded *Op

func init() {
	// Rounding passes gradients on as they are, and so do its two halves.
	straight := func(_ *Tape, _ *Node, dy []*Value, leg func(i int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		return []*Value{dy[0]}
	}
	opEncode = &Op{Name: "encode_rows", Kernel: kernels.EncodeRows, Cheap: true, VJP: straight}
	opCoded = &Op{Name: "rounded", Kernel: kernels.Rounded, Cheap: true, VJP: straight}
	opDecode = &Op{Name: "decode_rows", Kernel: kernels.DecodeRows, Cheap: true, VJP: straight}
}

// LowDispatch is Dispatch of rows that travel in eight bits, as kernels.Precisions[precision] rounds activations:
// what comes are the numbers as they are rounded, on one rank too. Gradients travel as they are. 0 is Dispatch.
func (t *Tape) LowDispatch(x, counts *Value, groups int, axis, inner string, precision int) (*Value, *Dispatched) {
	if precision == 0 {
		return t.Dispatch(x, counts, groups, axis, inner)
	}
	at, k := kernels.Attr{I: [4]int{0, precision}}, x.Shape[1]
	m := kernels.CodesLen(k, kernels.Precisions[precision].Act.Columns)
	codes := t.one(opEncode, at, tensor.U8, []int{x.Shape[0], m}, x.Place, x)
	sent, d := t.Dispatch(codes, counts, groups, axis, inner)
	return t.one(opDecode, at, x.DType, []int{sent.Shape[0], k}, sent.Place, sent), d
}

// Coded is a weight whose rows are gathered in eight bits where they are shared out (ZeRO-3), as
// kernels.Precisions[precision] rounds activations: its numbers as they are rounded, which products then
// see, also where every rank has all of them. 0, and a run that does not ask for it, is the weight.
func (t *Tape) Coded(w *Value, precision int) *Value {
	if !t.LowGather || precision == 0 {
		return w
	}
	if w.Node.Op.Role == unshard {
		w.Node.Attr.I[1] = precision
		return w
	}
	key := convKey{w, w.Place, Phase(16 + t.block)} // once a block
	if v := t.cache[key]; v != nil {
		return v
	}
	v := t.one(opCoded, kernels.Attr{I: [4]int{kernels.OperandsForward, precision}}, w.DType, w.Shape, w.Place, w)
	v.Name, v.Need, v.Weight = w.Name, w.Need, true
	t.cache[key] = v
	return v
}

// encoded are rows that are gathered, in codes.
func (r *Runner) encoded(n *Node, x *tensor.Tensor) *tensor.Tensor {
	p, last := kernels.Precisions[n.Attr.I[1]], len(x.Shape)-1
	shape := append([]int(nil), x.Shape...)
	shape[last] = kernels.CodesLen(shape[last], p.Act.Columns)
	y := r.allocShape("codes of "+n.Attr.Name, tensor.U8, shape)
	r.run(kernels.EncodeRows, kernels.Attr{I: [4]int{0, n.Attr.I[1]}}, []*tensor.Tensor{x}, y)
	return y
}

// decoded writes rows that came in codes.
func (r *Runner) decoded(n *Node, parts []*tensor.Tensor, to *tensor.Tensor) {
	row := 0
	for _, p := range parts {
		if p.Shape[0] > 0 {
			dst := to.RowSlice(row, row+p.Shape[0])
			r.run(kernels.DecodeRows, kernels.Attr{I: [4]int{0, n.Attr.I[1]}}, []*tensor.Tensor{p}, dst)
			dst.Release()
		}
		row += p.Shape[0]
	}
}
