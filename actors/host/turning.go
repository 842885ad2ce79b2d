package host

import (
	"cmp"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// direct makes directions of the reduced gradients of this rank's rows whose optimizer updates whole
// matrices, in their place, with the scalars that the coordinator has committed.
func (r *Rank) direct(j actors.Job) {
	v := r.clipped(j)
	for i := range r.c.Params {
		p := &r.c.Params[i]
		if t := p.Optim.Turning; t != nil && t.Direct != nil {
			if r.hypers(p, v) {
				t.Direct(r.c.Optim, r.c.Backend, r.owned[p.Name], r.hyper, r.clip, r.state[p.Name][1:])
			}
		}
	}
}

// directions sends them to all that have other numbers of the same matrices, each with the sums of the
// squares of the parameter's own numbers behind it where the optimizer asks for that.
func (r *Rank) directions() (out []actors.Output) {
	for comm, x := range r.c.Exchanges[layout.Directions] {
		var squares []*tensor.Tensor
		for _, i := range x.Params {
			squares = append(squares, r.squares(&r.c.Params[i]))
		}
		out = append(out, toAll(int32(comm), x.Members, func(int) (ts []*tensor.Tensor) {
			for k, i := range x.Params {
				ts = append(ts, r.owned[r.c.Params[i].Name].Retain())
				if squares[k] != nil {
					ts = append(ts, squares[k].Retain())
				}
			}
			return ts
		})...)
		for _, s := range squares {
			if s != nil {
				s.Release()
			}
		}
	}
	return out
}

// squares are the sums [e] of the squares of this rank's numbers of each matrix of a parameter, nil where
// its optimizer does not ask.
func (r *Rank) squares(p *layout.ParamPlan) *tensor.Tensor {
	if !p.Optim.Turning.Squares {
		return nil
	}
	rows := r.rows(*p)
	if master := r.state[p.Name][0]; master != nil {
		rows.Release()
		rows = master.Retain()
	}
	defer rows.Release()
	shape := layout.Matrices(p.Experts, rows.Shape)
	of := rows.Alias(shape...)
	defer of.Release()
	out := r.alloc("squares of "+p.Name, tensor.F64, shape[0])
	for e := range shape[0] {
		one, to := of.RowSlice(e, e+1), out.RowSlice(e, e+1)
		r.kernel(kernels.SumSquares, kernels.Attr{}, []*tensor.Tensor{one}, to)
		one.Release()
		to.Release()
	}
	return out
}

// turn turns directions of whole matrices, and leaves this rank's part of each in the place of its gradient.
// Matrices are put together as they lie in the model.
func (r *Rank) turn(j actors.Job, in [][]*links.Pack) {
	v := r.clipped(j)
	shared := map[int]bool{}
	for comm, x := range r.c.Exchanges[layout.Directions] {
		k := 0
		for _, i := range x.Params {
			p := &r.c.Params[i]
			shared[i] = true
			r.hypers(p, v)
			k += r.turnWhole(p, x, in[comm], k)
		}
	}
	for i := range r.c.Params {
		if p := &r.c.Params[i]; p.Optim.Turning != nil && !shared[i] {
			r.hypers(p, v)
			square := r.squares(p)
			r.turnOne(p, r.owned[p.Name], square)
			if square != nil {
				square.Release()
			}
		}
	}
}

// turnOne turns the matrices of a parameter, without its rows of padding.
func (r *Rank) turnOne(p *layout.ParamPlan, whole, square *tensor.Tensor) {
	with := optim.Turned{Hyper: r.hyper, Clip: r.clip, Square: square}
	for _, t := range r.state[p.Name][1:] {
		with.State = append(with.State, t.Alias(layout.Matrices(p.Experts, t.Shape)...))
	}
	defer releaseAll(with.State)
	if !p.Experts && whole.Shape[0] > p.Shape[0] {
		whole = whole.RowSlice(0, p.Shape[0])
		defer whole.Release()
	}
	of := whole.Alias(layout.Matrices(p.Experts, whole.Shape)...)
	p.Optim.Turning.Turn(r.c.Optim, r.c.Backend, of, with)
	of.Release()
}

// seatOf says where a member's part of matrices [e n k] lies in them, and whether it is this rank's.
type seatOf struct {
	row, column int
	mine        bool
	part        *tensor.Tensor
}

// turnWhole turns matrices of one parameter, which begin at tensor k of an exchange's packs, and gives how
// many tensors are theirs.
func (r *Rank) turnWhole(p *layout.ParamPlan, x layout.Exchange, from []*links.Pack, k int) (n int) {
	pos := r.c.Sides[p.Side].Pos
	o := grad.Options{Mesh: r.c.Sides[p.Side].Mesh}
	me := o.Member(pos, x.Axes)
	var seats []seatOf
	var squares []*tensor.Tensor
	for m, pack := range from {
		at := slices.Clone(pos)
		for i, left := len(x.Axes)-1, m; i >= 0; i-- {
			at[x.Axes[i]], left = left%o.Mesh[x.Axes[i]].Size, left/o.Mesh[x.Axes[i]].Size
		}
		s := seat(&o, p, at)
		s.mine, s.part = m == me, pack.Tensors[k].Alias(layout.Matrices(p.Experts, pack.Tensors[k].Shape)...)
		if seats = append(seats, s); p.Optim.Turning.Squares {
			squares = append(squares, pack.Tensors[k+1])
		}
	}
	n = 1 + min(1, len(squares))
	var square *tensor.Tensor
	if len(squares) > 0 {
		square = r.alloc("squares of "+p.Name, tensor.F64, squares[0].Shape...)
		r.kernel(kernels.Sum, kernels.Attr{}, squares, square)
		defer square.Release()
	}
	own := r.owned[p.Name]
	mine := layout.Matrices(p.Experts, own.Shape)
	whole, row, column := r.together(p, seats)
	for _, s := range seats {
		s.part.Release()
	}
	r.turnSeats(p, whole, square)
	rows := r.cut(whole, 1, row, mine[1])
	whole.Release()
	part := r.cut(rows, 2, column, mine[2])
	rows.Release()
	r.owned[p.Name] = part.Alias(own.Shape...)
	part.Release()
	own.Release()
	return n
}

// turnSeats is turnOne of matrices [e n k] that were put together.
func (r *Rank) turnSeats(p *layout.ParamPlan, whole, square *tensor.Tensor) {
	shape := append([]int(nil), whole.Shape...)
	if !p.Experts {
		shape = shape[1:]
	}
	of := whole.Alias(shape...)
	r.turnOne(p, of, square)
	of.Release()
}

// seat says where the part of the member at a place of the mesh begins in matrices.
func seat(o *grad.Options, p *layout.ParamPlan, at []int) seatOf {
	own := family.Region{Cuts: family.CutsOf(o, p.Param, at)}
	own.From, own.To = grad.ShardRows(p.Local[0], o.Member(at, p.Zero), o.Members(p.Zero))
	iv, first := own.Intervals(p.Param), 0
	if p.Experts {
		first = 1
	}
	begin := func(axis int) int {
		if axis < len(iv) {
			return iv[axis][0]
		}
		return 0
	}
	return seatOf{row: begin(first), column: begin(first + 1)}
}

// together puts parts of matrices together: those of the same columns below each other, and these side by
// side. It gives where this rank's part begins.
func (r *Rank) together(p *layout.ParamPlan, seats []seatOf) (whole *tensor.Tensor, row, column int) {
	slices.SortStableFunc(seats, func(a, b seatOf) int { return cmp.Or(a.column-b.column, a.row-b.row) })
	var strips []*tensor.Tensor
	wide := 0
	for i := 0; i < len(seats); {
		var parts []*tensor.Tensor
		n, from := 0, i
		for ; i < len(seats) && seats[i].column == seats[from].column; i++ {
			s := seats[i]
			if s.mine {
				row, column = n, wide
			}
			if n += s.part.Shape[1]; s.part.Len() > 0 {
				parts = append(parts, s.part)
			}
		}
		if n == 0 {
			continue
		}
		strip := r.alloc("strip of "+p.Name, tensor.F32, parts[0].Shape[0], n, parts[0].Shape[2])
		r.kernel(kernels.Concat, kernels.Attr{I: [4]int{1}}, parts, strip)
		strips, wide = append(strips, strip), wide+parts[0].Shape[2]
	}
	if len(strips) == 1 {
		return strips[0], row, column
	}
	whole = r.alloc("whole of "+p.Name, tensor.F32, strips[0].Shape[0], strips[0].Shape[1], wide)
	r.kernel(kernels.Concat, kernels.Attr{I: [4]int{2}}, strips, whole)
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
