package planner

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// Reranked is how many of the best plans by closed forms are simulated.
const Reranked = 64

// Request says for which run a plan is looked for, and for which machine.
type Request struct {
	Run     configs.Request
	Cluster string // one that comes with lfactor, or a file; "" is cpu
	Hosts   string // hosts, or hosts x devices of each as in 4x8
}

// Search looks for the fastest plan of a run on a machine.
type Search struct {
	Hosts   int
	Machine *cost.Machine
	Space   *search.Space
	Whole   int // ranks up to which a plan of a composed model is simulated with all its replicas
	Exact   int // of the best plans, how many are laid out in full as training will
	// Spaces of up to so many variants are priced in full; of larger ones, plans that may be among the best.
	Variants int
	// See, unless it is nil, is told how much of a step of the search is done.
	See func(what string, done, all int)

	prices  *prices
	request configs.Request
	forget  []string // settings that take the run file's own choices by tensor away
	batch   int      // sequences of a microbatch in the run file's own plan
	cfg     *configs.Config
	base    *layout.Design

	sensitive fit.Sensitive  // what of the run's objective a plan would change: none that does is looked for
	own       map[string]int // values of the run file's own plan
}

// New reads the run file and the machine's description, and makes the space of plans.
func New(r Request) (*Search, error) {
	if r.Cluster == "" {
		r.Cluster = "cpu"
	}
	m, err := rehearsal.Machine(r.Cluster)
	if err != nil {
		return nil, err
	}
	if r.Run.Getenv == nil {
		r.Run.Getenv = os.Getenv
	}
	p := &Search{request: r.Run, Exact: 20, Whole: wholeRanks, Variants: allVariants, Machine: m,
		prices: &prices{known: map[search.Variant]price{}, cuts: map[[2]int][]int{}}}
	if err := p.size(r.Hosts); err != nil {
		return nil, err
	}
	return p, p.load()
}

// config reads the run file with more settings behind its own.
func (p *Search) config(more ...string) (*configs.Config, error) {
	r := p.request
	r.Args = slices.Concat(r.Args, more)
	return configs.Load(r)
}

// load reads the run file without its plan and makes the space of plans.
func (p *Search) load() (err error) {
	p.batch = 1
	if own, err := p.config(); err == nil { // its plan need not fit this machine
		p.batch, p.own = own.Run.Train.MicroBatch, fit.Degrees(own)
		p.forgetOwn(&own.Run.Plan)
	}
	if p.cfg, err = p.config("plan.layers=[]", "plan.pp=1", "plan.tp=1", "plan.dp=1", "plan.procs=1",
		"plan.virtual_stages=1", "plan.schedule=1f1b", "plan.zero=0", "plan.sequence_parallel=false",
		"plan.cp=1", "train.micro_batch=1", "plan.encoder.over=none", "plan.encoder.tp=1", "plan.encoder.ranks=0",
		"plan.overlap=false", "plan.encoder.ahead=0", "plan.ep=1", "plan.etp=1", "plan.chunk_size=0",
		"plan.keep_chunks=0"); err != nil {
		return err
	}
	if err = setup.Vocabulary(p.cfg); err != nil {
		return err
	}
	if p.base, err = p.job(p.cfg); err != nil {
		return err
	}
	p.Machine, p.sensitive = rehearsal.Dispatching(p.Machine, p.base.Model), fit.SensitiveTo(p.cfg, p.base.Model)
	return p.newSpace()
}

// job is what a configuration asks for, on this machine.
func (p *Search) job(cfg *configs.Config) (*layout.Design, error) {
	j, err := layout.FromConfig(cfg)
	if err == nil {
		rehearsal.PriceOn(j, p.Machine)
	}
	return j, err
}

// size reads --hosts N or NxG: hosts, and devices of each.
func (p *Search) size(text string) error {
	hosts, devices, both := strings.Cut(text, "x")
	n, err := strconv.Atoi(hosts)
	g := p.Machine.Devices
	if both && err == nil {
		g, err = strconv.Atoi(devices)
	}
	switch {
	case err != nil || n < 1 || g < 1:
		return exit.Usagef("--hosts %s: want hosts, or hosts x devices as in 4x8", text)
	case g > p.Machine.Devices:
		return exit.Usagef("--hosts %s: a host of cluster %s has %d devices", text, p.Machine.Name, p.Machine.Devices)
	case n > p.Machine.Hosts:
		return exit.Usagef("--hosts %s: cluster %s has %d hosts", text, p.Machine.Name, p.Machine.Hosts)
	case n*g > 1<<16:
		return exit.Usagef("--hosts %s: more than %d devices", text, 1<<16)
	}
	p.Hosts, p.Machine.Devices = n, g
	return nil
}

