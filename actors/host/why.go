package host

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
)

// Diagnosis is the answer of `lfactor why`: the root first, then who waits on it.
type Diagnosis struct {
	Root  string   `json:"root"`            // one sentence that names the actor and the cause
	Actor string   `json:"actor,omitempty"` // the actor at the root
	Kind  string   `json:"kind"`            // busy, credit, cycle, silent, none
	Chain []string `json:"chain"`           // from the coordinator to the root
}

// Diagnose follows the waits from the coordinator to their root. An edge without credit whose receiver waits for it is a
// leaked credit; a closed loop is a cycle; an actor on its device is the root while its job lasts.
func Diagnose(all []Status) Diagnosis {
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
			d.Kind, d.Actor, d.Root = "silent", s.Name, fmt.Sprintf("%s waits for %s from an actor that does not answer: its process is gone or stuck", s.Name, s.Wait.What)
			return d
		}
		s = next
	}
	if len(path) == 0 {
		return Diagnosis{Kind: "silent", Root: "the coordinator does not answer: the run has ended, or its process is stuck"}
	}
	d.Kind, d.Actor = "busy", s.Name
	d.Root = fmt.Sprintf("%s is at work on %s, for %s", s.Name, s.Wait.What, s.Age.Round(time.Millisecond))
	if !s.Wait.Busy {
		d.Kind, d.Root = "none", fmt.Sprintf("%s waits for nothing", s.Name)
	}
	return d
}

func (s Status) describe(at map[actors.Ref]Status) string {
	switch {
	case s.Wait.Busy:
		return "runs " + s.Wait.What
	case s.Wait.For == actors.None:
		return "idle"
	}
	return fmt.Sprintf("waits for %s of %s", s.Wait.What, at[s.Wait.For].Name)
}

// leaked finds that the actor which s waits for holds a message to s back, while s has nothing of that edge: the credit is
// gone.
func leaked(at map[actors.Ref]Status, s Status) string {
	from, ok := at[s.Wait.For]
	if !ok {
		return ""
	}
	for _, h := range from.Wait.Held {
		if h.To == s.Ref {
			return fmt.Sprintf("a credit leaked on edge %s: %s holds %d messages for %s and has 0 of %d credits, but %s waits for %s", h.Edge, from.Name, h.Count, s.Name, h.Credits, s.Name, s.Wait.What)
		}
	}
	return ""
}

func (d Diagnosis) loop(path []Status, at map[actors.Ref]Status) Diagnosis {
	var parts []string
	for _, s := range path {
		if held := leaked(at, s); held != "" {
			d.Kind, d.Actor, d.Root = "credit", s.Name, held
			return d
		}
		parts = append(parts, fmt.Sprintf("%s waits for %s", s.Name, s.Wait.What))
	}
	sort.Strings(parts)
	d.Kind, d.Actor, d.Root = "cycle", path[0].Name, "a cycle of waits: "+strings.Join(parts, "; ")
	return d
}

// whySocket is where a process answers; the run directory is its owner's alone.
func whySocket(dir string, proc int) string {
	return filepath.Join(dir, fmt.Sprintf("why-%d.sock", proc))
}

// ServeWhy answers `lfactor why` for this process's actors until the returned function is called.
func (s *System) ServeWhy(dir string, proc int) (func(), error) {
	path := whySocket(dir, proc)
	_ = os.Remove(path) // of a run that was killed
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket for lfactor why: %w", err)
	}
	_ = os.Chmod(path, 0o600)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_ = json.NewEncoder(c).Encode(s.Ask(time.Second))
			c.Close()
		}
	}()
	return func() { ln.Close() }, nil
}

// AskWhy collects the answers of every process of a run.
func AskWhy(dir string, timeout time.Duration) ([]Status, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "why-*.sock"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: no run is under way here", dir)
	}
	var all []Status
	for _, p := range paths {
		c, err := net.DialTimeout("unix", p, timeout)
		if err != nil {
			continue // the process is gone; whoever waits for it says so
		}
		_ = c.SetDeadline(time.Now().Add(timeout))
		var part []Status
		err = json.NewDecoder(c).Decode(&part)
		c.Close()
		if err == nil {
			all = append(all, part...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no process of the run answers", dir)
	}
	return all, nil
}
