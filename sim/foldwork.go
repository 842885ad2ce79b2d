package sim

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// rowKey finds the work of a row of a program.
type rowKey struct {
	p   *plan.Program
	row int
}

// rowWork is what a row of a program has: its actions but for their microbatches, its stages, and the far
// ends of its ports.
type rowWork struct {
	actions []plan.Action
	far     []int
	ports   []*core.Port
}

// listKey finds a list of segments.
type listKey struct {
	first *core.Segment
	n     int
}

// row lists a rank's work.
func (f *folder) row(r int32) *rowWork {
	l := f.l.Ranks[r]
	key := rowKey{l.Program, l.Row}
	if w := f.rows[key]; w != nil {
		return w
	}
	w := &rowWork{}
	seen := map[plan.Action]bool{}
	for _, e := range l.Program.Rows[l.Row] {
		for _, a := range [...]plan.Action{e.Action, e.With} {
			if a.Micro = 0; a.Kind != plan.None && !seen[a] {
				seen[a] = true
				w.actions = append(w.actions, a)
			}
		}
	}
	for i := range l.Ports {
		p := &l.Ports[i]
		from, to := l.Program.Owns(p.From, l.Row), l.Program.Owns(p.To, l.Row)
		if from {
			w.far = append(w.far, p.To)
		}
		if to {
			w.far = append(w.far, p.From)
		}
		if from || to {
			w.ports = append(w.ports, p)
		}
	}
	f.rows[key] = w
	return w
}

// peers calls do for each rank that a rank hands activations to or takes them from.
func (f *folder) peers(r int32, do func(peer int32)) {
	l, w := f.l.Ranks[r], f.row(r)
	for _, stage := range w.far {
		if p := l.Peer(stage); int(p) < len(f.rank) && f.rank[p] >= 0 {
			do(f.rank[p])
		}
	}
	if l.Routes == nil {
		return
	}
	for _, p := range w.ports {
		for _, back := range [...]bool{false, true} {
			x := l.Routes(p.ID, back)
			if x == nil {
				continue
			}
			for _, peer := range slices.Concat(append(x.To, x.From)...) {
				do(f.rank[peer])
			}
		}
	}
}

// describe gives each rank a hash of what is its own, and each group one of what its collectives cost.
func (f *folder) describe() {
	n := len(f.l.Ranks)
	f.own, f.colour, f.in = make([]uint64, n), make([]uint64, n), make([][]int32, n)
	for r := range n {
		for _, g := range f.l.Ranks[r].Groups {
			f.in[r] = append(f.in[r], f.group(g.Members))
		}
	}
	for r := range n {
		f.own[r] = f.work(int32(r))
	}
	for i := range f.groups {
		g := &f.groups[i]
		g.own = uint64(len(g.ranks))
		if len(g.ranks) < 2 {
			continue
		}
		ranks := make([]int, len(g.ranks))
		for k, r := range g.ranks {
			ranks[k] = int(r)
		}
		slices.Sort(g.bytes)
		for _, bytes := range g.bytes {
			g.own = mix(mix(g.own, uint64(bytes)), uint64(f.p.Collective(ranks, bytes, false)))
			g.own = mix(g.own, uint64(f.p.Collective(ranks, bytes, true)))
		}
	}
}

// group numbers a set of members. Members that have one list of themselves are told by it: to read it once for each of
// them would take as long as the square of the ranks.
func (f *folder) group(members []actors.Ref) (number int32) {
	list := memberList{&members[0], len(members)}
	if i, known := f.known[list]; known {
		return i
	}
	defer func() { f.known[list] = number }()
	key := keyOf(members)
	for _, i := range f.groupOf[key] {
		if slices.EqualFunc(f.groups[i].ranks, members, func(r int32, m actors.Ref) bool {
			return f.l.RankRefs[r] == m
		}) {
			return i
		}
	}
	i := int32(len(f.groups))
	f.groups = append(f.groups, folded{ranks: f.ranks(members)})
	f.groupOf[key] = append(f.groupOf[key], i)
	return i
}

// work hashes what a rank does and what it takes: jobs, memory and links.
func (f *folder) work(r int32) uint64 {
	l, w := f.l.Ranks[r], f.row(r)
	h := mix(uint64(l.Row)<<32|uint64(uint32(l.Credits)), uint64(len(l.Groups)))
	for _, p := range [...]*plan.Program{l.Program, l.Eval} {
		h = mix(h, f.program(p))
	}
	classes, all := f.classes(r)
	h = mix(h, all)
	for _, class := range classes {
		for _, a := range w.actions {
			h = f.action(h, r, a, class)
		}
	}
	step := &actors.Job{Kind: actors.UpdatePhase, Action: plan.Action{Kind: plan.Step}, Step: f.l.Run.First}
	h = f.jobs(f.jobs(h, r, l.Update, step), r, l.Moving, step)
	if l.Absent != nil {
		for _, p := range w.ports {
			for _, class := range classes {
				if l.Absent(p.ID, class) {
					h = mix(h, uint64(p.ID)<<32|uint64(uint32(class)))
				}
			}
		}
	}
	m := &f.l.Memory
	for _, of := range [...]func(int) int64{m.Base, m.Update} {
		if of != nil {
			h = mix(h, uint64(of(l.Rank)))
		}
	}
	return f.links(h, r)
}

