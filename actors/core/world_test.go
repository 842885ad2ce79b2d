package core_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// blob is a payload whose references are counted.
type blob struct {
	w    *world
	refs int
}

func (b *blob) Bytes() int64 { return 1 }
func (b *blob) Retain()      { b.refs++; b.w.held++ }
func (b *blob) Release() {
	if b.refs--; b.refs < 0 {
		panic("a payload is released twice")
	}
	b.w.held--
}

// envelope is a message on its way, or the end of a job. It is for one life of its receiver: who comes back
// has new connections.
type envelope struct {
	to    actors.Ref
	life  int
	m     actors.Message
	again bool // it has come before
}

// world runs the behaviours of one run, one event after the other in the order in which they were caused,
// and writes down each.
type world struct {
	asides int // times that samples were left aside
	options
	run     *core.RunLayout
	ranks   []*core.RankLayout
	actors  map[actors.Ref]actors.Behaviour
	names   map[actors.Ref]string
	lives   map[actors.Ref]int
	queue   []envelope
	stopped []envelope // on links that are cut for the time being
	timers  []envelope
	slow    string                   // the job that does not end before it is released
	late    []envelope               // its end
	cut     map[[2]actors.Ref]string // links that hold back the messages whose text begins so
	faults  map[string]string        // by a job's text: the error that it ends with
	now     actors.Time
	held    int // references to payloads
	log     strings.Builder
}

// once makes a behaviour one of this world.
func (w *world) once(b actors.Behaviour) actors.Behaviour {
	if w.twice {
		return core.NewOnce(b)
	}
	return b
}

// self is an actor's Context.
type self struct {
	w   *world
	ref actors.Ref
}

func (c self) Self() actors.Ref { return c.ref }
func (c self) Now() actors.Time { return c.w.now }
func (c self) Rand() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(c.ref))) }
func (c self) After(_ actors.Duration, m actors.Message) actors.Timer {
	c.w.timers = append(c.w.timers, envelope{to: c.ref, life: c.w.lives[c.ref], m: m})
	return actors.Timer(len(c.w.timers))
}
func (c self) Cancel(actors.Timer) {}
func (c self) Spawn(string, actors.Behaviour) actors.Ref {
	panic("no behaviour of this package spawns")
}
func (c self) Watch(actors.Ref)  {}
func (c self) Stop(r actors.Ref) { delete(c.w.actors, r) }

func (c self) Send(to actors.Ref, m actors.Message) {
	m.From = c.ref
	if what, cut := c.w.cut[[2]actors.Ref{c.ref, to}]; cut && strings.HasPrefix(c.w.text(&m), what) {
		c.w.stopped = append(c.w.stopped, envelope{to: to, life: c.w.lives[to], m: m})
		return
	}
	c.w.post(to, m)
}

// post has a message delivered behind all that are under way.
func (w *world) post(to actors.Ref, m actors.Message) {
	w.queue = append(w.queue, envelope{to: to, life: w.lives[to], m: m})
}

// Do notes the job at once and ends it behind all that was caused before.
func (c self) Do(j actors.Job) {
	text := c.w.names[c.ref] + " " + jobText(&j)
	fmt.Fprintf(&c.w.log, "    %s\n", text)
	done := actors.Message{Kind: actors.Done, From: c.ref, Job: j.ID, Step: j.Step, Action: j.Action,
		Segment: j.Segment, Text: j.Text}
	for at, fault := range c.w.faults { //lfvet:order at most one matches
		if strings.HasSuffix(text, at) {
			done.Err = errors.New(fault)
			delete(c.w.faults, at)
		}
	}
	if done.Err == nil {
		c.w.results(c.ref, &j, &done)
	}
	for _, in := range j.In {
		in.Payload.Release()
	}
	if c.w.slow != "" && strings.HasSuffix(text, c.w.slow) {
		c.w.late = append(c.w.late, envelope{to: c.ref, life: c.w.lives[c.ref], m: done})
		return
	}
	c.w.post(c.ref, done)
}

// results makes what a job gives: parts for the members of its collectives, values for its ports, squared
// norms when it is ready.
func (w *world) results(ref actors.Ref, j *actors.Job, done *actors.Message) {
	part := func(o actors.Output) {
		o.Payload = &blob{w: w, refs: 1}
		w.held++
		done.Out = append(done.Out, o)
	}
	switch j.Kind {
	case actors.LoadBatch:
		for m := range w.micro {
			part(actors.Output{Comm: int32(m)})
		}
		return
	case actors.KeepJob, actors.StateJob:
		part(actors.Output{Comm: -1, Port: -1})
		return
	case actors.WriteJob: // whose part it is
		done.Text = fmt.Sprint(ref - firstRank)
		if len(j.In) > 0 {
			done.Text = fmt.Sprint(j.In[0].Member - int32(firstRank))
		}
		return
	case actors.RunSegment, actors.UpdatePhase:
	default:
		return
	}
	l := w.ranks[ref-firstRank]
	segs := l.Update
	if j.Kind == actors.RunSegment {
		segs = l.Lower(j.Action, j.Step < 0, j.Class)
	}
	seg := segs[j.Segment]
	for i, c := range seg.Comms {
		for k := range l.Groups[c.Group].Members {
			part(actors.Output{Comm: int32(i), Member: int32(k)})
		}
	}
	var used core.Usage
	if last := int(j.Segment) == len(segs)-1; last && j.Kind == actors.RunSegment {
		w.ports(l, j.Action, part)
		if j.Action.Kind == plan.F && int(j.Action.Stage) == w.pp-1 {
			used.Loss = 2 / float64(w.micro*w.dp)
		}
	}
	var norms []float64
	if seg.Ready {
		norm := 4.0
		if j.Step == int64(w.overflows) && l.Rank == len(w.ranks)-1 {
			norm = math.Inf(1)
		}
		if j.Step == int64(w.spike) && w.asides == 0 {
			norm = 400
		}
		norms = []float64{norm}
		if l.Rank == len(w.ranks)-1 && j.Step > 1 && j.Step <= int64(w.voids)+1 {
			used.Wild = 1
			done.Text = fmt.Sprintf("rank %d: block 2: logits that are not finite", l.Rank)
			if w.over {
				used.Wild, used.Over = 0, 1
				done.Text = fmt.Sprintf("rank %d: block 2: 9 rows, planned for 8", l.Rank)
			}
		}
	}
	done.Values = append(used.Values(), norms...)
	if w.experts && j.Kind == actors.UpdatePhase && int(j.Segment) == len(segs)-1 {
		done.Values = core.AppendLoad(done.Values, core.Load{Block: 3, Tokens: 4, Dropped: 1, Entropy: 0.5,
			Rows: []float64{3, float64(l.Rank)}})
		done.Values = core.AppendLoad(done.Values, core.Load{Block: 2 - l.Rank, Tokens: 2, Entropy: 0.25,
			Rows: []float64{2}})
	}
}

