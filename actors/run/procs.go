package run

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
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

// workers are the other processes of a run on this host.
type workers struct {
	cmds  []*exec.Cmd
	pipes []io.Closer
	dir   string
	lost  chan error
	mu    sync.Mutex
	over  bool
	wg    sync.WaitGroup
}

// spawnWorkers starts the other processes with this one's own command line. They end when their standard input does, so
// that none outlives this process.
func (r *Run) spawnWorkers(o *host.RunOptions) (*workers, error) {
	sweepSockets()
	dir, err := os.MkdirTemp("", "lfactor-")
	if err != nil {
		return nil, err
	}
	w := &workers{dir: dir, lost: make(chan error, o.Procs)}
	links, err := host.Listen(dir, 0, r.hash(), r.owner(o.Procs), os.Getenv(envCapture))
	if err != nil {
		return nil, err
	}
	ready := make(chan error, o.Procs)
	for p := 1; p < o.Procs; p++ {
		if err := w.start(r, p, ready); err != nil {
			w.close()
			return nil, err
		}
	}
	o.Links, o.Orphaned = links, w.lost
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

// sweepSockets removes the socket folders of runs that were killed: nobody answers there any more.
func sweepSockets() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "lfactor-*", "p0.sock"))
	for _, s := range dirs {
		c, err := net.Dial("unix", s)
		if err == nil {
			c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			os.RemoveAll(filepath.Dir(s))
		}
	}
}

func (w *workers) start(r *Run, proc int, ready chan error) error {
	c := exec.Command(r.io.Worker[0], r.io.Worker[1:]...)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", envProc, proc), envSockets+"="+w.dir)
	c.Stderr = r.io.Warnings
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches the leader alone, which ends the step first
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("process %d: %w", proc, err)
	}
	w.cmds, w.pipes = append(w.cmds, c), append(w.pipes, in)
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		line, _ := bufio.NewReader(out).ReadString('\n')
		if strings.TrimSpace(line) == "ready" {
			ready <- nil
		}
		err := c.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.over {
			w.lost <- fmt.Errorf("%s lost: process %d (pid %d) %s", r.ranksOf(proc), proc, c.Process.Pid, ending(err))
		}
	}()
	return nil
}

// ending says how a process ended.
func ending(err error) string {
	var x *exec.ExitError
	if errors.As(err, &x) {
		if s, ok := x.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return fmt.Sprintf("was killed by signal %d (%v)", int(s.Signal()), s.Signal())
		}
		return fmt.Sprintf("ended with exit code %d", x.ExitCode())
	}
	return "ended before the run did"
}

// close ends the workers: their standard input ends, and what has not gone after a while is killed.
func (w *workers) close() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	for _, p := range w.pipes {
		p.Close()
	}
	timer := time.AfterFunc(3*time.Second, func() {
		for _, c := range w.cmds {
			_ = c.Process.Kill() // it may have ended meanwhile
		}
	})
	w.wg.Wait()
	timer.Stop()
	os.RemoveAll(w.dir)
}

// work runs a worker process's ranks until the leader halts them or is gone. Errors reach the user through the leader.
func (r *Run) work(proc int) error {
	o, closeAll, err := r.options(proc)
	if err != nil {
		return err
	}
	defer closeAll()
	links, err := host.Listen(os.Getenv(envSockets), proc, r.hash(), r.owner(o.Procs), os.Getenv(envCapture))
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
