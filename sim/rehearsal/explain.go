package rehearsal

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology/cost"
)

// Explanation says what the last step of a simulated run is made of, for the rank that has most to do. Times
// are seconds; a share is one of the step.
type Explanation struct {
	Rank    int               `json:"rank"`
	Name    string            `json:"name"`
	Step    float64           `json:"step_s"`
	Parts   []Part            `json:"parts"` // they add up to the step
	Kernels []ExplainedKernel `json:"kernels"`
	Again   float64           `json:"recomputed_s"` // of the kernels: forward work that the backward repeats
}

// Part is one of the things that a step's time goes to.
type Part struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"`
	// of the device's peak, while it lasts: arithmetic's operations or the memory's rate; 0 for others
	OfPeak float64 `json:"of_peak,omitempty"`
}

// ExplainedKernel is what the calls of one kernel cost.
type ExplainedKernel struct {
	Kernel  kernels.Op `json:"kernel"`
	Again   bool       `json:"recomputed,omitempty"`
	Calls   int        `json:"calls"`
	Seconds float64    `json:"seconds"`
	Share   float64    `json:"share"`
	Bound   string     `json:"bound"` // arithmetic, memory or launches: the longest of the three
	OfPeak  float64    `json:"of_peak"`
}

// The parts of a step.
const (
	partFlops  = "arithmetic of kernels"
	partBytes  = "memory traffic of kernels"
	partCalls  = "launches of kernels"
	partComm   = "collectives inside a pass that nothing hides"
	partBubble = "waiting for other stages"
	partSync   = "exchange of gradients and weights that nothing hides"
	partUpdate = "optimizer step"
	partRest   = "between steps"
)

// ran counts how often a rank ran a segment.
type ran struct {
	key     layout.TraceKey
	phase   grad.Phase
	segment int32
}

// Explainer watches a simulated run, and then explains its last step.
type Explainer struct {
	r    *Rehearsal
	jobs []map[ran]int // by rank
}

// NewExplainer makes one. It is an error of usage if the run takes as long as recorded routing makes it,
// since kernels are counted for balanced routing.
func (r *Rehearsal) NewExplainer() (*Explainer, error) {
	if r.routed != nil {
		return nil, exit.Usagef("recorded routing is not explained by kernels: leave --routing out")
	}
	return &Explainer{r, make([]map[ran]int, r.Layout.World())}, nil
}

// See counts a job of the last step.
func (x *Explainer) See(s sim.Span) {
	phase, works := layout.PhaseOf[s.Job.Action.Kind]
	if s.Rank < 0 || s.Job.Step != x.r.Steps || s.Job.Kind != actors.RunSegment || !works {
		return
	}
	if x.jobs[s.Rank] == nil {
		x.jobs[s.Rank] = map[ran]int{}
	}
	x.jobs[s.Rank][ran{layout.TraceKey{Stage: int(s.Job.Action.Stage), Chunk: int(s.Job.Action.Chunk),
		Class: s.Job.Class}, phase, s.Job.Segment}]++
}

// Explain simulates the run and explains its last step. It is an error if the run does not end well.
func (r *Rehearsal) Explain(o sim.Options) (*Explanation, error) {
	x, err := r.NewExplainer()
	if err != nil {
		return nil, err
	}
	o.Span = x.See
	res := r.Run(o)
	if err := Fault(res); err != nil {
		return nil, err
	}
	return x.Explain(res), nil
}

// Explain explains the last step of a run that ended well.
func (x *Explainer) Explain(res *sim.Result) *Explanation {
	r, rank := x.r, 0
	for i, a := range res.Ranks {
		if most := res.Ranks[rank]; a.Busy+a.Comm > most.Busy+most.Comm {
			rank = i
		}
	}
	a, m := res.Ranks[rank], r.Machine.Kind(rank)
	out := &Explanation{Rank: rank, Name: r.Layout.Design.Mesh.Name(rank), Step: res.Steps[len(res.Steps)-1].Time / 1e9}
	whole, done := out.kernels(r.Layout, m, x.jobs[rank])
	arithmetic := Part{What: partFlops, Seconds: m.Segment(whole.Filled, 0, 0)}
	if arithmetic.Seconds > 0 {
		arithmetic.OfPeak = float64(done) / m.Flops / arithmetic.Seconds
	}
	out.Parts = []Part{
		arithmetic,
		{What: partBytes, Seconds: m.Segment(0, whole.Bytes, 0), OfPeak: m.Stream},
		{What: partCalls, Seconds: m.Segment(0, 0, whole.Calls)},
		{What: partComm, Seconds: unit.OfNanoseconds(a.Comm)},
		{What: partBubble, Seconds: unit.OfNanoseconds(a.Bubble)},
		{What: partSync, Seconds: unit.OfNanoseconds(a.Sync)},
		{What: partUpdate, Seconds: unit.OfNanoseconds(a.Update)},
	}
	rest := out.Step
	for _, p := range out.Parts {
		rest -= p.Seconds
	}
	out.Parts = append(out.Parts, Part{What: partRest, Seconds: rest})
	for i := range out.Parts {
		out.Parts[i].Share = out.Parts[i].Seconds / out.Step
	}
	return out
}

