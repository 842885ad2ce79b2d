package rehearsal

import (
	"bufio"
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology/machine"
)

// TraceDiff is a step of a recorded run beside the simulated one. Times are seconds.
type TraceDiff struct {
	Steps     int        `json:"steps"` // of the trace, whose medians are compared
	Cluster   string     `json:"cluster"`
	Measured  float64    `json:"measured_step_s"`
	Simulated float64    `json:"simulated_step_s"`
	Ranks     []RankDiff `json:"ranks"`
	Jobs      []JobDiff  `json:"jobs"` // largest difference first
	Notes     []string   `json:"notes,omitempty"`
	measured  []Traced   // of the step that takes the median time
	simulated []Traced   // of the last step
}

// RankDiff is what a rank does and how long it waits in a step.
type RankDiff struct {
	Rank    int     `json:"rank"`
	Busy    float64 `json:"measured_busy_s"`
	SimBusy float64 `json:"simulated_busy_s"`
	Wait    float64 `json:"measured_wait_s"`
	SimWait float64 `json:"simulated_wait_s"`
}

// JobDiff is one segment of one stage's pass over its microbatches and ranks, or the optimizer step.
type JobDiff struct {
	Kind      string  `json:"kind"` // F, B, I, W or STEP
	Stage     int     `json:"stage"`
	Segment   int     `json:"segment"`
	Calls     int     `json:"calls"` // a step, of all ranks together
	Measured  float64 `json:"measured_s"`
	Simulated float64 `json:"simulated_s"`
	Mostly    string  `json:"mostly,omitempty"` // the kernel that takes most of its simulated time
}

// Difference is how much longer the jobs took than was simulated.
func (d *JobDiff) Difference() float64 { return d.Measured - d.Simulated }

// String names the jobs.
func (d *JobDiff) String() string {
	what := map[string]string{"F": "forward", "B": "backward", "I": "input gradients", "W": "weight gradients",
		"STEP": "optimizer step"}[d.Kind]
	if d.Kind == "STEP" {
		return what
	}
	return fmt.Sprintf("%s of stage %d, segment %d", what, d.Stage, d.Segment)
}

// place is a job within a step.
type place struct {
	rank    int
	action  string
	segment int
}

// Diff simulates the run and lays a step of a trace over its last one: of each job the median over the
// recorded steps, without the first, which warms up. A trace of another plan is an error of usage.
func (r *Rehearsal) Diff(jobs []Traced, o sim.Options) (*TraceDiff, error) {
	if len(jobs) == 0 {
		return nil, exit.Usagef("the trace has no jobs of ranks")
	}
	d := &TraceDiff{Cluster: r.Machine.Name}
	steps := r.steps(jobs, d)
	kinds := map[place]actors.Job{}
	o.Span = func(s sim.Span) {
		_, works := layout.PhaseOf[s.Job.Action.Kind]
		if s.Rank < 0 || s.Job.Step != r.Steps || !works && s.Job.Action.Kind != plan.Step {
			return
		}
		t := Traced{Rank: s.Rank, Step: s.Job.Step, Action: s.Job.Action.String(), Segment: int(s.Job.Segment),
			Start: unit.OfNanoseconds(int64(s.Start)),
			End:   unit.OfNanoseconds(int64(s.End)), Place: ""}
		d.simulated = append(d.simulated, t)
		kinds[place{t.Rank, t.Action, t.Segment}] = *s.Job
	}
	res := r.Run(o)
	if err := Fault(res); err != nil {
		return nil, err
	}
	d.Simulated = res.Steps[len(res.Steps)-1].Time / 1e9
	medians := map[place]float64{}
	for p, all := range steps {
		if _, known := kinds[p]; !known {
			return nil, exit.Usagef("the trace has a job %s.%d of rank %d, which the plan has not: it is of "+
				"another plan, model or batch", p.action, p.segment, p.rank)
		}
		medians[p] = median(all)
	}
	for _, s := range d.simulated {
		p := place{s.Rank, s.Action, s.Segment}
		if _, ran := medians[p]; !ran && s.End > s.Start { // jobs that take no time are not drawn
			return nil, exit.Usagef("the plan has a job %s.%d of rank %d, which the trace has not: it is of "+
				"another plan, model or batch, or ends too early", p.action, p.segment, p.rank)
		}
	}
	d.fill(r, medians, kinds)
	return d, nil
}

