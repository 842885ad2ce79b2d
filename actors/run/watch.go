package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/store"
)

const (
	lookEvery  = time.Duration(core.StallEvery)
	stallUsual = time.Duration(core.StallUsual)
	// looks in a row that find the same wait, before a run that is to stop leaves its step
	stuckLooks = 3
	// for a rank that is at work, after a request to stop, if no step took longer
	workingWait = 4 * time.Second
	openingWait = 2 * time.Second // after a request to stop, for what is being opened
	savingWait  = 2 * time.Second // for the state of a step that was left, where nobody is at work on it
	tookLeast   = 4 << 10         // bytes of messages between two looks: what a rank waits for is on its way, slowly
)

// watch looks after a run from beside: it says why no step comes, and lets a run that is to stop leave a
// step that will not end.
type watch struct {
	r       *Run
	abandon chan struct{}
	gaveUp  bool

	// ask collects what the actors of all processes wait for, nil where the run's folder says it
	ask func() ([]host.Status, []host.Silent)
	end func(proc int, why string) bool // ends a process that hangs; false where none would take its place
	// anew has all connections made again, and everybody go to one state; nil where that would end the run
	anew func(why string)

	began time.Time
	mu    sync.Mutex
	stall core.Stall
	steps bool // the fleet has heard of one
	ended bool // the coordinator has said so: what it saves is durable
}

// newWatch makes the watch over a run that is about to begin, with the configured limit for a stall.
func newWatch(r *Run) *watch {
	w := &watch{r: r, abandon: make(chan struct{}), began: time.Now()}
	w.stall.Limit = actors.Duration(r.stallLimit())
	return w
}

// joins tells it of the actors.
func (w *watch) joins(s *host.System, o *host.RunOptions) {
	if w.r.io.Fleet != nil && o.Links != nil { // its processes may be on other hosts
		w.ask = func() ([]host.Status, []host.Silent) { return s.Everywhere(o.Links, o.Procs, time.Second) }
	}
	if o.Coord.Recover && o.Links != nil {
		w.anew = func(why string) {
			s.Send(layout.CoordinatorRef, actors.Message{Kind: actors.Broken, Epoch: actors.AnyEpoch, Text: why})
		}
	}
}

// now is the time since the run began.
func (w *watch) now() actors.Time { return actors.Time(time.Since(w.began)) }

// seen hears the coordinator's reports.
func (w *watch) seen(m actors.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stall.Seen(w.now(), m.Text == core.TopicStep)
	w.ended = w.ended || m.Text == core.TopicEnd
	if f, ok := w.r.io.Fleet.(Noter); ok && m.Text == core.TopicStep && !w.steps {
		w.steps = true
		f.Steps()
	}
}

// run carries out what trains, and looks at it meanwhile. It comes back without it when a request to stop
// leaves no other way.
func (w *watch) run(ctx context.Context, train func() error) error {
	done := make(chan error, 1)
	go func() { done <- train() }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	root, same := "", 0
	var asked, left time.Time
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
		switch {
		case ctx.Err() == nil:
			w.stalled()
		case left.IsZero():
			if asked.IsZero() {
				asked = time.Now()
			}
			if now, stuck := w.root(); !stuck && time.Since(asked) < w.patience() {
				same = 0
			} else if same++; same >= stuckLooks {
				root, left = now, time.Now()
				w.r.report.say("the step under way is left: %s", root)
				close(w.abandon)
			}
		case w.over():
			w.gaveUp = true // a device that is at work for ever has nothing more to give
			return nil
		case time.Since(left) > savingWait && w.quiet() > savingWait:
			if _, stuck := w.root(); !stuck { // it is being written
				continue
			}
			w.gaveUp = true
			return exit.With(fmt.Errorf("stopped, and the state of the last step could not be saved: "+
				"%s; the newest checkpoint is from before", root), exit.Failed)
		}
	}
}

// over reports whether the run ended some time ago, and yet its devices did not.
func (w *watch) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended && time.Duration(w.stall.Quiet(w.now())) > lookEvery
}

// quiet is how long nothing was reported.
func (w *watch) quiet() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.stall.Quiet(w.now()))
}

// patience is how long a rank may be at work after a request to stop, before its step is left: as long as
// any step took, and at least workingWait.
func (w *watch) patience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(workingWait, time.Duration(w.stall.Longest()))
}

