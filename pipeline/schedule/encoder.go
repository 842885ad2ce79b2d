package schedule

import (
	"fmt"

	"github.com/lfactor/lfactor/pipeline/plan"
)

// Parts says how components with ranks of their own, such as vision encoders, go beside a decoder's
// pipeline. Rows of the composed program are ranks: Width for each pipeline rank of the decoder, then Own of
// the parts alone. The parts are its first stages, in order.
type Parts struct {
	Width int // ranks of a pipeline rank
	Own   int // ranks that run parts alone
	List  []Part
	// all edges of the composed program, in which the decoder's stage s has number s + len(List)
	Edges []plan.Edge
	Costs plan.Costs // by stage of the composed program
}

// Part is one component beside the pipeline.
type Part struct {
	Groups [][]int // its replicas as rows; microbatch m belongs to group m modulo their number
	Frozen bool    // it has no backward
	// microbatches that a group works on before their consumer has run; 0 chooses what is fastest
	Ahead int
	// it works when its rows would wait; otherwise right before its consumer, and after it in the backward
	Fill bool
}

// Compose puts the parts' forwards and backwards into the decoder's program: every row keeps the decoder's order,
// so the rows of a tensor-parallel group still take their collectives in one order. With Fill a part's work goes where
// its rows would be idle; it is placed by running all in time, so the result has no cycle of waits.
func Compose(decoder *plan.Program, e Parts) (*plan.Program, error) {
	for i, p := range e.List {
		if len(p.Groups) == 0 || e.Width < 1 {
			return nil, fmt.Errorf("an encoder without ranks")
		}
		for _, x := range e.Edges {
			if x.From == i && x.To < len(e.List) {
				return nil, fmt.Errorf("part %d gives to part %d: parts with meshes of their own give "+
					"to the decoder alone", i, x.To)
			}
		}
	}
	var best *plan.Program
	var least float64
	for _, way := range e.tries(decoder.Micro) {
		c := newComposer(decoder, e, way)
		c.run()
		if err := c.out.Check(); err != nil {
			return nil, fmt.Errorf("encoder beside a pipeline: %w", err)
		}
		t, err := c.out.Evaluate(e.Costs)
		if err != nil {
			return nil, err
		}
		if best == nil || t.Makespan < least*(1-1e-9) {
			best, least = c.out, t.Makespan
		}
	}
	return best, nil
}

// try is a way to place the encoder's work.
type try struct {
	fill  bool // when rows would wait; otherwise round by round, all replicas at one time
	late  bool // backwards when the decoder's rows have ended
	ahead int
}

// tries are the ways, each for all parts that fill, among which the fastest is taken. None is best for all
// shapes: work that fills a short wait delays what the rest of a tensor-parallel group waits for.
func (e *Parts) tries(micro int) []try {
	rounds, fills, ahead := try{ahead: 1}, false, []int{}
	for _, p := range e.List {
		fills = fills || p.Fill
		if p.Fill && p.Ahead > 0 {
			ahead = append(ahead, p.Ahead)
		}
	}
	if !fills {
		return []try{rounds}
	}
	if len(ahead) == 0 {
		ahead = []int{1, 2, 4, 8, micro}
	}
	out := []try{rounds}
	for _, n := range ahead {
		out = append(out, try{true, false, n}, try{true, true, n})
	}
	return out
}

// composer places actions in the order of time.
type composer struct {
	dec *plan.Program
	e   Parts
	out *plan.Program
	try
	pc    []int     // of the decoder's pipeline ranks
	free  []float64 // by row
	ends  map[plan.Action]float64
	parts []placing
}

// placing is how far a part has come.
type placing struct {
	Part
	stage  int
	try    try
	next   []int  // by group: the next of its microbatches to work on
	back   []int  // by group: backwards done
	takers []int  // stages that take what it gives
	seen   []bool // by microbatch: its first taker has run
}

