package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// experts says where the experts of a rank's layers lie, by block. Layers that are not listed have theirs in order.
type experts struct {
	at    map[int][]int          // by place, the expert
	table map[int]*tensor.Tensor // the same for route_order, shared with the runners
}

// put lets the experts of a block lie at places.
func (r *Rank) put(block int, at []int) error {
	x := &r.experts
	if old := x.table[block]; old != nil {
		old.Release()
	}
	t, err := r.c.Pool.New("places of experts", tensor.I32, len(at))
	if err != nil {
		return err
	}
	v := make([]int32, len(at))
	for q, e := range at {
		v[q] = int32(e)
	}
	kernels.Write(t, tensor.Of(tensor.I32, v, len(v)).Bytes())
	x.at[block], x.table[block] = at, t
	return nil
}

// inOrder lets experts lie in order, but for those of layers that placed names.
func (r *Rank) inOrder(placed ...core.Placed) error {
	r.experts.clear()
	for _, m := range r.c.Moves {
		p, at := r.c.Held[m.Params[0]].Param, []int(nil)
		if p.Copies > 0 { // a router has to know which experts have several places
			at = layout.Seated(nil, p)
		}
		for _, x := range placed {
			if x.Block == m.Block {
				at = x.Expert
			}
		}
		if at == nil {
			continue
		}
		if err := r.put(m.Block, at); err != nil {
			return err
		}
	}
	return nil
}

// clear forgets where experts lie.
func (x *experts) clear() {
	for _, t := range x.table {
		t.Release()
	}
	clear(x.table)
	clear(x.at)
}

// expertsOf are the experts whose rows a rank has, where the rows are those of consecutive places.
func (r *Rank) expertsOf(block, from, n int) []int {
	if at := r.experts.at[block]; at != nil {
		return at[from : from+n]
	}
	out := make([]int, n)
	for i := range out {
		out[i] = from + i
	}
	return out
}

// first reports whether the row of a place counts for its expert, or is that of a copy.
func (r *Rank) first(block, place int) bool {
	at := r.experts.at[block]
	return at == nil || slices.Index(at, at[place]) == place
}

// leaving sends every member of a move the rows of experts that it takes, with their number before them: a
// message without rows is one too.
func (r *Rank) leaving(m layout.Move, verdict []float64) []actors.Output {
	to := r.goal(m.Block, verdict)
	return toAll(0, m.Members, func(member int) []*tensor.Tensor {
		ts := []*tensor.Tensor{r.alloc("number of rows", tensor.I32, 1)}
		if to != nil {
			for _, t := range r.c.Transfers(m, r.experts.at[m.Block], to, member) {
				if t.From == r.c.Member(m) {
					for _, have := range r.moved(m, t) {
						ts = append(ts, (*have).RowSlice(t.Row, t.Row+1))
					}
				}
			}
		}
		kernels.Write(ts[0], tensor.Of(tensor.I32, []int32{int32(len(ts) - 1)}, 1).Bytes())
		return ts
	})
}

// goal is where the experts of a block go, nil if they stay.
func (r *Rank) goal(block int, verdict []float64) []int {
	for _, p := range core.Moves(verdict) {
		if p.Block == block {
			return p.Expert
		}
	}
	return nil
}

// moved are the tensors of a kind whose rows a transfer is of.
func (r *Rank) moved(m layout.Move, t layout.Transfer) (out []**tensor.Tensor) {
	name := r.c.Held[m.Params[t.Param]].Name
	if t.Kind == layout.MovedParam {
		p := r.run.Params[name]
		return []**tensor.Tensor{&p}
	}
	for i := range r.state[name] {
		if r.state[name][i] != nil {
			out = append(out, &r.state[name][i])
		}
	}
	return out
}

