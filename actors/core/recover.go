package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   After a loss all ranks go to one state: the newest that those who are left hold, or that is
//     durable. Shown by 12_lost_rank_member, watched by Monitor.seeCommit, broken by "sent back to the step
//     before".
//   No step is opened before all ranks hold that state. Shown by 10_lost_rank_disk, watched by
//     Monitor.seeOpen, broken by "goes on when all but one are back".

// kept is a state that everybody can go back to, as far as the coordinator has a part in it.
type kept struct {
	step    int64
	updates int64
	scale   LossScale
}

// now is the state of the newest committed step.
func (c *Coordinator) now() kept { return kept{c.step, c.updates, c.l.LossScale} }

// recovery is what the coordinator knows from the loss of a rank until all are back at one state.
type recovery struct {
	gone    map[actors.Ref]bool // ranks that have ended and are not back
	blank   []bool              // by rank: it holds no state
	decided bool                // the step that was under way is committed, and not reported yet
	halfway bool                // the same, and stays so: some ranks may have applied it, and others not
	unknown bool                // nobody can be taken for one that holds the newest step
	eval    int64               // the step whose evaluation was under way, -1 for none
	left    int                 // ranks that are not at the target yet
	back    []bool
	target  kept
	source  int32
	since   actors.Time
	spike   *Spike // why all go back, if it is a step out of the ordinary
}

// lose begins a new epoch when a rank has ended that will come back: the step under way is void unless it is decided,
// and so is a save that is not complete. A rank that ends again and again without a step in between ends the run.
func (c *Coordinator) lose(ctx actors.Context, m *actors.Message) {
	i := c.place[m.From]
	if m.Step <= c.lives[i] { // it is back already
		return
	}
	c.lives[i] = m.Step
	if why := c.hopelessly(i, ctx.Now()); why != "" {
		c.fail(ctx, &actors.Message{Kind: actors.Failed, Err: fmt.Errorf(
			"%s and is not started again (train.restarts=%d); the last time: %s", why, c.l.Restarts, m.Text)})
		return
	}
	if c.phase == claiming {
		c.heir.held[i], c.back.gone[m.From], c.back.blank[i] = nil, true, true
		return
	}
	c.leave(ctx)
	c.back.gone[m.From], c.back.blank[i] = true, true
	c.copies.without(i)
}

// leave ends an epoch.
func (c *Coordinator) leave(ctx actors.Context) {
	if !c.phase.lost() {
		c.begins(ctx)
	}
	if c.eval > 0 {
		c.back.eval = c.step
	}
	c.phase = recovering
	c.epoch++
	c.left, c.unready, c.queued, c.eval, c.back.left = 0, 0, 0, 0, 0
	c.copies.under, c.suspect = false, false
	if c.stage == makingRoom || c.stage == ranksWrite {
		c.stage, c.due, c.job = noSave, true, 0
	}
}

// graceUsual is how long the coordinator waits, when connections have broken, to hear that a process has ended.
const graceUsual = actors.Second / 4

// broken takes in that messages were lost. Mostly a process has ended, which is heard of as well.
func (c *Coordinator) broken(ctx actors.Context, m *actors.Message) {
	if c.suspect {
		return
	}
	c.suspect = true
	grace := c.l.Grace
	if grace == 0 {
		grace = graceUsual
	}
	ctx.After(grace, actors.Message{Kind: actors.Tick, Epoch: c.epoch, Text: m.Text})
}

// reconnect begins a new epoch, whose connections are new, when no process has ended and messages are lost
// all the same. All ranks have what they hold.
func (c *Coordinator) reconnect(ctx actors.Context, m *actors.Message) {
	if m.Epoch != c.epoch {
		return
	}
	if c.phase == claiming {
		c.claim(ctx)
		return
	}
	c.breaks++
	if !c.l.Recover || c.l.Restarts > 0 && c.breaks > lossesMost*c.l.Restarts {
		c.fail(ctx, &actors.Message{Kind: actors.Failed, Err: fmt.Errorf(
			"connections between processes of the run break (%d times since step %d): %s", c.breaks, c.newest, m.Text)})
		return
	}
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicBroken, Step: c.step,
		Err: errors.New(m.Text)})
	c.leave(ctx)
	c.goBack(ctx)
}

// deaths is how often a rank has ended in a row at one step.
type deaths struct {
	step  int64
	times int
	last  actors.Time
}

