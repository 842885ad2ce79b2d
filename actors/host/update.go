package host

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// update runs one segment of the optimizer step.
// In the words of the field: FSDP, gradient accumulation.
func (r *Rank) update(j actors.Job) (res Result, err error) {
	in := packs(j.In)
	r.now = j.Step
	defer func() {
		for _, ps := range in {
			for _, p := range ps {
				p.Release()
			}
		}
		if x := recover(); x != nil {
			b, ok := x.(*tensor.BudgetError)
			if !ok {
				panic(x)
			}
			err = b
		}
	}()
	if r.c.Turning && j.Segment > layout.SumNorm {
		if j.Segment--; j.Segment == layout.SumNorm {
			j.Segment = layout.Directions
		}
	}
	switch j.Segment {
	case layout.SumTP:
		res.Out = r.partials()
	case layout.SumDP:
		r.takePartials(in)
		res.Out = r.shards()
	case layout.SumWhole:
		r.takeShards(in)
		res.Out = r.sums()
	case layout.SumTies:
		r.takeSums(in)
		res.Out = append(r.ties(), r.copyGradients()...)
	case layout.SumNorm:
		r.takeTies(in[:min(len(in), len(r.c.Ties))])
		r.takeCopies(in[min(len(in), len(r.c.Ties)):])
		r.readFixed(j)
		r.seeParameters(j.Step)
		res.Values = r.norms()
	case layout.Directions:
		r.direct(j)
		res.Out = r.directions()
	case layout.Apply:
		r.turn(j, in)
		r.apply(j)
		res.Out = r.updated()
		if res.Values, err = r.routed.end(j.Step); err == nil {
			res.Values = r.found(res.Values)
			err = r.sight.write(j.Step)
		}
	case layout.Gather:
		r.takeUpdated(in)
		err = r.move(j, in, &res)
	default:
		err = r.move(j, in, &res)
	}
	return res, err
}

// packs sorts what came from other ranks by collective, and within one by the order of its members.
func packs(in []actors.Input) (out [][]*links.Pack) {
	for _, x := range in {
		for len(out) <= int(x.Comm) {
			out = append(out, nil)
		}
		out[x.Comm] = append(out[x.Comm], x.Payload.(*links.Pack))
	}
	return
}

// toAll makes one output for each of n members from the tensors that part gives.
func toAll(comm int32, n int, part func(member int) []*tensor.Tensor) (out []actors.Output) {
	for m := range n {
		out = append(out, actors.Output{Comm: comm, Member: int32(m), Payload: links.NewPack(nil, part(m)...)})
	}
	return
}

// alloc makes a tensor in the rank's pool. An allocation that fails in the middle of an update
// cannot be undone, so it panics and ends the rank.
func (r *Rank) alloc(name string, d tensor.DType, shape ...int) *tensor.Tensor {
	t, err := r.c.Pool.New(name, d, shape...)
	if err != nil {
		panic(err)
	}
	return t
}

func (r *Rank) kernel(op kernels.Op, at kernels.Attr, in []*tensor.Tensor, out ...*tensor.Tensor) {
	r.c.Backend.Run(&kernels.Call{Op: op, In: in, Out: out, Attr: at})
}

// sum adds the i-th tensor of every member's pack, in member order.
func (r *Rank) sum(name string, ps []*links.Pack, i int) *tensor.Tensor {
	var in []*tensor.Tensor
	for _, p := range ps {
		in = append(in, p.Tensors[i])
	}
	out, op := r.alloc(name, in[0].DType, in[0].Shape...), kernels.Sum
	if out.DType == tensor.I64 {
		op = kernels.FixedSum
	}
	r.kernel(op, kernels.Attr{}, in, out)
	return out
}

// whole is the gradient of p of which every member's pack has a part: their sum, or the largest of them.
func (r *Rank) whole(p *layout.ParamPlan, ps []*links.Pack, i int) *tensor.Tensor {
	if !p.Largest {
		return r.sum("gradient of "+p.Name, ps, i)
	}
	out := r.alloc("gradient of "+p.Name, tensor.F32, ps[0].Tensors[i].Shape...)
	for k, x := range ps {
		r.kernel(kernels.LargestTo, kernels.Attr{I: [4]int{min(k, kernels.Accumulate)}},
			[]*tensor.Tensor{x.Tensors[i]}, out)
	}
	return out
}

