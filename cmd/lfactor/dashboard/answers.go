package dashboard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/tables"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

const (
	pointsMost = 4000    // of a curve at a time
	jobsMost   = 120_000 // of a timeline: a step of a thousand ranks
	badMost    = 500     // quarantined documents, the newest
	badBytes   = 1 << 20
)

// seriesOf is the curves of a run between two steps, and its evaluations: ?from, ?to, ?points.
func seriesOf(f *folder, r *http.Request) (any, error) {
	from, err1 := whole(r, "from", 0)
	to, err2 := whole(r, "to", math.MaxInt64-1)
	n, err3 := whole(r, "points", 1000)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	f.look()
	defer f.mu.Unlock()
	b := append([]byte(nil), `{"series":`...)
	b = f.curves.window(b, from, min(to, math.MaxInt64-1), int(min(max(n, 1), pointsMost)))
	evals, err := json.Marshal(f.evals)
	if err != nil {
		return nil, err
	}
	b = append(b, `,"evals":`...)
	return raw(append(append(b, evals...), '}')), nil
}

// eventsOf is the newest events, ?most of them, of those that are kept.
func eventsOf(f *folder, r *http.Request) (any, error) {
	n, err := whole(r, "most", streamMost)
	if err != nil {
		return nil, err
	}
	f.look()
	defer f.mu.Unlock()
	from := max(0, len(f.events)-int(min(max(n, 0), eventsMax)))
	return struct {
		Events []tables.Event `json:"events"`
		Before int            `json:"before"` // that there are more
	}{append([]tables.Event{}, f.events[from:]...), f.dropped + from}, nil
}

// timeline is what devices did: rows of [actor, start, seconds, name, step], of which the first is an index.
type timeline struct {
	Actors []string `json:"actors"`
	Places []string `json:"places"` // of each actor on the axes of the plan, as pp 0 dp 1; "" where they are not known
	Kinds  []string `json:"kinds"`  // of each job
	Jobs   [][5]any `json:"jobs"`
	Live   bool     `json:"live"` // the newest jobs of a run that is under way
	Cut    bool     `json:"cut"`  // there are more
}

// jobsOf is the jobs of the last ?steps steps: of a run that is under way its newest, else the last that its trace has.
func jobsOf(f *folder, r *http.Request) (any, error) {
	steps, err := whole(r, "steps", 2)
	if err != nil {
		return nil, err
	}
	jobs, err := f.recent()
	live := err == nil
	if errors.Is(err, record.ErrNotRunning) {
		jobs, err = f.traced()
	}
	if err != nil {
		return nil, err
	}
	last := int64(0)
	for _, j := range jobs {
		if j.Kind != "" {
			last = max(last, j.Step)
		}
	}
	if live && last > 1 { // the step under way is not whole
		last--
	}
	t := timeline{Actors: []string{}, Places: []string{}, Kinds: []string{}, Jobs: [][5]any{}, Live: live}
	places := f.placesOf()
	jobs = slices.DeleteFunc(jobs, func(j record.Job) bool { return j.Step > last || j.Step <= last-max(1, steps) })
	first := math.Inf(1)
	for _, j := range jobs {
		if j.Kind != "" {
			first = min(first, j.Start)
		}
	}
	at := map[string]int{}
	for _, j := range jobs {
		if j.End < first { // a loader is ahead
			continue
		}
		if len(t.Jobs) == jobsMost {
			t.Cut = true
			break
		}
		i, known := at[j.Actor]
		if !known {
			i = len(t.Actors)
			at[j.Actor], t.Actors = i, append(t.Actors, j.Actor)
			t.Places = append(t.Places, places[j.Actor])
		}
		t.Jobs = append(t.Jobs, [5]any{i, j.Start - first, j.End - j.Start, j.Name, j.Step})
		t.Kinds = append(t.Kinds, j.Kind)
	}
	return t, nil
}

// traced reads trace.json, of a run or of lfactor sim --trace, once for as long as it stays as it is.
func (f *folder) traced() ([]record.Job, error) {
	f.tracing.Lock()
	defer f.tracing.Unlock()
	i, err := os.Stat(f.trace)
	if err != nil || i.ModTime().Equal(f.tracedAt) {
		if err != nil {
			f.jobs = nil
			return nil, errors.New("no run is under way here, and it has left no trace.json")
		}
		return slices.Clone(f.jobs), nil
	}
	if f.jobs, f.places, err = traced(f.trace); err != nil {
		return nil, err
	}
	f.tracedAt = i.ModTime()
	return slices.Clone(f.jobs), nil
}

