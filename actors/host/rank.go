package host

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology/machine"
)

// RankConfig is what one rank's device is made of.
type RankConfig struct {
	Name       string // for messages: "rank 3 (pp 1 dp 0 tp 1)"
	Backend    kernels.Backend
	Pool       *tensor.Pool
	Host       *tensor.Pool
	Sides      []layout.Side
	StageSide  func(stage int) int // of a stage
	Ties       []int               // size of each of this rank's tie groups
	Zero       int
	FixedPoint bool
	Exchanges  map[int][]layout.Exchange // of the optimizer step, by segment
	// Turning says that the step has a segment in which directions are sent; see layout.Directions
	Turning   bool
	Early     *core.Early // exchanges that jobs of the program issue; nil for none
	Rows      func(p layout.ParamPlan, member int, inTwo bool) (from, to int)
	Moves     []layout.Move // of experts, none where they stay
	Transfers func(m layout.Move, old, new []int, to int) []layout.Transfer
	CopyRows  func(m layout.Move, at []int, to int) []layout.CopyRow
	Member    func(m layout.Move) int // this rank's place in a move
	Trace     func(layout.TraceKey) *grad.Trace
	Ports     []core.Port
	PortNames []string // by port id
	Optim     optim.Config
	Seed      uint64 // of the run
	LRScale   func(param string) float64
	Decay     func(param string) float64 // factor on weight decay, nil for 1
	// Learns reports whether a step learns a parameter, and how many before it did not
	Learns func(param string, step int64) (learns bool, missed int64)
	Held   []layout.Held      // this rank's parameters in the model's order
	Params []layout.ParamPlan // those that it trains
	Pieces []layout.Piece     // of the state that waits on the host
	// folder of files for what waits on the host beside a processor, "" for memory
	Files string
	Save  Saver
	// the durable state of a step; nil where nobody goes back
	Saved func(step int64) (family.FillFunc, func(), error)
	// where experts lie in that state; nil for in order
	Placed func(step int64) []core.Placed
	// what another rank's part of a checkpoint is made by, from a copy of its state; nil where nobody asks
	Stand func(rank int) RankConfig
}

// Saver writes a rank's part of a checkpoint.
type Saver interface {
	// Snapshot copies what the rank holds; training goes on as soon as it returns.
	Snapshot(step int64, r *Rank, text string) error
	// Write makes the copy durable and returns the rank's part of the manifest.
	Write(step int64) (string, error)
}

// Rank is the device of one pipeline rank: frames, parameters, gradients and optimizer state.
type Rank struct {
	c        RankConfig
	device   kernels.Device // the backend, where it has memory of its own
	run      *grad.Runner   // of the decoder's side
	runs     []*grad.Runner // by side
	frames   map[frameKey]*grad.Frame
	state    map[string][]*tensor.Tensor // master (nil if the parameter is float32), then the optimizer's
	owned    map[string]*tensor.Tensor   // reduced gradients of this rank's rows
	away     *tensor.Pool                // what waits on the host
	hyper    *tensor.Tensor
	clip     *tensor.Tensor
	experts  experts
	sight    *sight       // what is written down of tensors; nil for nothing
	findings []float64    // of the update under way, as core.AppendFinding makes them
	figures  []float64    // of the step's loss so far, sums and of how many
	routed   *routed      // what is done with the choices of routers, nil for nothing
	now      int64        // of the optimizer step under way
	counted  int64        // the step that layers count experts' use in
	stood    atomic.Int64 // for how long the process had stood still when the last job ended, as ClosedStood
}

// Held is the memory that the rank's tensors take in its device, and may take; a budget of 0 is none. It is
// safe for concurrent use.
func (r *Rank) Held() (live, budget int64) { return r.c.Pool.Live(), r.c.Pool.Budget() }

type frameKey struct {
	stage, chunk int16
	micro        int32
}

