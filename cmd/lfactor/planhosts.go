package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// reranked is how many of the best plans by closed forms are simulated.
const reranked = 64

// planSearch is lfactor plan with --hosts: which plan is fastest on a machine.
type planSearch struct {
	file    string
	text    []byte // in place of the file's, nil for none
	rest    []string
	form    string
	out     string
	hosts   int
	shown   int
	batch   int // sequences of a microbatch in the run file's own plan
	whole   int // ranks up to which a plan of a composed model is simulated with all its replicas
	cfg     *configs.Config
	machine *cost.Machine
	base    *host.Job
	space   *search.Space
}

// newPlanSearch reads the flags and files of the command.
func newPlanSearch(file string, mine, rest []string) (*planSearch, error) {
	p := &planSearch{file: file, rest: rest, form: form(mine), out: flagValue(mine, "out"), shown: 20, whole: wholeRanks}
	if p.form != "text" && p.form != "json" && p.form != "jsonl" {
		return nil, usage("-o %s: want text, json or jsonl", p.form)
	}
	name := flagValue(mine, "cluster")
	if name == "" {
		name = "cpu"
	}
	text, err := configs.ClusterFile(name)
	if err != nil {
		return nil, err
	}
	if p.machine, err = cost.Read(name, text); err != nil {
		return nil, err
	}
	if err := p.size(flagValue(mine, "hosts")); err != nil {
		return nil, err
	}
	return p, p.load()
}

// load reads the run file without its plan and makes the space of plans.
func (p *planSearch) load() (err error) {
	one := append(append([]string{}, p.rest...), "plan.layers=[]", "plan.pp=1", "plan.tp=1", "plan.dp=1", "plan.procs=1", "plan.virtual_stages=1", "plan.schedule=1f1b",
		"plan.zero=0", "plan.sequence_parallel=false", "train.micro_batch=1", "plan.encoder.over=none", "plan.encoder.tp=1", "plan.encoder.ranks=0", "plan.encoder.ahead=0")
	p.batch = 1
	if own, err := configs.Load(configs.Request{File: p.file, Text: p.text, Args: p.rest, Getenv: os.Getenv}); err == nil { // its plan need not fit this machine
		p.batch = own.Run.Train.MicroBatch
	}
	if p.cfg, err = configs.Load(configs.Request{File: p.file, Text: p.text, Args: one, Getenv: os.Getenv}); err != nil {
		return err
	}
	if err = vocabulary(p.cfg); err != nil {
		return err
	}
	if p.base, err = job(p.cfg); err != nil {
		return err
	}
	p.newSpace()
	return nil
}

// size reads --hosts N or NxG: hosts, and devices of each.
func (p *planSearch) size(text string) error {
	hosts, devices, both := strings.Cut(text, "x")
	n, err := strconv.Atoi(hosts)
	g := p.machine.Devices
	if both && err == nil {
		g, err = strconv.Atoi(devices)
	}
	switch {
	case err != nil || n < 1 || g < 1:
		return usage("--hosts %s: want hosts, or hosts x devices as in 4x8", text)
	case g > p.machine.Devices:
		return usage("--hosts %s: a host of cluster %s has %d devices", text, p.machine.Name, p.machine.Devices)
	case n > p.machine.Hosts:
		return usage("--hosts %s: cluster %s has %d hosts", text, p.machine.Name, p.machine.Hosts)
	case n*g > 1<<16:
		return usage("--hosts %s: more than %d devices", text, 1<<16)
	}
	p.hosts, p.machine.Devices = n, g
	return nil
}

func (p *planSearch) newSpace() {
	c := p.cfg.Run
	param := int64(p.base.DType.Size())
	state := int64(8)
	if p.base.Optim.Name == "sgd" {
		state = 4
	}
	if p.base.DType != tensor.F32 {
		state += 4
	}
	limit := int64(p.machine.Memory)
	if p.base.Memory > 0 {
		limit = p.base.Memory
	}
	known := map[search.Variant][]search.BlockCost{}
	p.space = &search.Space{Machine: p.machine, Devices: p.hosts * p.machine.Devices, Batch: c.Train.GlobalBatch, Layers: p.cfg.Model.Layers, Param: param, State: state, Limit: limit,
		Schedules: schedule.Names(), Cut: p.base.Model.Balanced, Tower: p.newTower(), Profile: func(v search.Variant) ([]search.BlockCost, error) {
			if known[v] == nil {
				b, err := p.profile(v)
				if err != nil {
					return nil, err
				}
				known[v] = b
			}
			return known[v], nil
		}}
	for tp := 1; tp <= p.machine.Devices; tp++ {
		if p.divides(tp) {
			p.space.TP = append(p.space.TP, tp)
		}
	}
}