func (p *Search) newSpace() error {
	c := p.cfg.Run
	param := int64(p.base.DType.Size())
	state, traffic := p.base.StateBytes()
	if p.base.DType != tensor.F32 {
		state += 4
	}
	through := int64(p.base.OffloadState * float64(state))
	limit := int64(p.Machine.Least())
	if p.base.Memory > 0 {
		limit = p.base.Memory
	}
	p.Space = &search.Space{Machine: p.Machine, Devices: p.Hosts * p.Machine.Devices, Batch: c.Train.GlobalBatch,
		Layers: p.cfg.Model.Layers, Param: param, State: state - through, Through: through, Bucket: p.base.Bucket,
		Traffic: traffic, Limit: limit, Schedules: schedule.Names(), Cut: p.cut, Tower: p.newTower(),
		Profile: p.prices.of(p.Profile)}
	p.Space.Keeps = func(c *search.Candidate) bool {
		return p.sensitive.Keeps(p.own, map[string]int{"plan.tp": c.TP, "plan.cp": max(1, c.CP), "plan.ep": max(1, c.EP),
			"plan.etp": max(1, c.ETP), "plan.dp": c.DP, "train.micro_batch": c.Batch})
	}
	if p.Space.Tower == nil {
		p.Space.Rows = c.Data.SeqLen
	}
	if p.base.Model.Spec.Mixes() {
		known := map[[2]int][][2]int{}
		p.Space.Shares = func(ranks, tp int) [][2]int {
			key := [2]int{ranks, tp}
			if _, ok := known[key]; !ok {
				known[key] = p.expertShares(ranks, tp)
			}
			return known[key]
		}
	}
	if p.Space.Tower == nil {
		p.Space.Contexts = p.contexts
	}
	for tp := 1; tp <= p.Machine.Devices; tp++ {
		if p.divides(tp) {
			p.Space.TP = append(p.Space.TP, tp)
		}
	}
	return nil
}

// expertShares lists the ways to share experts out over some of a stage's ranks: whole ones, or each cut
// over the ranks that share a layer.
func (p *Search) expertShares(ranks, tp int) (out [][2]int) {
	for _, etp := range []int{1, tp}[:min(2, tp)] {
		for ep := 1; ep*etp <= ranks; ep++ {
			if ranks%(ep*etp) != 0 {
				continue
			}
			if _, why := p.base.Model.ExpertAxes(ep, etp); why == "" {
				out = append(out, [2]int{ep, etp})
			}
		}
	}
	return out
}

// divides reports whether the model can be shared among tp ranks.
func (p *Search) divides(tp int) bool {
	m := p.cfg.Model
	if tp == 1 {
		return true
	}
	for _, n := range []int{m.Heads, m.Intermediate, m.Vocab} {
		if n > 0 && n%tp != 0 {
			return false
		}
	}
	return m.KVHeads == 0 || m.KVHeads%tp == 0 || tp%m.KVHeads == 0
}

// Profile prices the model's blocks from the traces that training would run. Blocks that are alike are traced once.
func (p *Search) Profile(v search.Variant) ([]search.BlockCost, error) {
	m, n := *p.base.Model, p.cfg.Run.Data.SeqLen
	var kinds []int // first block of each kind
	of := make([]int, len(m.Blocks))
	for i := range m.Blocks {
		at := -1
		for k, first := range kinds {
			a, b := &m.Blocks[i], &m.Blocks[first]
			if a.Component == b.Component && a.Weight == b.Weight && a.Work(n) == b.Work(n) &&
				a.Recompute == b.Recompute && reflect.DeepEqual(a.Takes, b.Takes) &&
				reflect.DeepEqual(a.Gives, b.Gives) {
				at = k
			}
		}
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, i)
		}
		of[i] = at
	}
	m.Blocks = nil
	cuts := []int{0}
	for _, first := range kinds {
		m.Blocks = append(m.Blocks, p.base.Model.Blocks[first])
		cuts = append(cuts, len(m.Blocks))
	}
	j := *p.base
	j.First = true
	j.Model, j.Cuts, j.Mesh, j.Micro, j.Loops, j.Schedule = &m, cuts, meshOf(len(kinds), v), 2, 1, "a profile"
	j.Program = passes(len(kinds), v)
	p.share(&j, v)
	j.SeqParallel, j.Zero, j.Bucket, j.Overlap = v.SP, v.Zero, 0, v.Overlap
	j.Recompute = fit.Recomputes[v.Recompute]
	if vision := m.Vision; vision != nil {
		j.Dims = layout.ImageDims(vision, p.patches(v.Batch), j.Rows)
	}
	l, err := layout.New(&j)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	each := p.blockCosts(l, v)
	out := make([]search.BlockCost, len(of))
	for i, k := range of {
		out[i] = each[k]
	}
	return out, nil
}

