package run

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs/exit"
)

// Environment of a worker process: its number and the folder of the sockets.
// In the words of the field: process supervision.
const (
	envProc    = "LFACTOR_PROC"
	envSockets = "LFACTOR_SOCKETS"
	envAgain   = "LFACTOR_AGAIN" // of a process that is started again: see comeback
	envDay     = "LFACTOR_DAY"   // that chat templates write, as data.template_date
)

// Leads tells whether this process is the one of a run that users have started, and not one that it has
// started for its ranks or samplers.
func Leads() bool { return workerProc() == 0 && !rollout.Serves() }

// workerProc is this process's number among the processes of a run; 0 leads.
func workerProc() int {
	n, err := strconv.Atoi(os.Getenv(envProc))
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// hash is what all processes of a run must agree on.
func (r *Run) hash() [32]byte { return r.program(core.Form()) }

// program is the hash of what this process computes, which messages of the given form tell others of.
func (r *Run) program(form string) [32]byte {
	text := form + r.layout.Program.Hash()
	for _, part := range r.layout.Ranks {
		for _, s := range part.Stages {
			text += r.layout.Main(s).Hash()
		}
	}
	return sha256.Sum256([]byte(text + fmt.Sprint(r.start.first)))
}

func (r *Run) owner(procs int) func(actors.Ref) int {
	return func(ref actors.Ref) int { return r.layout.OwnerOf(ref, procs) }
}

// ranksOf names the ranks of a process.
func (r *Run) ranksOf(proc int) string {
	var names []string
	for k := range r.job.Mesh.Size() {
		if r.layout.Owner(k, r.cfg.Run.Plan.Procs) == proc {
			names = append(names, r.job.Mesh.Name(k))
		}
	}
	return strings.Join(names, ", ")
}

// workers are the other processes of a run.
type workers struct {
	r      *Run
	fleet  Fleet
	ready  chan error // of the first life of each
	lost   chan error // ends the run
	losses chan host.Loss
	mu     sync.Mutex
	list   map[int]Process
	lives  map[int]int           // by process: how often it was started before
	silent map[int]time.Duration // by process: how long it had been silent when it was ended
	hung   map[int]string        // by process: why it was ended that took no step any more
	led    bool                  // all are ready: the coordinator looks after what happens now
	over   bool
	done   chan struct{} // closed when over
	wg     sync.WaitGroup
}

// fleet is where the run's processes live.
func (r *Run) fleet() (Fleet, error) {
	switch {
	case r.io.Fleet != nil:
		return r.io.Fleet, nil
	case workerProc() > 0:
		return &local{dir: os.Getenv(envSockets)}, nil
	}
	return newLocal(r.io.Worker, r.io.Warnings)
}

// links joins this process with the others of the run.
func (r *Run) links(f Fleet, proc, procs int) (*links.Links, error) {
	t, err := f.Transport(proc)
	if err != nil {
		return nil, err
	}
	return links.New(t, proc, r.life, r.hash(), r.owner(procs)), nil
}

// startable is the fault of a run of several processes in a program that cannot start them.
func (r *Run) startable() error {
	if len(r.io.Worker) > 0 {
		return nil
	}
	const why = "the program that trains does not say how to start other processes"
	switch c := r.cfg; {
	case c.Run.Plan.Procs > 1 && r.io.Fleet == nil:
		return c.Fault("plan.procs", why, "set plan.procs=1, or run.Options.Worker in the program")
	case c.Run.Rollout.Samplers > 0:
		return c.Fault("rollout.samplers", why, "set rollout.samplers=0, or run.Options.Worker in the program")
	case c.Run.Reward.Judges > 0:
		return c.Fault("reward.judges", why, "set reward.judges=0, or run.Options.Worker in the program")
	}
	return nil
}

// spawnWorkers starts the other processes.
func (r *Run) spawnWorkers(o *host.RunOptions) (*workers, error) {
	f, err := r.fleet()
	if err != nil {
		return nil, err
	}
	r.tellWidths(f)
	w := &workers{r: r, fleet: f, ready: make(chan error, o.Procs), lost: make(chan error, o.Procs),
		losses: make(chan host.Loss), list: map[int]Process{}, lives: map[int]int{}, silent: map[int]time.Duration{},
		hung: map[int]string{}, done: make(chan struct{})}
	if o.Links, err = r.links(f, 0, o.Procs); err != nil {
		f.Close()
		return nil, err
	}
	if r.heir != nil {
		w.takeIn(o.Links, r.heir.others)
	}
	for p := 1; p < o.Procs && r.heir == nil; p++ {
		first, err := w.start(p, 0)
		if err != nil {
			w.close()
			return nil, err
		}
		w.wg.Add(1)
		go w.keep(p, first, 1)
	}
	if o.Coord.Recover {
		o.Links.Watch(w.suspect)
	}
	o.Orphaned, o.Losses = w.lost, w.losses
	if r.heir == nil {
		o.Ready = w.await
	}
	return w, nil
}

// await waits until every process has its actors.
func (w *workers) await() error {
	for range w.list {
		select {
		case err := <-w.ready:
			if err != nil {
				return err
			}
		case err := <-w.lost:
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.led = true
	return nil
}

// start starts a process for the first time, or again.
func (w *workers) start(proc, life int) (Process, error) {
	env := []string{fmt.Sprintf("%s=%d", envProc, proc), envDay + "=" + w.r.cfg.Run.Data.Date}
	if _, heirs := w.fleet.(Heirs); life > 0 || heirs {
		env = append(env, w.r.again(life))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return nil, errors.New("the run has ended")
	}
	p, err := w.fleet.Start(proc, env)
	if err == nil {
		w.list[proc], w.lives[proc] = p, life
	}
	return p, err
}

// suspect ends a process that says nothing any more, so that it cannot come back to a run that goes on without it.
func (w *workers) suspect(proc, life int, since time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.led && !w.over && w.lives[proc] == life {
		w.silent[proc] = since
		w.list[proc].Kill()
	}
}

// end says that a process hangs while it says that it lives, ends it, and reports whether another takes its
// place: the leader of a run on one host has nobody who would start it again.
func (w *workers) end(proc int, why string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, told := w.fleet.(Noter)
	if !w.led && w.r.heir == nil || w.over || w.r.cfg.Run.Train.Restarts == 0 || proc == 0 && !told {
		return false
	}
	// Said before it is asked for: a leader that hangs is killed itself as soon as the head has heard of it.
	w.r.report.say("! %s: process %d is ended, and another takes its place", why, proc)
	if told {
		f.Hung(proc, why)
	}
	if p := w.list[proc]; p != nil {
		w.hung[proc] = why
		p.Kill()
	}
	return true
}

// cause says how a process has ended.
func (w *workers) cause(proc int, p Process, how error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	words := fmt.Sprintf("%s lost: process %d (%s)", w.r.ranksOf(proc), proc, p.Name())
	if d := w.silent[proc]; d > 0 {
		words += fmt.Sprintf(" said nothing for %.2f s and", d.Seconds())
	}
	if why := w.hung[proc]; why != "" {
		words += fmt.Sprintf(" was ended (%s) and", why)
	}
	delete(w.silent, proc)
	delete(w.hung, proc)
	return fmt.Errorf("%s %w", words, how)
}

// keep looks after a process: when it ends before the run does it is started again, alone, for the life-th
// time. How often, the coordinator decides.
func (w *workers) keep(proc int, p Process, life int) {
	defer w.wg.Done()
	for ; ; life++ {
		if p.Ready() == nil && life == 1 {
			w.ready <- nil
		}
		how := p.Wait()
		if how == nil && w.ends(settle) { // in order, with the run
			return
		}
		if how == nil {
			how = errors.New("ended before the run did")
		}
		cause := w.cause(proc, p, how)
		w.mu.Lock()
		over, led := w.over, w.led
		w.mu.Unlock()
		if over {
			return
		}
		if w.r.cfg.Run.Train.Restarts == 0 || !led {
			w.lost <- cause
			return
		}
		w.r.report.say("! %v; it is started again", cause)
		select {
		case w.losses <- host.Loss{Proc: proc, Times: life, Err: cause}:
		case <-w.done:
			return
		}
		var err error
		p, err = w.start(proc, life)
		if none := (*NoRoomError)(nil); errors.As(err, &none) {
			w.forsake(proc, life, none)
			return
		}
		if err != nil {
			w.lost <- fmt.Errorf("%w, and cannot be started again: %w", cause, err)
			return
		}
	}
}

// forsake tells the coordinator that nobody takes the place of a process.
func (w *workers) forsake(proc, life int, none *NoRoomError) {
	w.r.report.say("! %v; what the other processes hold is made durable, and the run ends", none)
	select {
	case w.losses <- host.Loss{Proc: proc, Times: life, Err: none, Gone: true}:
	case <-w.done:
	}
}

// settle is how long the end of the run may take to be known after a process has ended in order.
const settle = 5 * time.Second

// ends waits for the end of the run.
func (w *workers) ends(within time.Duration) bool {
	select {
	case <-w.done:
		return true
	case <-time.After(within):
		return false
	}
}

// close ends the workers: they are asked to, and what has not gone after a while is killed.
func (w *workers) close() {
	w.mu.Lock()
	w.over = true
	close(w.done)
	for _, p := range w.list {
		p.Leave()
	}
	w.mu.Unlock()
	timer := time.AfterFunc(3*time.Second, func() {
		for _, p := range w.list {
			p.Kill()
		}
	})
	w.wg.Wait()
	timer.Stop()
	w.fleet.Close()
}

// work runs a worker process's ranks until the leader halts them or is gone. Errors reach the user through the leader.
func (r *Run) work(proc int) error {
	if err := os.MkdirAll(r.cfg.Run.Log.Dir, 0o700); err != nil { // hosts may share no storage
		return err
	}
	o, closeAll, err := r.options(proc)
	if err != nil {
		return err
	}
	defer closeAll()
	f, err := r.fleet()
	if err != nil {
		return err
	}
	links, err := r.links(f, proc, o.Procs)
	if err != nil {
		return err
	}
	orphaned := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the leader
		orphaned <- exit.With(errors.New(""), exit.Failed)
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second): // a rank stuck in a job must not keep the process
			os.Exit(exit.Failed)
		}
	}()
	o.Links, o.Orphaned, o.Edges = links, orphaned, r.writeEdges(proc)
	tr := record.NewSender(proc, o.Procs)
	o.Trace, links.Tell = tr.See, tr.Tell
	o.Ready = func() error { fmt.Println("ready"); return nil }
	r.plant(&o)
	o.OnSystem = func(s *host.System) {
		if end, err := s.ServeWhy(r.cfg.Run.Log.Dir, proc); err == nil {
			cancelLater := cancel
			cancel = func() { end(); cancelLater() }
		}
	}
	defer r.keepRecent(&o, proc)()
	return host.Run(r.layout, o)
}
