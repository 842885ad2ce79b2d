package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/topology/collective"
	"github.com/lfactor/lfactor/topology/cost"
)

// Variant is what the cost of a model's blocks depends on.
type Variant struct {
	TP        int
	SP        bool // sequence parallelism beside it
	Batch     int  // sequences of a microbatch
	Recompute string
	Split     bool // I and W run apart
	// the loss has one microbatch at a time between forward and backward, and may keep what saves it a product
	Single   bool
	Overlap  bool // exchanges are awaited at their first use
	Zero, DP int  // 2 or 3, which communicate inside a microbatch, over so many replicas; else 0 and 0
	EP,
	ETP int // ranks that a layer's experts are shared out over, and that share each; 0 for a model without
	Context // ranks that share the tokens of a sequence
}

// Context is how the tokens of sequences are shared out over ranks; the zero value is not at all.
type Context struct {
	CP   int    `json:"cp,omitempty"`
	Comm string `json:"cp_comm,omitempty"` // as plan.cp_comm
}

// BlockCost is what one block of a model costs a rank for one microbatch: seconds, collectives inside
// included, and bytes.
type BlockCost struct {
	F, I, W          float64 // without Split, I is the whole backward
	Passes           [3]Pass // what F, I and W are the times of
	Held, HeldW      int64   // what F leaves, and I for W
	PeakF, PeakB     int64   // the worst of a pass, what it leaves included
	Weights                  // on a rank
	Port             int64   // bytes that it gives to the next
	TiedToFirstBlock int64   // elements that are also those of the decoder's first block
}

// Space is the plans that are looked through.
type Space struct {
	Machine   *cost.Machine
	Devices   int // of all hosts
	Batch     int // sequences of a step
	Layers    int
	Param     int64 // bytes of a weight
	State     int64 // bytes of optimizer state for a weight
	Through   int64 // bytes of it that wait on the host, and come from there and go back in each update
	Traffic   int64 // bytes that the update of a weight reads and writes
	Bucket    int64 // bytes of gradients that are sent together during the last backward, 0 for none
	Limit     int64 // bytes of a device
	Schedules []string
	TP        []int // allowed degrees
	Rows      int   // of a sequence; 0: sequence parallelism is not looked at
	// Profile gives the costs of the model's blocks, Cut the borders of so many stages.
	Profile func(Variant) ([]BlockCost, error)
	Cut     func(stages int) ([]int, error)
	Tower   *Tower // of a model with a vision encoder, else nil
	// Shares lists the ways to share experts out over some of so many ranks of a stage, as EP and ETP; nil
	// for a model without.
	Shares func(ranks, tp int) [][2]int
	// Contexts lists the ways to share the tokens of a sequence out over some of so many ranks of a stage,
	// beside the zero value; nil for none. They are looked at with one sequence a microbatch: with more,
	// replicas do the same without an exchange.
	Contexts func(ranks, tp int) []Context
	// Keeps says which plans leave what the run minimises as it is: no others are listed; nil for all.
	Keeps func(*Candidate) bool

	stages   map[stageKey]*Stages
	recuts   map[stageKey][]int // layers by stage, as evenTimes cuts them
	places   map[placeKey]*place
	groups   *groups
	programs map[string]string // schedules by what they build
}

// Candidate is one plan with what is expected of it.
type Candidate struct {
	TP      int  `json:"tp"`
	SP      bool `json:"sequence_parallel,omitempty"`
	PP      int  `json:"pp"`
	DP      int  `json:"dp"`
	EP      int  `json:"ep,omitempty"`
	ETP     int  `json:"etp,omitempty"`
	Context      // how tokens are shared out
	Zero    int  `json:"zero"`
	// Groups is how many ranks share state out where not all replicas do, as those of a host; 0 is all.
	Groups   int    `json:"zero_ranks,omitempty"`
	Schedule string `json:"schedule"`
	Loops    int    `json:"virtual_stages"`
	Batch    int    `json:"micro_batch"`
	Micro    int    `json:"microbatches"`
	Chunks   int    `json:"chunks,omitempty"`  // that a microbatch is cut into; 0 for none
	Overlap  bool   `json:"overlap,omitempty"` // exchanges travel behind other work of the pass
	// forwards run in turns with backwards of other microbatches
	Pairs     bool   `json:"overlap_microbatches,omitempty"`
	Recompute string `json:"recompute"`
	Layers    []int  `json:"layers,omitempty"` // of each stage; nil: cut by the sizes of layers and head
	// of each stage, how many of its first layers recompute; nil is all
	RecomputeLayers []int   `json:"recompute_layers,omitempty"`
	Encoder         Encoder `json:"encoder,omitzero"`
	Step            float64 `json:"closed_form_step_s"`
	Bubble          float64 `json:"bubble"` // idle share of the busiest rank
	Memory          int64   `json:"memory_bytes"`
	Simulated       float64 `json:"simulated_step_s,omitempty"`
	Why             string  `json:"why_not,omitempty"` // why it cannot be used
	// its step and memory are what it takes at least, too long to be among the best or too much to fit
	Unpriced bool `json:"at_least,omitempty"`
}