// NewRank returns a device whose parameters are not set yet.
func NewRank(c RankConfig) (*Rank, error) {
	r := &Rank{c: c, frames: map[frameKey]*grad.Frame{}, state: map[string][]*tensor.Tensor{},
		owned: map[string]*tensor.Tensor{},
		hyper: tensor.Make(tensor.F64, kernels.HyperLen), clip: tensor.Make(tensor.F64, kernels.ClipLen)}
	if d, ok := c.Backend.(kernels.Device); ok && c.FixedPoint {
		return nil, fmt.Errorf("%s: train.reproducible: any-plan is for ranks on processors: the products of %s are a "+
			"library's, in an order of its own; set device: cpu", c.Name, d.Name())
	} else if ok {
		r.device = d
		c.Pool.In(d)
	}
	var err error
	if r.away, err = awayPool(&c); err != nil {
		return nil, err
	}
	r.experts = experts{map[int][]int{}, map[int]*tensor.Tensor{}}
	params, grads := map[string]*tensor.Tensor{}, map[string]*tensor.Tensor{} // shared: names do not meet
	for _, s := range c.Sides {
		r.runs = append(r.runs, &grad.Runner{Backend: c.Backend, Pool: c.Pool, Host: r.away, Pos: s.Pos,
			Params: params, Grads: grads, Seed: 1, Places: r.experts.table})
	}
	r.run = r.runs[layout.DecoderSide]
	return r, nil
}

// Config is what the device was made of.
func (r *Rank) Config() *RankConfig { return &r.c }

// Run implements Device.
func (r *Rank) Run(j actors.Job) (res Result, err error) {
	switch j.Kind {
	case actors.RestoreJob:
		return Result{}, r.restore(j)
	case actors.KeepJob, actors.StateJob:
		return r.keep()
	case actors.WriteJob:
		if len(j.In) > 0 {
			return r.standFor(j)
		}
	}
	began, had, queued := time.Now(), machine.CPUSeconds(), machine.QueuedSeconds()
	if err := r.receive(j.In); err != nil {
		return res, fmt.Errorf("%s: %v of %s: %w", r.c.Name, j.Action, core.StepName(j.Step), err)
	}
	switch j.Kind {
	case actors.RunSegment:
		res, err = r.segment(j)
	case actors.UpdatePhase:
		res, err = r.update(j)
	case actors.SnapshotJob:
		return Result{Text: j.Text}, r.snapshot(j)
	case actors.WriteJob:
		return r.write(j)
	default:
		panic(fmt.Sprintf("host: a rank has no job of kind %d", j.Kind))
	}
	if err != nil {
		return res, fmt.Errorf("%s: %v of %s: %w", r.c.Name, j.Action, core.StepName(j.Step), err)
	}
	r.issued(res.Out)
	used := core.UsageOf(res.Values)
	used.Busy = float64(time.Since(began))
	used.CPU = (machine.CPUSeconds() - had) * 1e9
	used.Queued = (machine.QueuedSeconds() - queued) * 1e9
	stood := int64(machine.StoodStill())
	used.Stood = float64(stood - r.stood.Swap(stood))
	used.Peak = float64(r.c.Pool.Peak())
	res.Values = used.Put(res.Values)
	return res, nil
}

// segment computes one segment of an action and returns what goes to other ranks: the parts of its
// collectives and, after the last segment, what the ports carry. An error drops the frame, because
// a frame that is half computed cannot go on.
func (r *Rank) segment(j actors.Job) (Result, error) {
	ph := layout.PhaseOf[j.Action.Kind]
	key := frameKey{j.Action.Stage, j.Action.Chunk, j.Action.Micro}
	eval := j.Step < 0
	f := r.frames[key]
	switch {
	case j.Segment == 0 && ph == grad.F:
		f = r.open(j, key, eval)
	case f == nil:
		panic(fmt.Sprintf("host: %v without its forward", j.Action))
	case j.Segment == 0 && ph != grad.W:
		f.Gradients(r.ports(j.In))
	}
	// The scale of the loss travels with the job, so that all ranks use that of the same step.
	if !eval && j.Values != nil {
		r.opened(j.Values)
	}
	segs := f.Trace.Segments(ph)
	// The counts of a step that was given up must not enter those of the next.
	if !eval && r.counted != j.Step {
		r.forget()
		r.counted = j.Step
	}
	r.routed.begin(j)
	var arrived [][]grad.Bundle
	if j.Segment > 0 {
		arrived = arrivals(j.In)
	}
	run := r.runs[r.c.StageSide(int(key.stage))]
	run.Seen = r.sight.of(r.c.Backend, j, key)
	parts, err := run.Step(f, ph, int(j.Segment), arrived)
	if err != nil {
		f.Drop()
		delete(r.frames, key)
		return Result{}, err
	}
	var res Result
	for i, ps := range parts {
		for m, t := range ps {
			if t == nil { // a rotation goes to one member
				continue
			}
			res.Out = append(res.Out, actors.Output{Comm: int32(i), Member: int32(m),
				Payload: links.NewPack(nil, t...)})
		}
	}
	pc := int(j.Segment)
	// Gradients that are complete now may be reduced while the backward goes on.
	if !eval && r.c.Early != nil {
		for _, i := range r.c.Early.Of(j.Action, j.Class, j.Segment) {
			res.Out = append(res.Out, r.shardsOf(i, true)...)
		}
	}
	if pc >= len(segs)-1 {
		r.end(j, key, f, ph, eval, &res)
	}
	r.void(j, &res)
	return res, nil
}