// kernels fills in the kernels of the segments that a rank ran, longest first, and returns their costs
// together and the operations that arithmetic's time goes to.
func (e *Explanation) kernels(l *layout.Layout, m *cost.Machine, jobs map[ran]int) (whole grad.Cost, done int64) {
	type kind struct {
		op    kernels.Op
		again bool
	}
	sums := map[kind]grad.Cost{}
	for j, times := range jobs {
		tr := l.Trace(j.key)
		for _, c := range tr.KernelCosts(&tr.Segments(j.phase)[j.segment]) {
			k := kind{c.Kernel, c.Again}
			sums[k] = sums[k].Plus(c.Times(times))
			// operations of calls that are bound by memory are not part of what takes arithmetic's time
			done += min(c.Flops, c.Filled) * int64(times)
		}
	}
	for k, c := range sums {
		whole = whole.Plus(c)
		x := ExplainedKernel{Kernel: k.op, Again: k.again, Calls: c.Calls,
			Seconds: m.Segment(c.Filled, c.Bytes, c.Calls)}
		x.Share = x.Seconds / e.Step
		flops, bytes, calls := m.Segment(c.Filled, 0, 0), m.Segment(0, c.Bytes, 0), m.Segment(0, 0, c.Calls)
		switch {
		case calls >= max(flops, bytes):
			x.Bound, x.OfPeak = "launches", max(float64(c.Flops)/m.Flops, float64(c.Bytes)/m.Bandwidth)/x.Seconds
		case flops >= bytes:
			x.Bound, x.OfPeak = "arithmetic", float64(c.Flops)/m.Flops/x.Seconds
		default:
			x.Bound, x.OfPeak = "memory", float64(c.Bytes)/m.Bandwidth/x.Seconds
		}
		if k.again {
			e.Again += x.Seconds
		}
		e.Kernels = append(e.Kernels, x)
	}
	slices.SortFunc(e.Kernels, func(a, b ExplainedKernel) int {
		again := func(k ExplainedKernel) int {
			if k.Again {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Kernel, b.Kernel),
			cmp.Compare(again(a), again(b)))
	})
	return whole, done
}

// String is one sentence: what the step is, from its largest part on.
func (e *Explanation) String() string {
	parts := slices.Clone(e.Parts)
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(b.Share, a.Share) })
	var said []string
	for _, p := range parts {
		if p.Share < 0.0005 {
			continue
		}
		text := fmt.Sprintf("%.1f %% %s", 100*p.Share, p.What)
		if p.OfPeak > 0 {
			text += fmt.Sprintf(" at %.2f of peak", p.OfPeak)
		}
		said = append(said, text)
	}
	text := fmt.Sprintf("%s has most to do; its step of %s is %s", e.Name, unit.Seconds(e.Step),
		strings.Join(said, ", "))
	if e.Again > 0 {
		text += fmt.Sprintf("; %.1f %% of the step repeats forward work for the backward", 100*e.Again/e.Step)
	}
	return text
}

// Print writes the sentence and the table of kernels, which leaves out what takes less than a thousandth of the step.
func (e *Explanation) Print(w io.Writer) {
	fmt.Fprintln(w, e)
	t := newTable(w, "kernel", "", "calls", "time", "share of step", "bound by", "of peak")
	left, seconds := 0, 0.0
	for _, k := range e.Kernels {
		if k.Share < 0.001 {
			left, seconds = left+1, seconds+k.Seconds
			continue
		}
		again := ""
		if k.Again {
			again = "recomputed"
		}
		t.AppendRow(table.Row{k.Kernel, again, k.Calls, unit.Seconds(k.Seconds), unit.Percent(k.Share), k.Bound,
			fmt.Sprintf("%.2f", k.OfPeak)})
	}
	if left > 0 {
		t.AppendRow(table.Row{fmt.Sprintf("%d others", left), "", "", unit.Seconds(seconds),
			unit.Percent(seconds / e.Step)})
	}
	t.Render()
}
