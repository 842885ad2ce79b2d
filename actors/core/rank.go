package core

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Rank carries out one rank's program: it runs segments in order, sends what they give, and waits for what
// they need. A simulation has many ranks, and few of them in a cache: fields lie in the order in which
// messages need them, the parts that many need before those that few do, and short lists begin in the rank
// itself. phase.go says how one phase follows from another.
type Rank struct {
	// of every message
	l       *RankLayout
	step    int64
	epoch   uint32
	life    int32 // how often it has ended before
	pc      int32
	phase   rankPhase
	update  progress
	hungry  bool // the wait under way is for data
	under   int8 // actions under way: 0, 1, or the 2 of an overlapped pair
	turn    int8
	running actors.JobID // the compute job in flight, 0 for none
	jobs    actors.JobID
	settled actors.JobID // the last job before it went back to a saved state

	// of every job
	cur     [2]cursor
	since   actors.Time
	groups  []Group
	ins     []actors.Input // of the job in flight
	scalars []float64      // from Open
	inbox   inbox
	parts   partLists

	spent // of its end

	// of the beginning and the end of an action
	row   []plan.Entry
	wires []wiring
	edges []edge
	ports portLists

	// of few
	verdict  []float64 // from Commit, nil until it has come
	prog     *plan.Program
	io       []ioJob      // in flight on other engines
	applying actors.JobID // the last job that changes parameters
	target   wanted       // after a loss
	last     remembered
	backups
}

// spent is what a rank has to say at the end of the step.
type spent struct {
	used  Usage     // in the step so far
	why   string    // the first reason to give the step up, "" for none
	loads []float64 // of experts in the step: what its device appends to the values of the update
}

// backups are the copies of states that a rank keeps in memory.
type backups struct {
	copies  []copied  // of its own state, and of the ranks whose buddy it is
	buddies []float64 // who keep second copies of its state
}

// partLists is where a rank's lists of groups, operands and collectives begin.
type partLists struct {
	groups [3]Group
	ins    [2]actors.Input
	boxes  [1]box
	part   [1]actors.Payload
}

// portLists is where its lists of neighbours and of what comes from them begin.
type portLists struct {
	wires [2]wiring
	ends  [6]wire
	held  [2]held
	edges [4]edge
}

// ioJob is a job that is not a computation.
type ioJob struct {
	id   actors.JobID
	kind actors.JobKind
	to   actors.Ref // who gets its result, or whose part of a checkpoint it makes
	kept []float64  // what the coordinator held when a copy was ordered
	// a copy for another rank goes to the checkpoint, and not to the rank, which is gone for good
	files bool
}

// NewRank returns the behaviour of one rank.
func NewRank(l *RankLayout) *Rank {
	r := new(Rank)
	r.Init(l)
	return r
}

// Init makes r, which has not been used yet, the behaviour of one rank: a driver of very many ranks keeps
// them in one array.
func (r *Rank) Init(l *RankLayout) {
	*r = Rank{l: l, step: -1 << 62, last: remembered{holds: none, pending: none}}
	x, y := &r.parts, &r.ports
	r.groups = append(x.groups[:0], l.Groups...)
	r.ins, r.inbox.boxes, r.inbox.ports, r.edges = x.ins[:0], x.boxes[:0], y.held[:0], y.edges[:0]
	x.boxes[0].parts = x.part[:0]
	r.wires = l.wires(y.wires[:0], y.ends[:0])
}

// Group is one that the rank communicates in.
func (r *Rank) Group(i int) *Group { return &r.groups[i] }

// wiring is the ports of one of the rank's stages.
func (r *Rank) wiring(stage int16) *wiring {
	for i := range r.wires {
		if r.wires[i].stage == stage {
			return &r.wires[i]
		}
	}
	panic(fmt.Sprintf("core: stage %d is none of rank %d", stage, r.l.Rank))
}

// Receive implements actors.Behaviour.
func (r *Rank) Receive(ctx actors.Context, m *actors.Message) {
	if !r.takes(m) {
		drop(m)
		return
	}
	switch m.Kind {
	case actors.Started:
		r.life = int32(m.Step)
		if m.Step > 0 {
			r.phase = behind
			ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Join, Step: m.Step, Text: m.Text})
		}
	case actors.Rewind:
		r.rewind(ctx, m)
	case actors.Open:
		r.begin(ctx, m)
	case actors.Batch, actors.Part, actors.Activation, actors.Cotangent:
		r.inbox.put(m)
	case actors.Credit:
		r.edge(m.Comm, m.From).grant(ctx, CreditsOf(m.Values))
	case actors.Commit:
		if r.phase != working || m.Step != r.step || r.verdict != nil {
			panic(fmt.Sprintf("core: rank %d: commit of step %d while step %d runs", r.l.Rank, m.Step, r.step))
		}
		if r.verdict = m.Values; MovesExperts(m.Values) && r.l.Moving != nil { // a rank may have no experts
			r.cur[0].segs = r.l.Moving
		}
	case actors.Done:
		r.done(ctx, m)
	case actors.Keep:
		r.keep(ctx, m)
	case actors.Buddy:
		r.store(ctx, copied{m.From, m.Step, m.Payload, m.Values}, 0)
	case actors.Claim:
		r.claimed(ctx, m)
	case actors.Give:
		r.give(ctx, m)
	case actors.State:
		r.given(ctx, m)
	case actors.Save:
		r.save(ctx, m)
	case actors.Halt:
		r.phase = gone
		r.Release()
		ctx.Stop(ctx.Self())
		return
	}
	r.advance(ctx)
}

