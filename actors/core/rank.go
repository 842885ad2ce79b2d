package core

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Layout of Closed.Values.
const (
	ClosedLoss     = iota // this rank's share of the weighted loss
	ClosedNorm            // global gradient norm; the same on every rank
	ClosedOverflow        // 1 if the step was skipped
	ClosedBusy            // nanoseconds in jobs
	ClosedWait            // nanoseconds waiting for data
	ClosedPeak            // peak bytes
	ClosedLen
)

// Rank carries out one rank's program: it runs segments in order, sends what they give, and waits for what they need.
type Rank struct {
	l       *RankLayout
	epoch   uint32
	step    int64
	open    bool
	row     []plan.Entry
	prog    *plan.Program
	pc      int
	cur     []*cursor // the action under way, or the two of an overlapped pair
	turn    int
	running actors.JobID // the compute job in flight, 0 for none
	jobs    actors.JobID
	io      map[actors.JobID]actors.JobKind
	inbox   inbox
	ins     [][]Port // by stage, filled when first asked for
	outs    [][]Port
	edges   map[int32]*edge
	values  []float64 // of the step so far
	scalars []float64 // from Open
	since   actors.Time
	hungry  bool // the wait under way is for data
	dead    bool
}

// NewRank returns the behaviour of one rank.
func NewRank(l *RankLayout) *Rank {
	return &Rank{l: l, inbox: newInbox(), edges: map[int32]*edge{}, io: map[actors.JobID]actors.JobKind{}, step: -1 << 62}
}

// inputsOf lists the ports that a stage takes.
func (r *Rank) inputsOf(stage int) []Port {
	if r.ins == nil {
		r.ins = make([][]Port, len(r.l.Program.StageRank))
	}
	if r.ins[stage] == nil && stage > 0 {
		r.ins[stage] = r.l.inputs(stage)
	}
	return r.ins[stage]
}

// outputsOf lists the ports that leave a stage.
func (r *Rank) outputsOf(stage int) []Port {
	if r.outs == nil {
		r.outs = make([][]Port, len(r.l.Program.StageRank))
	}
	if r.outs[stage] == nil && stage+1 < len(r.outs) {
		r.outs[stage] = r.l.outputs(stage)
	}
	return r.outs[stage]
}

// Receive implements actors.Behaviour.
func (r *Rank) Receive(ctx actors.Context, m actors.Message) {
	if r.dead || m.Kind != actors.Done && m.Epoch < r.epoch {
		drop(m)
		return
	}
	switch m.Kind {
	case actors.Open:
		r.begin(ctx, m)
	case actors.Batch, actors.Part, actors.Activation, actors.Cotangent:
		r.inbox.put(m)
	case actors.Credit:
		r.edge(m.Comm).grant(ctx, int(m.Values[0]))
	case actors.Done:
		r.done(ctx, m)
	case actors.Save:
		r.do(ctx, actors.Job{Kind: actors.SnapshotJob, Engine: actors.Copy, Step: m.Step, Text: m.Text})
	case actors.Halt:
		r.dead = true
		r.inbox.release()
		ctx.Stop(ctx.Self())
		return
	}
	r.advance(ctx)
}

// drop releases what a message owns that nobody will look at.
func drop(m actors.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
	for _, o := range m.Out {
		if o.Payload != nil {
			o.Payload.Release()
		}
	}
}

func (r *Rank) begin(ctx actors.Context, m actors.Message) {
	if r.open {
		panic(fmt.Sprintf("core: rank %d: step %d opened while step %d runs", r.l.Rank, m.Step, r.step))
	}
	r.epoch, r.step, r.open, r.pc, r.scalars = m.Epoch, m.Step, true, 0, m.Values
	r.values = make([]float64, ClosedLen)
	r.prog = r.l.Program
	if m.Step < 0 {
		r.prog = r.l.Eval
	}
	r.row = r.prog.Rows[r.l.Row]
	r.since = ctx.Now()
	ctx.Send(r.l.Loader, actors.Message{Kind: actors.Load, Step: m.Step, Epoch: r.epoch})
}

func (r *Rank) eval() bool { return r.step < 0 }

// do starts a job; one compute job is in flight at a time, others run on their own engines.
func (r *Rank) do(ctx actors.Context, j actors.Job) {
	r.jobs++
	j.ID = r.jobs
	if j.Engine == actors.Compute {
		r.running = j.ID
	} else {
		r.io[j.ID] = j.Kind
	}
	ctx.Do(j)
}

// advance starts the next segment if it can run without waiting for anyone.
func (r *Rank) advance(ctx actors.Context) {
	for r.open && r.running == 0 {
		if len(r.cur) == 0 && !r.next() {
			r.close(ctx)
			return
		}
		c := r.cur[r.turn]
		if w := r.missing(c); w.lack != nothing {
			r.hungry = w.From == r.l.Loader
			return
		}
		r.start(ctx, c)
	}
}

// next takes the following entry of the program; after the last comes the optimizer step.
func (r *Rank) next() bool {
	r.turn = 0
	switch {
	case r.pc < len(r.row):
		e := r.row[r.pc]
		r.cur = append(r.cur, r.cursor(e.Action))
		if e.With.Kind != plan.None {
			r.cur = append(r.cur, r.cursor(e.With))
		}
	case r.pc == len(r.row) && !r.eval():
		r.cur = append(r.cur, &cursor{a: plan.Action{Kind: plan.Step}, segs: r.l.Update})
	default:
		return false
	}
	r.pc++
	return true
}

// close ends the step and tells the coordinator.
func (r *Rank) close(ctx actors.Context) {
	r.open = false
	r.inbox.endStep()
	ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Closed, Step: r.step, Epoch: r.epoch, Values: r.values})
}

func (r *Rank) done(ctx actors.Context, m actors.Message) {
	if m.Err != nil {
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Failed, Epoch: r.epoch, Err: m.Err})
		r.dead = true
		drop(m)
		return
	}
	if kind, ok := r.io[m.Job]; ok {
		delete(r.io, m.Job)
		r.saved(ctx, kind, m)
		return
	}
	if m.Job != r.running {
		panic(fmt.Sprintf("core: rank %d was told of job %d, but %d runs", r.l.Rank, m.Job, r.running))
	}
	r.running = 0
	r.since = ctx.Now()
	for i, v := range m.Values {
		switch i {
		case ClosedNorm, ClosedOverflow:
			r.values[i] = max(r.values[i], v)
		case ClosedPeak:
			r.values[i] = max(r.values[i], v)
		default:
			r.values[i] += v
		}
	}
	r.finish(ctx, r.cur[r.turn], m)
}

// saved moves a checkpoint along: copied, then written.
func (r *Rank) saved(ctx actors.Context, kind actors.JobKind, m actors.Message) {
	switch kind {
	case actors.SnapshotJob:
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Queued, Step: m.Step, Epoch: r.epoch})
		r.do(ctx, actors.Job{Kind: actors.WriteJob, Engine: actors.IO, Step: m.Step, Text: m.Text})
	case actors.WriteJob:
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Durable, Step: m.Step, Epoch: r.epoch, Text: m.Text})
	}
}