// meshOf is the least mesh that a variant's block is traced on.
func meshOf(stages int, v search.Variant) topology.Mesh {
	if v.EP*v.ETP <= 1 && v.CP <= 1 {
		return topology.Grid(stages, min(2, max(1, v.DP)), v.TP)
	}
	c := &configs.Plan{PP: stages, DP: 1, CP: max(1, v.CP), TP: v.TP, EP: max(1, v.EP), ETP: max(1, v.ETP)}
	if v.Comm == "ulysses" {
		c.CPComm, c.Ulysses = v.Comm, v.CP
	}
	if v.CP > 1 {
		c.DP = min(2, max(1, v.DP))
	}
	for c.DP*c.CP*c.TP%(c.EP*c.ETP) != 0 {
		c.DP++
	}
	return layout.MeshOf(c)
}

// passes is a program in which every stage runs two microbatches as a variant says.
func passes(stages int, v search.Variant) *plan.Program {
	p := &plan.Program{Micro: 2}
	back := []plan.Kind{plan.B}
	if v.Split {
		back = []plan.Kind{plan.I, plan.W}
	}
	for s := range stages {
		var row []plan.Entry
		add := func(k plan.Kind, micro int32) {
			row = append(row, plan.Entry{Action: plan.Action{Kind: k, Stage: int16(s), Micro: micro}})
		}
		for m := range int32(p.Micro) {
			add(plan.F, m)
			for _, k := range back {
				if v.Single {
					add(k, m)
				}
			}
		}
		for m := range int32(p.Micro) {
			for _, k := range back {
				if !v.Single {
					add(k, m)
				}
			}
		}
		p.Rows, p.StageRank = append(p.Rows, row), append(p.StageRank, s)
	}
	return p
}

// rank finds and ranks plans: all by closed forms, the best of them by simulation.
func (p *Search) rank(ctx context.Context) (all []search.Candidate, err error) {
	if all, err = p.Space.Enumerate(); err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	if err := p.priced(ctx, all); err != nil {
		return nil, err
	}
	search.Rank(all)
	n := min(Reranked, len(all))
	if p.Space.Tower != nil {
		if n, err = p.simulateBest(ctx, all); err != nil {
			return nil, err
		}
		search.Rank(all[:n])
		return all, nil
	}
	for i := range n {
		if all[i].Why != "" {
			n = i
			break
		}
		if err := p.Simulate(&all[i]); err != nil {
			return nil, err
		}
		p.see("plans simulated", i+1, n)
	}
	for i := range all[:n] {
		p.weighLayers(&all[i])
	}
	search.Rank(all[:n])
	return all, nil
}

// exactRanks is up to how many ranks a plan is laid out in full before it is offered.
const exactRanks = 256

// confirm reads the run file again under a candidate, as training will, and lays it out: why it cannot be
// used, "" if it can.
func (p *Search) confirm(c *search.Candidate) string {
	cfg, err := p.under(c)
	if err != nil {
		return err.Error()
	}
	j, err := p.job(cfg)
	if err != nil {
		return err.Error()
	}
	if j.Mesh.Size()+c.DP*c.Encoder.Ranks > exactRanks {
		return ""
	}
	j.Memory = p.Space.Limit
	l, err := layout.New(j)
	if err != nil {
		return err.Error()
	}
	if c.Memory = worst(l); c.Memory > p.Space.Limit {
		return "memory"
	}
	return ""
}