// arriving makes the rank's tensors anew of the rows that have come. Others may still look at the old ones,
// which are replaced and not changed.
func (r *Rank) arriving(m layout.Move, verdict []float64, in []*links.Pack) error {
	to := r.goal(m.Block, verdict)
	if to == nil {
		return nil
	}
	next := slices.Repeat([]int{1}, len(in)) // of what a member has sent
	list := r.c.Transfers(m, r.experts.at[m.Block], to, r.c.Member(m))
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(t layout.Transfer) bool {
			return t.Param != list[0].Param || t.Kind != list[0].Kind
		})
		if n < 0 {
			n = len(list)
		}
		have := r.moved(m, list[0])
		rows := make([][]*tensor.Tensor, len(have))
		for _, t := range list[:n] {
			for i := range have {
				rows[i] = append(rows[i], in[t.From].Tensors[next[t.From]])
				next[t.From]++
			}
		}
		for i, old := range have {
			made := r.alloc("moved experts", (*old).DType, (*old).Shape...)
			r.kernel(kernels.Concat, kernels.Attr{}, rows[i], made)
			(*old).Release()
			*old = made
		}
		if list[0].Kind == layout.MovedParam {
			r.run.Params[r.c.Held[m.Params[list[0].Param]].Name] = *have[0]
		}
		list = list[n:]
	}
	for member, n := range next {
		if sent := kernels.Ints(r.c.Backend, in[member].Tensors[0])[0]; int(sent) != n-1 {
			panic(fmt.Sprintf("host: member %d has sent %d rows of block %d, and %d were expected", member, sent,
				m.Block, n-1))
		}
	}
	return r.put(m.Block, to)
}

// move carries out a segment behind the update: it takes in the experts of one block and sends those of the next.
func (r *Rank) move(j actors.Job, in [][]*links.Pack, res *Result) error {
	k := int(j.Segment) - layout.Gather
	if k > 0 {
		if err := r.arriving(r.c.Moves[k-1], j.Values, in[0]); err != nil {
			return err
		}
	}
	if k < len(r.c.Moves) && core.MovesExperts(j.Values) {
		res.Out = r.leaving(r.c.Moves[k], j.Values)
	}
	return nil
}

// placeKind is the kind of what says in a copy where a block's experts lie.
const placeKind = "place"

// keepPlaces adds to a copy of the rank's state where experts lie.
func (r *Rank) keepPlaces(add func(name string, t *tensor.Tensor) error) error {
	for _, m := range r.c.Moves {
		if t := r.experts.table[m.Block]; t != nil {
			if err := add(fmt.Sprintf("%s %d", placeKind, m.Block), t); err != nil {
				return err
			}
		}
	}
	return nil
}

// takePlace reads where a block's experts lie from a copy; it reports whether that is what name is of.
func (r *Rank) takePlace(name string, t *tensor.Tensor) (bool, error) {
	text, ok := strings.CutPrefix(name, placeKind+" ")
	if !ok {
		return false, nil
	}
	block, err := strconv.Atoi(text)
	if err != nil {
		return true, fmt.Errorf("a copy has %q: %w", name, err)
	}
	var at []int
	for _, e := range t.I32() {
		at = append(at, int(e))
	}
	return true, r.put(block, at)
}

// expertNorms are the squared norms of each expert's gradients, of the parameters that this rank counts,
// given all of them in turn. Of an expert's copies, which all have the same, the first one's rank reports it.
func (r *Rank) expertNorms(squares []float64) (out []core.ExpertNorms) {
	for _, p := range r.c.Params {
		if !p.Counts || !p.Experts {
			continue
		}
		n, place := r.owned[p.Name].Shape[0], p.Own.Intervals(p.Param)[0][0]
		x := core.ExpertNorms{Param: p.Index}
		if n > 0 {
			for i, e := range r.expertsOf(p.Block, place, n) {
				if r.first(p.Block, place+i) {
					x.Experts, x.Squares = append(x.Experts, e), append(x.Squares, squares[i])
				}
			}
		}
		squares = squares[n:]
		out = append(out, x)
	}
	return out
}
