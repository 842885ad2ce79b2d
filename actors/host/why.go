package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// Diagnosis is the answer of `lfactor why`: the root first, then who waits on it.
type Diagnosis struct {
	Root  string   `json:"root"`            // one sentence that names the actor and the cause
	Actor string   `json:"actor,omitempty"` // the actor at the root
	Kind  string   `json:"kind"`            // busy, stuck, credit, cycle, silent, none
	Chain []string `json:"chain"`           // from the coordinator to the root

	Ref  actors.Ref    `json:"-"` // of the actor, or of one that does not answer
	What string        `json:"-"` // it does or awaits
	Age  time.Duration `json:"-"` // of that, 0 where it is not known
	Took int64         `json:"-"` // bytes of messages that the processes which answer have taken from others, in all
}

// Diagnose follows the waits from the coordinator to their root. An edge without credit whose receiver waits
// for it is a leaked credit; a closed loop is a cycle; an actor on its device is the root while its job
// lasts. Processes that do not answer are named where they are waited for.
func Diagnose(all []Status, silent ...Silent) Diagnosis {
	at := map[actors.Ref]Status{}
	for _, s := range all {
		at[s.Ref] = s
	}
	var d Diagnosis
	seen := map[actors.Ref]int{}
	var path []Status
	s, ok := at[layout.CoordinatorRef]
	for ok {
		if from, loop := seen[s.Ref]; loop {
			return d.loop(path[from:], at)
		}
		seen[s.Ref] = len(path)
		path = append(path, s)
		d.Ref, d.What, d.Age = s.Ref, s.Wait.What, s.Age
		d.Chain = append(d.Chain, fmt.Sprintf("%s: %s (%s)", s.Name, s.describe(at), s.Age.Round(time.Millisecond)))
		if s.Wait.Busy || s.Wait.For == actors.None {
			break
		}
		if held := leaked(at, s); held != "" {
			d.Kind, d.Actor, d.Root = "credit", s.Name, held
			return d
		}
		next, found := at[s.Wait.For]
		if !found {
			d.Kind, d.Actor, d.Ref = "silent", s.Name, s.Wait.For
			d.Root = fmt.Sprintf("%s waits for %s from %s, which does not answer: %s", s.Name, s.Wait.What,
				nameOf(s.Wait.For, at), silence(silent))
			return d
		}
		s = next
	}
	if len(path) == 0 {
		return Diagnosis{Kind: "silent", Root: "the coordinator does not answer: " + silence(silent)}
	}
	d.Kind, d.Actor = "busy", s.Name
	d.Root = fmt.Sprintf("%s is at work on %s, for %s", s.Name, s.Wait.What, s.Age.Round(time.Millisecond))
	if s.Stuck {
		d.Kind, d.Root = "stuck", fmt.Sprintf("%s %s", s.Name, s.Wait.What)
	}
	if !s.Wait.Busy {
		d.Kind, d.Root = "none", fmt.Sprintf("%s waits for nothing", s.Name)
	}
	return d
}

// describe says in words what an actor does or waits for; at gives the actors by their address, for
// the name of the one waited for.
func (s Status) describe(at map[actors.Ref]Status) string {
	switch {
	case s.Wait.Busy:
		return "runs " + s.Wait.What
	case s.Wait.For == actors.None:
		return "idle"
	}
	return fmt.Sprintf("waits for %s of %s", s.Wait.What, nameOf(s.Wait.For, at))
}

// nameOf names an actor, also one that has not answered.
func nameOf(r actors.Ref, at map[actors.Ref]Status) string {
	switch s, ok := at[r]; {
	case ok:
		return s.Name
	case r == layout.CoordinatorRef:
		return "the coordinator"
	case r >= layout.FirstRank:
		return fmt.Sprintf("rank %d", r-layout.FirstRank)
	}
	return fmt.Sprintf("actor %d", r)
}

// Running is the state of a process that computes, or waits for a processor: see StateOf.
const Running = "running but does not answer"

// Silent is a process of a run that does not answer.
type Silent struct {
	Proc  int    `json:"proc"`
	PID   int    `json:"pid,omitempty"`   // 0 where it is not known
	State string `json:"state,omitempty"` // what the system says of it
}

// silence says which processes do not answer.
func silence(list []Silent) string {
	if len(list) == 0 {
		return "its process is gone or stuck"
	}
	var words []string
	for _, s := range list {
		w := fmt.Sprintf("process %d", s.Proc)
		if s.PID > 0 {
			w += fmt.Sprintf(" (pid %d)", s.PID)
		}
		if s.State == "" {
			s.State = "gone or stuck"
		}
		words = append(words, w+" is "+s.State)
	}
	return strings.Join(words, ", ")
}

// leaked finds that the actor which s waits for holds a message to s back, while s has nothing of that edge:
// the credit is gone.
func leaked(at map[actors.Ref]Status, s Status) string {
	from, ok := at[s.Wait.For]
	if !ok {
		return ""
	}
	for _, h := range from.Wait.Held {
		if h.To == s.Ref {
			return fmt.Sprintf("a credit leaked on edge %s: %s holds %d messages for %s and has 0 of %d credits, "+
				"but %s waits for %s", h.Edge, from.Name, h.Count, s.Name, h.Credits, s.Name, s.Wait.What)
		}
	}
	return ""
}

