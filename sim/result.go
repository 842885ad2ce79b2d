package sim

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// Result is what a run showed.
type Result struct {
	Steps  []StepReport
	Time   actors.Time // of the last event
	Events uint64
	Hash   uint64 // over every delivered event
	Failed string // why the run ended early, "" if it did not
	Stall  *Stall // the run waits for ever
	Cut    bool   // the bound on events was reached, or Stop
	Ranks  []Account
	Peak   []int64 // bytes by rank
	Leaked int64   // payloads nobody released
	Open   int     // frames that were not closed
	// ranks that ran: fewer than there are with Options.Fold, or all, and then why
	Ran      int
	Unfolded string
	Parts    int  // that ran by themselves, with Options.Each; 0 if all events went through one queue
	Torn     bool // they did, until one was told something too late, and the run was done once more
	// With Options.Fold two messages of several ranks began to use one connection at the same time, so that the
	// figures of ranks that do the same are those of one order of such, where each could have had its own.
	Tied bool
}

// StepReport is one committed step.
type StepReport struct {
	Step int64
	Time float64 // nanoseconds
	Peak float64 // most bytes of a rank
}

// Stall is a run in which nothing can happen any more though work is left.
type Stall struct {
	Chain []string // who waits for whom, from the coordinator on
	Cycle []string // the part that repeats, nil if the chain ends at an actor that waits for nobody
}

// Error describes the stall on one line.
func (s *Stall) Error() string {
	if s.Cycle != nil {
		return "waits for ever: " + strings.Join(s.Cycle, "; ")
	}
	return "waits for ever: " + strings.Join(s.Chain, "; ")
}

// stall follows the waits from the coordinator.
func (s *Sim) stall() *Stall {
	if len(s.l.Ranks) == 0 && s.cells[0].b.Waits().What == "" {
		return nil
	}
	out, seen := &Stall{}, map[actors.Ref]int{}
	for r := s.l.Coordinator; ; {
		if first, again := seen[r]; again {
			out.Cycle = out.Chain[first:]
			return out
		}
		seen[r] = len(out.Chain)
		c := &s.cells[r]
		if c.dead {
			out.Chain = append(out.Chain, s.name(r)+" has ended")
			return out
		}
		w := c.b.Waits()
		if w.For == actors.None {
			out.Chain = append(out.Chain, fmt.Sprintf("%s: %s", s.name(r), orNothing(w.What)))
			return out
		}
		out.Chain = append(out.Chain, fmt.Sprintf("%s waits for %s: %s", s.name(r), s.name(w.For), w.What))
		r = w.For
	}
}

// orNothing is the phrase that a report prints for what an actor waits for; an actor that waits for nothing has one too.
func orNothing(what string) string {
	if what == "" {
		return "waits for nothing"
	}
	return what
}

// result gathers the outcome once the events have run out. Memory that some action still holds
// counts as open, since a run that ended well leaves none.
func (s *Sim) result() *Result {
	r := &s.res
	r.Time, r.Events, r.Hash, r.Leaked = actors.Time(s.now), s.events, s.hash(), s.blobs.live
	if s.apart != nil {
		s.apart.sum(r)
	}
	r.Ranks, r.Peak = make([]Account, len(s.nodes)), make([]int64, len(s.nodes))
	for i := range s.nodes {
		d := &s.nodes[i].dev
		r.Ranks[i], r.Peak[i] = d.Account, d.peak
		for _, bytes := range d.held {
			if bytes != 0 {
				r.Open++
			}
		}
	}
	if r.Ran = len(s.nodes); s.fold != nil {
		r.Events += s.stood + s.fold.left
		s.fold.unfold(r)
	}
	return r
}

// observer ends the run when the coordinator says so.
type observer Sim

// Receive implements actors.Behaviour.
func (o *observer) Receive(_ actors.Context, m *actors.Message) {
	s := (*Sim)(o)
	if m.Kind != actors.Report {
		return
	}
	switch {
	case s.o.Report == nil:
	case s.apart != nil:
		s.apart.reports = append(s.apart.reports, *m)
	default:
		s.o.Report(*m)
	}
	switch m.Text {
	case core.TopicStep:
		for n := len(s.res.Steps); n > 0 && s.res.Steps[n-1].Step >= m.Step; n-- {
			s.res.Steps = s.res.Steps[:n-1] // it was run before a rank was lost, and again
		}
		x := core.SummaryOf(m.Values)
		s.res.Steps = append(s.res.Steps, StepReport{m.Step, x.Time, x.Peak})
	case core.TopicEnd:
		if s.ended = true; core.Stopped(m.Values) { // loaders have read ahead what nobody takes
			for _, l := range s.l.LoaderRefs {
				if s.cells[l].b == nil {
					continue // another runs in its place
				}
				s.post(s.now, l, &actors.Message{Kind: actors.Halt, Epoch: actors.AnyEpoch})
			}
		}
	case core.TopicFailed:
		s.fail(m.Err.Error())
	}
}

// Waits implements actors.Behaviour.
func (o *observer) Waits() actors.Wait { return actors.Wait{For: actors.None} }