// action hashes what a rank does for an action of any microbatch of a class: its jobs, what its memory is, and
// which exchanges of the optimizer step it begins.
func (f *folder) action(h uint64, r int32, a plan.Action, class int32) uint64 {
	l := f.l.Ranks[r]
	segs := l.Lower(a, false, class)
	j := &actors.Job{Kind: actors.RunSegment, Action: a, Step: f.l.Run.First, Class: class}
	h = mix(h, uint64(a.Kind)<<32|uint64(uint16(a.Stage))<<16|uint64(uint16(a.Chunk)))
	h = f.jobs(h, r, segs, j)
	if foot := f.l.Memory.Foot; foot != nil {
		j.Segment = 0
		peak, after := foot(l.Rank, j)
		h = mix(mix(h, uint64(peak)), uint64(after))
	}
	if e := l.Early; e != nil {
		for k := range segs {
			for _, x := range e.Of(a, class, int32(k)) {
				h = mix(h, uint64(k)<<32|uint64(uint32(x))|1<<63)
			}
		}
	}
	return h
}

// links hashes what messages of a rank take.
func (f *folder) links(h uint64, r int32) uint64 {
	if f.p.Link == nil {
		return h
	}
	add := func(l Link) { h = mix(mix(h, uint64(l.Latency)), math.Float64bits(l.PerByte)) }
	f.peers(r, func(peer int32) {
		add(f.p.Link(int(r), int(peer)))
		add(f.p.Link(int(peer), int(r)))
	})
	add(f.p.Link(int(r), -1))
	add(f.p.Link(-1, int(r)))
	return h
}

// jobs hashes a list of segments and what its jobs take on a rank, and notes the bytes of its collectives.
func (f *folder) jobs(h uint64, r int32, segs []core.Segment, j *actors.Job) uint64 {
	h = mix(h, f.list(segs))
	for i := range segs {
		s := &segs[i]
		j.Segment = int32(i)
		h = mix(h, uint64(f.p.Job(int(r), j, s)))
		for _, c := range s.Comms {
			g := &f.groups[f.in[r][c.Group]]
			if !slices.Contains(g.bytes, c.Bytes) {
				g.bytes = append(g.bytes, c.Bytes)
			}
		}
	}
	return h
}

// list hashes segments, each list once.
func (f *folder) list(segs []core.Segment) uint64 {
	if len(segs) == 0 {
		return 0
	}
	key := listKey{&segs[0], len(segs)}
	if h, known := f.lists[key]; known {
		return h
	}
	h := uint64(len(segs))
	for i := range segs {
		s := &segs[i]
		ready := int64(0)
		if s.Ready {
			ready = 1
		}
		for _, x := range [...]int64{s.Flops, s.Bytes, int64(s.Calls), s.Away, s.Back, s.Through, ready} {
			h = mix(h, uint64(x))
		}
		for _, a := range s.Await {
			h = mix(h, uint64(uint32(a.Segment))<<32|uint64(uint32(a.Comm)))
		}
		for _, c := range s.Comms {
			early := uint64(0)
			if c.Early {
				early = 1
			}
			h = mix(mix(h, uint64(c.Bytes)), uint64(c.Group)<<32|uint64(uint16(c.Shift))<<1|early)
		}
	}
	f.lists[key] = h
	return h
}

// program numbers programs.
func (f *folder) program(p *plan.Program) uint64 {
	i := slices.Index(f.programs, p)
	if i < 0 {
		i = len(f.programs)
		f.programs = append(f.programs, p)
	}
	return uint64(i)
}

// classes are those of the microbatches that a rank gets in the run's first steps, each once, and of all in order.
func (f *folder) classes(r int32) (each []int32, all uint64) {
	at := f.loader[r]
	if f.l.Class == nil || at < 0 {
		return []int32{0}, 0
	}
	if c, known := f.shapes[at]; known {
		return c.each, c.all
	}
	c := shapes{}
	for step := f.l.Run.First; step <= f.l.Run.Last; step++ {
		for m := range f.l.Ranks[r].Program.Micro {
			class := f.l.Class(step, f.l.Loaders[at].Ranks[0], m)
			if !slices.Contains(c.each, class) {
				c.each = append(c.each, class)
			}
			c.all = mix(c.all, uint64(class))
		}
	}
	f.shapes[at] = c
	return c.each, c.all
}

// shapes are the classes of the microbatches of a loader.
type shapes struct {
	each []int32
	all  uint64
}
