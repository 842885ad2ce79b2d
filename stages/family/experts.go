package family

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// experts is the kind of MLP that is a mixture of experts.
const experts = "experts"

var _ = RegisterMLP(experts, func(s Spec, _ int) block.Part {
	m := s.Experts
	m.Hidden = s.Hidden
	return m
})

// Mixes reports whether some layer has experts.
func (s Spec) Mixes() bool { return slices.Contains(s.MLPs, experts) }

// mixture is what the keys of a configuration say of experts; the family says how they are routed. Layers for which dense holds have one
// MLP.
func (s *Spec) mixture(c configs.Model, dense func(layer int) bool) {
	s.Experts = block.Experts{Inter: c.ExpertWidth, Experts: c.Experts, Each: c.ExpertsEach}
	if len(c.MLPTypes) > 0 {
		return
	}
	s.MLPs = nil
	for i := range s.Layers {
		kind := experts
		if dense(i) {
			kind = "gated"
		}
		s.MLPs = append(s.MLPs, kind)
	}
}

// steps tells the dense layers of a configuration with a step and exceptions.
func steps(c configs.Model) func(layer int) bool {
	return func(i int) bool { return (i+1)%c.SparseStep != 0 || slices.Contains(c.DenseLayers, i) }
}

// eachExpert is where the experts' matrices of Qwen, DeepSeek and others lie: one by one.
func eachExpert(name string) Source {
	if before, after, ok := strings.Cut(name, ".experts."); ok {
		return Source{Name: before + ".experts.*." + after, Stack: true}
	}
	return Source{Name: name}
}

// fusedExperts is where they lie in a state dict of transformers 5: gate and up in one tensor.
func fusedExperts(c configs.Model) func(name string) Source {
	return func(name string) Source {
		before, after, ok := strings.Cut(name, ".experts.")
		if !ok {
			return Source{Name: name}
		}
		s := Source{Name: before + ".experts." + strings.TrimSuffix(after, ".weight")}
		for i, p := range []string{"gate_proj", "up_proj"} {
			if strings.HasPrefix(after, p) {
				s.Name = before + ".experts.gate_up_proj"
				s.Within = [2]int{i * c.ExpertWidth, (i + 1) * c.ExpertWidth}
			}
		}
		return s
	}
}

// countExperts takes the other name of a key that transformers 5 writes.
func countExperts(d *hf.Decoder, raw map[string]json.RawMessage) {
	if n := raw["num_local_experts"]; n != nil && raw["num_experts"] == nil {
		d.Set("num_experts", string(n))
	}
}

// mixed reads the keys of experts too.
func mixed(f hf.Family) hf.Family {
	read := f.Read
	f.Idle = append(f.Idle, "num_local_experts")
	f.Read = func(d *hf.Decoder, raw map[string]json.RawMessage) {
		countExperts(d, raw)
		if read != nil {
			read(d, raw)
		}
	}
	return f
}

// balancePort joins the layers that have experts where a loss of balance is computed.
const balancePort = "balance"

// Balance adds a loss of balance to the model's. scale is that of one microbatch: the coefficient, over the number of microbatches
// of a step.
func (m *Model) Balance(b block.Balance) {
	m.Spec.Balance = b
	if !b.On() || !m.Spec.Mixes() {
		return
	}
	width := 1
	if b.Kind == block.PooledBalance {
		width = m.Spec.Experts.Experts
	}
	m.Ports[balancePort] = Port{Width: width, Rows: func(block.Shape) int { return b.Rows() }, Whole: true, Wide: true}
	layer, given := 0, false
	for i := range m.Blocks {
		x := &m.Blocks[i]
		if x.Component != Foundation {
			continue
		}
		last := i == len(m.Blocks)-1
		has := x.Recompute && len(m.Spec.MLPs) > layer && m.Spec.MLPs[layer] == experts
		if x.Recompute {
			layer++
		}
		if !has && !last {
			continue
		}
		if given {
			x.Takes = append(slices.Clone(x.Takes), balancePort)
		}
		if has {
			x.Gives, given = append(slices.Clone(x.Gives), balancePort), true
		}
		inner := x.Record
		x.Record = func(r *block.Rec, env map[string]*grad.Value) {
			r.Balance, r.Balanced = b, env[balancePort]
			inner(r, env)
			if r.Balanced != nil {
				env[balancePort] = r.Balanced
			}
		}
	}
}

// balanced adds what the layers have summed to the loss of training; an evaluation is of the language model alone.
func (s Spec) balanced(r *block.Rec, _ map[string]*grad.Value) {
	if s.Balance.On() && !r.Logits && !r.T.NoGrad {
		r.BalanceLoss(s.Experts.Experts, s.Experts.Each)
	}
}

// Active is the number of parameters that a token passes: of experts those that it goes to.
func (m *Model) Active() (n int64) {
	e := m.Spec.Experts
	for _, p := range m.Params(nil) {
		size := int64(tensor.Len(p.Shape))
		if strings.Contains(p.Name, ".experts.") && len(p.Shape) == 3 {
			size = size / int64(e.Experts) * int64(e.Each)
		}
		n += size
	}
	return n
}

// ExpertAxes says which of two mesh axes, ep and etp, experts cannot be shared out over, and why; "" if they can.
func (m *Model) ExpertAxes(ep, etp int) (axis, why string) {
	e := m.Spec.Experts
	switch {
	case !m.Spec.Mixes() && ep > 1:
		return "ep", "the model has no experts"
	case !m.Spec.Mixes() && etp > 1:
		return "etp", "the model has no experts"
	case ep > 1 && e.Experts%ep != 0:
		return "ep", fmt.Sprintf("%d experts cannot be shared out evenly over %d ranks", e.Experts, ep)
	case etp > 1 && e.Inter%etp != 0:
		return "etp", fmt.Sprintf("experts of width %d cannot be cut into %d", e.Inter, etp)
	}
	return "", ""
}