// String names the plan.
func (c *Candidate) String() string {
	experts := ""
	if c.CP > 1 {
		experts = " cp" + c.Context.String()
	}
	if c.EP > 0 {
		experts += fmt.Sprintf(" ep%d", c.EP)
	}
	if c.ETP > 1 {
		experts += fmt.Sprintf(" etp%d", c.ETP)
	}
	return fmt.Sprintf("tp%s pp%s dp%d%s zero%s %s, %d×%d sequences, recompute %s%s", c.Tensor(), c.Pipeline(), c.DP,
		experts, c.Shared(), c.Program(), c.Micro, c.Batch, c.Recomputes(), c.Encoder)
}

// Recomputes is what is computed again, and in how many layers of each stage where not in all.
func (c *Candidate) Recomputes() string {
	if c.RecomputeLayers == nil {
		return c.Recompute
	}
	return c.Recompute + " " + runsOf(c.RecomputeLayers)
}

// Pipeline is the number of ranks of the pipeline, and the layers of their stages where the plan says.
func (c *Candidate) Pipeline() string {
	if c.Layers == nil {
		return fmt.Sprint(c.PP)
	}
	return fmt.Sprintf("%d (%s)", c.PP, runsOf(c.Layers))
}

// String is the number of ranks, and how they exchange.
func (x Context) String() string {
	if x.CP <= 1 {
		return "1"
	}
	return fmt.Sprintf("%d %s", x.CP, x.Comm)
}

// Copies is the number of ranks of a stage that hold the same weights: replicas, and ranks that share their tokens.
func (c *Candidate) Copies() int { return c.DP * max(1, c.CP) }

// Tensor is the degree of tensor parallelism, with sequence parallelism beside it where that is used.
func (c *Candidate) Tensor() string {
	if c.SP {
		return fmt.Sprintf("%d+sp", c.TP)
	}
	return fmt.Sprint(c.TP)
}

// stageKey holds all that the costs of stages depend on, so that candidates which differ in other things share them.
type stageKey struct {
	v      Variant
	stages int
	apart  bool   // the encoder has a mesh of its own
	layers string // of each stage, where the candidate says
	again  string // how many of them recompute, where not all do
}

// placeKey holds all that decides which stage lies on which rank.
type placeKey struct {
	schedule  string
	pp, loops int
}

// place is what does not depend on the number of microbatches.
type place struct {
	s     schedule.Schedule
	rank  []int
	split bool
	one   bool // the last stage has one microbatch at a time between F and its backward
}

// Enumerate lists every plan that the shape of the model and the machine allows. Work that depends on few of
// its choices is done once, here.
func (s *Space) Enumerate() ([]Candidate, error) {
	s.stages, s.places, s.groups = map[stageKey]*Stages{}, map[placeKey]*place{}, newGroups()
	s.programs, s.recuts = map[string]string{}, map[stageKey][]int{}
	out := s.meshes(s.Devices, s.Tower.places)
	if s.Tower != nil {
		out = append(out, s.owned()...)
	}
	kept := ""
	if s.Keeps != nil {
		out, kept = slices.DeleteFunc(out, func(c Candidate) bool { return !s.Keeps(&c) }), " and keeps what the run minimises"
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no plan divides %d devices, %d layers and %d sequences%s", s.Devices, s.Layers, s.Batch, kept)
	}
	return out, nil
}

// meshes lists the plans of a decoder on so many devices; each is followed by the places of its encoder.
func (s *Space) meshes(devices int, places func(*Candidate) []Encoder) (out []Candidate) {
	for _, tp := range s.TP {
		if devices%tp != 0 || tp > s.Machine.Devices {
			continue
		}
		for _, pp := range divisors(devices / tp) {
			if pp > s.Layers {
				continue
			}
			for _, x := range s.contexts(devices/tp/pp, tp) {
				out = append(out, s.batches(Candidate{TP: tp, PP: pp, Context: x,
					DP: devices / tp / pp / max(1, x.CP)}, places)...)
			}
		}
	}
	return
}

