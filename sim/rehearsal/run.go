package rehearsal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
)

// Options say how a configuration is simulated.
type Options struct {
	Machine *cost.Machine // nil is the description "cpu" that comes with lfactor
	Steps   int64         // 0 is 2: the first begins with empty pipelines and full loaders
	Jitter  float64       // jobs take up to this share longer, at random
	// Sends makes a collective every message of its ring, tree or hierarchy; Direct makes every member send
	// to every other, as training itself does. Without them a collective is one event a member.
	Sends, Direct bool
	// Wait lets a rank wait until what it sends to another stage is there, as Megatron-LM without
	// overlap_p2p_comm; without it data travels beside its work, as that of training does.
	Wait        bool
	Program     *plan.Program // in place of plan.schedule; nil for none
	ProgramName string
}

// Rehearsal is a run's configuration, laid out for virtual time.
type Rehearsal struct {
	Layout  *layout.Layout
	Machine *cost.Machine
	Steps   int64
	o       Options
	routed  *routed // recorded routing that is replayed, nil for even use
}

// Under stands between the name of a machine and that of the software that trains on it: no file's name has it.
const Under = "\x00"

// Machine reads a description that comes with lfactor, or a file of one, behind Under with software (cost.Machine.With).
func Machine(name string) (*cost.Machine, error) {
	name, software, _ := strings.Cut(name, Under)
	text, err := configs.ClusterFile(name)
	if err != nil {
		return nil, err
	}
	m, err := cost.Read(name, text)
	if err != nil || software == "" {
		return m, err
	}
	return m.With(software)
}

// PriceOn lets what a job's calls cost be what they cost a machine.
func PriceOn(j *layout.Design, m *cost.Machine) {
	j.Scores, j.Device, j.Software, j.Updates = m.Scores, m.Kernels(), m.Program(), m.Software.Optimizer
}

// New lays a configuration out for a machine. Without plan.memory the machine's devices are the limit.
func New(cfg *configs.Config, o Options) (*Rehearsal, error) {
	if err := setup.Vocabulary(cfg); err != nil {
		return nil, err
	}
	j, err := layout.FromConfig(cfg)
	if err != nil {
		return nil, err
	}
	if o.Machine != nil {
		PriceOn(j, o.Machine)
	}
	if o.Program != nil {
		j.Program, j.Schedule = o.Program, o.ProgramName
	}
	l, err := layout.New(j)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	return Of(l, o)
}

// Dispatching is the machine as the tokens of a model's experts use it.
func Dispatching(m *cost.Machine, of *family.Model) *cost.Machine {
	within := 1.0
	if r := of.Spec.Experts.Router; r.Groups > 1 {
		within = float64(r.Kept) / float64(r.Groups)
	}
	return m.Routed(of.Spec.Experts.Each, of.Spec.Experts.Experts, within)
}

// Of rehearses what is laid out already. A job without a limit of memory gets that of the machine's devices.
func Of(l *layout.Layout, o Options) (r *Rehearsal, err error) {
	r = &Rehearsal{Layout: l, Machine: o.Machine, Steps: o.Steps, o: o}
	if r.Steps == 0 {
		r.Steps = 2
	}
	if r.Machine == nil {
		if r.Machine, err = Machine("cpu"); err != nil {
			return nil, err
		}
	}
	r.Machine = Dispatching(r.Machine, l.Design.Model).Planned(l.Design.Mesh.Len(topology.TP), l.Design.Model.Low != nil)
	if n := l.World(); n > r.Machine.Devices*r.Machine.Hosts {
		return nil, exit.Usagef("the plan has %d ranks, cluster %s %d devices", n, r.Machine.Name,
			r.Machine.Devices*r.Machine.Hosts)
	}
	if l.Design.Memory == 0 {
		l.Design.Memory = int64(r.Machine.Least())
	}
	return r, nil
}

// Simulate runs a configuration's training in virtual time and sums its last step up. A run that does not end well is
// an error: what waits for ever, or with exit.Fit what does not fit into memory; the summary of what ran comes with it.
func Simulate(ctx context.Context, cfg *configs.Config, o Options) (*Summary, error) {
	r, err := New(cfg, o)
	if err != nil {
		return nil, err
	}
	res := r.Run(sim.Options{Stop: func() bool { return ctx.Err() != nil }})
	sum := r.Summary(res)
	return &sum, Fault(res)
}