// newComposer prepares to merge the stages of encoders into the pipeline dec of the decoder. The
// encoders' stages come first, so that the decoder's keep their order behind them.
func newComposer(dec *plan.Program, e Parts, way try) *composer {
	// A rank of the decoder's pipeline stands for Width ranks, and encoders may have ranks of their own.
	rows := len(dec.Rows)*e.Width + e.Own
	c := &composer{dec: dec, e: e, try: way, pc: make([]int, len(dec.Rows)), free: make([]float64, rows),
		ends: map[plan.Action]float64{}}
	out := &plan.Program{Rows: make([][]plan.Entry, rows), Micro: dec.Micro, Chunks: dec.Chunks, Edges: e.Edges}
	for _, p := range e.List {
		out.StageRank, out.Homes = append(out.StageRank, p.Groups[0][0]), append(out.Homes, p.Groups)
	}
	for _, r := range dec.StageRank {
		var home []int
		for t := range e.Width {
			home = append(home, r*e.Width+t)
		}
		out.StageRank, out.Homes = append(out.StageRank, home[0]), append(out.Homes, [][]int{home})
	}
	for i, p := range e.List {
		if p.Frozen {
			if out.NoBack == nil {
				out.NoBack = make([]bool, len(out.StageRank))
			}
			out.NoBack[i] = true
		}
	}
	c.out = out
	for i, p := range e.List {
		x := placing{Part: p, stage: i, try: way, next: make([]int, len(p.Groups)),
			back: make([]int, len(p.Groups)), takers: out.After(i), seen: make([]bool, dec.Micro)}
		// A part that does not fill gaps runs right before it is needed, one microbatch ahead.
		if !p.Fill {
			x.try = try{ahead: 1}
		} else if p.Ahead > 0 && way.fill {
			x.try.ahead = p.Ahead
		}
		c.parts = append(c.parts, x)
	}
	return c
}

// shifted is a decoder's action with its stage's number in the composed program.
func (c *composer) shifted(a plan.Action) plan.Action {
	if a.Kind != plan.None {
		a.Stage += int16(len(c.parts))
	}
	return a
}

// candidate is an action that could run next.
type candidate struct {
	start float64
	rank  int // of what to prefer at one time: the decoder, the encoder's backward, its forward
	rows  []int
	entry plan.Entry
	took  float64
	pipe  int // pipeline rank of a decoder's, or -1
	part  *placing
	group int
}

// run places the entry that can start first, again and again, until none can. Ties go by rank,
// which keeps the result the same on all machines.
func (c *composer) run() {
	for {
		best, ok := candidate{}, false
		offer := func(x candidate) {
			if !ok || x.start < best.start || x.start == best.start && x.rank < best.rank {
				best, ok = x, true
			}
		}
		for p := range c.dec.Rows {
			if x, can := c.decoder(p); can {
				offer(x)
			}
		}
		for i := range c.parts {
			p := &c.parts[i]
			for g := range p.Groups {
				if x, can := c.backward(p, g); can {
					offer(x)
				}
				if x, can := c.forward(p, g); can {
					offer(x)
				}
			}
		}
		if !ok {
			return
		}
		c.place(best)
	}
}

// place puts an entry on all rows that it occupies and notes when its actions end, by which later
// entries know when they can start.
func (c *composer) place(x candidate) {
	end := x.start + x.took
	for _, r := range x.rows {
		c.out.Rows[r] = append(c.out.Rows[r], x.entry)
		c.free[r] = end
	}
	for _, a := range [2]plan.Action{x.entry.Action, x.entry.With} {
		if a.Kind != plan.None {
			c.ends[a] = end
		}
		for i := range c.parts {
			if p := &c.parts[i]; a.Kind == plan.F && int(a.Stage) == p.takers[0] {
				p.seen[a.Micro] = true
			}
		}
	}
	switch {
	case x.pipe >= 0:
		c.pc[x.pipe]++
	case x.entry.Kind == plan.F:
		x.part.next[x.group]++
	default:
		x.part.back[x.group]++
	}
}

// freeAt is the time from which all of the rows are free.
func (c *composer) freeAt(rows []int) (t float64) {
	for _, r := range rows {
		t = max(t, c.free[r])
	}
	return
}

// decoder is the next entry of a pipeline rank, if what it takes is there.
func (c *composer) decoder(p int) (candidate, bool) {
	if c.pc[p] == len(c.dec.Rows[p]) {
		return candidate{}, false
	}
	e := c.dec.Rows[p][c.pc[p]]
	e.Action, e.With = c.shifted(e.Action), c.shifted(e.With)
	rows := c.out.Homes[e.Stage][0]
	x := candidate{start: c.freeAt(rows), rows: rows, entry: e, pipe: p}
	for _, a := range [2]plan.Action{e.Action, e.With} {
		if a.Kind == plan.None {
			continue
		}
		for _, d := range c.out.Deps(a) {
			t, done := c.ended(d)
			if !done {
				return candidate{}, false
			}
			x.start = max(x.start, t)
		}
		x.took += c.e.Costs.Of(a)
	}
	return x, true
}