// hopelessly counts the end of a rank, and says why it is one too many: it comes at the same step again and
// again, or the run does not get on.
func (c *Coordinator) hopelessly(i int, now actors.Time) string {
	d := c.deaths[i]
	if d.step != c.step && actors.Duration(now-d.last) >= c.l.Window {
		d.times = 0
	}
	d = deaths{step: c.step, times: d.times + 1, last: now}
	c.deaths[i] = d
	c.ends++
	switch most := c.l.Restarts; {
	case most == 0:
	case d.times > most:
		return fmt.Sprintf("rank %d has ended %d times at step %d", i, d.times, c.step)
	case c.ends > lossesMost*most*len(c.l.Ranks):
		return fmt.Sprintf("rank %d has ended, as ranks have %d times since step %d,", i, c.ends, c.newest)
	}
	return ""
}

// lossesMost times Restarts is how often ranks may end, on average, while no new step ends.
const lossesMost = 10

// begins notes what the first loss finds: the step under way counts if it is decided.
func (c *Coordinator) begins(ctx actors.Context) {
	c.back = recovery{gone: map[actors.Ref]bool{}, blank: slices.Clone(c.away), eval: -1,
		since: ctx.Now(), decided: c.phase == applying}
	c.back.halfway = c.back.decided
	if c.phase == stepping {
		c.step--
	}
}

// joined takes a rank back. What it said before it ended once more does not count; that it has ended may be
// known later than that it is back.
func (c *Coordinator) joined(ctx actors.Context, m *actors.Message) {
	i, ok := c.place[m.From]
	if !ok || m.Step < c.lives[i] || c.away[i] {
		return
	}
	c.moved(i, m.Text)
	if c.phase == claiming {
		c.lives[i] = m.Step
		c.answered(ctx, i, nil)
		return
	}
	if m.Step > c.lives[i] {
		c.lose(ctx, &actors.Message{Kind: actors.Down, From: m.From, Step: m.Step,
			Text: "it is back, and nobody knew that it had ended"})
	}
	if c.phase.lost() && c.back.gone[m.From] {
		delete(c.back.gone, m.From)
		c.goBack(ctx)
	}
}

// goBack sends everyone to one state, when no rank is missing and it is settled which states there are: a
// checkpoint whose parts are written is still committed, for what it replaces may be removed.
func (c *Coordinator) goBack(ctx actors.Context) {
	b := &c.back
	if len(b.gone) > 0 || c.stage != noSave || c.phase == returning {
		return
	}
	if b.spike != nil {
		if b.spike.State = b.spike.step - 1; b.spike.From < b.spike.step {
			b.spike.State = c.kept.step
		}
	}
	if b.source = c.source(); b.source == FromMember && b.decided {
		b.decided = false
		c.concludeLost(ctx)
		if c.phase == over {
			return
		}
	}
	var verdict []float64
	switch b.source {
	case FromMember:
		b.target, verdict = c.now(), c.verdict
	case FromCopy:
		b.target = c.copies.whole
	default:
		b.target = c.kept
		if c.kept.step < c.copies.whole.step {
			c.copies = keeper{} // nobody keeps copies of steps that are taken again
		}
	}
	if b.source == FromDisk && c.l.Unread != nil && b.target.step == c.l.Durable {
		c.fail(ctx, &actors.Message{Kind: actors.Failed, Err: fmt.Errorf("the processes that are left do not hold the "+
			"whole state together, and what is durable cannot be read: %w", c.l.Unread)})
		return
	}
	if c.narrows() && b.target.step <= c.kept.step { // nothing is held that is not durable
		c.leaveOff(ctx)
		return
	}
	c.phase = returning
	b.left, b.back = len(c.l.Ranks), slices.Clone(c.away)
	place := c.placed(ctx)
	for i, r := range c.l.Ranks {
		m := actors.Message{Kind: actors.Rewind, Epoch: c.epoch, Step: b.target.step, Segment: b.source,
			Port: int32(c.lives[i]), Values: verdict, Text: place}
		if c.lacks(i) {
			m.Member = 1
		}
		if c.away[i] {
			b.left--
			continue
		}
		ctx.Send(r, m)
	}
}

