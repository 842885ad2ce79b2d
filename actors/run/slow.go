package run

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs/unit"
)

// Noter is a Fleet that writes down what becomes of processes where users look for it.
type Noter interface {
	// Slow takes in that a process is slow, in words.
	Slow(proc int, text string)
	// SlowWay takes in that a way that process proc sends on is slow, in words.
	SlowWay(proc int, text string)
	// Hung takes in that a process says that it lives and takes no step, and why, and sees to its end.
	Hung(proc int, text string)
	// Steps takes in that the run has taken a step since this process leads.
	Steps()
}

// starved says that a process has fewer processors than it could use, "" if it has as many.
func starved(v core.Slowness) string {
	if v.Had < v.Wants/2 {
		return fmt.Sprintf("; its process has %.2g of a processor meanwhile, not %.2g, and waits for "+
			"none: it is stopped now and then, or has a quota", v.Had, v.Wants)
	}
	return ""
}

// slowWay tells that a way between two processes has become slow, which process proc has found.
func (r *Run) slowWay(proc int, text string) {
	r.report.say("! slow: %s", text)
	if f, ok := r.io.Fleet.(Noter); ok {
		f.SlowWay(proc, text)
	}
}

// slow tells which rank has become slow, where it runs, and by what that shows.
func (r *Run) slow(m actors.Message) {
	v := core.SlownessOf(m.Values)
	rank := v.Rank
	proc := r.layout.Owner(rank, r.cfg.Run.Plan.Procs)
	now, usual := unit.Short(v.Now/1e9), unit.Short(v.Usual/1e9)
	text := fmt.Sprintf("%s in process %d waits for its data: %s of step %d, the other ranks %s",
		r.layout.Name(rank), proc, now, m.Step, usual)
	switch v.Cause {
	case core.SlowStood:
		text = fmt.Sprintf("%s in process %d stood still for %.0f %% of the last seconds, and waited for no "+
			"processor: its process is stopped now and then, frozen, or over its quota", r.layout.Name(rank),
			proc, 100*v.Part)
	case core.SlowCrowd:
		text = fmt.Sprintf("%s in process %d waits for processors, which other work on its host has: %s a "+
			"step instead of %s", r.layout.Name(rank), proc, now, usual)
	case core.SlowCompute:
		than := "as it did before"
		if v.Twin {
			than = "as the ranks that do the same work"
		}
		if share := v.Part; share > 0 {
			than += fmt.Sprintf(" in some steps, in which it loses %.0f %% of the time", 100*share)
		}
		text = fmt.Sprintf("%s in process %d computes %.1f times as long %s: %s a step instead "+
			"of %s%s", r.layout.Name(rank), proc, v.Now/v.Usual, than, now, usual, starved(v))
	}
	r.report.say("! slow: %s", text)
	if f, ok := r.io.Fleet.(Noter); ok {
		f.Slow(proc, text)
	}
}