func (w *world) ports(l *core.RankLayout, a plan.Action, part func(actors.Output)) {
	for _, p := range l.Ports {
		forward := a.Kind == plan.F && p.From == int(a.Stage)
		back := (a.Kind == plan.B || a.Kind == plan.I) && p.To == int(a.Stage)
		if forward || back {
			part(actors.Output{Comm: -1, Port: p.ID})
		}
	}
}

// step delivers what is next and reports whether there was anything.
func (w *world) step() (line string, more bool) {
	if len(w.queue) == 0 {
		return "", false
	}
	e := w.queue[0]
	w.queue = w.queue[1:]
	w.now++
	b := w.actors[e.to]
	switch {
	case e.life != w.lives[e.to] || b == nil && e.to != observer: // for a rank that was lost
		w.release(&e.m)
		return "", true
	case e.m.Kind == actors.Done:
	default:
		line = fmt.Sprintf("%s → %s: %s", w.names[e.m.From], w.names[e.to], w.text(&e.m))
		if e.again {
			line += " (again)"
		} else if e.m.Number != 0 && e.to != observer {
			w.again(e)
		}
		fmt.Fprintln(&w.log, line)
	}
	if b != nil {
		b.Receive(self{w, e.to}, &e.m)
	}
	return line, true
}

// again has a message that comes now come once more, behind all that is under way.
func (w *world) again(e envelope) {
	e.again = true
	if e.m.Payload != nil {
		e.m.Payload.Retain()
	}
	w.queue = append(w.queue, e)
}

func (w *world) release(m *actors.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
	for _, o := range m.Out {
		o.Payload.Release()
	}
}

// kill ends a rank with all that it holds. What it has sent arrives.
func (w *world) kill(ref actors.Ref) {
	b := w.actors[ref]
	if o, ok := b.(*core.Once); ok {
		b = o.Of
	}
	if r, ok := b.(*core.Rank); ok {
		r.Release()
	}
	delete(w.actors, ref)
	w.lives[ref]++
	w.post(coordinator, actors.Message{Kind: actors.Down, From: ref, Step: int64(w.lives[ref]),
		Text: "it was killed"})
}

// succeed ends the coordinator, and has another take its place, which knows of no checkpoint.
func (w *world) succeed() {
	w.lives[coordinator]++
	w.actors[coordinator] = w.once(core.NewCoordinator(w.run))
	w.post(coordinator, actors.Message{Kind: actors.Started, From: coordinator,
		Step: int64(w.lives[coordinator])})
}

// back starts a rank again, which holds no state.
func (w *world) back(ref actors.Ref) {
	w.actors[ref] = w.once(core.NewRank(w.ranks[ref-firstRank]))
	w.post(ref, actors.Message{Kind: actors.Started, From: ref, Step: int64(w.lives[ref])})
}

// mend lets what a cut link held back arrive, before all else.
func (w *world) mend() {
	w.queue, w.stopped = append(w.stopped, w.queue...), nil
	clear(w.cut)
}

// waits says what every actor waits for.
func (w *world) waits() {
	refs := []actors.Ref{coordinator}
	for _, l := range w.ranks {
		refs = append(refs, firstRank+actors.Ref(l.Rank))
	}
	for _, l := range w.ranks {
		if !slices.Contains(refs, l.Loader) {
			refs = append(refs, l.Loader)
		}
	}
	for _, r := range refs {
		b := w.actors[r]
		if b == nil {
			fmt.Fprintf(&w.log, "%s is not there\n", w.names[r])
			continue
		}
		x := b.Waits()
		switch {
		case x.Busy:
			fmt.Fprintf(&w.log, "%s is at work: %s\n", w.names[r], x.What)
		case x.What == "":
			fmt.Fprintf(&w.log, "%s waits for nothing\n", w.names[r])
		case x.For == actors.None:
			fmt.Fprintf(&w.log, "%s waits: %s\n", w.names[r], x.What)
		default:
			fmt.Fprintf(&w.log, "%s waits for %s: %s\n", w.names[r], w.names[x.For], x.What)
		}
		for _, h := range x.Held {
			fmt.Fprintf(&w.log, "    %s holds back %d on %s to %s\n", w.names[r], h.Count, h.Edge,
				w.names[h.To])
		}
	}
}