// Run simulates the run once.
func (r *Rehearsal) Run(o sim.Options) *sim.Result {
	l, p, o := r.prepare(o)
	return sim.New(l, p, o).Run()
}

// Watch simulates the run once under a monitor of the protocols, and says which promise was broken first, ""
// if none was. A run that must end well is asked whether it did.
func (r *Rehearsal) Watch(o sim.Options, well bool) (*sim.Result, string) {
	l, p, o := r.prepare(o)
	m := sim.NewMonitor(l)
	res := sim.New(l, p, m.Attach(o)).Run()
	if well && res.Stall == nil && res.Failed == "" {
		return res, m.End(res, r.Steps)
	}
	return res, m.Fault()
}

// prepare sets up the simulation of the layout. With routed experts the price of a job follows the
// tokens that each rank got, in place of an even share.
func (r *Rehearsal) prepare(o sim.Options) (*sim.Layout, sim.Prices, sim.Options) {
	every := int64(0)
	if slices.ContainsFunc(o.Faults, func(f sim.Fault) bool { return f.Kind == sim.Restart }) {
		every = 1 // what a rank that comes back begins from
	}
	// rates tell steps apart
	run := core.RunLayout{First: 1, Last: r.Steps, SaveEvery: every, LossScale: core.LossScale{Scale: 1},
		LR: func(step int64) float64 { return float64(step) }}
	o.Whole, o.Jitter, o.Wait = !r.o.Direct, r.o.Jitter, r.o.Wait
	p := Prices(r.Machine)
	if !r.o.Sends {
		p.Sends = nil
	}
	if o.Each == nil && r.routed == nil { // recorded routing is looked up in turn
		o.Each = Cores
	}
	if x := r.routed; x != nil {
		o.Each, x.moved = nil, nil
		run.MoveEvery, run.Move = int64(r.Layout.Design.MoveEvery), x.move
		even := p.Job
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			if rank < 0 || s == nil {
				return even(rank, j, s)
			}
			own := *s
			own.Flops, own.Bytes = x.price(rank, j, s)
			return even(rank, j, &own)
		}
	}
	return Layout(r.Layout, run), p, o
}

// Fault is how a simulated run failed, with its exit code; nil if it ended well.
func Fault(res *sim.Result) error {
	switch {
	case res.Stall != nil:
		return exit.With(res.Stall, exit.Failed)
	case strings.Contains(res.Failed, "out of memory"):
		return exit.With(fmt.Errorf("the simulated run failed: %s", res.Failed), exit.Fit)
	case res.Failed != "":
		return exit.With(fmt.Errorf("the simulated run failed: %s", res.Failed), exit.Failed)
	}
	return nil
}

// Folded says what came of sim.Options.Fold.
func Folded(res *sim.Result) string {
	switch n := len(res.Ranks); {
	case res.Unfolded != "":
		return fmt.Sprintf("nothing is folded, all %d ranks ran: %s", n, res.Unfolded)
	case res.Tied:
		return fmt.Sprintf("%d of %d ranks ran, each in place of those that do the same; some competed for a "+
			"connection at the same nanosecond, in one order for all", res.Ran, n)
	default:
		return fmt.Sprintf("%d of %d ranks ran, each in place of those that do the same; the hash is of their "+
			"events", res.Ran, n)
	}
}

// Row is one rank of a result; times are seconds of the last step.
type Row struct {
	Rank   int     `json:"rank"`
	Busy   float64 `json:"busy_s"`
	Bubble float64 `json:"bubble_s"`
	Comm   float64 `json:"exposed_comm_s"`
	Sync   float64 `json:"sync_s"`
	Update float64 `json:"update_s"`
	Peak   int64   `json:"peak_bytes"`
	Fits   bool    `json:"fits"`
}