// gradient is the accumulated gradient of p; a parameter that no microbatch reached has a zero one.
func (r *Rank) gradient(p layout.ParamPlan) *tensor.Tensor {
	if g := r.run.Grads[p.Name]; g != nil {
		return g
	}
	shape := append([]int(nil), p.Local...)
	if r.c.Zero >= 2 {
		shape[0] = p.Own.To - p.Own.From
	}
	g := r.alloc("gradient of "+p.Name, r.gradType(&p), shape...)
	if g.DType == tensor.F32 {
		r.kernel(kernels.Fill, kernels.Attr{}, nil, g)
	} else {
		clear(g.I64())
	}
	r.run.Grads[p.Name] = g
	return g
}

// partials sends the gradients that each member of a tensor group has only in part, so that every
// member can sum them. Each member gets all of them, which gives equal bits on all members.
func (r *Rank) partials() (out []actors.Output) {
	for comm, x := range r.c.Exchanges[layout.SumTP] {
		var ts []*tensor.Tensor
		for _, i := range x.Params {
			ts = append(ts, r.gradient(r.c.Params[i]))
		}
		out = append(out, toAll(int32(comm), x.Members, func(int) []*tensor.Tensor {
			return retained(ts)
		})...)
	}
	return
}

// retained takes one more reference to each of the tensors, for a message that will release them once it is sent.
func retained(ts []*tensor.Tensor) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(ts))
	for i, t := range ts {
		out[i] = t.Retain()
	}
	return out
}

// takePartials replaces the gradients that were partial by the sum of what the tensor group sent,
// in the order of its members.
func (r *Rank) takePartials(in [][]*links.Pack) {
	for comm, x := range r.c.Exchanges[layout.SumTP] {
		for k, i := range x.Params {
			p := r.c.Params[i]
			g := r.whole(&p, in[comm], k)
			r.run.Grads[p.Name].Release()
			r.run.Grads[p.Name] = g
		}
	}
}

// shards sends each data-parallel rank the rows that it sums: those that it updates, or a part of them where several
// ranks update the same. Each microbatch's gradients may be shards already.
func (r *Rank) shards() (out []actors.Output) {
	for comm, x := range r.c.Exchanges[layout.SumDP] {
		if x.Bucket == 0 {
			out = append(out, r.shardsOf(int32(comm), false)...)
		}
	}
	return
}

// shardsOf are those of one exchange, which a job of the program may issue early.
func (r *Rank) shardsOf(comm int32, early bool) []actors.Output {
	x := r.c.Exchanges[layout.SumDP][comm]
	out := toAll(comm, x.Members, func(m int) (ts []*tensor.Tensor) {
		for _, i := range x.Params {
			p := r.c.Params[i]
			ts = append(ts, r.gradient(p).RowSlice(r.c.Rows(p, m, x.InTwo)))
		}
		return ts
	})
	for i := range out {
		out[i].Early = early
	}
	return out
}

// takeShards leaves in owned the reduced gradient of this rank's rows and gives the unreduced ones back.
// Where others need the sums too, owned has the rows that this rank sums.
func (r *Rank) takeShards(in [][]*links.Pack) {
	for comm, x := range r.c.Exchanges[layout.SumDP] {
		for k, i := range x.Params {
			p := r.c.Params[i]
			r.run.Grads[p.Name].Release()
			delete(r.run.Grads, p.Name)
			r.owned[p.Name] = r.sum("reduced gradient of "+p.Name, in[comm], k)
		}
	}
	for _, p := range r.c.Params {
		if r.owned[p.Name] == nil {
			r.owned[p.Name] = r.gradient(p)
			delete(r.run.Grads, p.Name)
		}
	}
}

// sums sends the rows that this rank has summed to the ranks that need all of them.
func (r *Rank) sums() (out []actors.Output) {
	for comm, x := range r.c.Exchanges[layout.SumWhole] {
		out = append(out, toAll(int32(comm), x.Members, func(int) (ts []*tensor.Tensor) {
			for _, i := range x.Params {
				ts = append(ts, r.owned[r.c.Params[i].Name].Retain())
			}
			return ts
		})...)
	}
	return out
}

// takeSums puts the rows that every rank has summed together.
func (r *Rank) takeSums(in [][]*links.Pack) {
	for comm, x := range r.c.Exchanges[layout.SumWhole] {
		for k, i := range x.Params {
			p := r.c.Params[i]
			shape := append([]int{p.Own.To - p.Own.From}, p.Local[1:]...)
			whole := r.alloc("reduced gradient of "+p.Name, r.gradType(&p), shape...)
			for m, pk := range in[comm] {
				dst := whole.RowSlice(grad.ShardRows(shape[0], m, x.Members))
				r.kernel(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{pk.Tensors[k]}, dst)
				dst.Release()
			}
			r.owned[p.Name].Release()
			r.owned[p.Name] = whole
		}
	}
}