// ended is when a half (F, I or W) ended, if it did: B is both halves.
func (c *composer) ended(a plan.Action) (float64, bool) {
	if t, ok := c.ends[a]; ok {
		return t, true
	}
	if a.Kind == plan.I || a.Kind == plan.W {
		a.Kind = plan.B
		t, ok := c.ends[a]
		return t, ok
	}
	return 0, false
}

// micro is the k-th microbatch of a part's group, or -1.
func (c *composer) micro(p *placing, g, k int) int {
	if m := g + k*len(p.Groups); m < c.dec.Micro {
		return m
	}
	return -1
}

// forward is a group's next microbatch, while it is not too far ahead of the consumer.
func (c *composer) forward(p *placing, g int) (candidate, bool) {
	m := c.micro(p, g, p.next[g])
	if m < 0 {
		return candidate{}, false
	}
	waiting := 0
	for k := range p.next[g] {
		if !p.seen[c.micro(p, g, k)] {
			waiting++
		}
	}
	rows := p.Groups[g]
	if waiting >= p.try.ahead {
		return candidate{}, false
	}
	if !p.try.fill && !c.wanted(p, m) {
		return candidate{}, false
	}
	a := plan.Action{Kind: plan.F, Stage: int16(p.stage), Micro: int32(m)}
	return candidate{start: c.freeAt(rows), rank: 2, rows: rows, entry: plan.Entry{Action: a},
		took: c.e.Costs.Of(a), pipe: -1, part: p, group: g}, true
}

// wanted reports whether the consumer's pipeline rank has come to the forward that takes what the part makes
// of microbatch m, or to one of the round that is worked on together.
func (c *composer) wanted(p *placing, m int) bool {
	first := p.takers[0] - len(c.parts)
	row := c.dec.StageRank[first]
	if c.pc[row] == len(c.dec.Rows[row]) {
		return false
	}
	e := c.dec.Rows[row][c.pc[row]]
	for _, a := range [2]plan.Action{e.Action, e.With} {
		if a.Kind == plan.F && int(a.Stage) == first {
			return m/len(p.Groups) <= int(a.Micro)/len(p.Groups)
		}
	}
	return false
}

// backward is a group's next backward, when the cotangents of what it gave are there.
func (c *composer) backward(p *placing, g int) (candidate, bool) {
	m := c.micro(p, g, p.back[g])
	if m < 0 || p.Frozen {
		return candidate{}, false
	}
	a := plan.Action{Kind: plan.B, Stage: int16(p.stage), Micro: int32(m)}
	rows := p.Groups[g]
	x := candidate{start: c.freeAt(rows), rank: 1, rows: rows, entry: plan.Entry{Action: a},
		took: c.e.Costs.Of(a), pipe: -1, part: p, group: g}
	if !p.try.fill {
		x.rank = -1 // right behind its consumer's backward
	}
	if p.try.late && !c.over(rows) {
		return x, false
	}
	if _, worked := c.ends[plan.Action{Kind: plan.F, Stage: int16(p.stage), Micro: int32(m)}]; !worked {
		return x, false
	}
	last := m
	if !p.try.fill { // the replicas work at one time: when the last microbatch of their round is through
		last = min(m/len(p.Groups)*len(p.Groups)+len(p.Groups), c.dec.Micro) - 1
	}
	for ; m <= last; m++ {
		for _, s := range p.takers {
			t, done := c.ended(plan.Action{Kind: plan.I, Stage: int16(s), Micro: int32(m)})
			if !done {
				return x, false
			}
			x.start = max(x.start, t)
		}
	}
	return x, true
}

// over reports whether the decoder has nothing left to do on rows.
func (c *composer) over(rows []int) bool {
	for _, r := range rows {
		if p := r / c.e.Width; p < len(c.dec.Rows) && c.pc[p] < len(c.dec.Rows[p]) {
			return false
		}
	}
	return true
}
