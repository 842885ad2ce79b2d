package torch

import (
	"encoding/binary"
	"math"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Adam are settings of AdamW that Megatron keeps with its state; its schedule overrules the rate.
type Adam struct{ LR, Beta1, Beta2, Eps, Decay float64 }

// step is the iteration, 0 for none.
func (s *States) step() int64 {
	if s == nil {
		return 0
	}
	return s.Step
}

// float writes a number.
func (p *pickler) float(x float64) {
	p.b = binary.BigEndian.AppendUint64(append(p.b, 'G'), math.Float64bits(x))
}

func (p *pickler) bool(b bool) {
	if b {
		p.op(0x88)
		return
	}
	p.op(0x89)
}

// optimizer writes what common.pt says of one: as Megatron's distributed optimizer reads it, under
// optimizer, and as one that is not distributed does, beside it.
func (p *pickler) optimizer(st *States) {
	plain := func() {
		p.text("state")
		p.op('}', '(')
		p.text("common_step")
		p.float(float64(st.Updates))
		p.op('u')
		p.text("param_groups")
		p.op(']', '(')
		p.group(st, 1)
		p.group(st, 0)
		p.op('e')
	}
	p.op('}', '(')
	plain()
	p.text("optimizer")
	p.op('}', '(')
	plain()
	p.op('u')
	p.text("param_state_sharding_type")
	p.text("fully_reshardable")
	p.op('u')
}

// group writes a group of parameters: mult is the factor on the decay of weights.
func (p *pickler) group(st *States, mult float64) {
	p.op('}', '(')
	for _, x := range []struct {
		key string
		is  bool
	}{{"is_expert_parallel", false}, {"default_config", true}, {"is_decoupled_lr", false}, {"amsgrad", false},
		{"maximize", false}, {"capturable", false}, {"differentiable", false}, {"decoupled_weight_decay", true},
		{"bias_correction", true}} {
		p.text(x.key)
		p.bool(x.is)
	}
	for _, key := range []string{"foreach", "fused"} {
		p.text(key)
		p.op('N')
	}
	for _, x := range []struct {
		key string
		n   float64
	}{{"wd_mult", mult}, {"lr_mult", 1}, {"max_lr", st.Adam.LR}, {"min_lr", 0}, {"lr", st.Adam.LR},
		{"eps", st.Adam.Eps}, {"weight_decay", mult * st.Adam.Decay}, {"step", float64(st.Updates)}} {
		p.text(x.key)
		p.float(x.n)
	}
	p.text("betas")
	p.op('(')
	p.float(st.Adam.Beta1)
	p.float(st.Adam.Beta2)
	p.op('t', 'u')
}

// prefixed shows the tensors of a source under names with something before them.
type prefixed struct {
	checkpoint.Source
	before string
}

// Tensors implements checkpoint.Source.
func (x prefixed) Tensors() []checkpoint.Info {
	all := x.Source.Tensors()
	for i := range all {
		all[i].Name = x.before + all[i].Name
	}
	return all
}

// ReadRanges implements checkpoint.Source.
func (x prefixed) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	if len(name) < len(x.before) {
		return &checkpoint.Error{Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	return x.Source.ReadRanges(name[len(x.before):], ranges, dst)
}

// joined are the tensors of several sources, whose names differ.
type joined struct {
	infos map[string]checkpoint.Info
	of    map[string]checkpoint.Source
}

// join takes in those of another source.
func (x *joined) join(s checkpoint.Source) {
	if x.of == nil {
		x.infos, x.of = map[string]checkpoint.Info{}, map[string]checkpoint.Source{}
	}
	for _, t := range s.Tensors() {
		x.infos[t.Name], x.of[t.Name] = t, s
	}
}

// Tensors implements checkpoint.Source.
func (x *joined) Tensors() []checkpoint.Info { return sortedInfos(x.infos) }

// ReadRanges implements checkpoint.Source.
func (x *joined) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	s := x.of[name]
	if s == nil {
		return &checkpoint.Error{Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	return s.ReadRanges(name, ranges, dst)
}

// Close implements checkpoint.Source: who made the sources closes them.
func (x *joined) Close() error { return nil }
