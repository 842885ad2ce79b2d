package sim

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// folding says which ranks run, each in place of all that do the same. Ranks that hand activations to one another
// are a unit, and units are what is folded: two that have the same programs, segments, prices and links, that
// share no connection, and whose groups and loaders are those of units that do the same, go through the same times.
// So a group waits for those of its members that run, and costs what all of it costs.
type folding struct {
	by     []int32 // by rank: the rank that runs in its place
	weight []int32 // by actor: how many do what it does; those that are added later stand for themselves
	others [][]int32
	left   uint64 // actors of collectives that are left out: each would have started
	uses   []use  // by connection
	tied   bool
}

// use is who used a connection last, and when.
type use struct {
	at   int64
	from int32
}

// use notes that a rank uses connections, and whether another began to at the same time: then the seed
// decides who is first, which it does for ranks that do the same one by one.
func (f *folding) use(ends [2]int32, from int32, now int64) {
	for _, p := range ends {
		if p < 0 {
			continue
		}
		for int(p) >= len(f.uses) {
			f.uses = append(f.uses, use{at: -1})
		}
		u := &f.uses[p]
		f.tied = f.tied || u.at == now && u.from != from
		*u = use{now, from}
	}
}

// unfoldable says why ranks of a run cannot stand for one another, "" if they may.
func unfoldable(l *Layout, p *Prices, o *Options) string {
	run := &l.Run
	switch {
	case !o.Whole || p.Sends != nil:
		return "collectives are carried out message by message"
	case len(o.Faults) > 0 || o.Jitter > 0 || o.Late > 0 || o.Notice > 0 || o.Mutate != nil:
		return "faults and chance hit single ranks"
	case o.See != nil || o.Again != nil:
		return "every message is watched"
	case l.Overflow != nil || run.Norms != nil || run.Buddies != nil || run.Same != nil || run.Keep != 0:
		return "ranks report or keep what is theirs alone"
	case run.SaveEvery > 0 || run.SaveAtEnd || run.EvalEvery > 0 || run.EvalOnly || run.Move != nil:
		return "steps are not alike: states are saved, evaluated or moved"
	}
	return ""
}

// folder works a folding out: it tells apart what differs until nothing more does.
type folder struct {
	l        *Layout
	p        *Prices
	rank     []int32 // by actor, -1 for none
	unit     []int32 // by rank: the first rank of its unit
	units    [][]int32
	own      []uint64 // by rank: all that is told without looking at others
	colour   []uint64 // by rank
	groups   []folded
	groupOf  map[groupKey][]int32
	known    map[memberList]int32
	in       [][]int32 // by rank: its groups
	loads    [][]int32 // by loader: its ranks
	loader   []int32   // by rank
	rows     map[rowKey]*rowWork
	lists    map[listKey]uint64
	shapes   map[int32]shapes // by loader
	programs []*plan.Program
}

// memberList is where a list of members lies.
type memberList struct {
	first *actors.Ref
	n     int
}

// folded is a group of ranks.
type folded struct {
	ranks  []int32
	bytes  []int64 // of its collectives
	own    uint64  // its size and what its collectives cost
	colour uint64
}

// fold finds out which ranks of a layout do the same; the reason is why nothing may be folded.
func fold(l *Layout, p *Prices, o *Options) (*folding, string) {
	if why := unfoldable(l, p, o); why != "" {
		return nil, why
	}
	f := newFolder(l, p)
	f.number()
	if why := f.join(); why != "" {
		return nil, why
	}
	f.describe()
	f.refine()
	return f.choose()
}

func newFolder(l *Layout, p *Prices) *folder {
	return &folder{l: l, p: p, groupOf: map[groupKey][]int32{}, known: map[memberList]int32{}, rows: map[rowKey]*rowWork{},
		lists: map[listKey]uint64{}, shapes: map[int32]shapes{}}
}

// number gives actors their ranks, and ranks their loaders.
func (f *folder) number() {
	most := actors.Ref(0)
	for _, r := range f.l.RankRefs {
		most = max(most, r)
	}
	f.rank, f.loader = make([]int32, most+1), make([]int32, len(f.l.Ranks))
	for i := range f.rank {
		f.rank[i] = -1
	}
	for i, r := range f.l.RankRefs {
		f.rank[r], f.loader[i] = int32(i), -1
	}
	for i, l := range f.l.Loaders {
		f.loads = append(f.loads, f.ranks(l.Ranks))
		for _, r := range f.loads[i] {
			f.loader[r] = int32(i)
		}
	}
}

