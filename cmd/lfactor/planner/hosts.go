// Package planner is the search for the fastest plan of a run file on a described machine.
package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/setup"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// Reranked is how many of the best plans by closed forms are simulated.
const Reranked = 64

// Search is lfactor plan with --hosts: which plan is fastest on a machine.
type Search struct {
	File    string
	Text    []byte // in place of the file's, nil for none
	rest    []string
	form    string
	out     string
	Hosts   int
	shown   int
	batch   int // sequences of a microbatch in the run file's own plan
	Whole   int // ranks up to which a plan of a composed model is simulated with all its replicas
	cfg     *configs.Config
	Machine *cost.Machine
	base    *layout.Job
	Space   *search.Space
}

// New reads the flags and files of the command.
func New(file string, mine, rest []string) (*Search, error) {
	p := &Search{File: file, rest: rest, form: cli.Form(mine), out: cli.FlagValue(mine, "out"), shown: 20, Whole: wholeRanks}
	if p.form != "text" && p.form != "json" && p.form != "jsonl" {
		return nil, cli.Usage("-o %s: want text, json or jsonl", p.form)
	}
	name := cli.FlagValue(mine, "cluster")
	if name == "" {
		name = "cpu"
	}
	text, err := configs.ClusterFile(name)
	if err != nil {
		return nil, err
	}
	if p.Machine, err = cost.Read(name, text); err != nil {
		return nil, err
	}
	if err := p.size(cli.FlagValue(mine, "hosts")); err != nil {
		return nil, err
	}
	return p, p.Load()
}

// Load reads the run file without its plan and makes the space of plans.
func (p *Search) Load() (err error) {
	one := append(append([]string{}, p.rest...), "plan.layers=[]", "plan.pp=1", "plan.tp=1", "plan.dp=1", "plan.procs=1", "plan.virtual_stages=1", "plan.schedule=1f1b",
		"plan.zero=0", "plan.sequence_parallel=false", "train.micro_batch=1", "plan.encoder.over=none", "plan.encoder.tp=1", "plan.encoder.ranks=0", "plan.encoder.ahead=0")
	p.batch = 1
	if own, err := configs.Load(configs.Request{File: p.File, Text: p.Text, Args: p.rest, Getenv: os.Getenv}); err == nil { // its plan need not fit this machine
		p.batch = own.Run.Train.MicroBatch
	}
	if p.cfg, err = configs.Load(configs.Request{File: p.File, Text: p.Text, Args: one, Getenv: os.Getenv}); err != nil {
		return err
	}
	if err = setup.Vocabulary(p.cfg); err != nil {
		return err
	}
	if p.base, err = setup.Job(p.cfg); err != nil {
		return err
	}
	return p.newSpace()
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
		return cli.Usage("--hosts %s: want hosts, or hosts x devices as in 4x8", text)
	case g > p.Machine.Devices:
		return cli.Usage("--hosts %s: a host of cluster %s has %d devices", text, p.Machine.Name, p.Machine.Devices)
	case n > p.Machine.Hosts:
		return cli.Usage("--hosts %s: cluster %s has %d hosts", text, p.Machine.Name, p.Machine.Hosts)
	case n*g > 1<<16:
		return cli.Usage("--hosts %s: more than %d devices", text, 1<<16)
	}
	p.Hosts, p.Machine.Devices = n, g
	return nil
}