// Find returns plans with the best first. All are ranked by closed forms, the best Reranked of them again by
// simulation, and the best Exact of those are laid out as training will; some are tried in chunks too. Where
// none can be used, the error says why and carries exit.Fit; the plans come with it.
func (p *Search) Find(ctx context.Context) ([]search.Candidate, error) {
	all, err := p.rank(ctx)
	if err != nil {
		return nil, err
	}
	n := min(len(all), Reranked)
	found := false
	for i := range all[:n] {
		if all[i].Why == "" {
			all[i].Why = p.confirm(&all[i])
			found = found || all[i].Why == ""
		}
		if found && i >= p.Exact {
			break
		}
	}
	cut, err := p.inChunks(ctx, all)
	if err != nil {
		return nil, err
	}
	if !found && len(cut) == 0 {
		return all, exit.With(p.nothingFits(all), exit.Fit)
	}
	all, n = slices.Concat(cut, all), n+len(cut)
	if err := p.weigh(ctx, all[:n]); err != nil {
		return nil, err
	}
	search.Rank(all[:n])
	for _, try := range []func(context.Context, []search.Candidate) ([]search.Candidate, error){p.partly, p.paired} {
		more, err := try(ctx, all[:n])
		if err != nil {
			return nil, err
		}
		all, n = append(more, all...), n+len(more)
		search.Rank(all[:n])
	}
	return all, nil
}

// PlanFile is what lfactor train --plan takes of a candidate.
func (p *Search) PlanFile(c *search.Candidate) []byte {
	f := configs.PlanFile{Model: p.Model(), Settings: p.Settings(c)}
	return f.Text(c.String(), fmt.Sprintf("for %d hosts of %d devices of %s: step %s, %s a rank", p.Hosts,
		p.Machine.Devices, p.Machine.Name, unit.Seconds(c.Simulated), tensor.Bytes(c.Memory)),
		"lfactor train "+p.request.File+" --plan this file")
}

// StepFlops is the floating-point work of a step with the run file's own microbatches.
func (p *Search) StepFlops() (float64, error) {
	j := *p.base
	j.Micro, j.Rows = 1, p.batch*p.cfg.Run.Data.SeqLen
	l, err := layout.New(&j)
	if err != nil {
		return 0, exit.With(err, exit.Usage)
	}
	return l.MicroFlops(l.Class, l.Borders()) * float64(p.cfg.Run.Train.GlobalBatch) / float64(p.batch), nil
}

// Model names the run file's model.
func (p *Search) Model() string { return p.cfg.Model.Identity() }

// nothingFits says which plan comes closest, and what would make it fit.
func (p *Search) nothingFits(all []search.Candidate) error {
	least := &all[0]
	for i := range all {
		if all[i].Memory < least.Memory {
			least = &all[i]
		}
	}
	if least.Memory <= p.Space.Limit {
		return fmt.Errorf("no plan for %d devices can be used; of the best one: %s", p.Space.Devices, all[0].Why)
	}
	try := fmt.Sprintf("devices of %s", tensor.Bytes(least.Memory))
	for _, more := range []int{2, 4, 8, 16, 32, 64, 128} {
		bigger := *p.Space
		bigger.Devices *= more
		wide := *p.Machine
		wide.Hosts = max(wide.Hosts, p.Hosts*more)
		bigger.Machine = &wide
		if q := *p; q.fits(&bigger) {
			try += fmt.Sprintf(", or %d hosts instead of %d", p.Hosts*more, p.Hosts)
			break
		}
	}
	return fmt.Errorf("no plan fits: the smallest, %s, needs %s of a device's %s; it would fit with %s",
		least, tensor.Bytes(least.Memory), tensor.Bytes(p.Space.Limit), try)
}

// tightest is how many of the plans that need least memory are looked at to see whether any fits.
const tightest = 4

// fits reports whether a plan of a space fits, by closed forms first, and of those that need least by what a
// simulation and, where there are few ranks, the layout say.
func (p *Search) fits(s *search.Space) bool {
	p.Space, p.Machine = s, s.Machine
	all, err := s.Enumerate()
	if err != nil {
		return false
	}
	for i := range all {
		if s.Estimate(&all[i]) != nil {
			return false
		}
	}
	slices.SortStableFunc(all, func(a, b search.Candidate) int { return cmp.Compare(a.Memory, b.Memory) })
	for i := range all[:min(tightest, len(all))] {
		c := &all[i]
		if c.Why != "" || p.Simulate(c) != nil || c.Why != "" {
			continue
		}
		if p.confirm(c) == "" {
			return true
		}
	}
	return false
}
