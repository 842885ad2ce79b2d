package cost

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels"
)

// Software is the program that trains on a machine, as far as it differs from lfactor, which is the zero value. Numbers
// that are 0 are lfactor's.
type Software struct {
	Name      string             // what --software said
	Attention string             // the kernel of attention: fused, which is written for the device, or fa2
	Ring      string             // the same where ranks share a sequence's tokens; "" is Attention
	TP        string             // products: gathers and sums of tp travel behind the products they belong to
	TPBits    float64            // of what gathers of tp send where products are of 8 bits, else 16
	Loss      float64            // bytes of memory traffic that an element of the logits costs beside the products
	Optimizer float64            // times lfactor's memory traffic of the optimizer step
	Rounding  float64            // the same of rounding operands to few bits
	Launch    float64            // times device.overhead that a call takes
	Times     map[string]float64 // lfactor's memory traffic and calls, by traffic.OP and calls.OP
	Settings  []string           // of run files, behind configs.Unsaid
	Notes     []string           // what a cluster file says for itself
}

// software are the settings of a description of software beside traffic.OP and calls.OP of kernels and settings.KEY.
var software = []field{
	{"attention.kernel", nil, false, false, func(m *Machine) any { return &m.Software.Attention }},
	{"attention.ring", nil, false, false, func(m *Machine) any { return &m.Software.Ring }},
	{"tp.overlap", nil, false, false, func(m *Machine) any { return &m.Software.TP }},
	{"experts.dispatch", nil, false, false, func(m *Machine) any { return &m.dispatch }},
	{"experts.per_expert", clock, true, false, func(m *Machine) any { return &m.PerExpert }},
	{"memory.reserve", plain, true, false, func(m *Machine) any { return &m.Reserve }},
	{"launch.calls", plain, false, false, func(m *Machine) any { return &m.Software.Launch }},
	{"loss.bytes", size, true, false, func(m *Machine) any { return &m.Software.Loss }},
	{"optimizer.traffic", plain, false, false, func(m *Machine) any { return &m.Software.Optimizer }},
	{"rounding.traffic", plain, false, false, func(m *Machine) any { return &m.Software.Rounding }},
	{"tp.bits", plain, false, false, func(m *Machine) any { return &m.Software.TPBits }},
}

// words are the values of settings that are one of some words; theirs are the keys of cluster files that say what
// software would, and win over it.
var (
	words = map[string][]string{"attention.kernel": {"fused", "fa2"}, "attention.ring": {"fused", "fa2"},
		"tp.overlap": {"none", "products"}, "experts.dispatch": {"copies", "once", "runs"}}
	theirs = map[string][]string{"experts.per_expert": {"device.per_expert"}, "memory.reserve": {"device.reserve"},
		"attention.kernel": {"device.attention"}, "attention.ring": {"device.attention"},
		"experts.dispatch": {"network.dispatch"}}
)

// SoftwareKeys are all settings of a description of software; OP is a kernel's name.
func SoftwareKeys() []string {
	out := []string{"traffic.OP", "calls.OP", "settings.KEY"}
	for _, f := range software {
		out = append(out, f.key)
	}
	return out
}

// With is the machine under software: descriptions that come with lfactor, names with versions, files, and settings
// key=value, separated by commas; later ones win. Errors are *configs.Error values.
func (m *Machine) With(names string) (*Machine, error) {
	k := *m
	k.Software = Software{Times: map[string]float64{}, Name: names}
	r := &reader{m: &k, soft: true}
	for _, name := range strings.Split(names, ",") {
		if key, value, ok := strings.Cut(name, "="); ok {
			r.file, r.line, r.seen = "--software", 0, map[string]int{}
			r.set(key, value)
		} else if err := r.described(name, nil); err != nil {
			return nil, err
		}
	}
	return &k, errors.Join(r.errs...)
}

// Under is the machine's name, with its software where that is not lfactor.
func (m *Machine) Under() string {
	if s := m.Software.Name; s != "" {
		return m.Name + " under " + s
	}
	return m.Name
}