// contexts are the ways to share tokens out over some of a stage's ranks, the first not at all.
func (s *Space) contexts(ranks, tp int) []Context {
	out := []Context{{}}
	if s.Contexts != nil {
		out = append(out, s.Contexts(ranks, tp)...)
	}
	return out
}

// batches goes through the sizes of microbatches for given degrees.
func (s *Space) batches(c Candidate, places func(*Candidate) []Encoder) (out []Candidate) {
	if s.Batch%c.DP != 0 {
		return nil
	}
	for _, batch := range divisors(s.Batch / c.DP) {
		if batch > 1 && c.CP > 1 {
			break
		}
		c.Batch, c.Micro = batch, s.Batch/c.DP/batch
		for _, c := range s.schedules(c) {
			for _, e := range places(&c) {
				c.Encoder = e
				out = append(out, s.shared(c)...)
			}
		}
	}
	return out
}

// shared is a plan with its experts shared out in each way. What is sharded inside microbatches is not
// looked at beside that.
func (s *Space) shared(c Candidate) []Candidate {
	if s.Shares == nil {
		return []Candidate{c}
	}
	var out []Candidate
	for _, x := range s.Shares(c.Copies()*c.TP, c.TP) {
		if c.EP, c.ETP = x[0], x[1]; c.EP*c.ETP == 1 || c.Zero < 2 {
			out = append(out, c)
		}
	}
	return out
}

// schedules goes through schedules, stages a rank, recomputation and sharding for given degrees.
func (s *Space) schedules(c Candidate) (out []Candidate) {
	names := s.Schedules
	if c.PP == 1 {
		names = []string{"1f1b"} // with one stage all are gradient accumulation
	}
	zeros := []int{0}
	switch {
	case c.Copies() > 1 && s.Tower == nil:
		zeros = []int{0, 1, 2, 3}
	case c.DP > 1:
		zeros = []int{0, 1} // images differ from replica to replica
	}
	for _, name := range names {
		for _, loops := range s.loops(name, c) {
			p := s.place(name, c.PP, loops)
			if p == nil || p.s.Fits != nil &&
				p.s.Fits(schedule.Shape{Ranks: c.PP, Micro: c.Micro, Loops: loops}) != nil {
				continue
			}
			layers := s.uneven(c.PP * loops)
			for _, rec := range []string{"none", "selective", "full"} {
				for _, z := range zeros {
					x := c
					x.Layers = layers
					x.Schedule, x.Loops, x.Recompute, x.Zero = name, loops, rec, z
					for _, x.Groups = range s.grouped(&x) {
						x.SP = false
						out = append(out, x)
						if c.TP > 1 && s.Rows > 0 && c.Batch*s.Rows%(c.TP*max(1, c.CP)) == 0 {
							x.SP = true
							out = append(out, x)
						}
					}
				}
			}
		}
	}
	return
}

// loops lists how many stages a rank may have: the layers are cut evenly, except into one stage a rank of a
// model of text, and several stages want whole rounds of microbatches.
func (s *Space) loops(name string, c Candidate) (out []int) {
	x, err := schedule.Get(name)
	if err != nil || !x.Runs || x.Time == nil || x.Live == nil {
		return nil
	}
	most := 1
	if c.PP > 1 {
		most = 8
	}
	for l := 1; l <= most && c.PP*l <= s.Layers; l++ {
		even := s.Layers%(c.PP*l) == 0 || l == 1 && s.Tower == nil
		if x.Loops > 0 && l != x.Loops || !even || l > 1 && c.Micro%c.PP != 0 {
			continue
		}
		if name == "interleaved" && l == 1 && c.PP > 1 {
			continue // that is 1f1b
		}
		out = append(out, l)
	}
	return
}

