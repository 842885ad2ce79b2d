package family

import (
	"cmp"
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
// In the words of the field: capacity factor, expert parallelism, load balancing of experts.
const experts = "experts"

var _ = RegisterMLP(experts, func(s Spec, _ int) block.Part {
	m := s.Experts
	m.Hidden = s.Hidden
	return m
})

// Mixes reports whether some layer has experts.
func (s Spec) Mixes() bool { return slices.Contains(s.MLPs, experts) }

// UseExperts is what the keys of a configuration say of experts; the family says how they are routed. Layers
// for which dense holds have one MLP.
func (s *Spec) UseExperts(c configs.Model, dense func(layer int) bool) {
	k := Mixture.Of(c)
	s.Experts = block.Experts{Inter: cmp.Or(k.ExpertWidth, c.Intermediate), Experts: k.Experts,
		Each: k.ExpertsEach, Jitter: k.RouterJitter, JitterAll: true}
	if k.SharedExperts > 0 {
		s.Experts.Shared, s.Experts.SharedName = s.GatedOf(k.SharedExperts*s.Experts.Inter), "shared_experts"
	}
	if len(mlpKinds.Of(c).MLPTypes) > 0 {
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

// GatedOf is an MLP of another width than the layers' own.
func (s *Spec) GatedOf(width int) block.Gated {
	return block.Gated{Hidden: s.Hidden, Inter: width, Act: s.activation(), Bias: s.MLPBias}
}

// DenseSteps tells the dense layers of a configuration with a step and exceptions.
func DenseSteps(c configs.Model) func(layer int) bool {
	k := Mixture.Of(c)
	return func(i int) bool { return (i+1)%k.SparseStep != 0 || slices.Contains(k.DenseLayers, i) }
}

// DenseFirst tells the dense layers of a configuration that begins with some.
func DenseFirst(c configs.Model) func(layer int) bool {
	k := Mixture.Of(c)
	return func(i int) bool { return i < k.DenseFirst }
}

// Correction is the name of the numbers that are added to scores for choosing.
const Correction = "e_score_correction_bias"

// ExpertPlaces is where the tensors of layers with experts lie in a checkpoint: logical names with other parts.
type ExpertPlaces struct {
	Rename  *strings.Replacer // nil for logical names
	Stack   bool              // experts one by one, else as transformers 5 keeps them in memory
	Width   int               // of an expert, where gate and up lie in one tensor
	Lead    bool              // the correction has an axis of length 1 before its own
	Turned  bool              // matrices are [in out]
	InTurns bool              // gate and up lie in turns, in place of one behind the other
}

// Source finds tensors.
func (l ExpertPlaces) Source(name string) Source {
	s := Source{Name: name}
	before, after, ok := strings.Cut(name, ".experts.")
	switch {
	case strings.HasSuffix(name, Correction) && l.Lead:
		s.Lead = 1
	case ok && l.Stack:
		s.Name, s.Stack = before+".experts.*."+after, true
	case ok:
		l.fused(&s, before+".experts.", after)
	}
	if l.Rename != nil {
		s.Name = l.Rename.Replace(s.Name)
	}
	return s
}

// fused is where a tensor of all experts lies.
func (l ExpertPlaces) fused(s *Source, before, after string) {
	name, kind, _ := strings.Cut(after, ".")
	s.Turned = l.Turned && kind == "weight"
	for i, p := range []string{"gate_proj", "up_proj"} {
		switch {
		case name != p:
			continue
		case l.InTurns:
			s.Step, s.At = 2, i
		default:
			s.Within = [2]int{i * l.Width, (i + 1) * l.Width}
		}
		name = "gate_up_proj"
		break
	}
	if kind == "bias" {
		name += "_bias"
	}
	s.Name = before + name
}

// EachExpert is where the experts' matrices of Qwen, DeepSeek, GLM and others lie: one by one.
func EachExpert(configs.Model) func(string) Source { return ExpertPlaces{Stack: true}.Source }

// FusedExperts is where they lie in a state dict of transformers 5: gate and up in one tensor.
func FusedExperts(c configs.Model) func(string) Source {
	k := Mixture.Of(c)
	return ExpertPlaces{Width: k.ExpertWidth}.Source
}

// Mixed reads the keys of experts too: of the number of experts transformers 5 writes another name.
func Mixed(f hf.Family) hf.Family {
	type keys struct {
		Experts *int `key:"num_experts"`
		Local   *int `key:"num_local_experts"`
	}
	f.Idle = append(f.Idle, "num_local_experts")
	f.Own = append(f.Own, hf.Keys(keys{}, func(k keys, d *hf.Decoder) {
		switch {
		case k.Local == nil:
		case k.Experts == nil:
			d.Set("num_experts", fmt.Sprint(*k.Local))
		case *k.Experts != *k.Local:
			d.Fail("num_local_experts", fmt.Sprintf("%d, but num_experts = %d", *k.Local, *k.Experts),
				"leave one of them out")
		}
	}))
	return f
}

// The ports that join layers with experts where their router has losses.
const (
	sumsPort = "router_sums"
	LossPort = "router_loss"
)

// Balance adds losses of the router to the model's. Factors are those of one microbatch: the coefficients,
// over the number of microbatches of a step.
func (m *Model) Balance(b block.Balance) {
	m.Spec.Balance = b
	if !m.Spec.Mixes() {
		return
	}
	port := func(name string, on bool, rows, width int) {
		if on {
			m.Ports[name] = onePort(rows, width)
			m.thread(name, func(layer int) bool { return m.Spec.MLPs[layer] == experts })
		}
	}
	port(sumsPort, b.Pooled(), 2, m.Spec.Experts.Experts)
	port(LossPort, b.Added(), 1, 1)
	for i := range m.Blocks {
		inner := m.Blocks[i].Record
		m.Blocks[i].Record = func(r *block.Rec, env map[string]*grad.Value) {
			r.Balance, r.Routing = b, block.Stream{Sums: env[sumsPort], Loss: env[LossPort]}
			inner(r, env)
			env[sumsPort], env[LossPort] = r.Routing.Sums, r.Routing.Loss
		}
	}
}

// onePort is a port of so many numbers for a whole microbatch.
func onePort(rows, width int) Port {
	return Port{Width: width, Rows: func(block.Shape) int { return rows }, Whole: true, Wide: true}
}

// thread joins the layers that add to what a port carries, and the end of the model, by it.
func (m *Model) thread(port string, adds func(layer int) bool) {
	layer, given := 0, false
	for i := range m.Blocks {
		x := &m.Blocks[i]
		if x.Component != Foundation {
			continue
		}
		other := func(p string) bool { return p == port }
		x.Takes = slices.DeleteFunc(slices.Clone(x.Takes), other)
		x.Gives = slices.DeleteFunc(slices.Clone(x.Gives), other)
		has := x.Recompute && adds(layer)
		if x.Recompute {
			layer++
		}
		if given && (has || i == len(m.Blocks)-1) {
			x.Takes = append(slices.Clone(x.Takes), port)
		}
		if has {
			x.Gives, given = append(slices.Clone(x.Gives), port), true
		}
	}
}

// balanced adds what the layers have summed to the loss of training; an evaluation is of the language model alone.
func (s Spec) balanced(r *block.Rec) {
	if !r.Logits && !r.T.NoGrad {
		r.RouterLosses(s.Experts.Experts, s.Experts.Each)
	}
}

// Active is the number of parameters that a token passes, one of text where kinds of tokens have experts
// of their own: of experts those that it goes to.
func (m *Model) Active() (n int64) {
	e := m.Spec.Experts
	for _, p := range m.Params(nil) {
		size := int64(tensor.Len(p.Shape))
		if strings.Contains(p.Name, ".mlp"+block.ImageExperts+".") { // a token of text passes none of them
			continue
		}
		if strings.Contains(p.Name, ".experts.") && len(p.Shape) >= 2 {
			size = size / int64(e.Experts) * int64(e.Each)
		}
		n += size
	}
	return n
}

// WorstShare is how many times the rows of even routing a rank gets where all tokens go to its experts, of
// which ep ranks have an equal share each.
func (m *Model) WorstShare(ep int) float64 {
	e := m.Spec.Experts
	if !m.Spec.Mixes() || ep <= 1 {
		return 1
	}
	return float64(ep*min(e.Each, e.Experts/ep)) / float64(e.Each)
}

// ExpertAxes says which of two mesh axes, ep and etp, experts cannot be shared out over, and why; "" if they can.
func (m *Model) ExpertAxes(ep, etp int) (axis, why string) {
	e := m.Spec.Experts
	switch {
	case !m.Spec.Mixes() && ep > 1:
		return "ep", "the model has no experts"
	case !m.Spec.Mixes() && etp > 1:
		return "etp", "the model has no experts"
	case ep > 1 && (e.Experts+e.Limit.Copies)%ep != 0 && e.Limit.Copies > 0:
		return "redundant_experts", fmt.Sprintf("%d experts and %d copies cannot be shared out evenly over "+
			"%d ranks", e.Experts, e.Limit.Copies, ep)
	case ep > 1 && (e.Experts+e.Limit.Copies)%ep != 0:
		return "ep", fmt.Sprintf("%d experts cannot be shared out evenly over %d ranks", e.Experts, ep)
	case etp > 1 && e.Inter%etp != 0:
		return "etp", fmt.Sprintf("experts of width %d cannot be cut into %d", e.Inter, etp)
	case etp > 1 && e.Images != nil && e.Images.Inter%etp != 0:
		return "etp", fmt.Sprintf("experts of width %d cannot be cut into %d", e.Images.Inter, etp)
	}
	return "", ""
}