// ties sends the gradients of tied parameters to the other stages that hold them, one message per set of ranks.
func (r *Rank) ties() (out []actors.Output) {
	for k, n := range r.c.Ties {
		var ts []*tensor.Tensor
		for _, p := range r.c.Params {
			if p.Tie == k+1 {
				ts = append(ts, r.owned[p.Name])
			}
		}
		out = append(out, toAll(int32(k), n, func(int) []*tensor.Tensor { return retained(ts) })...)
	}
	return out
}

// takeTies replaces the gradients of tied parameters by their sums. All stages sum in the same
// order and so apply the same update to their copies.
func (r *Rank) takeTies(in [][]*links.Pack) {
	for k, ps := range in {
		i := 0
		for _, p := range r.c.Params {
			if p.Tie == k+1 {
				g := r.sum("tied gradient of "+p.Name, ps, i)
				r.owned[p.Name].Release()
				r.owned[p.Name] = g
				i++
			}
		}
	}
}

// norms are the squared norms of the parameters that this rank counts, in the order of core.RunLayout.Norms, behind the
// values of a job, then those of experts and the rows that were sent to each. All are read from the device at once.
func (r *Rank) norms() []float64 {
	dense, n := 0, 0
	for _, p := range r.c.Params {
		switch {
		case p.Counts && p.Experts:
			n += r.owned[p.Name].Shape[0]
		case p.Counts:
			dense++
		}
	}
	first := dense // of the words of dense norms
	if r.c.FixedPoint {
		dense *= kernels.FixedWords
	}
	n += dense
	all := tensor.Make(tensor.F64, n)
	if r.device != nil && n > 0 {
		all = r.alloc("squared norms", tensor.F64, n)
	}
	at, expert := 0, dense
	for _, p := range r.c.Params {
		switch g := r.owned[p.Name]; {
		case p.Counts && p.Experts:
			for i := range g.Shape[0] {
				row := g.RowSlice(i, i+1)
				r.squared(row, all, expert, 0)
				row.Release()
				expert++
			}
		case p.Counts:
			r.squared(g, all, at, first)
			at++
		}
	}
	h := kernels.Host(r.c.Backend, all)
	v := append(new(core.Usage).Values(), h.F64()[:dense]...)
	experts := append([]float64(nil), h.F64()[dense:]...)
	h.Release()
	all.Release()
	return r.routed.sentTo(core.AppendExpertNorms(v, r.expertNorms(experts)))
}

// apply updates this rank's rows with the scalars that the coordinator has committed.
func (r *Rank) apply(j actors.Job) {
	v := r.clipped(j)
	r.applyRules()
	away := r.pieces()
	defer func() { releaseAll(away.next) }()
	for i, p := range r.c.Params {
		if p.Rule.Op != "" {
			continue
		}
		learns, g := r.hypers(&p, v), r.owned[p.Name]
		delete(r.owned, p.Name)
		rows := r.rows(p)
		if p.Away {
			away.of(i, func(x layout.Piece, state []*tensor.Tensor) {
				if !learns {
					return
				}
				part, of := rows.RowSlice(x.From, x.To), g.RowSlice(x.From, x.To)
				r.step(p, of, part, state, x.From)
				part.Release()
				of.Release()
			})
		} else if learns {
			r.step(p, g, rows, r.state[p.Name], 0)
		}
		rows.Release()
		g.Release()
	}
}

// clipped sets what every gradient is multiplied with to what the coordinator has committed.
func (r *Rank) clipped(j actors.Job) core.Verdict {
	v := core.VerdictOf(j.Values)
	overflow := 0.0
	if v.Overflow {
		overflow = 1
	}
	r.clip.F64()[kernels.ClipNorm], r.clip.F64()[kernels.ClipFactor],
		r.clip.F64()[kernels.ClipOverflow] = v.Norm, v.Factor, overflow
	return v
}

