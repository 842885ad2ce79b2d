package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   S-1: A step is opened once on each rank, and only behind the step before, which all ranks have ended.
//     Shown by 01_step, watched by Monitor.seeOpen, broken by "step ends when all but one have closed".
//   S-2: The run ends only when the last state that is to be saved is durable. Shown by 08_stop, watched by
//     Monitor.report, broken by "end before the save is written".

// Topics of the reports that the coordinator sends to the observer.
const (
	TopicStep     = "step"     // Step, Values: a Summary
	TopicEval     = "eval"     // Step, Values: as EvalLoss reads them
	TopicQueued   = "queued"   // Step: the state is copied
	TopicDurable  = "durable"  // Step: the state is on disk and latest names it
	TopicSaveLost = "savelost" // Step: the state could not be written; training goes on
	TopicEnd      = "end"      // Step: the last step; Values: as Stopped reads them
	TopicFailed   = "failed"   // Text says why the run ended
	// Step: all have copies of its state in memory; Values: a Copying
	TopicCopied = "copied"
	TopicBroken = "broken" // Err: how messages were lost between processes that live; a new epoch begins
	TopicVoid   = "void"   // Step, Err: a *VoidError, why its update was not made
	TopicSpike  = "spike"  // Step, Values: a Spike; it is taken again with other samples
	// Step, Values: records as AppendPlaced makes them, of layers whose experts have moved
	TopicMoved = "moved"
	// Step, Values: records as AppendLoad makes them, of all ranks together, in order of blocks
	TopicExperts = "experts"
	// Step, Values: records as AppendFinding makes them, of all ranks together, in order of parameters
	TopicFindings = "findings"
	// Step: the state that all ranks hold again after a loss; Values: a Return
	TopicBack = "back"
)

// Coordinator opens each step, commits it when every rank is ready, and orders saves and evaluations. It
// alone decides that a step counts: no rank changes its parameters before Commit. Its fields are parts, one
// for each of its concerns; phase.go says how one phase follows from another.
type Coordinator struct {
	l       *RunLayout
	place   map[actors.Ref]int // of a rank in l.Ranks
	phase   phase
	asked   request
	epoch   uint32
	step    int64 // the newest that was opened, or that all ranks hold
	newest  int64 // that ever ended
	updates int64 // that are applied
	kept    kept  // the newest durable state
	round
	evaluation
	saving
	losses
	back    recovery
	heir    *heir // what it has heard, in phase claiming
	copies  keeper
	hosts   []string // by rank, where it lives
	buddies [][]int  // of ranks there: RunLayout.Buddies
	moves   mover
	pace    pace
	spiked  spiking
}

// round is the step or the evaluation batch that is open.
type round struct {
	opened  actors.Time
	left    int        // ranks that have not closed it
	closed  []said     // by rank
	unready int        // ranks that are not ready for its commit
	ready   []said     // by rank
	norms   []float64  // squared, by parameter
	verdict []float64  // its commit, nil before
	void    *VoidError // why the step is given up, nil if it is not
	voided  int64      // the first of the steps in a row that were, 0 for none
	fastest float64    // nanoseconds of the shortest step so far
}

// evaluation is the evaluation under way.
type evaluation struct {
	eval    int64     // its batch, counted from 1; 0 for none
	evalSum []float64 // of the losses of its batches, by validation set
}

// losses is what the coordinator counts of ranks that end and connections that break, so that a run which
// does not get on ends.
type losses struct {
	lives   []int64        // by rank: how often it has ended
	deaths  map[int]deaths // by rank
	ends    int            // of ranks since the newest step
	breaks  int            // of connections since the newest step
	suspect bool           // messages of the epoch are lost, and it is not known yet why
	away    []bool         // by rank: it has ended, and no other takes its place
}

// NewCoordinator returns the behaviour.
func NewCoordinator(l *RunLayout) *Coordinator {
	c := &Coordinator{l: l, step: l.First - 1, updates: l.OptimSteps, place: make(map[actors.Ref]int, len(l.Ranks))}
	for i, r := range l.Ranks {
		c.place[r] = i
	}
	c.kept = kept{l.First - 1, l.OptimSteps, l.LossScale}
	c.moves.now, c.moves.durable = l.Laid, l.Laid
	c.deaths, c.lives, c.newest = map[int]deaths{}, make([]int64, len(l.Ranks)), l.First-1
	c.away = make([]bool, len(l.Ranks))
	if c.hosts, c.buddies = slices.Clone(l.Hosts), l.Buddies; l.Spread != nil {
		c.buddies = l.Spread(c.hosts)
	}
	return c
}