// Summary is a result as a whole.
type Summary struct {
	Schedule string  `json:"schedule"`
	Cluster  string  `json:"cluster"`
	Software string  `json:"software"` // that trains
	Step     float64 `json:"step_s"`
	// Names that scripts may rely on; docs/json.md describes them.
	StepFlops      float64 `json:"step_flops"`
	StepSeconds    float64 `json:"step_seconds"`
	P10            float64 `json:"step_p10_s,omitempty"` // of GPUs: eight in ten steps are between them
	P90            float64 `json:"step_p90_s,omitempty"`
	MFU            float64 `json:"mfu"`
	PeakBytes      int64   `json:"peak_bytes"`
	BubbleLongest  float64 `json:"bubble_longest_stage"`
	BubbleMakespan float64 `json:"bubble_makespan"`
	Events         uint64  `json:"events"`
	Hash           string  `json:"hash"`
	Ran            int     `json:"ranks_run,omitempty"` // with --fold: of which the hash is
	Ranks          []Row   `json:"ranks"`
	Routing        *Routed `json:"routing,omitempty"` // of lfactor sim --routing

	Explained *Explanation `json:"explanation,omitempty"` // of lfactor sim --explain
}

// Summary sums a result up.
func (r *Rehearsal) Summary(res *sim.Result) Summary {
	out := Summary{Schedule: r.Layout.Design.Schedule, Cluster: r.Machine.Name, Events: res.Events,
		Software: cmp.Or(r.Machine.Software.Name, "lfactor"),
		Hash:     fmt.Sprintf("%016x", res.Hash)}
	if n := len(res.Steps); n > 0 {
		out.Step = res.Steps[n-1].Time / 1e9
	}
	var busy, span, last int64
	for rank, a := range res.Ranks {
		busy, span, last = max(busy, a.Busy), max(span, a.Span), max(last, a.Span+a.Bubble)
		out.Ranks = append(out.Ranks, Row{Rank: rank, Busy: unit.OfNanoseconds(a.Busy),
			Bubble: unit.OfNanoseconds(a.Bubble),
			Comm:   unit.OfNanoseconds(a.Comm), Sync: unit.OfNanoseconds(a.Sync), Update: unit.OfNanoseconds(a.Update),
			Peak: res.Peak[rank], Fits: r.Layout.Design.Memory == 0 || res.Peak[rank] <= r.Layout.Design.Memory})
	}
	out.StepFlops, out.StepSeconds = r.Layout.StepFlops(), out.Step
	if r.Machine.Units > 0 {
		out.P10, out.P90 = cost.P10*out.Step, cost.P90*out.Step
	}
	if res.Ran < len(res.Ranks) {
		out.Ran = res.Ran
	}
	for _, row := range out.Ranks {
		out.PeakBytes = max(out.PeakBytes, row.Peak)
	}
	if out.Step > 0 {
		out.MFU = out.StepFlops / out.Step / (float64(len(out.Ranks)) * r.Machine.Flops)
	}
	if span > 0 {
		out.BubbleLongest = 1 - float64(busy)/float64(span)
	}
	if out.Step > 0 {
		out.BubbleMakespan = 1 - unit.OfNanoseconds(busy)/out.Step
	}
	return out
}

// OpenProgram reads a schedule's table and proves it, with its messages where it has any. Faults name line,
// rank and action; the note says what of the table has no effect.
func OpenProgram(name string) (p *plan.Program, note string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, "", &configs.Error{File: name, Why: err.Error()}
	}
	defer f.Close()
	whole, err := plan.ParseCSV(f)
	if err != nil {
		return nil, "", exit.With(fmt.Errorf("%s: %w", name, err), exit.Usage)
	}
	if p = whole.Work(); p.Check() != nil {
		err = p.Check()
	} else {
		err = whole.CheckMessages()
	}
	var wrong *plan.CheckError
	switch {
	case errors.As(err, &wrong): // a line is a rank
		return nil, "", exit.With(fmt.Errorf("%s:%d: %w", name, wrong.Rank+1, err), exit.Usage)
	case err != nil:
		return nil, "", exit.With(fmt.Errorf("%s: %w", name, err), exit.Usage)
	}
	if n := p.Left(whole); n != "" {
		note = fmt.Sprintf("%s: %s of the table have no effect: ranks send, gather and update by "+
			"themselves; the messages were checked", name, n)
	}
	return p, note, nil
}