// source says where the state of those that have none comes from: from a rank that holds the same, else from copies in
// memory, else from the newest checkpoint. Until all are back ranks without a state only become more, and a step that
// is halfway applied stays so: once everybody was sent to an older step, nobody is taken for one that holds the newest.
func (c *Coordinator) source() int32 {
	b := &c.back
	if b.spike != nil && b.spike.From < b.spike.step {
		return FromDisk
	}
	members := (c.l.Alone && !c.moving() || !b.halfway) && !b.unknown
	for i, blank := range b.blank {
		members = members && (!blank || c.member(i) >= 0)
	}
	for !c.serve() && c.copies.older != nil {
		c.copies = *c.copies.older
	}
	switch {
	case members:
		return FromMember
	case c.serve() && c.copies.whole.step >= c.kept.step:
		return FromCopy
	}
	return FromDisk
}

// member is a rank that holds the same state as rank i and is not lost, -1 for none.
func (c *Coordinator) member(i int) int {
	if c.l.Same != nil {
		for _, j := range c.l.Same[i] {
			if !c.back.blank[j] {
				return j
			}
		}
	}
	return -1
}

// lacks reports whether rank i has nothing of the state that all go to.
func (c *Coordinator) lacks(i int) bool {
	if c.back.source == FromCopy {
		return !c.copies.own[i]
	}
	return c.back.blank[i]
}

// giver is the rank that gives rank i its state, and the one whose state that is.
func (c *Coordinator) giver(i int) (by, of int) {
	if c.back.source == FromCopy {
		return c.holder(i)
	}
	return c.member(i), i
}

// concludeLost ends the step that was decided when a rank was lost. What a rank has not said at its end it
// had said when it was ready.
func (c *Coordinator) concludeLost(ctx actors.Context) {
	for i := range c.closed {
		if !c.closed[i].come {
			c.closed[i] = said{used: c.ready[i].used}
		}
	}
	c.conclude(ctx)
	if c.eval > 0 {
		c.back.eval, c.eval = c.step, 0
	}
}

// rewound counts the ranks that are back, and has those that are give to those that have nothing; with the
// last one the run goes on.
func (c *Coordinator) rewound(ctx actors.Context, m *actors.Message) {
	b := &c.back
	i, ok := c.place[m.From]
	if !ok || c.phase != returning {
		return
	}
	if b.back[i] {
		panic(fmt.Sprintf("core: rank %d went back twice", i))
	}
	b.back[i] = true
	for j, r := range c.l.Ranks {
		if b.source == FromDisk || b.back[j] || !c.lacks(j) {
			continue
		}
		if by, of := c.giver(j); by == i {
			ctx.Send(m.From, actors.Message{Kind: actors.Give, Epoch: c.epoch, Step: b.target.step,
				Segment: b.source, Member: int32(r), Port: int32(c.l.Ranks[of])})
		}
	}
	if b.left--; b.left == 0 {
		c.resume(ctx)
	}
}

// resume goes on from the state that all ranks hold.
func (c *Coordinator) resume(ctx actors.Context) {
	b := &c.back
	t := b.target
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicBack, Step: t.step,
		Values: Return{float64(ctx.Now() - b.since), b.source}.Values()})
	c.phase, c.step, c.updates, c.l.LossScale = between, t.step, t.updates, t.scale
	for i := range c.copies.own { // a rank that was given a copy keeps it
		c.copies.own[i] = c.copies.own[i] || b.source == FromCopy && !c.away[i]
	}
	c.moves.back(b.source)
	if c.narrows() {
		c.leaveOff(ctx)
		return
	}
	c.copies.next = 0 // what was lost of the copies is made good soon
	if b.eval == t.step {
		c.eval, c.evalSum = 1, nil
	}
	c.due = c.due && t.step > c.kept.step
	c.save(ctx)
	c.keep(ctx)
	c.advance(ctx)
}

// recovering says whom the coordinator waits for after a rank was lost.
func (c *Coordinator) recovering() (w actors.Wait, yes bool) {
	if !c.phase.lost() {
		return
	}
	for i, r := range c.l.Ranks {
		switch {
		case c.back.gone[r]:
			return actors.Wait{For: r, What: fmt.Sprintf("rank %d to come back", i), Since: c.back.since}, true
		case c.phase == returning && !c.back.back[i]:
			return actors.Wait{For: r, What: fmt.Sprintf("rank %d to go back to step %d", i,
				c.back.target.step), Since: c.back.since}, true
		}
	}
	return
}
