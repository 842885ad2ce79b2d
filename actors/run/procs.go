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
	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/host"
)

// Environment of a worker process: its number and the folder of the sockets.
const (
	envProc    = "LFACTOR_PROC"
	envSockets = "LFACTOR_SOCKETS"
	envCapture = "LFACTOR_CAPTURE" // a folder: every edge between processes is kept there as Arrow streams
)

// workerProc is this process's number among the processes of a run; 0 leads.
func workerProc() int {
	n, err := strconv.Atoi(os.Getenv(envProc))
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// hash is what all processes of a run must agree on.
func (r *Run) hash() [32]byte {
	text := r.layout.Program.Hash()
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
	fleet Fleet
	list  []Process
	lost  chan error
	mu    sync.Mutex
	over  bool
	wg    sync.WaitGroup
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
func (r *Run) links(f Fleet, proc, procs int) (*host.Links, error) {
	t, err := f.Transport(proc)
	if err != nil {
		return nil, err
	}
	return host.NewLinks(t, proc, r.hash(), r.owner(procs), os.Getenv(envCapture)), nil
}

// spawnWorkers starts the other processes.
func (r *Run) spawnWorkers(o *host.RunOptions) (*workers, error) {
	f, err := r.fleet()
	if err != nil {
		return nil, err
	}
	w := &workers{fleet: f, lost: make(chan error, o.Procs)}
	if o.Links, err = r.links(f, 0, o.Procs); err != nil {
		f.Close()
		return nil, err
	}
	ready := make(chan error, o.Procs)
	for p := 1; p < o.Procs; p++ {
		if err := w.start(r, p, ready); err != nil {
			w.close()
			return nil, err
		}
	}
	o.Orphaned = w.lost
	o.Ready = func() error {
		for p := 1; p < o.Procs; p++ {
			select {
			case err := <-ready:
				if err != nil {
					return err
				}
			case err := <-w.lost:
				return err
			}
		}
		return nil
	}
	return w, nil
}

func (w *workers) start(r *Run, proc int, ready chan error) error {
	p, err := w.fleet.Start(proc, []string{fmt.Sprintf("%s=%d", envProc, proc)})
	if err != nil {
		return err
	}
	w.list = append(w.list, p)
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		if p.Ready() == nil {
			ready <- nil
		}
		err := p.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.over {
			w.lost <- fmt.Errorf("%s lost: process %d (%s) %w", r.ranksOf(proc), proc, p.Name(), err)
		}
	}()
	return nil
}

// close ends the workers: they are asked to, and what has not gone after a while is killed.
func (w *workers) close() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	for _, p := range w.list {
		p.Leave()
	}
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
	o.Links, o.Orphaned = links, orphaned
	o.Ready = func() error { fmt.Println("ready"); return nil }
	r.plant(&o)
	o.OnSystem = func(s *host.System) {
		if end, err := s.ServeWhy(r.cfg.Run.Log.Dir, proc); err == nil {
			cancelLater := cancel
			cancel = func() { end(); cancelLater() }
		}
	}
	return host.Run(r.layout, o)
}
