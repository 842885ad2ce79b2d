package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opEncode, opDecode *Op

func init() {
	// Rounding passes gradients on as they are, and so do its two halves.
	straight := func(_ *Tape, _ *Node, dy []*Value, leg func(i int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		return []*Value{dy[0]}
	}
	opEncode = &Op{Name: "encode_rows", Kernel: kernels.EncodeRows, Cheap: true, VJP: straight}
	opDecode = &Op{Name: "decode_rows", Kernel: kernels.DecodeRows, Cheap: true, VJP: straight}
}

// LowDispatch is Dispatch of rows that travel in eight bits, as kernels.Precisions[precision] rounds activations: what
// comes are the numbers as they are rounded, on one rank too. Gradients travel as they are. 0 is Dispatch.
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