// place builds a short program of a schedule to see where its stages lie; nil if there is none.
func (s *Space) place(name string, pp, loops int) *place {
	key := placeKey{name, pp, loops}
	if p, ok := s.places[key]; ok {
		return p
	}
	s.places[key] = nil
	x, err := schedule.Get(name)
	if err != nil {
		return nil
	}
	prog, err := schedule.Build(name, schedule.Shape{Ranks: pp, Micro: 2 * pp, Loops: loops})
	if err != nil {
		return nil
	}
	p := &place{s: x, rank: prog.StageRank}
	text := fmt.Sprint(loops, prog)
	if x.Follows { // the same for equal stages only
		text += name
	}
	if first := s.programs[text]; first != "" && first != name {
		return nil // another schedule's program by a second name
	}
	s.programs[text] = name
	for _, e := range prog.Rows[0] {
		p.split = p.split || e.Kind == plan.W
	}
	p.one = single(prog) && !x.Follows // with the costs of stages it is another program
	s.places[key] = p
	return p
}

// Rank is the sum of a rank's stages.
func (s *Space) rank(c *Candidate, p *place, st *Stages, r int) (out BlockCost) {
	for i, owner := range p.rank {
		if owner == r {
			b := &st.Blocks[i]
			out.F, out.I, out.W = out.F+b.F, out.I+b.I, out.W+b.W
			out.Held, out.PeakB = max(out.Held, b.Held), max(out.PeakB, b.PeakB-b.Held, b.PeakF-b.Held)
		}
	}
	out.Weights = st.Own(p.rank, r)
	return
}

// Estimate fills in what closed forms say about a candidate: the schedule's claim on time with the busiest
// rank's work, messages through an empty pipeline, the exchange of gradients and the update; and the
// schedule's claim on live activations.
func (s *Space) Estimate(c *Candidate) error {
	st, err := s.StagesOf(c)
	if err != nil {
		return err
	}
	p := s.place(c.Schedule, c.PP, c.Loops)
	shape := schedule.Shape{Ranks: c.PP, Micro: c.Micro, Loops: c.Loops}
	var busy BlockCost
	c.Memory, c.Unpriced = 0, false
	most := 0.0
	ranks, memory := make([]float64, c.PP), make([]int64, c.PP)
	for r := range c.PP {
		x := s.rank(c, p, st, r)
		ranks[r] = float64(c.Micro) * (x.F + x.I + x.W)
		if t := x.F + x.I + x.W; t > most {
			busy, most = x, t
		}
		live := int64(p.s.Live(shape, r)) * x.Held / 2
		memory[r] = s.Base(c, x.Weights) + max(live+x.PeakB, s.extra(c, x.Weights))
		c.Memory = max(c.Memory, memory[r])
	}
	u := schedule.Unit{F: busy.F, I: busy.I, W: busy.W}
	if !p.split {
		u.I, u.W = busy.I/2, busy.I/2
	}
	pipe := max(p.s.Time(shape, u), st.through())
	for i := range len(st.Blocks) - 1 {
		if p.rank[i] != p.rank[i+1] {
			pipe += 2 * s.Link(c).Of(st.Blocks[i].Port)
		}
	}
	if c.Encoder.apart() {
		more, err := s.encode(c, pipe, ranks, memory)
		if err != nil {
			return err
		}
		pipe += more
	}
	c.Step = pipe + s.Update(c, busy.Weights, busy.back(p.split)) + s.Tied(c, st, p.rank)
	c.Bubble = max(0, 1-float64(c.Micro)*most/c.Step)
	if s.Limit > 0 && c.Memory > s.Limit {
		c.Why = "memory"
	}
	return nil
}

// through is how long one microbatch takes there and back: no step is shorter, whatever a schedule claims
// for full pipelines.
func (st *Stages) through() (t float64) {
	for i := range st.Blocks {
		t += st.Blocks[i].F + st.Blocks[i].I
	}
	return t + st.Blocks[0].W
}

// Link is the connection of two pipeline neighbours: ranks of a stage are neighbours of each other.
func (s *Space) Link(c *Candidate) collective.Link {
	return s.Machine.Link(0, c.TP*c.Copies()%s.Devices)
}

// Rank sorts candidates: those that can be used first, the fastest first, and of equally fast ones the one
// with least memory.
func Rank(all []Candidate) {
	time := func(c *Candidate) float64 {
		if c.Simulated > 0 {
			return c.Simulated
		}
		return c.Step
	}
	slices.SortStableFunc(all, func(a, b Candidate) int {
		if (a.Why == "") != (b.Why == "") {
			if a.Why == "" {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(time(&a), time(&b)), cmp.Compare(a.Memory, b.Memory))
	})
}

// divisors are the divisors of n in rising order, 1 and n among them.
func divisors(n int) (out []int) {
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			out = append(out, d)
		}
	}
	return
}
