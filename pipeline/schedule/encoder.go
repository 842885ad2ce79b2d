package schedule

import (
	"fmt"

	"github.com/lfactor/lfactor/pipeline/plan"
)

// Encoder says how a vision encoder goes beside a decoder's pipeline. Rows of the composed program are ranks: Width for each
// pipeline rank of the decoder, then Own of the encoder alone.
type Encoder struct {
	Width  int         // tensor-parallel ranks of a pipeline rank
	Own    int         // ranks that run the encoder alone
	Groups [][]int     // replicas of the encoder as rows; microbatch m belongs to group m modulo their number
	Edges  []plan.Edge // all edges of the composed program: stage 0 is the encoder, stage s+1 the decoder's stage s
	Frozen bool        // the encoder has no backward
	Ahead  int         // microbatches that a group encodes before their consumer has run; 0 chooses what is fastest
	Fill   bool        // the encoder works when its rows would wait; otherwise right before its consumer, and after it in the backward
	Costs  plan.Costs  // by stage of the composed program
}

// Compose puts the encoder's forwards and backwards into the decoder's program: every row keeps the decoder's order, so the rows
// of a tensor-parallel group still take their collectives in one order. With Fill the encoder's work goes where its rows would be
// idle; it is placed by running both in time, so the result has no cycle of waits.
func Compose(decoder *plan.Program, e Encoder) (*plan.Program, error) {
	if len(e.Groups) == 0 || e.Width < 1 {
		return nil, fmt.Errorf("an encoder without ranks")
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

// tries are the ways among which the fastest is taken. None is best for all shapes: work that fills a short wait delays what the
// rest of a tensor-parallel group waits for.
func (e *Encoder) tries(micro int) []try {
	rounds := try{ahead: 1}
	if !e.Fill {
		return []try{rounds}
	}
	ahead := []int{e.Ahead}
	if e.Ahead == 0 {
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
	e   Encoder
	out *plan.Program
	try
	pc     []int     // of the decoder's pipeline ranks
	free   []float64 // by row
	ends   map[plan.Action]float64
	next   []int // by group: the next of its microbatches to encode
	back   []int // by group: backwards done
	takers []int // stages that take features
	seen   []bool
}

func newComposer(dec *plan.Program, e Encoder, way try) *composer {
	rows := len(dec.Rows)*e.Width + e.Own
	c := &composer{dec: dec, e: e, try: way, pc: make([]int, len(dec.Rows)), free: make([]float64, rows), ends: map[plan.Action]float64{},
		next: make([]int, len(e.Groups)), back: make([]int, len(e.Groups)), seen: make([]bool, dec.Micro)}
	out := &plan.Program{Rows: make([][]plan.Entry, rows), StageRank: []int{e.Groups[0][0]}, Homes: [][][]int{e.Groups}, Micro: dec.Micro, Chunks: dec.Chunks, Edges: e.Edges}
	for _, r := range dec.StageRank {
		var home []int
		for t := range e.Width {
			home = append(home, r*e.Width+t)
		}
		out.StageRank, out.Homes = append(out.StageRank, home[0]), append(out.Homes, [][]int{home})
	}
	if e.Frozen {
		out.NoBack = make([]bool, len(out.StageRank))
		out.NoBack[0] = true
	}
	c.out = out
	c.takers = out.After(0)
	return c
}

// shifted is a decoder's action with its stage's number in the composed program.
func shifted(a plan.Action) plan.Action {
	if a.Kind != plan.None {
		a.Stage++
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
	group int
}

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
		for g := range c.e.Groups {
			if x, can := c.backward(g); can {
				offer(x)
			}
			if x, can := c.forward(g); can {
				offer(x)
			}
		}
		if !ok {
			return
		}
		c.place(best)
	}
}

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
		if a.Kind == plan.F && a.Stage > 0 && int(a.Stage) == c.takers[0] {
			c.seen[a.Micro] = true
		}
	}
	switch {
	case x.pipe >= 0:
		c.pc[x.pipe]++
	case x.entry.Kind == plan.F:
		c.next[x.group]++
	default:
		c.back[x.group]++
	}
}

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
	e.Action, e.With = shifted(e.Action), shifted(e.With)
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

// micro is the k-th microbatch of a group, or -1.
func (c *composer) micro(g, k int) int {
	if m := g + k*len(c.e.Groups); m < c.dec.Micro {
		return m
	}
	return -1
}

// forward is a group's next encoding, while it is not too far ahead of the consumer.
func (c *composer) forward(g int) (candidate, bool) {
	m := c.micro(g, c.next[g])
	if m < 0 {
		return candidate{}, false
	}
	waiting := 0
	for k := range c.next[g] {
		if !c.seen[c.micro(g, k)] {
			waiting++
		}
	}
	rows := c.e.Groups[g]
	if waiting >= c.ahead {
		return candidate{}, false
	}
	if !c.fill && !c.wanted(m) {
		return candidate{}, false
	}
	a := plan.Action{Kind: plan.F, Micro: int32(m)}
	return candidate{start: c.freeAt(rows), rank: 2, rows: rows, entry: plan.Entry{Action: a}, took: c.e.Costs.Of(a), pipe: -1, group: g}, true
}

// wanted reports whether the consumer's pipeline rank has come to the forward that takes microbatch m's features, or to one of
// the round that is encoded together.
func (c *composer) wanted(m int) bool {
	stage := c.takers[0]
	p := c.dec.StageRank[stage-1]
	for _, e := range c.dec.Rows[p][c.pc[p]:] {
		for _, a := range [2]plan.Action{e.Action, e.With} {
			if a.Kind == plan.F && int(a.Stage)+1 == stage {
				return m/len(c.e.Groups) <= int(a.Micro)/len(c.e.Groups) && e == c.dec.Rows[p][c.pc[p]]
			}
		}
		break
	}
	return false
}

// backward is a group's next backward, when the cotangents of its features are there.
func (c *composer) backward(g int) (candidate, bool) {
	m := c.micro(g, c.back[g])
	if m < 0 || c.e.Frozen {
		return candidate{}, false
	}
	a := plan.Action{Kind: plan.B, Micro: int32(m)}
	rows := c.e.Groups[g]
	x := candidate{start: c.freeAt(rows), rank: 1, rows: rows, entry: plan.Entry{Action: a}, took: c.e.Costs.Of(a), pipe: -1, group: g}
	if !c.fill {
		x.rank = -1 // right behind its consumer's backward
	}
	if c.late && !c.over(rows) {
		return x, false
	}
	if _, encoded := c.ends[plan.Action{Kind: plan.F, Micro: int32(m)}]; !encoded {
		return x, false
	}
	last := m
	if !c.fill { // the replicas work at one time: when the last microbatch of their round is through
		last = min(m/len(c.e.Groups)*len(c.e.Groups)+len(c.e.Groups), c.dec.Micro) - 1
	}
	for ; m <= last; m++ {
		for _, s := range c.takers {
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