// Receive implements actors.Behaviour.
func (c *Coordinator) Receive(ctx actors.Context, m *actors.Message) {
	if !c.takes(m) {
		drop(m)
		return
	}
	switch m.Kind {
	case actors.Started:
		c.start(ctx, m.Step)
	case actors.Ready:
		c.count(ctx, m)
	case actors.Closed:
		c.close(ctx, m)
	case actors.Queued:
		if c.queued--; c.queued == 0 {
			ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicQueued, Step: m.Step})
			c.advance(ctx)
		}
	case actors.Durable:
		c.written(ctx, m)
	case actors.Done:
		switch {
		case m.Job != c.job: // of a save that is void
		case c.stage == committing:
			c.committed(ctx, m)
		default:
			c.requestSnapshots(ctx, m)
		}
	case actors.Join:
		c.joined(ctx, m)
	case actors.Rewound:
		c.rewound(ctx, m)
	case actors.Kept:
		c.counted(ctx, m)
	case actors.Holding:
		c.hears(ctx, m)
	case actors.Broken:
		c.broken(ctx, m)
	case actors.Tick:
		c.reconnect(ctx, m)
	case actors.Halt:
		if c.asked = max(c.asked, stops); m.Text == HaltNow {
			c.abandon(ctx)
		}
	case actors.Failed, actors.Down:
		if _, rank := c.place[m.From]; rank && c.l.Recover && m.Kind == actors.Down {
			if c.lose(ctx, m); m.Member == 1 {
				c.forsake(ctx, m)
			}
			return
		}
		c.fail(ctx, m)
	}
}

// advance opens what is next: an evaluation batch, a step, or the end.
func (c *Coordinator) advance(ctx actors.Context) {
	switch {
	case c.phase != between || c.queued > 0:
		return
	case c.eval > 0:
		c.open(ctx, -c.eval, nil)
	case c.step >= c.l.Last || c.asked >= stops:
		c.end(ctx)
	default:
		c.step++
		c.open(ctx, c.step, Opening{Scale: c.l.LossScale.Scale, Reach: c.l.LossScale.Reach}.Values())
	}
}

func (c *Coordinator) open(ctx actors.Context, step int64, v []float64) {
	if c.phase = stepping; step < 0 {
		c.phase = evaluating
	}
	c.opened = ctx.Now()
	c.closed, c.left = make([]said, len(c.l.Ranks)), len(c.l.Ranks)
	c.void = nil
	c.ready, c.unready, c.verdict = make([]said, len(c.l.Ranks)), len(c.l.Ranks), nil
	for _, r := range c.l.Ranks {
		ctx.Send(r, actors.Message{Kind: actors.Open, Epoch: c.epoch, Step: step, Values: v})
	}
}

func (c *Coordinator) close(ctx actors.Context, m *actors.Message) {
	if i, ok := c.place[m.From]; ok {
		if c.closed[i].come {
			panic(fmt.Sprintf("core: rank %d closed step %d twice", i, m.Step))
		}
		c.closed[i] = saidOf(m.Values)
		if m.Step > 0 && c.verdict == nil {
			panic(fmt.Sprintf("core: rank %d closed step %d before it was committed", i, m.Step))
		}
	}
	if c.left--; c.left > 0 {
		return
	}
	if c.phase = between; m.Step < 0 {
		c.evaluated(ctx)
	} else {
		c.conclude(ctx)
	}
	c.advance(ctx)
}

// conclude ends a step: every rank has applied the same update, or skipped it.
func (c *Coordinator) conclude(ctx actors.Context) {
	if c.step > c.newest {
		c.newest, c.ends, c.breaks = c.step, 0, 0
	}
	v := c.report(ctx)
	c.pace.see(ctx, c, v.Time)
	c.moves.settle(ctx, c)
	if v := loadsOf(c.closed); v != nil {
		ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicExperts, Step: c.step, Values: v})
	}
	if v := findingsOf(c.closed); v != nil {
		ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicFindings, Step: c.step, Values: v})
	}
	if c.void != nil {
		ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicVoid, Step: c.step, Err: c.void})
	}
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicStep, Step: c.step, Values: v.Values()})
	switch {
	case c.void != nil && !c.givenUp(ctx):
		return
	case c.void == nil:
		c.voided = 0
	}
	if c.void == nil && v.Overflow && c.hopeless() {
		c.fail(ctx, &actors.Message{Kind: actors.Failed, Err: fmt.Errorf("step %d: loss %g, gradient norm %g: not "+
			"finite, and no smaller loss scale can help; the weights or the data hold NaN, or the learning rate "+
			"is too high. The newest checkpoint is from before", c.step, v.Loss, v.Norm)})
		return
	}
	s := keptAfter(c.verdict, c.l.LossScale)
	c.updates, c.l.LossScale = s.updates, s.scale
	if c.l.SaveEvery > 0 && c.step%c.l.SaveEvery == 0 && c.step < c.l.Last && c.asked == goesOn {
		c.due = true
	}
	if c.fastest == 0 || v.Time < c.fastest {
		c.fastest = v.Time
	}
	c.save(ctx)
	c.keep(ctx)
	if c.evaluates(c.step) {
		c.eval, c.evalSum = 1, nil
	}
}