// void reports that the step's gradients are worth nothing.
func (r *Rank) void(j actors.Job, res *Result) {
	for _, run := range r.runs {
		for _, err := range run.Void {
			used := core.UsageOf(res.Values)
			var over *grad.RowsError
			if errors.As(err, &over) {
				used.Over++
			} else {
				used.Wild++
			}
			res.Values = used.Put(res.Values)
			if res.Text == "" {
				res.Text = fmt.Sprintf("%s: %v: %v", r.c.Name, j.Action, err)
			}
		}
		run.Void = nil
	}
}

// open starts the frame of a forward with the data and activations that came for it.
func (r *Rank) open(j actors.Job, key frameKey, eval bool) *grad.Frame {
	tr := r.c.Trace(layout.TraceKey{Stage: int(key.stage), Chunk: int(key.chunk), Eval: eval, Class: j.Class})
	data := map[string]*tensor.Tensor{}
	for _, in := range j.In {
		if in.Port >= 0 {
			continue
		}
		p := in.Payload.(*links.Pack)
		for _, want := range tr.Data {
			for i, n := range p.Names {
				if n == want {
					data[n] = p.Tensors[i].Retain()
				}
			}
		}
		p.Release()
	}
	var prev []*grad.Frame
	for c := range key.chunk {
		prev = append(prev, r.frames[frameKey{key.stage, c, key.micro}])
	}
	f := r.run.NewFrame(tr, data, r.ports(j.In), prev)
	r.frames[key] = f
	return f
}

// forget drops what layers have counted in a step.
func (r *Rank) forget() {
	r.counted = 0
	r.figures = nil
	for _, run := range r.runs {
		run.Forget()
	}
}

// ports takes the activations or cotangents out of a job's inputs; several cotangents of one port are summed
// in order of the consumers.
func (r *Rank) ports(in []actors.Input) map[string]*tensor.Tensor {
	out := map[string]*tensor.Tensor{}
	for _, x := range in {
		if x.Port < 0 || x.Comm >= 0 {
			continue
		}
		name, t := r.c.PortNames[x.Port], one(x.Payload)
		if have := out[name]; have != nil {
			sum, err := r.c.Pool.New("sum of gradients of "+name, t.DType, t.Shape...)
			if err != nil {
				panic(err)
			}
			r.c.Backend.Run(&kernels.Call{Op: kernels.Sum, In: []*tensor.Tensor{have, t}, Out: []*tensor.Tensor{sum}})
			have.Release()
			t.Release()
			t = sum
		}
		out[name] = t
	}
	return out
}

// arrivals sorts the tensors that came from other ranks by collective and, within one, by the order
// in which the members' parts were given.
func arrivals(in []actors.Input) (out [][]grad.Bundle) {
	for _, x := range in {
		for len(out) <= int(x.Comm) {
			out = append(out, nil)
		}
		out[x.Comm] = append(out[x.Comm], all(x.Payload))
	}
	return
}