// loop explains actors that wait for each other in a circle. A credit that one of them lost is the
// cause where there is one, and else the cycle itself is.
func (d Diagnosis) loop(path []Status, at map[actors.Ref]Status) Diagnosis {
	var parts []string
	for _, s := range path {
		if held := leaked(at, s); held != "" {
			d.Kind, d.Actor, d.Root = "credit", s.Name, held
			return d
		}
		parts = append(parts, fmt.Sprintf("%s waits for %s", s.Name, s.Wait.What))
	}
	// The cycle has no first member, so sorting makes the text the same wherever the search began.
	sort.Strings(parts)
	d.Kind, d.Actor, d.Root = "cycle", path[0].Name, "a cycle of waits: "+strings.Join(parts, "; ")
	return d
}

// Explain is Ask, with what a loader's reads wait for, and with the members of pools.
func (s *System) Explain(timeout time.Duration) []Status {
	all := s.Ask(timeout)
	reads, waits := store.Waits(), ""
	var members []Status
	if s.members != nil {
		members = s.members()
	}
	last := Status{Ref: actors.None} // which has said nothing for the longest time
	for _, m := range members {
		if m.Wait.Busy && (last.Ref == actors.None || m.Age > last.Age) {
			last = m
		}
	}
	if len(reads) > 0 {
		r := reads[0]
		waits = fmt.Sprintf("%s at byte %d since %v", r.Name, r.At, time.Since(r.Since).Round(100*time.Millisecond))
	} else if last.Ref != actors.None {
		waits = fmt.Sprintf("%s of %s, which has said nothing for %v", last.Wait.What, last.Name,
			last.Age.Round(time.Millisecond))
	}
	edges := s.Edges()
	for i := range all {
		if s.took != nil {
			all[i].Took = s.took()
		}
		for _, e := range edges {
			if e.From == s.names(all[i].Ref) {
				all[i].Sent = append(all[i].Sent, e)
			}
		}
		if w := &all[i].Wait; waits != "" && w.Busy && strings.HasPrefix(all[i].Name, "loader") {
			w.What, w.For = w.What+", which waits for "+waits, last.Ref
		}
	}
	return append(all, members...)
}

// explained is Explain for another process.
func (s *System) explained() []byte {
	text, _ := json.Marshal(s.Explain(time.Second)) // numbers and words
	return text
}

// Everywhere is what all processes of a run say that their actors wait for: this one's, and over links the
// others', of which it names those that do not answer in time.
func (s *System) Everywhere(l *links.Links, procs int, within time.Duration) (all []Status, silent []Silent) {
	parts := make([][]Status, max(1, procs))
	quiet := make([]bool, len(parts))
	var wg sync.WaitGroup
	for n := range parts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if n == s.proc {
				parts[n] = s.Explain(within)
				return
			}
			text, err := l.Ask(n, 2*within)
			quiet[n] = err != nil || json.Unmarshal(text, &parts[n]) != nil
		}()
	}
	wg.Wait()
	for n, part := range parts {
		if all = append(all, part...); quiet[n] {
			silent = append(silent, Silent{Proc: n})
		}
	}
	return all, silent
}

// ServeWhy answers `lfactor why` for this process's actors until the returned function is called.
func (s *System) ServeWhy(dir string, proc int) (func(), error) {
	return machine.Answer(dir, "why", proc, func() any { return s.Explain(time.Second) })
}

// AskWhy collects the answers of every process of a run, and names those that do not answer within a time.
func AskWhy(dir string, timeout time.Duration) (all []Status, silent []Silent, err error) {
	if _, err := os.ReadDir(dir); errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("%s: permission denied: the run is another user's; ask as that user", dir)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "why-*.sock"))
	if err != nil {
		return nil, nil, err
	}
	if len(paths) == 0 {
		err := fmt.Errorf("%s: no run is under way here", dir)
		if _, missing := os.Stat(dir); missing != nil { // nor was one ever
			return nil, nil, exit.With(err, exit.Corrupt)
		}
		return nil, nil, err
	}
	for _, p := range paths {
		var n int
		_, _ = fmt.Sscanf(filepath.Base(p), "why-%d.sock", &n) // it stays 0
		part, who, err := AskProcess(dir, n, timeout)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, part...)
		if who != nil {
			silent = append(silent, *who)
		} // else it has answered, or nobody listens any more: whoever waits for it says so
	}
	if len(all) == 0 && len(silent) == 0 {
		return nil, nil, fmt.Errorf("%s: no process of the run is left", dir)
	}
	return all, silent, nil
}

// AskProcess asks process n of a run. One that is there but does not answer within the time is Silent;
// one that is gone is neither.
func AskProcess(dir string, n int, timeout time.Duration) ([]Status, *Silent, error) {
	part, pid, err := askProcess(machine.AnswerSocket(dir, "why", n), timeout)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("%s: permission denied: the run is another user's; ask as that user", dir)
	case err != nil && pid > 0:
		return nil, &Silent{Proc: n, PID: pid, State: StateOf(pid)}, nil
	case err != nil:
		return nil, nil, nil
	}
	return part, nil, nil
}

// askProcess asks one process. The pid is known as soon as there is a connection, which the system makes
// also for a process that is stopped.
func askProcess(path string, timeout time.Duration) (part []Status, pid int, err error) {
	c, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	pid = peerOf(c)
	_ = c.SetDeadline(time.Now().Add(timeout)) // a connection that takes none fails below
	return part, pid, json.NewDecoder(c).Decode(&part)
}

// ProcessOf is process n of the run in dir, if it is under way on this host; 0 where it is not, or the
// system does not tell.
func ProcessOf(dir string, n int) int {
	_, pid, _ := askProcess(machine.AnswerSocket(dir, "why", n), time.Second) // one that does not answer has a number too
	return pid
}
