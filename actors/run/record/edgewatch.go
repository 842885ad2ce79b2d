package record

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
)

// EdgeWindow is a line of edges.jsonl: what a run's actors sent and waited for in a window of time.
type EdgeWindow struct {
	Time    float64    `json:"time"`    // of the window's end, seconds since 1970
	Seconds float64    `json:"seconds"` // that the window lasted
	Step    int64      `json:"step"`    // the newest that was committed then
	Looks   int        `json:"looks"`   // how often the actors were asked
	Edges   []EdgeUse  `json:"edges"`   // those with messages or waits, by name
	Actors  []ActorUse `json:"actors"`  // by name
	Stages  []StageUse `json:"stages,omitempty"`
}

// StageUse is a stage of the pipeline of process 0's data, since the run began there.
type StageUse struct {
	Name    string  `json:"name"` // read, encode, decode, pack, batch
	Workers int     `json:"workers"`
	Items   int64   `json:"items"`
	Use     float64 `json:"use"` // share of the workers' time; the stage with most is the bottleneck
}

// EdgeUse is an edge's part of a window.
type EdgeUse struct {
	From     string  `json:"from"` // the sender, as lfactor edges names it
	To       string  `json:"to"`
	Messages int64   `json:"messages"`
	Bytes    int64   `json:"bytes"`             // of their tensors
	Waits    int     `json:"waits,omitempty"`   // looks at which To waited for From
	Longest  float64 `json:"longest,omitempty"` // seconds of the longest such wait that was seen
}

// ActorUse is an actor's part of a window. Where looks are neither busy nor waiting it was idle.
type ActorUse struct {
	Actor  string `json:"actor"`
	Busy   int    `json:"busy"`             // looks at which its device was at work
	Waits  int    `json:"waits"`            // looks at which it waited for another actor
	Memory int64  `json:"memory,omitempty"` // bytes that its device held at the last look; 0 where it has none
}

// EdgeWatch adds looks at a run's actors up to windows. The zero value begins with the first look.
type EdgeWatch struct {
	began  time.Time
	looks  int
	sent   map[[2]string][2]int64 // messages and bytes at the last look
	edges  map[[2]string]*EdgeUse
	actors map[string]*ActorUse
}

// Look takes in what actors say at a moment. What they sent before the first look belongs to no window.
func (w *EdgeWatch) Look(now time.Time, all []host.Status) {
	first := w.sent == nil
	if first {
		w.sent = map[[2]string][2]int64{}
	}
	if w.edges == nil {
		w.edges, w.actors = map[[2]string]*EdgeUse{}, map[string]*ActorUse{}
		if first {
			w.began = now
		}
	}
	w.looks++
	names := map[actors.Ref]string{}
	for _, s := range all {
		names[s.Ref] = ShortName(s.Name)
	}
	for _, s := range all {
		for _, e := range s.Sent {
			w.count(e, first)
		}
		w.wait(s, names)
	}
}

// edge is the part of an edge in the window.
func (w *EdgeWatch) edge(from, to string) *EdgeUse {
	key := [2]string{from, to}
	if w.edges[key] == nil {
		w.edges[key] = &EdgeUse{From: from, To: to}
	}
	return w.edges[key]
}

// count adds what was sent since the last look. Counters that have gone back are those of a process that
// was started again.
func (w *EdgeWatch) count(e host.Edge, first bool) {
	key := [2]string{e.From, e.To}
	was := w.sent[key]
	w.sent[key] = [2]int64{e.Messages, e.Bytes}
	if first {
		return
	}
	if e.Messages < was[0] || e.Bytes < was[1] {
		was = [2]int64{}
	}
	if e.Messages > was[0] {
		x := w.edge(e.From, e.To)
		x.Messages += e.Messages - was[0]
		x.Bytes += e.Bytes - was[1]
	}
}

// wait adds what an actor does at a look.
func (w *EdgeWatch) wait(s host.Status, names map[actors.Ref]string) {
	name := ShortName(s.Name)
	a := w.actors[name]
	if a == nil {
		a = &ActorUse{Actor: name}
		w.actors[name] = a
	}
	if s.Memory > 0 {
		a.Memory = s.Memory
	}
	from, known := names[s.Wait.For]
	switch {
	case s.Stuck: // it did not answer in time
	case s.Wait.Busy:
		a.Busy++
	case s.Wait.For != actors.None && known:
		a.Waits++
		x := w.edge(from, name)
		x.Waits++
		x.Longest = max(x.Longest, s.Age.Seconds())
	}
}

// Long tells whether the window has lasted for as long as this; before the first look it has not.
func (w *EdgeWatch) Long(now time.Time, d time.Duration) bool {
	return w.looks > 0 && now.Sub(w.began) >= d
}

// End gives the window that ends now, and begins another.
func (w *EdgeWatch) End(now time.Time, step int64) EdgeWindow {
	out := EdgeWindow{Time: float64(now.UnixMilli()) / 1e3, Seconds: now.Sub(w.began).Seconds(), Step: step,
		Looks: w.looks, Edges: []EdgeUse{}, Actors: []ActorUse{}}
	for _, e := range w.edges {
		out.Edges = append(out.Edges, *e)
	}
	slices.SortFunc(out.Edges, func(a, b EdgeUse) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for _, a := range w.actors {
		out.Actors = append(out.Actors, *a)
	}
	slices.SortFunc(out.Actors, func(a, b ActorUse) int { return cmp.Compare(a.Actor, b.Actor) })
	w.began, w.looks, w.edges, w.actors = now, 0, nil, nil
	return out
}

// ShortName is an actor's name as edges have it: "rank 3 (pp 1 dp 1)" is rank3, "loader 0.1" is loader0.1.
func ShortName(name string) string {
	name, _, _ = strings.Cut(name, " (")
	return strings.ReplaceAll(name, " ", "")
}
