package host

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Routing is what a run does with the choices of its routers.
type Routing struct {
	Every          int64          // steps between reports of how experts are used, 0 for none
	Record, Replay string         // directories of traces, "" for none
	Moves          bool           // the rows of each expert are counted in every step, for experts to move by
	GoesOn         bool           // a trace that is there is gone on with
	Header         routing.Header // of this run, but for the rank
}

// routed is a rank's part of that.
type routed struct {
	o      Routing
	place  routing.Place
	loads  map[int]*core.Load
	sent   map[int]*core.Load // with rows only, if experts move
	at     map[int][]int      // by block, the experts of places
	file   *os.File
	out    *routing.Writer
	in     *routing.Trace
	worker *routing.Worker
	b      kernels.Backend
}

// moving is what a run does with choices whose experts move every so many steps, 0 for never.
func (o *Routing) moving(every int) *Routing {
	if every == 0 {
		return o
	}
	var out Routing
	if o != nil {
		out = *o
	}
	out.Moves = true
	return &out
}

// route begins what a run does with choices.
func (r *Rank) route(o *Routing, rank int) (err error) {
	if o == nil {
		return nil
	}
	x := &routed{o: *o, loads: map[int]*core.Load{}, sent: map[int]*core.Load{}, at: r.experts.at, b: r.c.Backend}
	x.o.Header.Rank = rank
	if o.Replay != "" {
		if x.in, err = layout.OpenRouting("train.routing", o.Replay, x.o.Header); err != nil {
			return err
		}
	}
	if o.Record != "" {
		if err := x.create(); err != nil {
			return fmt.Errorf("train.routing: %w", err)
		}
	}
	r.routed = x
	for _, run := range r.runs {
		run.Routed = x.see
	}
	return nil
}

