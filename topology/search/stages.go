package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/topology/collective"
)

// Stages are the costs of a pipeline's stages.
type Stages struct {
	Blocks []BlockCost // summed by stage
	first  int         // the stage of the decoder's first block
}

// back is how long a backward takes that makes gradients of weights.
func (b *BlockCost) back(split bool) float64 {
	if split {
		return b.W
	}
	return b.I + b.W
}

// Back is how long the last backward of a rank takes, through all its stages.
func (s *Space) Back(c *Candidate, st *Stages, ranks []int, r int) (seconds float64) {
	p := s.place(c.Schedule, c.PP, c.Loops)
	for i := range st.Blocks {
		if ranks[i] == r {
			seconds += st.Blocks[i].back(p != nil && p.split)
		}
	}
	return seconds
}

// Own sums what is trained of the stages that rank r has, of the ranks of all stages; what two stages share
// lies there once.
func (st *Stages) Own(ranks []int, r int) (w Weights) {
	for s, owner := range ranks {
		if owner != r {
			continue
		}
		b := &st.Blocks[s]
		w.Params, w.Experts, w.Tensors = w.Params+b.Params, w.Experts+b.Experts, w.Tensors+b.Tensors
		if s != st.first && ranks[st.first] == r {
			w.Params -= b.TiedToFirstBlock
		}
	}
	return
}

// Tied is the time in which ranks exchange the gradients of weights that lie on two of them, as those of an
// embedding that is the head too; ranks are those of all stages.
func (s *Space) Tied(c *Candidate, st *Stages, ranks []int) (t float64) {
	for i := range st.Blocks {
		n := 4 * st.Blocks[i].TiedToFirstBlock
		if i == st.first || n == 0 || ranks[i] == ranks[st.first] {
			continue
		}
		if c.Zero > 0 {
			n /= int64(c.sharers())
		}
		between := c.TP * c.Copies() // neighbours of the pipeline are so many devices apart
		t += s.Machine.Collective(collective.AllReduce, []int{ranks[st.first] * between, ranks[i] * between}, n)
	}
	return
}

// TiedRank reports whether a rank takes part in that exchange.
func (st *Stages) TiedRank(ranks []int, r int) bool {
	for i := range st.Blocks {
		if st.Blocks[i].TiedToFirstBlock > 0 && ranks[i] != ranks[st.first] && (ranks[i] == r || ranks[st.first] == r) {
			return true
		}
	}
	return false
}

// single reports whether the last stage ends a microbatch's backward before it begins the next forward.
func single(p *plan.Program) bool {
	last, live := len(p.StageRank)-1, 0
	for _, e := range p.Rows[p.StageRank[last]] {
		for _, a := range [2]plan.Action{e.Action, e.With} {
			switch {
			case int(a.Stage) != last:
			case a.Kind == plan.F:
				if live++; live > 1 {
					return false
				}
			case a.Kind == plan.B || a.Kind == plan.W:
				live--
			}
		}
	}
	return true
}

// variant reduces a candidate to what the costs of its blocks depend on. The data-parallel size
// counts only where gradients are sharded over it.
func (s *Space) variant(c *Candidate, p *place) Variant {
	v := Variant{TP: c.TP, SP: c.SP, Batch: c.Batch, Recompute: c.Recompute, Split: p.split,
		Single: p.one, EP: c.EP, ETP: c.ETP, Context: c.Context}
	if c.Zero >= 2 && c.Copies() > 1 {
		v.Zero, v.DP = c.Zero, cmp.Or(c.Groups, c.DP)
	}
	v.Overlap = c.Overlap && exchanging(v)
	return v
}

// Variants are those that the blocks of candidates are to be priced for, each once.
func (s *Space) Variants(all []Candidate) (out []Variant) {
	seen := map[Variant]bool{}
	for i := range all {
		c := &all[i]
		if p := s.place(c.Schedule, c.PP, c.Loops); p != nil {
			if v := s.variant(c, p); !seen[v] {
				seen[v] = true
				out = append(out, v)
			}
		}
	}
	return
}

// embed is the block of the embedding, the decoder's first.
func (s *Space) embed() int {
	if s.Tower != nil {
		return s.Tower.Blocks
	}
	return 0
}

// cuts are the borders of a candidate's stages between the model's blocks.
func (s *Space) cuts(c *Candidate) ([]int, error) {
	if c.Layers == nil {
		if c.Encoder.apart() {
			return s.Tower.Cut(c.PP * c.Loops)
		}
		return s.Cut(c.PP * c.Loops)
	}
	at := s.embed() + 1
	cuts := []int{0}
	if c.Encoder.apart() {
		cuts[0] = s.embed()
	}
	for _, n := range c.Layers {
		at += n
		cuts = append(cuts, at)
	}
	all, err := s.Cut(1)
	if err != nil {
		return nil, err
	}
	cuts[len(cuts)-1] = all[1] // with what lies behind the layers
	return cuts, nil
}