// hopeless reports that gradients which are not finite will stay so: there is no loss scale, or it is at its smallest.
func (c *Coordinator) hopeless() bool {
	return !c.l.LossScale.Dynamic || c.l.LossScale.Scale <= c.l.LossScale.Min
}

// report sums up the ranks' values, in rank order.
func (c *Coordinator) report(ctx actors.Context) Summary {
	d := VerdictOf(c.verdict)
	s := Summary{LR: d.LR, Scale: c.l.LossScale.Scale, Time: float64(ctx.Now() - c.opened), Norm: d.Norm,
		Overflow: d.Overflow}
	busy, most := 0.0, 0.0
	for i := range c.closed {
		x := &c.closed[i].used
		s.Loss += x.Loss
		s.Wait, s.Peak, s.Gap = max(s.Wait, x.Wait), max(s.Peak, x.Peak), max(s.Gap, x.Gap)
		busy += x.Busy
		if x.Busy > most {
			most, s.Slowest = x.Busy, i
		}
	}
	if busy > 0 {
		s.Slack = most*float64(len(c.closed))/busy - 1
	}
	return s
}

func (c *Coordinator) evaluated(ctx actors.Context) {
	if (c.eval-1)%c.l.EvalSteps == 0 {
		c.evalSum = append(c.evalSum, 0)
	}
	sets := int64(len(c.evalSum))
	for i := range c.closed {
		c.evalSum[sets-1] += c.closed[i].used.Loss
	}
	if c.eval++; c.eval <= c.l.EvalSteps*max(1, c.l.EvalSets) {
		return
	}
	v := []float64{0}
	for _, sum := range c.evalSum {
		v = append(v, sum/float64(c.l.EvalSteps))
		v[0] += v[len(v)-1] / float64(sets)
	}
	if c.l.EvalBy > 0 {
		v[0] = v[c.l.EvalBy]
	}
	if sets == 1 {
		v = v[:1]
	}
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicEval, Step: c.step, Values: v})
	c.eval = 0
	if c.l.Enough != nil && c.l.Enough(c.step, v[0]) {
		c.asked = max(c.asked, stops)
	}
}

// State is what a checkpoint keeps of the coordinator.
func (c *Coordinator) State() (updates int64, scale LossScale) { return c.updates, c.l.LossScale }

// end saves the last state, waits until it is durable, and halts everyone.
func (c *Coordinator) end(ctx actors.Context) {
	c.phase = ending
	// by a run that went back to it
	saved := c.stage != noSave && c.saved.step == c.step || c.kept.step == c.step && c.step >= c.l.First
	c.due = (c.due || c.l.SaveAtEnd) && !c.l.EvalOnly && (c.step >= c.l.First || c.l.Last == 0) && !saved
	c.finish(ctx)
}

// finish takes the run's end one event further.
func (c *Coordinator) finish(ctx actors.Context) {
	c.save(ctx)
	if c.stage == noSave {
		c.halt(ctx)
	}
}

func (c *Coordinator) halt(ctx actors.Context) {
	c.phase = over
	c.haltAll(ctx)
	asked := c.asked >= stops && !c.l.EvalOnly && c.step < c.l.Last
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicEnd, Step: c.step,
		Values: []float64{number(asked)}})
}

// haltAll ends all ranks that are there.
func (c *Coordinator) haltAll(ctx actors.Context) {
	for i, r := range c.l.Ranks {
		if !c.away[i] {
			ctx.Send(r, actors.Message{Kind: actors.Halt, Epoch: c.epoch})
		}
	}
}

// fail ends the run with one error, the first that came.
func (c *Coordinator) fail(ctx actors.Context, m *actors.Message) {
	c.phase = over
	err := m.Err
	if err == nil {
		err = errors.New(m.Text)
	}
	if i, ok := c.place[m.From]; ok && m.Kind == actors.Down {
		err = fmt.Errorf("rank %d: %w", i, err)
	}
	c.haltAll(ctx)
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicFailed, Step: c.step, Err: err})
}

// Waits implements actors.Behaviour.
func (c *Coordinator) Waits() actors.Wait {
	if w, yes := c.recovering(); yes {
		return w
	}
	for i := range c.ready {
		if c.left > 0 && c.eval == 0 && c.unready > 0 && !c.ready[i].come {
			return actors.Wait{For: c.l.Ranks[i], What: fmt.Sprintf("the gradients of step %d", c.step),
				Since: c.opened}
		}
	}
	for i := range c.closed {
		if c.left > 0 && !c.closed[i].come {
			return actors.Wait{For: c.l.Ranks[i], What: fmt.Sprintf("the end of step %d", c.step), Since: c.opened}
		}
	}
	if c.phase == ending {
		return actors.Wait{For: actors.None, What: fmt.Sprintf("the checkpoint of step %d to be durable",
			c.saved.step), Since: c.opened, Busy: true}
	}
	return actors.Wait{For: actors.None}
}