// steps lists how long every job took in each step but the first, and measures the step as a whole.
func (r *Rehearsal) steps(jobs []Traced, d *TraceDiff) map[place][]float64 {
	first, byStep := map[int64]float64{}, map[int64][]Traced{}
	for _, j := range jobs {
		if at, seen := first[j.Step]; !seen || j.Start < at {
			first[j.Step] = j.Start
		}
		byStep[j.Step] = append(byStep[j.Step], j)
	}
	numbers := slices.Sorted(maps.Keys(byStep))
	var whole []float64 // of the steps after which another came
	var counted []int64
	for i, n := range numbers[:len(numbers)-1] {
		if i > 0 || len(numbers) == 2 {
			whole, counted = append(whole, first[numbers[i+1]]-first[n]), append(counted, n)
		}
	}
	switch {
	case len(numbers) == 1: // as of a simulation, whose trace has one step
		last := jobs[0].End
		for _, j := range jobs {
			last = max(last, j.End)
		}
		whole, counted = []float64{last - first[numbers[0]]}, numbers
		d.Notes = append(d.Notes, "the trace has one step: its time is that from its first job to the end of its last")
	case len(numbers) == 2:
		d.Notes = append(d.Notes, "the trace has two steps: the first, which warms up, is compared")
	}
	d.Steps, d.Measured = len(counted), median(whole)
	nearest := 0
	for i := range whole {
		if math.Abs(whole[i]-d.Measured) < math.Abs(whole[nearest]-d.Measured) {
			nearest = i
		}
	}
	out := map[place][]float64{}
	for i, n := range counted {
		seen := map[place]bool{} // evaluation, and steps that were done again, repeat jobs
		for _, j := range byStep[n] {
			p := place{j.Rank, j.Action, j.Segment}
			if !seen[p] {
				seen[p], out[p] = true, append(out[p], j.End-j.Start)
				if i == nearest {
					d.measured = append(d.measured, j)
				}
			}
		}
	}
	return out
}

// median is the middle of the values, or the mean of the two in the middle of an even number. The
// slice must not be empty.
func median(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// fill sums up by rank and by kind of job.
func (d *TraceDiff) fill(r *Rehearsal, medians map[place]float64, kinds map[place]actors.Job) {
	type group struct {
		kind           plan.Kind
		stage, segment int
	}
	groups := map[group]*JobDiff{}
	d.Ranks = make([]RankDiff, r.Layout.World())
	for _, t := range d.simulated {
		p := place{t.Rank, t.Action, t.Segment}
		j, long := kinds[p], t.End-t.Start
		d.Ranks[t.Rank].Busy += medians[p]
		d.Ranks[t.Rank].SimBusy += long
		g := group{j.Action.Kind, int(j.Action.Stage), t.Segment}
		if g.kind == plan.Step {
			g.stage, g.segment = 0, 0
		}
		x := groups[g]
		if x == nil {
			x = &JobDiff{Kind: g.kind.String(), Stage: g.stage, Segment: g.segment, Mostly: r.mostly(&j)}
			groups[g] = x
		}
		x.Calls, x.Measured, x.Simulated = x.Calls+1, x.Measured+medians[p], x.Simulated+long
	}
	for i := range d.Ranks {
		x := &d.Ranks[i]
		x.Rank, x.Wait, x.SimWait = i, d.Measured-x.Busy, d.Simulated-x.SimBusy
	}
	for _, x := range groups {
		d.Jobs = append(d.Jobs, *x)
	}
	sort.Slice(d.Jobs, func(i, k int) bool {
		a, b := &d.Jobs[i], &d.Jobs[k]
		return cmp.Or(cmp.Compare(math.Abs(b.Difference()), math.Abs(a.Difference())), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Segment, b.Segment)) < 0
	})
}

// mostly is the kernel that takes most of a job's simulated time, "" for none.
func (r *Rehearsal) mostly(j *actors.Job) string {
	phase, works := layout.PhaseOf[j.Action.Kind]
	if !works {
		return ""
	}
	tr := r.Layout.Trace(layout.TraceKey{Stage: int(j.Action.Stage), Chunk: int(j.Action.Chunk), Class: j.Class})
	name, most := "", 0.0
	for _, c := range tr.KernelCosts(&tr.Segments(phase)[j.Segment]) {
		if t := r.Machine.Segment(c.Filled, c.Bytes, c.Calls); t > most {
			name, most = string(c.Kernel), t
		}
	}
	return name
}