// hypers sets the hyper-parameters of a parameter's update, and what its gradient is multiplied with. It reports whether
// the phase of the step learns the parameter: averages of its optimizer begin where its first phase does.
func (r *Rank) hypers(p *layout.ParamPlan, v core.Verdict) bool {
	learns, missed := r.c.Learns(p.Name, r.now)
	c := r.c.Optim
	if r.c.Decay != nil {
		c.Decay *= r.c.Decay(p.Name)
	}
	r.clip.F64()[kernels.ClipFactor] = v.FactorOf(uint8(p.Clip))
	h := r.hyper.F64()
	h[kernels.HyperDraw] = float64(uint32(dataset.Draw(r.c.Seed, drawPass, v.Update, 1+int64(grad.Site(p.Name)), 0)))
	p.Optim.Hyper(c, v.LR*r.c.LRScale(p.Name), max(1, v.Update-missed), h)
	if t := p.Optim.Turning; t != nil && t.Scale != nil {
		n := len(p.Shape)
		h[kernels.HyperScale] = t.Scale(c, p.Shape[n-2], p.Shape[n-1])
	}
	return learns
}

// applyRules makes parameters anew that have an operation for that in place of an optimizer. The others come behind
// them, for they may shrink by what these hold.
func (r *Rank) applyRules() {
	for _, p := range r.c.Params {
		if p.Rule.Op == "" {
			continue
		}
		g := r.owned[p.Name]
		delete(r.owned, p.Name)
		rows := r.rows(p)
		if learns, _ := r.c.Learns(p.Name, r.now); learns && rows.Len() > 0 {
			r.byRule(p, g, rows)
		}
		rows.Release()
		g.Release()
	}
}

// step updates rows of a parameter, the first of which is one of its own, with their gradient and state; a
// parameter in float32 has no master copy.
func (r *Rank) step(p layout.ParamPlan, g, rows *tensor.Tensor, state []*tensor.Tensor, first int) {
	master, model := rows, (*tensor.Tensor)(nil)
	if state[0] != nil {
		master, model = state[0], rows
	}
	if p.Optim.Op == kernels.AdamWNarrow { //lfvet:kind its numbers are rounded by their places in the whole tensor
		r.stepPlaced(p, append([]*tensor.Tensor{g, master, model}, state[1:]...), first)
	} else {
		p.Optim.Apply(r.c.Backend, g, r.hyper, r.clip, master, state[1:], model, !p.Decay)
	}
	r.shrink(&p, master, model, first)
}

// stepPlaced updates rows, of gradient, master copy, model's copy and state, and tells each update where they lie in the
// whole tensor: experts that have moved lie there as they did before, and copies where what they are copies of does.
func (r *Rank) stepPlaced(p layout.ParamPlan, all []*tensor.Tensor, first int) {
	own := p.Own
	own.From += first
	own.To = own.From + all[0].Shape[0]
	pieces := []seated{{region: own}}
	if p.Experts {
		pieces = r.experts.regions(p.Param, own)
	}
	for _, x := range pieces {
		part, n := make([]*tensor.Tensor, len(all)), x.region.To-x.region.From
		for i, t := range all {
			if t != nil {
				part[i] = t.RowSlice(x.row, x.row+n)
			}
		}
		x.region.Place(p.Param, r.hyper.F64())
		p.Optim.Apply(r.c.Backend, part[0], r.hyper, r.clip, part[1], part[3:], part[2], !p.Decay)
		releaseAll(part)
	}
}

// rows is the part of the model's parameter that this rank updates, with a reference of its own.
func (r *Rank) rows(p layout.ParamPlan) *tensor.Tensor {
	return r.run.Params[p.Name].RowSlice(p.Own.From-p.Region.From, p.Own.To-p.Region.From)
}

// updated sends the rows that this rank has updated to the members that need the whole parameter in the next step.
func (r *Rank) updated() (out []actors.Output) {
	for comm, x := range r.c.Exchanges[layout.Apply] {
		out = append(out, toAll(int32(comm), x.Members, func(int) (ts []*tensor.Tensor) {
			for _, i := range x.Params {
				ts = append(ts, r.rows(r.c.Params[i]))
			}
			return ts
		})...)
	}
	return
}

// takeUpdated copies the other ranks' rows into this rank's parameters.
func (r *Rank) takeUpdated(in [][]*links.Pack) {
	for comm, x := range r.c.Exchanges[layout.Apply] {
		for k, i := range x.Params {
			p := r.c.Params[i]
			for m, pk := range in[comm] {
				from, to := grad.ShardRows(p.Local[0], m, x.Members)
				if from == p.Own.From && to == p.Own.To {
					continue
				}
				dst := r.run.Params[p.Name].RowSlice(from, to)
				r.kernel(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{pk.Tensors[k]}, dst)
				dst.Release()
			}
		}
	}
}