// LayersOf is how many layers of the decoder each stage of a candidate has.
func (s *Space) LayersOf(c *Candidate) ([]int, error) {
	cuts, err := s.cuts(c)
	if err != nil {
		return nil, err
	}
	from, to := s.embed()+1, s.embed()+1+s.Layers
	within := func(at int) int { return min(max(at, from), to) }
	out := make([]int, len(cuts)-1)
	for i := range out {
		out[i] = within(cuts[i+1]) - within(cuts[i])
	}
	return out, nil
}

// uneven is the layers of each stage where so many stages do not divide them, else nil.
func (s *Space) uneven(stages int) []int {
	if s.Layers%stages == 0 {
		return nil
	}
	layers, err := s.LayersOf(&Candidate{PP: stages, Loops: 1})
	if err != nil {
		return nil
	}
	return layers
}

// StagesOf gives the costs of a candidate's stages.
func (s *Space) StagesOf(c *Candidate) (*Stages, error) {
	p := s.place(c.Schedule, c.PP, c.Loops)
	if p == nil {
		return nil, fmt.Errorf("schedule %s cannot have %d ranks with %d stages each", c.Schedule, c.PP, c.Loops)
	}
	key := stageKey{v: s.variant(c, p), stages: c.PP * c.Loops, apart: c.Encoder.apart(), layers: fmt.Sprint(c.Layers),
		again: fmt.Sprint(c.RecomputeLayers)}
	if x := s.stages[key]; x != nil {
		return x, nil
	}
	embed := s.embed()
	cuts, err := s.cuts(c)
	if err != nil {
		return nil, err
	}
	blocks, err := s.recomputed(key.v, c.RecomputeLayers, cuts)
	if err != nil {
		return nil, err
	}
	x := &Stages{}
	for i := range key.stages {
		if cuts[i] <= embed && embed < cuts[i+1] {
			x.first = i
		}
		x.Blocks = append(x.Blocks, s.sum(blocks[cuts[i]:cuts[i+1]], embed-cuts[i]))
	}
	s.stages[key] = x
	return x, nil
}

// recomputed are the costs of a variant's blocks, of which only the first so many layers of each stage
// recompute; nil is all.
func (s *Space) recomputed(v Variant, layers, cuts []int) ([]BlockCost, error) {
	blocks, err := s.Profile(v)
	if err != nil || layers == nil {
		return blocks, err
	}
	v.Recompute = "none"
	spared, err := s.Profile(v)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(blocks)
	for stage, n := range layers {
		first := max(cuts[stage], s.embed()+1)
		for i := first + n; i < min(cuts[stage+1], s.embed()+1+s.Layers); i++ {
			out[i] = spared[i]
		}
	}
	return out, nil
}

// sum joins blocks to a stage: what they hold adds up, of the transient rest the worst counts. Embed is the
// block that others may share weights with, if it is one of them.
func (s *Space) sum(blocks []BlockCost, embed int) (out BlockCost) {
	var moreF, moreB int64
	for i, b := range blocks {
		back := &blocks[len(blocks)-1-i] // the last block's is the first
		out.Passes[0] = out.Passes[0].then(s.Machine, b.Passes[0])
		for k := 1; k < len(out.Passes); k++ {
			out.Passes[k] = out.Passes[k].then(s.Machine, back.Passes[k])
		}
		out.Held, out.HeldW = out.Held+b.Held, out.HeldW+b.HeldW
		moreF, moreB = max(moreF, b.PeakF-b.Held), max(moreB, b.PeakB-b.Held)
		out.Params, out.Experts, out.Tensors, out.Port = out.Params+b.Params, out.Experts+b.Experts,
			out.Tensors+b.Tensors, b.Port
		if embed >= 0 && i > embed {
			out.Params -= b.TiedToFirstBlock
		} else {
			out.TiedToFirstBlock += b.TiedToFirstBlock
		}
	}
	out.PeakF, out.PeakB = out.Held+moreF, out.Held+moreB
	out.F, out.I, out.W = out.Passes[0].Seconds(s.Machine), out.Passes[1].Seconds(s.Machine),
		out.Passes[2].Seconds(s.Machine)
	return
}

// Costs are the seconds of the passes of the stages, for a schedule whose order follows them; else nil.
func (st *Stages) Costs(name string) *plan.Costs {
	s, err := schedule.Get(name)
	if err != nil || !s.Follows {
		return nil
	}
	c := &plan.Costs{}
	for i := range st.Blocks {
		b := &st.Blocks[i]
		c.F, c.I, c.W = append(c.F, b.F), append(c.I, b.I), append(c.W, b.W)
	}
	return c
}