func (f *folder) ranks(refs []actors.Ref) []int32 {
	out := make([]int32, len(refs))
	for i, r := range refs {
		out[i] = f.rank[r]
	}
	return out
}

// join makes units of ranks that hand activations to one another. Two units that use one connection would
// hold each other up.
func (f *folder) join() string {
	n := len(f.l.Ranks)
	f.unit = make([]int32, n)
	for i := range f.unit {
		f.unit[i] = int32(i)
	}
	root := func(r int32) int32 {
		for f.unit[r] != r {
			f.unit[r] = f.unit[f.unit[r]]
			r = f.unit[r]
		}
		return r
	}
	for r := range n {
		f.peers(int32(r), func(peer int32) {
			a, b := root(int32(r)), root(peer)
			f.unit[max(a, b)] = min(a, b)
		})
	}
	f.units = make([][]int32, n)
	for r := range n {
		u := root(int32(r))
		f.unit[r] = u
		f.units[u] = append(f.units[u], int32(r))
	}
	if f.p.Link == nil {
		return ""
	}
	users := map[int32]int32{}
	shared := false
	for r := range n {
		f.peers(int32(r), func(peer int32) {
			for _, ends := range [...]Link{f.p.Link(r, int(peer)), f.p.Link(int(peer), r)} {
				for _, port := range [...]int32{ends.Out, ends.In} {
					user, used := users[port]
					shared = shared || used && user != f.unit[r]
					if port >= 0 {
						users[port] = f.unit[r]
					}
				}
			}
		})
	}
	if shared {
		return "pipelines share connections"
	}
	return ""
}

// refine gives ranks that differ different colours: first by what is their own, then by the company that
// they are in, until no class falls apart any more.
func (f *folder) refine() {
	copy(f.colour, f.own)
	for classes := 0; ; {
		for i := range f.groups {
			g := &f.groups[i]
			g.colour = f.blend(g.own, g.ranks)
		}
		loads := make([]uint64, len(f.loads))
		for i := range f.loads {
			loads[i] = f.blend(uint64(f.l.Loaders[i].Ahead)<<32^uint64(f.l.Loaders[i].Last), f.loads[i])
		}
		next := make([]uint64, len(f.colour))
		for r := range next {
			h := f.colour[r]
			for _, g := range f.in[r] {
				h = mix(h, f.groups[g].colour)
			}
			if at := f.loader[r]; at >= 0 {
				h = mix(h, loads[at])
			}
			next[r] = h
		}
		copy(f.colour, next)
		seen := map[uint64]bool{}
		for u, members := range f.units {
			if len(members) == 0 {
				continue
			}
			whole := f.blend(1, f.units[u])
			for _, r := range members {
				next[r] = mix(f.colour[r], whole)
				seen[next[r]] = true
			}
		}
		copy(f.colour, next)
		if len(seen) == classes {
			return
		}
		classes = len(seen)
	}
}

// blend adds the colours of some ranks, in any order, to a hash.
func (f *folder) blend(h uint64, ranks []int32) uint64 {
	sum := uint64(0)
	for _, r := range ranks {
		sum += mix(0x9e3779b97f4a7c15, f.colour[r])
	}
	return mix(mix(h, uint64(len(ranks))), sum)
}

