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
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/store"
)

const (
	lookEvery  = 500 * time.Millisecond
	stallUsual = 30 * time.Second // without a step from which on a run says what it waits for
	stallSteps = 5                // or so many of the longest steps
	// looks in a row that find the same wait, before a run that is to stop leaves its step
	stuckLooks = 3
	// for a rank that is at work, after a request to stop, if no step took longer
	workingWait = 4 * time.Second
	openingWait = 2 * time.Second // after a request to stop, for what is being opened
	savingWait  = 2 * time.Second // for the state of a step that was left, where nobody is at work on it
)

// watch looks after a run from beside: it says why no step comes, and lets a run that is to stop leave a
// step that will not end.
type watch struct {
	r       *Run
	abandon chan struct{}
	gaveUp  bool

	mu      sync.Mutex
	last    time.Time // of a step, an evaluation or a save
	longest time.Duration
	told    bool
	ended   bool // the coordinator has said so: what it saves is durable
}

func newWatch(r *Run) *watch { return &watch{r: r, abandon: make(chan struct{}), last: time.Now()} }

// seen hears the coordinator's reports.
func (w *watch) seen(m actors.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Text == core.TopicStep {
		w.longest = max(w.longest, time.Since(w.last))
	}
	w.last, w.told = time.Now(), false
	w.ended = w.ended || m.Text == core.TopicEnd
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
	return w.ended && time.Since(w.last) > lookEvery
}

// quiet is how long nothing was reported.
func (w *watch) quiet() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.last)
}

// patience is how long a rank may be at work after a request to stop, before its step is left: as long as
// any step took, and at least workingWait.
func (w *watch) patience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(workingWait, w.longest)
}

// stalled says once why no step comes for long.
func (w *watch) stalled() {
	limit := w.r.stallLimit()
	w.mu.Lock()
	if limit == 0 {
		limit = max(stallUsual, stallSteps*w.longest)
	}
	since := time.Since(w.last)
	say := since > limit && !w.told
	w.told = w.told || say
	w.mu.Unlock()
	if !say {
		return
	}
	root, _ := w.root()
	w.r.report.say("! no step for %d s, because %s", int(since.Seconds()), root)
}

// root is what the run waits for, and whether that will not end by itself: data that does not come, a lost
// credit, a cycle of waits, a process that does not answer. A rank that computes will.
func (w *watch) root() (string, bool) {
	all, silent, err := host.AskWhy(w.r.cfg.Run.Log.Dir, time.Second)
	if err != nil {
		return err.Error(), true
	}
	d := host.Diagnose(all, silent...)
	return d.Root, len(silent) > 0 || d.Kind != "busy" && d.Kind != "none" ||
		strings.HasPrefix(d.Actor, "loader")
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
			fmt.Fprintf(r.io.Warnings,
				"! the run has been opening for %d s, because %s has not answered for %d s\n",
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
		what = fmt.Sprintf("while %s was being opened, which has not answered for %v", read,
			late.Round(time.Second))
	}
	fmt.Fprintln(r.io.Warnings, "stopped", what)
	return exit.With(errors.New("stopped "+what), exit.Interrupted)
}

// openingWaits is what the opening run reads and for how long it has waited for an answer, 0 if it waits for
// none.
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
