package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	streamsMax  = 32                     // pages at once
	streamEvery = 500 * time.Millisecond // between looks for a page
	streamMost  = 1000                   // steps, or events, of a run that are told at a time; a page that is behind by more asks for all
)

// cursor is what a page knows of a run.
type cursor struct {
	life, log, steps, evals, events int
	running, known                  bool
}

// stream tells a page what is new, as server-sent events: "points", "evals" and "events" of the runs that it names
// (?runs=0,2), "again" where it has to ask for all, and with ?graph=ID the graph of one, and with ?logs=ID what its
// actors do and have said and done, and with ?cluster=1 the cluster, once a second.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if s.streams.Add(1) > streamsMax {
		s.streams.Add(-1)
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.Add(-1)
	at, runs := map[int]*cursor{}, s.all()
	for _, v := range strings.Split(r.URL.Query().Get("runs"), ",") {
		if id, err := strconv.Atoi(v); err == nil && id >= 0 && id < len(runs) {
			at[id] = &cursor{}
		}
	}
	graph, err1 := whole(r, "graph", -1)
	logs, err2 := whole(r, "logs", -1)
	if err1 != nil || err2 != nil || max(graph, logs) >= int64(len(runs)) {
		http.Error(w, "there is no such run", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // a page listens for as long as it is open
	var told heard
	cluster := s.cluster != nil && r.URL.Query().Get("cluster") != ""
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		var b []byte
		for id, c := range at {
			b = runs[id].news(b, id, c)
		}
		if graph >= 0 && n%2 == 0 {
			all, silent, running := runs[graph].ask()
			b = event(b, "graph", graphOf(all, silent, running))
		}
		if cluster && n%2 == 0 {
			b = event(b, "cluster", s.clusterNow())
		}
		if logs >= 0 && n%2 == 0 {
			b = runs[logs].logsNews(b, int(logs), &told)
		}
		if b == nil && n%20 == 0 {
			b = []byte(": still here\n\n")
		}
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second)) // one that takes nothing ends
		if _, err := w.Write(b); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// event appends a server-sent event. JSON has no line breaks.
func event(b []byte, name string, v any) []byte {
	text, ok := v.(raw)
	if !ok {
		text, _ = json.Marshal(v) // numbers and words
	}
	b = append(b, "event: "+name+"\ndata: "...)
	b = append(b, text...)
	return append(b, "\n\n"...)
}

// news appends what is new of a run since a cursor, and moves it.
func (f *folder) news(b []byte, id int, c *cursor) []byte {
	_, _, running := f.ask()
	f.look()
	defer f.mu.Unlock()
	s := f.curves
	first := !c.known
	if first || running != c.running {
		b = event(b, "state", map[string]any{"run": id, "running": running})
	}
	switch n := len(s.step); {
	case first: // the page asks for what there is by itself
	case s.life != c.life || f.life != c.log || n-c.steps > streamMost: // another run's, perhaps: the page asks anew
		c.events = f.dropped + len(f.events)
		b = event(b, "again", map[string]any{"run": id})
	case n > c.steps:
		part := raw(fmt.Appendf(nil, `{"run":%d,"of":`, id))
		part = s.window(part, s.step[c.steps], s.step[n-1], n-c.steps)
		b = event(b, "points", append(part, '}'))
	}
	if n := len(f.evals); !first && n != c.evals {
		b = event(b, "evals", map[string]any{"run": id, "evals": f.evals})
	}
	if n := f.dropped + len(f.events); !first && n > c.events {
		from := max(c.events-f.dropped, len(f.events)-streamMost, 0)
		b = event(b, "events", map[string]any{"run": id, "events": f.events[from:]})
	}
	*c = cursor{life: s.life, log: f.life, steps: len(s.step), evals: len(f.evals), events: f.dropped + len(f.events),
		running: running, known: true}
	return b
}
