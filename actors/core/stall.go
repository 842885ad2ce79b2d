package core

import "github.com/lfactor/lfactor/actors"

// What a run without steps is given before it says why, and before anybody acts on that.
const (
	StallUsual = 30 * actors.Second // without a step; or
	// StallFirst is the same before the first step, of which nobody knows how long it takes: nor does who leads in
	// place of another.
	StallFirst = 600 * actors.Second
	// StallBrief is the same for actors that wait for each other: only a message that is lost does that.
	StallBrief = 2 * actors.Second
	stallSteps = 5 // so many of the longest steps, where that is more
	stallLooks = 3 // in a row that find one root make it what holds the run up
	// StallEvery is how often a run is looked at.
	StallEvery = actors.Second / 2
	stallSleep = 4 * StallEvery // between two looks: the process that looks did not run meanwhile
)

// StallRoot is what a run waits for in the end, as `lfactor why` finds it.
type StallRoot struct {
	Proc  int    // the process that has it
	Which string // the actor and what it does or awaits: the same as long as the wait is
	// Cured says that a new process would not wait: an actor or a device that hangs, a lost credit, a cycle. Data
	// that does not come, and files that cannot be written, would not come to another process either.
	Cured bool
	Cycle bool            // actors wait for each other
	Age   actors.Duration // of the wait, 0 where that is not known
}

// Remedy is what becomes of a run that is looked at.
type Remedy uint8

// Remedies.
const (
	StallGoes Remedy = iota // nothing is to be done
	StallAsk                // find the root and give it to Found
	StallSay                // tell why no step comes
	StallEnd                // end the process that has the root: another takes its place
	StallAnew               // make all connections anew, and send what was sent again
)

// Stall decides about a run whose processes say that they live and that takes no step. It reads no clock:
// whoever looks tells the time.
//
// ST-1: A process is ended for a root only that has not changed for the limit, in stallLooks looks in a row.
// ST-2: Before the first step the limit is First: how long steps take is not known.
// ST-3: A process is ended once for a stall; the next one is judged anew.
// ST-4: Connections are made anew once between two steps, for actors that wait for each other at every look
// within the brief limit.
type Stall struct {
	Limit actors.Duration // without a step, to say why; 0 takes StallUsual
	First actors.Duration // without a first step, to act; 0 takes StallFirst

	last, look actors.Time
	longest    actors.Duration
	steps      int
	told, over bool
	anew       bool
	root       StallRoot
	since      actors.Time // the root is known
	same       int         // looks that have found it
}

// Begin is the time at which the run begins.
func (s *Stall) Begin(now actors.Time) { s.last, s.look = now, now }

// Seen hears of a sign of progress: a step, an evaluation, a save, or that the run goes on after a loss.
func (s *Stall) Seen(now actors.Time, step bool) {
	if step {
		s.longest = max(s.longest, actors.Duration(now-s.last))
		s.steps++
	}
	s.last, s.told, s.over, s.anew, s.same = now, false, false, s.anew && !step, 0
}

// Bound is the time without a step from which on the root is acted on.
func (s *Stall) Bound() actors.Duration {
	switch {
	case s.steps > 0:
		return max(s.limit(), stallSteps*s.longest)
	case s.First > 0:
		return s.First
	}
	return max(s.limit(), StallFirst)
}

// brief is the limit for actors that wait for each other.
func (s *Stall) brief() actors.Duration {
	if s.steps == 0 {
		return s.limit()
	}
	return min(s.limit(), max(StallBrief, stallSteps*s.longest))
}

// limit is how long nothing may end before a run counts as stuck: the configured time, or a
// multiple of the longest step so far, which grows with the model.
func (s *Stall) limit() actors.Duration {
	if s.Limit > 0 {
		return s.Limit
	}
	return max(StallUsual, stallSteps*s.longest)
}

// Longest is the longest step so far.
func (s *Stall) Longest() actors.Duration { return s.longest }

// Quiet is how long nothing was seen.
func (s *Stall) Quiet(now actors.Time) actors.Duration { return actors.Duration(now - s.last) }

// Look is called every StallEvery. Time in which whoever looks did not run itself does not count.
func (s *Stall) Look(now actors.Time) Remedy {
	if gap := now - s.look; gap > actors.Time(stallSleep) {
		s.last, s.since = s.last+gap, s.since+gap
	}
	s.look = now
	if s.over || s.Quiet(now) <= s.brief() {
		return StallGoes
	}
	return StallAsk
}

// Found takes in the root that was asked for.
func (s *Stall) Found(now actors.Time, root StallRoot) Remedy {
	if s.same == 0 || root.Which != s.root.Which || root.Proc != s.root.Proc {
		s.root, s.since, s.same = root, now, 0
	}
	s.same++
	held := max(root.Age, actors.Duration(now-s.since))
	if root.Cured && s.told && s.same >= stallLooks && held >= s.Bound() {
		s.over = true
		return StallEnd
	}
	if root.Cycle && !s.anew && s.same >= stallLooks && held >= s.brief() {
		s.anew = true
		return StallAnew
	}
	if !s.told && s.Quiet(now) > s.limit() {
		s.told, s.same = true, 1
		return StallSay
	}
	return StallGoes
}
