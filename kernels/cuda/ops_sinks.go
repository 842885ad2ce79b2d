//go:build cuda

package cuda

import "github.com/lfactor/lfactor/kernels"

// What gpt-oss has beside other decoders.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.AttentionSink: func(x *issue) {
		o := x.in(0)
		if lastDim(o) == 0 { // no element has a thread
			x.absent = true
			return
		}
		x.launch(typed("attention_sink", o), each(o.Len()), o, nil, nil, x.in(2), x.in(1), x.out(0),
			x.out(1), nil, o.Rows(), o.Shape[1], lastDim(o), false)
	},
	kernels.AttentionSinkBwd: func(x *issue) {
		dy := x.in(0)
		x.launch(typed("attention_sink_bwd", dy), rowwise(dy.Shape[1], 256), nil, dy, x.in(1), x.in(3),
			x.in(2), nil, nil, x.out(0), dy.Rows(), dy.Shape[1], lastDim(dy), x.accumulates(0))
	},
	kernels.BoundedGLU:    func(x *issue) { x.bounded("bounded_glu") },
	kernels.BoundedGLUBwd: func(x *issue) { x.bounded("bounded_glu_bwd") },
	kernels.GroupIDs: func(x *issue) {
		ids := x.out(0)
		x.launch("group_ids", each(ids.Len()), x.in(0), ids, x.in(0).Len()-1, ids.Len())
	},
})

func (x *issue) bounded(name string) {
	y, f := x.out(0), x.c.Attr.F
	x.launch(typed(name, y), each(y.Len()), x.in(0), x.in(1), x.in(2), y, x.out(1), y.Len(), f[0], f[1])
}
