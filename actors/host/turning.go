package host

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// direct makes directions of the reduced gradients of this rank's rows whose optimizer updates whole
// matrices, in their place, with the scalars that the coordinator has committed.
func (r *Rank) direct(j actors.Job) {
	v := r.clipped(j)
	for i := range r.c.Params {
		p := &r.c.Params[i]
		if t := p.Optim.Turning; t != nil {
			r.hypers(p, v)
			t.Direct(r.c.Optim, r.c.Backend, r.owned[p.Name], r.hyper, r.clip, r.state[p.Name][1:])
		}
	}
}

// directions sends them to all that have other numbers of the same matrices.
func (r *Rank) directions() (out []actors.Output) {
	for comm, x := range r.c.Exchanges[layout.Directions] {
		out = append(out, toAll(int32(comm), x.Members, func(int) (ts []*tensor.Tensor) {
			for _, i := range x.Params {
				ts = append(ts, r.owned[r.c.Params[i].Name].Retain())
			}
			return ts
		})...)
	}
	return out
}

// turn turns directions of whole matrices, and leaves this rank's part of each in the place of its gradient.
// Matrices are put together in an order that all their members agree on, which need not be that of the model:
// turning goes with any order of rows and of columns.
func (r *Rank) turn(in [][]*links.Pack) {
	shared := map[int]bool{}
	for comm, x := range r.c.Exchanges[layout.Directions] {
		for k, i := range x.Params {
			shared[i] = true
			r.turnWhole(&r.c.Params[i], x, in[comm], k)
		}
	}
	for i := range r.c.Params {
		p := &r.c.Params[i]
		if t := p.Optim.Turning; t != nil && !shared[i] {
			t.Turn(r.c.Optim, r.c.Backend, r.owned[p.Name])
		}
	}
}

// seatOf says where a member's part of a matrix lies: the number of its columns' part, and whether it is this
// rank.
type seatOf struct {
	column int
	mine   bool
	part   *tensor.Tensor
}

// turnWhole turns matrices of one parameter, the k-th of an exchange.
func (r *Rank) turnWhole(p *layout.ParamPlan, x layout.Exchange, from []*links.Pack, k int) {
	pos := r.c.Sides[p.Side].Pos
	o := grad.Options{Mesh: r.c.Sides[p.Side].Mesh}
	last := len(p.Local) - 1
	own := r.owned[p.Name].Shape
	me := o.Member(pos, x.Axes)
	var seats []seatOf
	for m, pack := range from {
		s := seatOf{mine: m == me, part: pack.Tensors[k]}
		at := slices.Clone(pos)
		for i, left := len(x.Axes)-1, m; i >= 0; i-- {
			at[x.Axes[i]], left = left%o.Mesh[x.Axes[i]].Size, left/o.Mesh[x.Axes[i]].Size
		}
		for _, a := range x.Axes {
			if c := p.Place.On(a); c.Kind == grad.Sharded && int(c.Axis) == last {
				s.column = s.column*o.Mesh[a].Size + at[a]
			}
		}
		seats = append(seats, s)
	}
	whole, row, column := r.together(p, seats, last)
	p.Optim.Turning.Turn(r.c.Optim, r.c.Backend, whole)
	rows := r.cut(whole, last-1, row, own[last-1])
	whole.Release()
	part := r.cut(rows, last, column*own[last], own[last])
	rows.Release()
	r.owned[p.Name].Release()
	r.owned[p.Name] = part
}

// together puts parts of matrices together: those of one number of columns below each other, and these side
// by side. It gives where this rank's rows begin, and its number of columns.
func (r *Rank) together(p *layout.ParamPlan, seats []seatOf, last int) (whole *tensor.Tensor, row,
	column int) {
	shape := r.c.WholeShape(p)
	var strips []*tensor.Tensor
	for c := 0; ; c++ {
		var parts []*tensor.Tensor
		n := 0
		for _, s := range seats {
			if s.column != c {
				continue
			}
			if s.mine {
				row, column = n, c
			}
			if n += s.part.Shape[last-1]; s.part.Len() > 0 {
				parts = append(parts, s.part)
			}
		}
		if n == 0 {
			break
		}
		of := slices.Clone(parts[0].Shape)
		of[last-1] = n
		strip := r.alloc("strip of "+p.Name, tensor.F32, of...)
		r.kernel(kernels.Concat, kernels.Attr{I: [4]int{last - 1}}, parts, strip)
		strips = append(strips, strip)
	}
	if len(strips) == 1 {
		return strips[0], row, column
	}
	whole = r.alloc("whole of "+p.Name, tensor.F32, shape...)
	r.kernel(kernels.Concat, kernels.Attr{I: [4]int{last}}, strips, whole)
	releaseAll(strips)
	return whole, row, column
}

// cut is a range of an axis of a tensor, with a reference of its own.
func (r *Rank) cut(t *tensor.Tensor, axis, from, n int) *tensor.Tensor {
	if from == 0 && n == t.Shape[axis] {
		return t.Retain()
	}
	shape := slices.Clone(t.Shape)
	shape[axis] = n
	out := r.alloc("part of a matrix", tensor.F32, shape...)
	r.kernel(kernels.Slice, kernels.Attr{I: [4]int{axis, from}}, []*tensor.Tensor{t}, out)
	return out
}