func (p *Search) newSpace() error {
	c := p.cfg.Run
	param := int64(p.base.DType.Size())
	opt, err := optim.Get(p.base.Optim.Name)
	if err != nil {
		return cli.Coded(err, cli.ExitUsage)
	}
	state := 4 * int64(len(opt.State))
	if p.base.DType != tensor.F32 {
		state += 4
	}
	limit := int64(p.Machine.Memory)
	if p.base.Memory > 0 {
		limit = p.base.Memory
	}
	known := map[search.Variant][]search.BlockCost{}
	p.Space = &search.Space{Machine: p.Machine, Devices: p.Hosts * p.Machine.Devices, Batch: c.Train.GlobalBatch, Layers: p.cfg.Model.Layers, Param: param, State: state, Traffic: opt.Traffic(), Limit: limit,
		Schedules: schedule.Names(), Cut: p.base.Model.Balanced, Tower: p.newTower(), Profile: func(v search.Variant) ([]search.BlockCost, error) {
			if known[v] == nil {
				b, err := p.Profile(v)
				if err != nil {
					return nil, err
				}
				known[v] = b
			}
			return known[v], nil
		}}
	for tp := 1; tp <= p.Machine.Devices; tp++ {
		if p.divides(tp) {
			p.Space.TP = append(p.Space.TP, tp)
		}
	}
	return nil
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
	m := *p.base.Model
	var kinds []int // first block of each kind
	of := make([]int, len(m.Blocks))
	for i := range m.Blocks {
		at := -1
		for k, first := range kinds {
			a, b := &m.Blocks[i], &m.Blocks[first]
			if a.Component == b.Component && a.Weight == b.Weight && a.Recompute == b.Recompute && reflect.DeepEqual(a.Takes, b.Takes) && reflect.DeepEqual(a.Gives, b.Gives) {
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
	j.Model, j.Cuts, j.Mesh, j.Micro, j.Loops, j.Schedule = &m, cuts, topology.Mesh{PP: len(kinds), DP: 1, TP: v.TP}, 2*len(kinds), 1, "gpipe"
	if v.Split {
		j.Schedule = "zb-h1"
	}
	j.Rows, j.Recompute = v.Batch*p.cfg.Run.Data.SeqLen, setup.Recomputes[v.Recompute]
	if vision := m.Vision; vision != nil {
		if j.Patches = p.patches(v.Batch); j.Patches == 0 {
			j.Patches = j.Rows * vision.Tower.Join
		}
		j.Frames = max(1, j.Patches/vision.Unit())
	}
	l, err := layout.Plan(&j)
	if err != nil {
		return nil, cli.Coded(err, cli.ExitUsage)
	}
	each := p.blockCosts(l, v)
	out := make([]search.BlockCost, len(of))
	for i, k := range of {
		out[i] = each[k]
	}
	return out, nil
}

// search finds and ranks plans: all by closed forms, the best of them by simulation.
func (p *Search) search() (all []search.Candidate, err error) {
	if all, err = p.Space.Enumerate(); err != nil {
		return nil, cli.Coded(err, cli.ExitUsage)
	}
	for i := range all {
		if err := p.Space.Estimate(&all[i]); err != nil {
			return nil, err
		}
		if cli.Interrupted.Load() != 0 {
			return nil, cli.Coded(errors.New("interrupted"), cli.ExitInterrupted)
		}
	}
	search.Rank(all)
	n := min(Reranked, len(all))
	if p.Space.Tower != nil {
		if n, err = p.simulateBest(all); err != nil {
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
	}
	search.Rank(all[:n])
	return all, nil
}

// Settings are what a candidate changes in a run file.
func (p *Search) Settings(c *search.Candidate) []string {
	out := []string{fmt.Sprintf("plan.pp=%d", c.PP), fmt.Sprintf("plan.tp=%d", c.TP), fmt.Sprintf("plan.dp=%d", c.DP), fmt.Sprintf("plan.zero=%d", c.Zero),
		"plan.schedule=" + c.Schedule, fmt.Sprintf("plan.virtual_stages=%d", c.Loops), "plan.recompute=" + c.Recompute, "plan.sequence_parallel=false", "plan.procs=1",
		fmt.Sprintf("train.micro_batch=%d", c.Batch), fmt.Sprintf("train.global_batch=%d", c.Batch*c.Micro*c.DP)}
	if len(p.cfg.Run.Plan.Layers) > 0 {
		out = append(out, "plan.layers=[]")
	}
	return append(out, p.encoderSettings(c)...)
}

// exactRanks is up to how many ranks a plan is laid out in full before it is offered.
const exactRanks = 256

// confirm reads the run file again under a candidate, as training will, and lays it out: why it cannot be used, "" if it can.
func (p *Search) confirm(c *search.Candidate) string {
	cfg, err := p.under(c)
	if err != nil {
		return err.Error()
	}
	j, err := setup.Job(cfg)
	if err != nil {
		return err.Error()
	}
	if j.Mesh.Size()+c.DP*c.Encoder.Ranks > exactRanks {
		return ""
	}
	j.Memory = p.Space.Limit
	l, err := layout.Plan(j)
	if err != nil {
		return err.Error()
	}
	c.Memory = 0
	for r := range l.Ranks {
		c.Memory = max(c.Memory, l.Memory(r).Total())
	}
	if c.Memory > p.Space.Limit {
		return "memory"
	}
	return ""
}

// Run searches, prints, and writes the best plan.
func (p *Search) Run() error {
	all, err := p.search()
	if err != nil {
		return err
	}
	n := min(len(all), Reranked)
	best := -1
	for i := range all[:n] {
		if all[i].Why == "" {
			if all[i].Why = p.confirm(&all[i]); all[i].Why == "" && best < 0 {
				best = i
			}
		}
		if best >= 0 && i >= p.shown {
			break
		}
	}
	if best >= 0 {
		search.Rank(all[:n])
	}
	if err := p.print(all); err != nil {
		return err
	}
	if best < 0 {
		return cli.Coded(p.nothingFits(all), cli.ExitFit)
	}
	if p.out == "" {
		return nil
	}
	c := &all[0]
	f := configs.PlanFile{Model: p.cfg.Model.Identity(), Settings: p.Settings(c)}
	text := f.Text(c.String(), fmt.Sprintf("for %d hosts of %d devices of %s: step %s, %s a rank", p.Hosts, p.Machine.Devices, p.Machine.Name, cli.Seconds(c.Simulated), tensor.Bytes(c.Memory)),
		"lfactor train "+p.File+" --plan this file")
	return os.WriteFile(p.out, text, 0o644)
}

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
		if bigger.Fits() {
			try += fmt.Sprintf(", or %d hosts instead of %d", p.Hosts*more, p.Hosts)
			break
		}
	}
	return fmt.Errorf("no plan fits: the smallest, %s, needs %s of a device's %s; it would fit with %s", least, tensor.Bytes(least.Memory), tensor.Bytes(p.Space.Limit), try)
}

func (p *Search) print(all []search.Candidate) error {
	n := min(len(all), Reranked)
	switch p.form {
	case "json":
		return cli.PrintJSON(all[:n])
	case "jsonl":
		for i := range all[:n] {
			if err := json.NewEncoder(os.Stdout).Encode(all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Printf("%d plans of %s for %d hosts with %d devices of %s; the best by closed forms were simulated\n", len(all), p.cfg.Model.Identity(), p.Hosts, p.Machine.Devices, p.Machine.Name)
	t := cli.TextTable(p.columns("encoder", "tp", "pp", "dp", "zero", "schedule", "micro-batch", "recompute", "step", "closed form", "bubble", "memory", "")...)
	for i := range all[:min(n, p.shown)] {
		c := &all[i]
		name, fits, step := c.Schedule, "fits", "–"
		if c.Loops > 1 {
			name += fmt.Sprintf("×%d", c.Loops)
		}
		switch {
		case c.Why == "memory":
			fits = "DOES NOT FIT: " + tensor.Bytes(p.Space.Limit)
		case c.Why != "":
			fits = c.Why
		}
		if c.Simulated > 0 {
			step = cli.Seconds(c.Simulated)
		}
		t.AppendRow(p.columns(c.Encoder.Short(), c.TP, c.PP, c.DP, c.Zero, name, fmt.Sprintf("%d × %d", c.Micro, c.Batch), c.Recompute, step, cli.Seconds(c.Step), fmt.Sprintf("%.1f%%", 100*c.Bubble), tensor.Bytes(c.Memory), fits))
	}
	t.Render()
	return nil
}

// columns leaves the first cell out for a model without an encoder.
func (p *Search) columns(encoder any, rest ...any) table.Row {
	if p.Space.Tower == nil {
		return rest
	}
	return append(table.Row{encoder}, rest...)
}
