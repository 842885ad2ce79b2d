package core

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// What always holds here (doc.go says how the lines read):
//
//   L-1: A rank gets the data of a step once in an epoch. Shown by 16_late_load, watched by Monitor.once,
//     broken by "loader answers the epoch before".

// LoaderLayout is what the loader of one data-parallel replica knows.
type LoaderLayout struct {
	Ranks       []actors.Ref // the ranks of the replica that this loader serves
	Coordinator actors.Ref
	Ahead       int64 // steps read before they are asked for
	Last        int64
}

// Loader reads the data of steps ahead of the ranks and hands each rank its microbatches.
// It holds at most Ahead+1 steps.
type Loader struct {
	l       *LoaderLayout
	jobs    actors.JobID
	busy    int64 // the step being read, 0 for none
	began   actors.Time
	ready   map[int64][]actors.Output
	want    map[int64][]actors.Ref
	served  map[int64]int
	next    int64 // the step to read ahead
	eval    int64 // the evaluation batch asked for last, negative
	dead    bool
	epoch   uint32
	settled actors.JobID // the last job before the epoch
	place   string       // of the data at the beginning of the epoch, for the next read
}

// NewLoader returns the behaviour.
func NewLoader(l *LoaderLayout) *Loader {
	return &Loader{l: l, ready: map[int64][]actors.Output{}, want: map[int64][]actors.Ref{}, served: map[int64]int{}}
}

// Receive implements actors.Behaviour.
func (l *Loader) Receive(ctx actors.Context, m *actors.Message) {
	if l.dead {
		drop(m)
		return
	}
	switch m.Kind {
	case actors.Load:
		if m.Epoch > l.epoch {
			l.rewind(m.Epoch, m.Text)
		}
		if m.Epoch < l.epoch {
			return
		}
		l.want[m.Step] = append(l.want[m.Step], m.From)
		if m.Step > 0 {
			l.next = max(l.next, m.Step)
		} else {
			l.eval = m.Step
		}
		l.serve(ctx, m.Step)
	case actors.Done:
		l.loaded(ctx, m)
	case actors.Halt:
		l.halt(ctx)
	}
	l.read(ctx)
}

// read starts the next read: what somebody waits for first, then ahead.
func (l *Loader) read(ctx actors.Context) {
	if l.busy != 0 || l.dead {
		return
	}
	// evaluation batches are asked for one after the other
	if s := l.eval; len(l.want[s]) > 0 && l.ready[s] == nil {
		l.fetch(ctx, s)
		return
	}
	for s := l.next; l.next > 0 && s <= min(l.next+l.l.Ahead, l.l.Last); s++ {
		if l.ready[s] == nil && l.served[s] < len(l.l.Ranks) {
			l.fetch(ctx, s)
			return
		}
	}
}

func (l *Loader) fetch(ctx actors.Context, step int64) {
	l.busy, l.began = step, ctx.Now()
	l.jobs++
	ctx.Do(actors.Job{ID: l.jobs, Kind: actors.LoadBatch, Engine: actors.IO, Step: step, Text: l.place})
	l.place = ""
}

func (l *Loader) loaded(ctx actors.Context, m *actors.Message) {
	if m.Job <= l.settled {
		drop(m)
		return
	}
	step := l.busy
	l.busy = 0
	if m.Err != nil {
		ctx.Send(l.l.Coordinator, actors.Message{Kind: actors.Failed, Epoch: l.epoch,
			Err: fmt.Errorf("data of %s: %w", StepName(step), m.Err)})
		return
	}
	l.ready[step] = append([]actors.Output{}, m.Out...)
	l.serve(ctx, step)
}

// serve sends a step's microbatches to every rank that has asked; the last one ends the loader's own references.
func (l *Loader) serve(ctx actors.Context, step int64) {
	batches, ok := l.ready[step]
	if !ok {
		return
	}
	for _, to := range l.want[step] {
		for _, o := range batches {
			o.Payload.Retain()
			ctx.Send(to, actors.Message{Kind: actors.Batch, Epoch: l.epoch, Step: step,
				Action: plan.Action{Kind: plan.F, Micro: o.Comm, Chunk: int16(o.Member)}, Port: o.Port,
				Payload: o.Payload})
		}
		l.served[step]++
	}
	delete(l.want, step)
	if l.served[step] < len(l.l.Ranks) {
		return
	}
	for _, o := range batches {
		o.Payload.Release()
	}
	delete(l.ready, step)
	if step < 0 {
		delete(l.served, step) // evaluation reads the same batches every time
		return
	}
	delete(l.served, step-1)
	l.next = max(l.next, step+1)
}

func (l *Loader) halt(ctx actors.Context) {
	l.dead = true
	l.release()
	ctx.Stop(ctx.Self())
}

// release gives back what was read.
func (l *Loader) release() {
	for _, batches := range l.ready { //lfvet:order releasing has no order
		for _, o := range batches {
			o.Payload.Release()
		}
	}
}

// Waits implements actors.Behaviour.
func (l *Loader) Waits() actors.Wait {
	if l.busy != 0 {
		return actors.Wait{For: actors.None, What: fmt.Sprintf("reading the data of %s", StepName(l.busy)),
			Since: l.began, Busy: true}
	}
	return actors.Wait{For: actors.None, What: "nobody has asked for data"}
}