// divides reports whether the model can be shared among tp ranks.
func (p *planSearch) divides(tp int) bool {
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

// profile prices the model's blocks from the traces that training would run. Blocks that are alike are traced once.
func (p *planSearch) profile(v search.Variant) ([]search.BlockCost, error) {
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
	j.Rows, j.Recompute = v.Batch*p.cfg.Run.Data.SeqLen, recomputes[v.Recompute]
	if vision := m.Vision; vision != nil {
		if j.Patches = p.patches(v.Batch); j.Patches == 0 {
			j.Patches = j.Rows * vision.Tower.Join
		}
		j.Frames = max(1, j.Patches/vision.Unit())
	}
	l, err := host.Plan(&j)
	if err != nil {
		return nil, coded(err, exitUsage)
	}
	each := p.blockCosts(l, v)
	out := make([]search.BlockCost, len(of))
	for i, k := range of {
		out[i] = each[k]
	}
	return out, nil
}

// search finds and ranks plans: all by closed forms, the best of them by simulation.
func (p *planSearch) search() (all []search.Candidate, err error) {
	if all, err = p.space.Enumerate(); err != nil {
		return nil, coded(err, exitUsage)
	}
	for i := range all {
		if err := p.space.Estimate(&all[i]); err != nil {
			return nil, err
		}
		if interrupted.Load() != 0 {
			return nil, coded(errors.New("interrupted"), exitInterrupted)
		}
	}
	search.Rank(all)
	n := min(reranked, len(all))
	if p.space.Tower != nil {
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
		if err := p.simulate(&all[i]); err != nil {
			return nil, err
		}
	}
	search.Rank(all[:n])
	return all, nil
}

// settings are what a candidate changes in a run file.
func (p *planSearch) settings(c *search.Candidate) []string {
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
func (p *planSearch) confirm(c *search.Candidate) string {
	cfg, err := p.under(c)
	if err != nil {
		return err.Error()
	}
	j, err := job(cfg)
	if err != nil {
		return err.Error()
	}
	if j.Mesh.Size()+c.DP*c.Encoder.Ranks > exactRanks {
		return ""
	}
	j.Memory = p.space.Limit
	l, err := host.Plan(j)
	if err != nil {
		return err.Error()
	}
	c.Memory = 0
	for r := range l.Ranks {
		c.Memory = max(c.Memory, l.Memory(r).Total())
	}
	if c.Memory > p.space.Limit {
		return "memory"
	}
	return ""
}

// run searches, prints, and writes the best plan.
func (p *planSearch) run() error {
	all, err := p.search()
	if err != nil {
		return err
	}
	n := min(len(all), reranked)
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
		return coded(p.nothingFits(all), exitFit)
	}
	if p.out == "" {
		return nil
	}
	c := &all[0]
	f := configs.PlanFile{Model: p.cfg.Model.Identity(), Settings: p.settings(c)}
	text := f.Text(c.String(), fmt.Sprintf("for %d hosts of %d devices of %s: step %s, %s a rank", p.hosts, p.machine.Devices, p.machine.Name, seconds(c.Simulated), tensor.Bytes(c.Memory)),
		"lfactor train "+p.file+" --plan this file")
	return os.WriteFile(p.out, text, 0o644)
}

// nothingFits says which plan comes closest, and what would make it fit.
func (p *planSearch) nothingFits(all []search.Candidate) error {
	least := &all[0]
	for i := range all {
		if all[i].Memory < least.Memory {
			least = &all[i]
		}
	}
	if least.Memory <= p.space.Limit {
		return fmt.Errorf("no plan for %d devices can be used; of the best one: %s", p.space.Devices, all[0].Why)
	}
	try := fmt.Sprintf("devices of %s", tensor.Bytes(least.Memory))
	for _, more := range []int{2, 4, 8, 16, 32, 64, 128} {
		bigger := *p.space
		bigger.Devices *= more
		wide := *p.machine
		wide.Hosts = max(wide.Hosts, p.hosts*more)
		bigger.Machine = &wide
		if bigger.Fits() {
			try += fmt.Sprintf(", or %d hosts instead of %d", p.hosts*more, p.hosts)
			break
		}
	}
	return fmt.Errorf("no plan fits: the smallest, %s, needs %s of a device's %s; it would fit with %s", least, tensor.Bytes(least.Memory), tensor.Bytes(p.space.Limit), try)
}

func (p *planSearch) print(all []search.Candidate) error {
	n := min(len(all), reranked)
	switch p.form {
	case "json":
		return printJSON(all[:n])
	case "jsonl":
		for i := range all[:n] {
			if err := json.NewEncoder(os.Stdout).Encode(all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Printf("%d plans of %s for %d hosts with %d devices of %s; the best by closed forms were simulated\n", len(all), p.cfg.Model.Identity(), p.hosts, p.machine.Devices, p.machine.Name)
	t := textTable(p.columns("encoder", "tp", "pp", "dp", "zero", "schedule", "micro-batch", "recompute", "step", "closed form", "bubble", "memory", "")...)
	for i := range all[:min(n, p.shown)] {
		c := &all[i]
		name, fits, step := c.Schedule, "fits", "–"
		if c.Loops > 1 {
			name += fmt.Sprintf("×%d", c.Loops)
		}
		switch {
		case c.Why == "memory":
			fits = "DOES NOT FIT: " + tensor.Bytes(p.space.Limit)
		case c.Why != "":
			fits = c.Why
		}
		if c.Simulated > 0 {
			step = seconds(c.Simulated)
		}
		t.AppendRow(p.columns(c.Encoder.Short(), c.TP, c.PP, c.DP, c.Zero, name, fmt.Sprintf("%d × %d", c.Micro, c.Batch), c.Recompute, step, seconds(c.Step), fmt.Sprintf("%.1f%%", 100*c.Bubble), tensor.Bytes(c.Memory), fits))
	}
	t.Render()
	return nil
}

// columns leaves the first cell out for a model without an encoder.
func (p *planSearch) columns(encoder any, rest ...any) table.Row {
	if p.space.Tower == nil {
		return rest
	}
	return append(table.Row{encoder}, rest...)
}