// described reads a description of software, and first those that it begins from.
func (r *reader) described(name string, above []string) error {
	if slices.Contains(above, name) {
		return &configs.Error{File: name, Key: "with", Why: "begins from itself"}
	}
	file, text, err := configs.SoftwareFile(name)
	if err != nil {
		return err
	}
	for _, base := range configs.Listed(text, "with") {
		if err := r.described(base, append(above, name)); err != nil {
			return err
		}
	}
	r.file, r.seen = file, map[string]int{}
	r.lines(text)
	return nil
}

// program takes one setting of a description of software.
func (r *reader) program(key, value string) {
	s := &r.m.Software
	section, rest, _ := strings.Cut(key, ".")
	for _, own := range theirs[key] {
		if note := own + " of the cluster file stands for " + key + " of " + r.file; r.m.said[own] > 0 {
			s.Notes = append(s.Notes, note)
			return
		}
	}
	for _, own := range []string{"host.once", "network.once"} {
		if key == "experts.dispatch" && r.m.said[own] > 0 {
			s.Notes = append(s.Notes, own+" of the cluster file stands for the share that follows from "+key+" of "+r.file)
		}
	}
	at := slices.IndexFunc(software, func(f field) bool { return f.key == key })
	times := section == "traffic" || section == "calls"
	_, kernel := kernels.Lookup(kernels.Op(rest))
	switch {
	case key == "name" || key == "versions" || key == "with":
	case section == "settings":
		s.Settings = append(s.Settings, configs.Unsaid+rest+"="+value)
	case times && kernel:
		v := 0.0
		r.number(field{key: key, units: plain, at: func(*Machine) any { return &v }}, value)
		s.Times[key] = v
	case times:
		r.fault(key, "is no kernel", "lfactor sim --explain lists those of a run")
	case at < 0:
		r.fault(key, "is not a setting of software", "there are "+strings.Join(SoftwareKeys(), ", "))
	case words[key] == nil:
		r.number(software[at], value)
	case !slices.Contains(words[key], value):
		r.fault(key, fmt.Sprintf("%q is none of its values", value), source.OneOf(words[key]))
	default:
		*software[at].at(r.m).(*string) = value
		r.m.Dispatch = r.m.dispatch == "once" || r.m.dispatch == "runs" || r.m.dispatch == "" && r.m.Dispatch
	}
}

// Program says what a call of lfactor's is in the software: its memory traffic beside what the device is told of it,
// and how many calls it takes; nil where the software is lfactor.
func (m *Machine) Program() func(op kernels.Op, products []kernels.Product, bytes int64) (more int64, calls int) {
	s := &m.Software
	if s.Name == "" {
		return nil
	}
	return func(op kernels.Op, products []kernels.Product, bytes int64) (more int64, calls int) {
		more = int64(float64(bytes) * (cmp.Or(s.Times["traffic."+string(op)], 1) - 1))
		// logits are rows by vocabulary
		if (op == kernels.LinearCE || op == kernels.LinearLSE) && len(products) > 0 {
			more += int64(s.Loss * float64(products[0].M*products[0].N))
		}
		return more, int(cmp.Or(s.Times["calls."+string(op)], 1))
	}
}

// Planned is the machine as ranks of a tensor-parallel degree use it under its software, with products of few bits or
// not: of sums that travel in tp parts behind products one part is waited for, and gathers of fewer bits send less.
func (m *Machine) Planned(tp int, few bool) *Machine {
	k := *m
	k.tp, k.parts = tp, 1
	if m.Software.TP == "products" {
		k.parts = float64(tp)
	}
	if few && m.Software.TPBits > 0 { // half of what travels is gathered, and half summed in 16 bits
		k.parts *= 2 * 16 / (16 + m.Software.TPBits)
	}
	return &k
}

// faster is how many times as fast as others the collectives of a tensor-parallel group are.
func (m *Machine) faster(devices []int) float64 {
	if n := len(devices); m.tp > 1 && n == m.tp && devices[n-1]-devices[0] == n-1 {
		return m.parts
	}
	return 1
}

// fused is what attention in one kernel reaches of the rate of products in its forward, in its backward 7/8 of it, as
// the software has it; 0 is as usual.
func (m *Machine) fused(ring bool) float64 {
	kernel := m.Software.Attention
	if ring {
		kernel = cmp.Or(m.Software.Ring, kernel)
	}
	if m.Attention == 0 && kernel == "fa2" {
		return m.FA2
	}
	return m.Attention
}