// choose lets the first unit of each class run. Of a group or a loader that has ranks in it, all classes
// must have one that runs.
func (f *folder) choose() (*folding, string) {
	n := len(f.colour)
	out := &folding{by: make([]int32, n), others: make([][]int32, n)}
	classes, first := map[uint64][]int32{}, map[uint64]int32{}
	for r := range n {
		c := f.colour[r]
		classes[c] = append(classes[c], int32(r))
		if _, known := first[c]; !known {
			first[c] = f.unit[r]
		}
	}
	for c, members := range classes { //lfvet:order each class by itself
		var run []int32
		for _, r := range members {
			if f.unit[r] == first[c] {
				run = append(run, r)
			}
		}
		for i, r := range members {
			by := run[i%len(run)]
			if f.unit[r] == first[c] {
				by = r
			}
			out.by[r], out.others[by] = by, append(out.others[by], r)
		}
	}
	if !f.complete(out) {
		return nil, "ranks that do the same are in company of others that do not run"
	}
	most := 0
	for _, r := range slices.Concat(f.l.RankRefs, f.l.LoaderRefs) {
		most = max(most, int(r))
	}
	out.weight = make([]int32, most+1)
	for i := range out.weight {
		out.weight[i] = 1
	}
	running := 0
	for r, ref := range f.l.RankRefs {
		out.weight[ref] = int32(len(out.others[r]))
		if out.runs(r) {
			running++
		}
	}
	f.weighLoaders(out)
	for _, g := range f.groups {
		if len(g.ranks) > 1 && !slices.ContainsFunc(g.ranks, func(r int32) bool { return out.runs(int(r)) }) {
			out.left++
		}
	}
	if running == n {
		return nil, "no two pipelines do the same"
	}
	return out, ""
}

// runs reports whether a rank does.
func (f *folding) runs(rank int) bool { return f == nil || f.by[rank] == int32(rank) }

// complete reports whether the groups and the loaders of ranks that run have one of each class that runs.
func (f *folder) complete(out *folding) bool {
	whole := func(ranks []int32) bool {
		runs, all := map[uint64]bool{}, map[uint64]bool{}
		for _, r := range ranks {
			all[f.colour[r]] = true
			if out.runs(int(r)) {
				runs[f.colour[r]] = true
			}
		}
		return len(runs) == 0 || len(runs) == len(all)
	}
	return !slices.ContainsFunc(f.groups, func(g folded) bool { return !whole(g.ranks) }) &&
		!slices.ContainsFunc(f.loads, func(l []int32) bool { return !whole(l) })
}

// weighLoaders counts, for each loader that is simulated, the loaders that it stands for.
func (f *folder) weighLoaders(out *folding) {
	count, run := map[uint64]int32{}, map[uint64]int32{}
	serves := func(i int) bool {
		return slices.ContainsFunc(f.loads[i], func(r int32) bool { return out.runs(int(r)) })
	}
	for i := range f.loads {
		c := f.blend(0, f.loads[i])
		if count[c]++; serves(i) {
			run[c]++
		}
	}
	for i, ref := range f.l.LoaderRefs {
		if c := f.blend(0, f.loads[i]); serves(i) {
			out.weight[ref] = count[c] / run[c]
		} else {
			out.weight[ref] = 0
		}
	}
}

// kept are those of some actors that run.
func (s *Sim) kept(refs []actors.Ref) []actors.Ref {
	if s.fold == nil {
		return refs
	}
	var out []actors.Ref
	for _, r := range refs {
		if s.fold.runs(int(s.rankOf[r])) {
			out = append(out, r)
		}
	}
	return out
}

// load is a loader's layout with the ranks that run; nil if none does.
func (s *Sim) load(l *core.LoaderLayout) *core.LoaderLayout {
	if s.fold == nil {
		return l
	}
	own := *l
	if own.Ranks = s.kept(l.Ranks); len(own.Ranks) == 0 {
		return nil
	}
	return &own
}

// stands is how many deliveries one of a message stands for.
func (f *folding) stands(to, from actors.Ref) uint64 {
	n := int32(1)
	for _, r := range [...]actors.Ref{to, from} {
		if int(r) < len(f.weight) {
			n = max(n, f.weight[r])
		}
	}
	return uint64(n)
}

// unfold enters the results of a simulated rank for every rank that it stands for.
func (f *folding) unfold(r *Result) {
	for rank, by := range f.by {
		r.Ranks[rank], r.Peak[rank] = r.Ranks[by], r.Peak[by]
	}
	r.Ran, r.Tied = 0, f.tied
	for rank := range f.by {
		if f.runs(rank) {
			r.Ran++
		}
	}
}

// spans tells of a job on every rank that does it.
func (s *Sim) spans(x Span) {
	if s.fold == nil || x.Rank < 0 {
		s.o.Span(x)
		return
	}
	for _, r := range s.fold.others[x.Rank] {
		x.Rank, x.Ref = int(r), s.l.RankRefs[r]
		s.o.Span(x)
	}
}