// stalled says why no step comes for long, and ends the process that it is because of, where another takes its place.
func (w *watch) stalled() {
	w.mu.Lock()
	remedy := w.stall.Look(w.now())
	w.mu.Unlock()
	if remedy != core.StallAsk {
		return
	}
	d, _, err := w.why()
	if err != nil {
		d.Root = err.Error()
	}
	proc := w.r.layout.OwnerOf(d.Ref, max(1, w.r.cfg.Run.Plan.Procs))
	rank := d.Ref >= layout.FirstRank && !strings.HasPrefix(d.Actor, "loader")
	root := core.StallRoot{Proc: proc, Which: which(d), Age: actors.Duration(d.Age),
		Cured: err == nil && d.Kind != "none" && (d.Kind != "busy" || rank), Cycle: d.Kind == "cycle" && w.anew != nil}
	w.mu.Lock()
	quiet := time.Duration(w.stall.Quiet(w.now()))
	remedy = w.stall.Found(w.now(), root)
	w.mu.Unlock()
	why := fmt.Sprintf("no step for %d s, because %s", int(quiet.Seconds()), d.Root)
	switch {
	case remedy == core.StallSay:
		w.r.report.say("! %s", why)
	case remedy == core.StallAnew:
		w.anew(why)
	case remedy == core.StallEnd && (w.end == nil || !w.end(proc, why)):
		w.r.report.say("! process %d hangs, and nobody would start another in its place: stop the run, and "+
			"repeat its command", proc)
	}
}

// which tells roots apart. One while messages come is another than before: what is waited for may be on its way.
func which(d host.Diagnosis) string { return fmt.Sprint(d.Kind, d.Ref, d.What, " ", d.Took/tookLeast) }

// why finds what the run waits for, and which processes do not answer.
func (w *watch) why() (d host.Diagnosis, silent []host.Silent, err error) {
	var all []host.Status
	if w.ask != nil {
		all, silent = w.ask()
	} else if all, silent, err = host.AskWhy(w.r.cfg.Run.Log.Dir, time.Second); err != nil {
		return d, nil, err
	}
	d = host.Diagnose(all, silent...)
	for _, s := range all {
		d.Took += s.Took
	}
	return d, silent, nil
}

// root is what the run waits for, and whether that will not end by itself: data that does not come, a lost
// credit, a cycle of waits, a process that does not answer. A rank that computes will.
func (w *watch) root() (string, bool) {
	d, silent, err := w.why()
	if err != nil {
		return err.Error(), true
	}
	return d.Root, len(silent) > 0 || d.Kind != "busy" && d.Kind != "none" || strings.HasPrefix(d.Actor, "loader")
}

// prepareUntil is prepare, which a request to stop need not wait for.
func (r *Run) prepareUntil(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- r.prepare() }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	limit := r.stallLimit()
	if limit == 0 {
		limit = stallUsual
	}
	for began, told := time.Now(), false; ctx.Err() == nil; {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		case <-tick.C:
		}
		if read, late := openingWaits(); !told && time.Since(began) > limit && late > 0 {
			told = true
			fmt.Fprintf(r.io.Warnings, "! the run has been opening for %d s, because %s has not answered for %d s\n",
				int(time.Since(began).Seconds()), read, int(late.Seconds()))
		}
	}
	select {
	case err := <-done:
		return err
	case <-time.After(openingWait):
	}
	what := "while the run was being opened"
	if read, late := openingWaits(); late > 0 {
		what = fmt.Sprintf("while %s was being opened, which has not answered for %v", read, late.Round(time.Second))
	}
	fmt.Fprintln(r.io.Warnings, "stopped", what)
	return exit.With(errors.New("stopped "+what), exit.Interrupted)
}

// openingWaits is what the opening run reads and for how long it has waited for an answer, 0 if it waits for none.
func openingWaits() (string, time.Duration) {
	reads := store.Waits()
	if len(reads) == 0 {
		return "", 0
	}
	return reads[0].Name, time.Since(reads[0].Since)
}

// stallLimit is the time without a step from which on a run says what it waits for, 0 if the configuration
// leaves it open.
func (r *Run) stallLimit() time.Duration {
	if r.io.Stall > 0 {
		return r.io.Stall
	}
	return time.Duration(r.cfg.Run.Log.Stall * float64(time.Second))
}

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
	// Ends is in how long a host of the run is taken back, for whose sake it was asked to end; below 0 if none is. The word on
	// it may come behind the signal: it is waited for as long as is said.
	Ends(within time.Duration) time.Duration
}

// leaving says what a run has not saved of whose hosts one is taken back, and whether there is time to.
func (r *Run) leaving() {
	if f, ok := r.io.Fleet.(Noter); ok {
		if left := f.Ends(100 * time.Millisecond); left > 0 {
			p := r.report
			at := max(p.durable.Load(), r.start.first-1)
			p.say("%s", leavingText(left, time.Duration(p.saving.Load()), p.shown.Load()-at, at))
		}
	}
}

// leavingText compares what is left with what a save took, 0 if none has ended.
func leavingText(left, save time.Duration, steps, at int64) string {
	text := fmt.Sprintf("a host of this run is taken back in %v; %d steps since step %d are not saved, and the last save took %v",
		left.Round(time.Second), steps, at, save.Round(time.Millisecond))
	if save > 0 && save < left {
		return text + ": there is time for it"
	}
	return "! " + strings.Replace(text, "the last save took 0s", "how long that takes is not known", 1) + ": they may be lost"
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