// placesOf is where actors of the trace are, as far as it was read.
func (f *folder) placesOf() map[string]string {
	f.tracing.Lock()
	defer f.tracing.Unlock()
	return f.places
}

// traced reads a trace: jobs, and the places of actors.
func traced(name string) ([]record.Job, map[string]string, error) {
	all, _, err := rehearsal.ReadTrace(name) // one that is cut gives what it has
	if err != nil {
		return nil, nil, err
	}
	out, places := make([]record.Job, len(all)), map[string]string{}
	for i, j := range all {
		places[rankName(j.Rank)] = j.Place
		out[i] = record.Job{
			Actor: rankName(j.Rank),
			Name:  j.Action + segment(j.Segment),
			Kind:  kindOf(j.Action),
			Step:  j.Step,
			Start: j.Start,
			End:   j.End,
		}
	}
	return out, places, nil
}

// pipeline is how a run reads its data.
type pipeline struct {
	Stages  []record.StageUse `json:"stages"`
	Bad     []dataset.Bad     `json:"bad"`    // quarantined documents, the newest last
	Before  bool              `json:"before"` // there are more
	Experts []run.ExpertUse   `json:"experts"`
	Step    int64             `json:"step"` // that Experts are of
}

func dataOf(f *folder, _ *http.Request) (any, error) {
	f.look()
	p := pipeline{Stages: []record.StageUse{}, Bad: []dataset.Bad{}, Experts: []run.ExpertUse{}}
	if f.window != nil && f.window.Stages != nil {
		p.Stages = f.window.Stages
	}
	if f.experts != nil {
		p.Experts, p.Step = f.experts.Experts, f.experts.Step
	}
	f.mu.Unlock()
	text, cut, err := lastOf(filepath.Join(f.dir, "quarantine.jsonl"), badBytes)
	if err != nil {
		return nil, err
	}
	p.Before = cut
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var b dataset.Bad
		if json.Unmarshal(s.Bytes(), &b) == nil && b.Reason != "" {
			b.Reason = configs.Redact(b.Reason)
			p.Bad = append(p.Bad, b)
		}
	}
	if n := len(p.Bad); n > badMost {
		p.Bad, p.Before = p.Bad[n-badMost:], true
	}
	return p, nil
}

// lastOf is the end of a file, cut if there is more; a file that does not exist is empty.
func lastOf(name string, most int64) (text []byte, cut bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close() //nolint:errcheck // it was read only
	i, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	from := max(0, i.Size()-most)
	text, err = io.ReadAll(io.NewSectionReader(f, from, most))
	return text, from > 0, err
}

// saved is a checkpoint.
type saved struct {
	Step   int64     `json:"step"`
	Bytes  int64     `json:"bytes"`
	Saved  time.Time `json:"saved"`
	Latest bool      `json:"latest"`
	Wrong  string    `json:"wrong,omitempty"`
}

func checkpointsOf(f *folder, _ *http.Request) (any, error) {
	out := struct {
		Dir  string  `json:"dir"`
		List []saved `json:"list"`
	}{List: []saved{}}
	cfg, err := f.config()
	if err != nil {
		return nil, err
	}
	if out.Dir = cfg.Run.Checkpoint.Dir; out.Dir == "" {
		return out, nil
	}
	list, err := checkpoint.List(out.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		s := saved{Step: e.Step, Bytes: e.Bytes, Saved: e.Saved, Latest: e.Latest}
		if e.Err != nil {
			s.Wrong = e.Err.Error()
		}
		out.List = append(out.List, s)
	}
	return out, nil
}

// samplesOf is the places of the samples that step ?step saw in the run's order, and where the data stood.
func samplesOf(f *folder, r *http.Request) (any, error) {
	l, err := dataset.ReadLedger(filepath.Join(f.dir, run.LedgerName))
	if err != nil {
		return nil, err
	}
	defer l.Close() //nolint:errcheck // it was read only
	last, ok := l.Last()
	if !ok {
		return nil, errors.New("no step is recorded yet")
	}
	step, err := whole(r, "step", last)
	if err != nil {
		return nil, err
	}
	samples, start, err := l.Blame(step)
	if err != nil {
		return nil, err
	}
	sort.Slice(samples, func(i, j int) bool { return samples[i] < samples[j] })
	return map[string]any{"step": step, "last": last, "samples": samples, "start": start}, nil
}

// settingsOf is the run's settings, without the secrets of addresses.
func settingsOf(f *folder, _ *http.Request) (any, error) {
	text, err := os.ReadFile(filepath.Join(f.dir, "run.yaml"))
	if err != nil {
		return nil, err
	}
	return map[string]string{"yaml": configs.Redact(string(text))}, nil
}