// String names the step and the largest differences.
func (d *TraceDiff) String() string {
	text := fmt.Sprintf("a step took %s (median of %d), simulated on %s %s: %+.1f %%", unit.Seconds(d.Measured),
		d.Steps, d.Cluster, unit.Seconds(d.Simulated), 100*(d.Measured/d.Simulated-1))
	var said []string
	for i := range d.Jobs[:min(3, len(d.Jobs))] {
		x := &d.Jobs[i]
		more := "longer"
		if x.Difference() < 0 {
			more = "less"
		}
		line := fmt.Sprintf("%s took %s %s than simulated on all ranks together", x,
			unit.Seconds(math.Abs(x.Difference())), more)
		if x.Mostly != "" {
			line += ", most of it " + x.Mostly
		}
		said = append(said, line)
	}
	return text + "; " + strings.Join(said, "; ")
}

// Print writes the sentence and both tables.
func (d *TraceDiff) Print(w io.Writer) {
	for _, n := range d.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	fmt.Fprintln(w, d)
	t := newTable(w, "rank", "busy", "simulated", "", "waiting", "simulated")
	for _, r := range d.Ranks {
		t.AppendRow(table.Row{r.Rank, unit.Seconds(r.Busy), unit.Seconds(r.SimBusy), ratio(r.Busy, r.SimBusy),
			unit.Seconds(r.Wait), unit.Seconds(r.SimWait)})
	}
	t.Render()
	t = newTable(w, "jobs", "calls", "measured", "simulated", "", "mostly")
	const shown = 20
	for i := range d.Jobs {
		if i == shown {
			t.AppendRow(table.Row{fmt.Sprintf("and %d more", len(d.Jobs)-shown)})
			break
		}
		x := &d.Jobs[i]
		t.AppendRow(table.Row{x.String(), x.Calls, unit.Seconds(x.Measured), unit.Seconds(x.Simulated),
			ratio(x.Measured, x.Simulated), x.Mostly})
	}
	t.Render()
}

// ratio is the deviation of the measured value in percent of the simulated one, or nothing if that is 0.
func ratio(measured, simulated float64) string {
	if simulated == 0 {
		return ""
	}
	return fmt.Sprintf("%+.0f%%", 100*(measured/simulated-1))
}

// newTable makes a table in the style of all reports, which is written to w when it is rendered.
func newTable(w io.Writer, columns ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(columns)
	return t
}

// SVG draws both steps: two rows a rank, above what was measured and below what was simulated, on one axis.
func (d *TraceDiff) SVG(name string) error {
	const width, height, left = 1400.0, 16, 130
	scale := width / max(d.Measured, d.Simulated)
	return machine.Create(name, func(w *bufio.Writer) {
		fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "+
			"font-family=\"sans-serif\" font-size=\"11\">\n", width+left+10, len(d.Ranks)*(2*height+8)+24)
		for r := range d.Ranks {
			y := r * (2*height + 8)
			fmt.Fprintf(w, "<text x=\"4\" y=\"%d\">rank %d measured</text>\n<text x=\"4\" y=\"%d\">simulated</text>\n",
				y+12, r, y+height+12)
		}
		for row, jobs := range [][]Traced{d.measured, d.simulated} {
			from := math.Inf(1)
			for _, j := range jobs {
				from = min(from, j.Start)
			}
			for _, j := range jobs {
				a, err := plan.Parse(j.Action)
				if err != nil {
					continue // of a trace whose jobs were checked against the program
				}
				fmt.Fprintf(w, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "+
					"stroke=\"white\" stroke-width=\".3\"><title>%s: %s</title></rect>\n", left+(j.Start-from)*scale,
					j.Rank*(2*height+8)+row*height+1, (j.End-j.Start)*scale, height-2, colours[a.Kind],
					html.EscapeString(j.Action), unit.Seconds(j.End-j.Start))
			}
		}
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\">0 to %s</text>\n</svg>\n", left, len(d.Ranks)*(2*height+8)+16,
			unit.Seconds(max(d.Measured, d.Simulated)))
	})
}