// drop releases the payloads of an undelivered message.
func drop(m *actors.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
	for _, o := range m.Out {
		if o.Payload != nil {
			o.Payload.Release()
		}
	}
}

func (r *Rank) begin(ctx actors.Context, m *actors.Message) {
	if r.phase == working {
		panic(fmt.Sprintf("core: rank %d: step %d opened while step %d runs", r.l.Rank, m.Step, r.step))
	}
	r.epoch, r.step, r.phase, r.pc, r.scalars = m.Epoch, m.Step, working, 0, m.Values
	r.verdict, r.update = nil, undecided
	if m.Step > 0 {
		r.last.holds, r.last.pending, r.last.half = m.Step-1, none, false
	}
	r.spent = spent{}
	r.prog = r.l.Program
	if m.Step < 0 {
		r.prog = r.l.Eval
	}
	r.row = r.prog.Rows[r.l.Row]
	r.inbox.begin(r.prog)
	r.since = ctx.Now()
	ctx.Send(r.l.Loader, actors.Message{Kind: actors.Load, Step: m.Step, Epoch: r.epoch, Text: r.target.place})
	r.target.place = ""
}

// stepAction is the optimizer step.
var stepAction = plan.Action{Kind: plan.Step}

func (r *Rank) eval() bool { return r.step < 0 }

// do starts a job; one compute job is in flight at a time, others run on their own engines.
func (r *Rank) do(ctx actors.Context, j *actors.Job) {
	r.jobs++
	j.ID = r.jobs
	if j.Engine == actors.Compute {
		r.running = j.ID
	} else {
		r.io = append(r.io, ioJob{id: j.ID, kind: j.Kind})
	}
	ctx.Do(*j)
}

// advance starts the next segment if it can run without waiting for anyone.
func (r *Rank) advance(ctx actors.Context) {
	for r.phase == working && r.running == 0 {
		if r.under == 0 && !r.next() {
			r.close(ctx)
			return
		}
		c := &r.cur[r.turn]
		if w := r.missing(c, nil); w != nothing {
			r.hungry = w == lackData
			return
		}
		if c.void {
			r.end()
			continue
		}
		r.start(ctx, c)
	}
}

// next takes the following entry of the program; after the last comes the optimizer step.
func (r *Rank) next() bool {
	r.turn = 0
	switch n := int(r.pc); {
	case n < len(r.row):
		e := &r.row[n]
		r.under = 1
		r.cur[0].begin(r, e.Action)
		if e.With.Kind != plan.None {
			r.under = 2
			r.cur[1].begin(r, e.With)
		}
	case n == len(r.row) && !r.eval():
		r.under = 1
		r.cur[0] = cursor{a: stepAction, segs: r.l.Update}
	default:
		return false
	}
	r.pc++
	return true
}

// close ends the step and tells the coordinator.
func (r *Rank) close(ctx actors.Context) {
	r.phase = resting
	r.inbox.endStep()
	ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Closed, Step: r.step, Epoch: r.epoch,
		Values: append(r.used.Values(), r.loads...)})
}

func (r *Rank) done(ctx actors.Context, m *actors.Message) {
	if m.Job <= r.settled {
		r.discardStale(ctx, m)
		return
	}
	if m.Err != nil {
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Failed, Epoch: r.epoch, Err: m.Err})
		r.phase = gone
		drop(m)
		return
	}
	if m.Job != r.running {
		if i := slices.IndexFunc(r.io, func(j ioJob) bool { return j.id == m.Job }); i >= 0 {
			j := r.io[i]
			r.io = slices.Delete(r.io, i, i+1)
			r.saved(ctx, j, m)
			return
		}
		panic(fmt.Sprintf("core: rank %d was told of job %d, but %d runs", r.l.Rank, m.Job, r.running))
	}
	if r.phase == behind {
		r.caughtUp(ctx, m)
		return
	}
	r.running = 0
	if m.Job == r.applying {
		r.update = applied
		r.made(m.Step, r.verdict)
	}
	r.since = ctx.Now()
	if r.why == "" {
		r.why = m.Text
	}
	r.used.add(m.Values)
	r.finish(ctx, &r.cur[r.turn], m)
}

// saved takes in the end of a job beside the computation. A checkpoint moves along: copied, then written.
func (r *Rank) saved(ctx actors.Context, j ioJob, m *actors.Message) {
	switch j.kind {
	case actors.KeepJob:
		r.kept(ctx, m, j.kept)
	case actors.StateJob:
		if j.files {
			r.stand(ctx, j.to, m.Step, m.Out[0].Payload)
			return
		}
		ctx.Send(j.to, actors.Message{Kind: actors.State, Step: m.Step, Epoch: r.epoch, Payload: m.Out[0].Payload})
	case actors.SnapshotJob:
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Queued, Step: m.Step, Epoch: r.epoch})
		r.write(ctx, &actors.Job{Step: m.Step, Text: m.Text}, ctx.Self())
	case actors.WriteJob:
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Durable, Step: m.Step, Epoch: r.epoch,
			Member: int32(j.to), Text: m.Text})
	case actors.RestoreJob:
		r.phase = resting
		r.last.holds, r.last.pending, r.last.half = r.target.step, none, false
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Rewound, Step: r.target.step, Epoch: r.epoch})
	}
}
