package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/topology/machine"
)

// recentMax bounds the jobs that a process remembers.
const recentMax = 8192

// Job is something that an actor's device did, as those who ask a run hear it.
type Job struct {
	Actor string  `json:"actor"` // as edges have it: rank3, loader0.1
	Name  string  `json:"name"`  // 2F0.1: an action and its segment; load, snapshot, write
	Kind  string  `json:"kind"`  // of the action: F, B, I, W, …; "" where it is none
	Step  int64   `json:"step"`
	Start float64 `json:"start"` // seconds since 1970
	End   float64 `json:"end"`   // seconds since 1970
}

// Recent remembers the newest jobs of a process's devices.
type Recent struct {
	mu    sync.Mutex
	began time.Time
	ring  []host.TraceEvent
	n     int
}

// NewRecent remembers nothing yet.
func NewRecent() *Recent { return &Recent{} }

// Began says when the clock of the jobs began.
func (r *Recent) Began(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = t
}

// See implements host.System's Trace.
func (r *Recent) See(e host.TraceEvent) {
	e.Job.In, e.Job.After, e.Job.Values = nil, nil, nil // which may be large
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < recentMax {
		r.ring = append(r.ring, e)
	} else {
		r.ring[r.n%recentMax] = e
	}
	r.n++
}

// Jobs are those remembered, by their start.
func (r *Recent) Jobs() []Job {
	r.mu.Lock()
	ring, began := slices.Clone(r.ring), r.began
	r.mu.Unlock()
	out := make([]Job, len(ring))
	at := float64(began.UnixMicro()) / 1e6
	for i, e := range ring {
		name, ok := jobNames[e.Job.Kind]
		if !ok {
			name = fmt.Sprintf("%v.%d", e.Job.Action, e.Job.Segment)
		}
		out[i] = Job{Actor: ShortName(e.Name), Name: name, Step: e.Job.Step, Start: at + e.Start.Seconds(),
			End: at + e.End.Seconds()}
		if !ok {
			out[i].Kind = fmt.Sprint(e.Job.Action.Kind)
		}
	}
	slices.SortFunc(out, func(a, b Job) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	return out
}

// Serve tells whoever connects to a socket in dir the jobs of process proc, until the returned function is called.
func (r *Recent) Serve(dir string, proc int) (func(), error) {
	return machine.Answer(dir, "jobs", proc, func() any { return r.Jobs() })
}

// ErrNotRunning says that nobody tells the newest jobs of a run: it is not under way.
var ErrNotRunning = errors.New("no run is under way here")

// RecentJobs asks all processes of a run on this host for their newest jobs, by their start. One that
// does not answer in time is left out.
func RecentJobs(dir string, timeout time.Duration) ([]Job, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "jobs-*.sock"))
	if err != nil {
		return nil, err
	}
	var out []Job
	any := false
	for _, p := range paths {
		c, err := net.DialTimeout("unix", p, timeout)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(timeout)) // a connection that takes none fails below
		var part []Job
		if json.NewDecoder(c).Decode(&part) == nil {
			out, any = append(out, part...), true
		}
		c.Close()
	}
	if !any {
		return nil, fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	slices.SortStableFunc(out, func(a, b Job) int { return strings.Compare(a.Actor, b.Actor) })
	return out, nil
}
