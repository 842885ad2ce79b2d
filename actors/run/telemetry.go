package run

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/actors/run/record"
)

// EdgesName is the record, in log.dir, of what actors sent and waited for: a record.EdgeWindow a line.
const EdgesName = "edges.jsonl"

// edgesLook is how often actors are asked for it. An answer takes an actor some microseconds.
const edgesLook = 500 * time.Millisecond

// edgesAnswer is how long an answer may take; an actor that takes longer is asked again at the next look.
const edgesAnswer = 250 * time.Millisecond

// edgesRate bounds what the record grows by, in bytes a second: windows of a run with many edges last longer.
const edgesRate = 1000

// edgeLooks writes down what a run's actors send and wait for.
type edgeLooks struct {
	r    *Run
	f    *os.File
	stop chan struct{}
	wg   sync.WaitGroup
}

// newEdgeLooks opens the record; where the run file wants none, or it cannot be written, nothing is looked at.
func (r *Run) newEdgeLooks() *edgeLooks {
	l := &edgeLooks{r: r, stop: make(chan struct{})}
	if r.cfg.Run.Log.Edges <= 0 {
		return l
	}
	var err error
	l.f, err = os.OpenFile(filepath.Join(r.cfg.Run.Log.Dir, EdgesName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.lost(err)
	}
	return l
}

func (l *edgeLooks) lost(err error) {
	l.r.report.say("! what actors wait for is not written down: %v; training goes on", err)
}

// begin looks from now on at the actors of all processes.
func (l *edgeLooks) begin(s *host.System, o *host.RunOptions) {
	if l.f != nil {
		l.wg.Go(func() {
			l.watch(func() []host.Status {
				all, _ := s.Everywhere(o.Links, o.Procs, edgesAnswer) // who is silent is asked again
				return all
			})
		})
	}
}

// watch writes a line a window until the end, of which the last may be shorter.
func (l *edgeLooks) watch(look func() []host.Status) {
	every := time.Duration(l.r.cfg.Run.Log.Edges * float64(time.Second))
	window := every
	var w record.EdgeWatch
	tick := time.NewTicker(min(edgesLook, every))
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-l.stop:
			over = true
		case now := <-tick.C:
			w.Look(now, look())
		}
		now := time.Now()
		if !w.Long(now, window) && !(over && w.Long(now, 0)) {
			continue
		}
		x := w.End(now, l.r.report.newestStep())
		x.Stages = l.r.data.stageUse()
		line, err := json.Marshal(x)
		if err == nil {
			_, err = l.f.Write(append(line, '\n'))
		}
		if err != nil {
			l.lost(err)
			return
		}
		window = max(every, time.Duration(len(line))*time.Second/edgesRate)
	}
}

// end writes what is left, and ends the record.
func (l *edgeLooks) end() {
	close(l.stop)
	l.wg.Wait()
	if l.f != nil {
		_ = l.f.Close() // what could not be written was said when it was
	}
}

// keepRecent keeps the newest jobs of a process's devices, for whoever asks while the run is under way,
// until the returned function is called.
func (r *Run) keepRecent(o *host.RunOptions, proc int) func() {
	ring := record.NewRecent()
	see := o.Trace
	o.Trace = func(e host.TraceEvent) { see(e); ring.See(e) }
	began, end := o.OnSystem, func() {}
	o.OnSystem = func(s *host.System) {
		began(s)
		ring.Began(time.Now().Add(-s.Since()))
		if stop, err := ring.Serve(r.cfg.Run.Log.Dir, proc); err == nil { // else nobody can ask
			end = stop
		}
	}
	return func() { end() }
}

// clocks are those of the other processes, as the trace has them.
func (r *Run) clocks(l *links.Links) map[int]links.Offset {
	if l == nil {
		return nil
	}
	all := l.Clocks()
	if len(all) > 0 {
		r.report.say("%s", record.Merged(all))
	}
	return all
}

// profiled writes a run's profile; that it cannot be written is not a failure of the run.
func (r *Run) profiled(p *profiler.Profiler) {
	x, ok := p.Report()
	if !ok {
		r.report.say("! no profile: it wants two steps, of which the first warms up")
		return
	}
	if err := p.Write(r.io.Profile, x); err != nil {
		r.report.say("! no profile: %v", err)
		return
	}
	x.PrintPhases(r.io.Progress)
	x.PrintKernels(r.io.Progress, 12)
	x.PrintMemory(r.io.Progress, profiler.HoldingsShown)
	r.report.say("profile %s.txt, .json and .svg", r.io.Profile)
}

// trackers opens the sinks of log.trackers.
func (p *reporter) trackers() error {
	l := p.r.cfg.Run.Log
	dir := l.Dir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	sum := sha256.Sum256([]byte(dir + "\n" + p.r.cfg.Run.Checkpoint.Dir))
	o := record.SinkOptions{Dir: l.Dir, First: p.r.start.first, Project: l.Project,
		Name: cmp.Or(l.Name, filepath.Base(dir)), ID: hex.EncodeToString(sum[:4]), Config: p.r.cfg.Flat(),
		Now: time.Now}
	for _, name := range l.Trackers {
		s, err := record.OpenSink(name, o)
		if err != nil {
			return err
		}
		p.sinks = append(p.sinks, s)
	}
	return nil
}

// scalar tells all sinks a figure.
func (p *reporter) scalar(tag string, step int64, v float64) {
	for _, s := range p.sinks {
		s.Scalar(tag, step, v)
	}
}

// closeSinks ends them; what one could not write is said.
func (p *reporter) closeSinks() {
	for _, s := range p.sinks {
		if err := s.Close(p.newest >= int64(p.r.cfg.Run.Train.Steps)); err != nil {
			p.say("! a record of the figures is not whole: %v", err)
		}
	}
}