// create makes the file of a trace, or goes on with the one that is there.
func (x *routed) create() (err error) {
	name := layout.RoutingFile(x.o.Record, x.o.Header.Rank)
	if err := os.MkdirAll(x.o.Record, 0o700); err != nil {
		return err
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if _, err := os.Stat(name); err != nil || !x.o.GoesOn {
		flags, x.o.GoesOn = flags|os.O_TRUNC, false
	} else if _, err := layout.OpenRouting("train.routing", x.o.Record, x.o.Header); err != nil {
		return err
	}
	if x.file, err = os.OpenFile(name, flags, 0o600); err != nil {
		return err
	}
	x.out, err = routing.NewWriter(x.file, x.o.Header, x.o.GoesOn)
	return err
}

// begin notes which microbatch a job is of.
func (x *routed) begin(j actors.Job) {
	if x == nil {
		return
	}
	if j.Step != x.place.Step {
		clear(x.loads)
		clear(x.sent)
	}
	x.place = routing.Place{Step: j.Step, Micro: j.Action.Micro, Chunk: int32(j.Action.Chunk)}
}

// counts reports whether experts' rows of a step are counted.
func (x *routed) counts(step int64) bool { return x.o.Every > 0 && step%x.o.Every == 0 }

// see takes in the choices of a layer, of its own or of those that are replayed.
func (x *routed) see(_ *grad.Frame, block, _ int, c *kernels.Call) error {
	x.place.Block = int32(block)
	if c.Op == kernels.RouteOrder {
		x.send(block, kernels.Ints(x.b, c.Out[2]))
		if c.Attr.F[0] > 0 && x.counts(x.place.Step) {
			for _, s := range kernels.Ints(x.b, c.Out[1]) {
				if s < 0 {
					loadOf(x.loads, block, 0).Dropped++
				}
			}
		}
		return nil
	}
	if x.in != nil {
		if err := x.replay(c); err != nil {
			return err
		}
	}
	if x.out == nil && !x.counts(x.place.Step) {
		return nil
	}
	experts := kernels.Ints(x.b, c.Out[1])
	if x.out != nil {
		if err := x.out.Write(x.place, experts); err != nil {
			return fmt.Errorf("train.routing: %w", err)
		}
	}
	if x.counts(x.place.Step) {
		x.count(block, c, experts)
	}
	return nil
}

// replay puts recorded choices in place of a router's, which then weighs those.
func (x *routed) replay(c *kernels.Call) error {
	p := x.place
	experts, ok, err := x.in.Read(p)
	name := layout.RoutingFile(x.o.Replay, x.o.Header.Rank)
	switch {
	case err != nil:
		return fmt.Errorf("train.routing: %s %w", name, err)
	case !ok:
		return fmt.Errorf("train.routing: %s has nothing of step %d, microbatch %d, block %d: the run that was "+
			"recorded was shorter, or had other data", name, p.Step, p.Micro, p.Block)
	case len(experts) != c.Out[1].Len():
		return fmt.Errorf("train.routing: %s has %d choices of step %d, microbatch %d, block %d, and %d are made",
			name, len(experts), p.Step, p.Micro, p.Block, c.Out[1].Len())
	}
	logits := kernels.Host(x.b, c.In[0])
	defer logits.Release()
	e, k := c.In[0].Shape[1], c.Out[1].Shape[1]
	if x.worker == nil {
		x.worker = kernels.RouterOf(c.Attr).Worker(e)
	}
	weights := make([]float32, len(experts))
	for i := range c.In[0].Shape[0] {
		x.worker.Weigh(logits.F32()[i*e:(i+1)*e], experts[i*k:(i+1)*k], weights[i*k:(i+1)*k])
	}
	if len(experts) > 0 {
		kernels.Write(c.Out[0], tensor.Of(tensor.F32, weights, len(weights)).Bytes())
		kernels.Write(c.Out[1], tensor.Of(tensor.I32, experts, len(experts)).Bytes())
	}
	return nil
}

// send takes in how many rows go to each place.
func (x *routed) send(block int, rows []int32) {
	if !x.o.Moves {
		return
	}
	at := x.at[block]
	experts := len(rows)
	if at != nil {
		experts = slices.Max(at) + 1
	}
	l := loadOf(x.sent, block, experts)
	for q, n := range rows {
		e := q
		if at != nil {
			e = at[q]
		}
		l.Rows[e] += float64(n)
	}
}

// sentTo appends the rows that were sent to experts in the step.
func (x *routed) sentTo(v []float64) []float64 {
	if x != nil {
		v = appendLoads(v, x.sent)
	}
	return v
}

// forget drops what was counted in a step that is given up.
func (x *routed) forget() {
	if x != nil {
		clear(x.loads)
		clear(x.sent)
	}
}

// appendLoads writes loads in order of blocks.
func appendLoads(v []float64, loads map[int]*core.Load) []float64 {
	for _, b := range slices.Sorted(maps.Keys(loads)) {
		v = core.AppendLoad(v, *loads[b])
	}
	return v
}

// loadOf is that of a block in the step under way.
func loadOf(loads map[int]*core.Load, block, experts int) *core.Load {
	l := loads[block]
	if l == nil {
		l = &core.Load{Block: block}
		loads[block] = l
	}
	for len(l.Rows) < experts {
		l.Rows = append(l.Rows, 0)
	}
	return l
}

// count adds up the choices of a layer and how sure its router was.
func (x *routed) count(block int, c *kernels.Call, experts []int32) {
	e := c.In[0].Shape[1]
	l := loadOf(x.loads, block, e)
	for _, i := range experts {
		if i >= 0 {
			l.Rows[i]++
		}
	}
	logits := kernels.Host(x.b, c.In[0])
	defer logits.Release()
	if x.worker == nil {
		x.worker = kernels.RouterOf(c.Attr).Worker(e)
	}
	for i := range c.In[0].Shape[0] {
		if experts[i*len(experts)/c.In[0].Shape[0]] < 0 { // of a kind that another set of experts is for
			continue
		}
		shares, _ := x.worker.Shares(logits.F32()[i*e:(i+1)*e], 1)
		for _, s := range shares {
			if s > 0 {
				l.Entropy -= s * math.Log(s)
			}
		}
		l.Tokens++
	}
}

// end gives what was counted in a step, behind the values of its last job, and hands what was recorded to the file.
func (x *routed) end(step int64) (v []float64, err error) {
	if x == nil {
		return nil, nil
	}
	if x.out != nil {
		if err := x.out.Flush(); err != nil {
			return nil, fmt.Errorf("train.routing: %w", err)
		}
	}
	if len(x.loads) == 0 || !x.counts(step) {
		return nil, nil
	}
	v = appendLoads(new(core.Usage).Values(), x.loads)
	clear(x.loads)
	return v, nil
}