// end takes the results of an action out of its frame.
func (r *Rank) end(j actors.Job, key frameKey, f *grad.Frame, ph grad.Phase, eval bool, res *Result) {
	var used core.Usage
	if l := f.Loss(); r.c.Sides[layout.DecoderSide].First() {
		used.Loss = r.added(l)
	}
	r.look(f.Observed(), eval, &used)
	res.Values = used.Values()
	switch {
	case ph == grad.F:
		r.send(res, key, f.Outputs(), func(p core.Port) int { return p.From })
		if eval && !chunked(f) {
			f.Close()
			delete(r.frames, key)
		}
	case ph != grad.W:
		r.send(res, key, f.InputGradients(), func(p core.Port) int { return p.To })
	}
	if ph == grad.B || ph == grad.W {
		f.Close()
		delete(r.frames, key)
	}
}

func chunked(f *grad.Frame) bool { return f.Trace.Chunks > 1 }

// send makes one output for each port of the stage; several consumers of one activation share its storage.
func (r *Rank) send(res *Result, key frameKey, ts map[string]*tensor.Tensor, side func(core.Port) int) {
	for _, p := range r.c.Ports {
		if t := ts[r.c.PortNames[p.ID]]; t != nil && side(p) == int(key.stage) {
			res.Out = append(res.Out, actors.Output{Comm: -1, Port: p.ID, Payload: links.NewPack(nil, t.Retain())})
		}
	}
	for _, t := range ts {
		t.Release()
	}
}

// snapshot copies the state that a checkpoint of this step needs, so that training may go on while
// it is written. Without checkpoints it does nothing.
func (r *Rank) snapshot(j actors.Job) error {
	if r.c.Save == nil {
		return nil
	}
	return r.c.Save.Snapshot(j.Step, r, j.Text)
}

// write writes the copy that snapshot made and returns what the coordinator records about it. A
// failed write is told in the text and is no error of the rank.
func (r *Rank) write(j actors.Job) (Result, error) {
	if r.c.Save == nil {
		return Result{}, nil
	}
	text, err := r.c.Save.Write(j.Step)
	if err != nil { // the coordinator decides what a lost save means; the rank goes on
		return Result{Text: "error: " + err.Error()}, nil
	}
	return Result{Text: text}, nil
}

// NewDevice makes the device of rank r of a layout; its parameters are still to be set.
// Files is the folder of what waits on the host, "" for memory.
func NewDevice(l *layout.Layout, r int, b kernels.Backend, save Saver, files string) (*Rank, error) {
	j, part := l.Design, l.Ranks[r]
	var ties []int
	for _, t := range part.Ties {
		ties = append(ties, len(t))
	}
	exchanges := map[int][]layout.Exchange{}
	for _, segment := range []int{layout.SumTP, layout.SumDP, layout.SumWhole, layout.Apply, layout.Directions} {
		exchanges[segment] = l.Exchanges(&part, segment)
	}
	name := l.Name(r)
	scale := j.LRScale
	if scale == nil {
		scale = func(string) float64 { return 1 }
	}
	return NewRank(RankConfig{Name: name, LRScale: scale, Decay: j.DecayScale, Learns: j.Model.Learns, Backend: b,
		Pool: tensor.NewPool(name, j.Memory), Host: tensor.NewPool(name+" host", 0),
		Sides: part.Sides, StageSide: l.Side, Ties: ties, Zero: j.Zero, FixedPoint: j.FixedPoint, Exchanges: exchanges,
		Early: l.Early(&part), Rows: l.Rows, Turning: l.Turning(), Moves: l.Moves(&part),
		Transfers: func(m layout.Move, old, new []int, to int) []layout.Transfer {
			return l.Transfers(&part, m, old, new, to)
		}, CopyRows: func(m layout.Move, at []int, to int) []layout.CopyRow {
			return l.CopyRows(&part, m, at, to)
		}, Member: func(m layout.Move) int {
			o := grad.Options{Mesh: part.Sides[layout.DecoderSide].Mesh}
			return o.Member(part.Sides[layout.DecoderSide].Pos, m.Axes)
		},
		Trace: l.Trace, Ports: l.Ports, PortNames: l.Names, Optim: j.Optim, Seed: j.Seed, Held: part.All,
		Params: part.Params, Pieces: l.Pieces(&part), Files: files, Save: save})
}
