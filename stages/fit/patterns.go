package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/optim"
)

// adapters holds lora to what can be cut and what an export can name.
func (r rules) adapters() {
	lora := Lora(r.c)
	if lora == nil {
		return
	}
	experts, turned := false, false
	for _, p := range r.m.Adapters(lora) {
		experts = experts || len(p.Shape) == 3
		turned = turned || r.m.Source(strings.TrimSuffix(p.Name, ".lora_A.weight")+".weight").Turned
	}
	run := &r.c.Run
	switch {
	case slices.ContainsFunc(lora.Tokens, func(id int) bool { return id < 0 || id >= r.m.Spec.Vocab }),
		len(lora.Tokens) > len(slices.Compact(slices.Sorted(slices.Values(lora.Tokens)))):
		r.at("lora.trainable_tokens", fmt.Sprintf("a number is there twice, or is none of the %d tokens", r.m.Spec.Vocab), "")
	case !lora.DoRA && lora.Saved == nil && lora.Tokens == nil:
	case !r.m.Task().Writes && !run.LoRA.Merge:
		r.at("lora", "adapters of models that draw or act have no dora, modules_to_save or trainable_tokens in their libraries",
			"remove them, or set lora.merge=true")
	case lora.DoRA && (experts || turned || run.LoRA.Base != baseModel || run.Train.LowPrecision != "none" || run.Train.QAT != "none"):
		r.at("lora.dora", "experts, GPT-2's turned matrices and weights in few bits have no norms of rows that learn",
			"name other layers in lora.targets, and set lora.base, train.low_precision and train.qat to what they are by default")
	}
	if lora.Starts() {
		r.starts(lora, experts)
	}
	if experts && r.c.Run.Plan.ETP > 1 {
		r.at("plan.etp", "adapters of experts are not cut", "set it to 1, and raise plan.ep")
	}
	if experts && lora.Dropout > 0 {
		r.at("lora.dropout", "adapters of experts have none", "set it to 0, or leave experts out of lora.targets")
	}
	if d := r.m.Denoiser; d != nil && d.Live != nil {
		own := map[string]bool{}
		for _, p := range r.m.Core().Adapters(lora) {
			own[p.Name] = true
		}
		for _, p := range r.m.Adapters(lora) {
			if !own[p.Name] {
				r.at("lora.targets", "it names layers of the encoder of captions, as "+
					strings.TrimSuffix(p.Name, ".lora_A.weight")+", which gets no adapters",
					"name the denoiser's alone, or leave diffusion.encoders out")
				return
			}
		}
	}
	if _, err := r.m.Core().PEFT(lora); err != nil && !r.c.Run.LoRA.Merge {
		key, why, _ := strings.Cut(err.Error(), ": ")
		r.at(key, why, "")
	}
	if _, _, _, err := r.m.Core().Saved(lora, ""); err != nil && !r.c.Run.LoRA.Merge {
		key, why, _ := strings.Cut(err.Error(), ": ")
		r.at(key, why, "")
	}
}

// starts holds adapters that begin with a part of the weights to those that have one.
func (r rules) starts(lora *block.Lora, experts bool) {
	run := &r.c.Run
	if experts || lora.DoRA || run.LoRA.Base != baseModel || run.Train.QAT != "none" {
		r.at("lora.init", run.LoRA.Init+" takes a part of each weight, which experts, weights in few bits and DoRA's norms have none of here",
			"name other layers in lora.targets, leave lora.dora and train.qat out, and lora.base as it is, or lora.init")
	}
	small := map[string]int{} // the smaller of rows and columns
	for _, p := range r.m.Adapters(lora) {
		base, rest, _ := strings.Cut(p.Name, ".lora_")
		n := p.Shape[0] // of B
		if rest == "A.weight" {
			n = p.Shape[1]
		}
		if small[base] == 0 {
			small[base] = n
			continue
		}
		switch n, rank := min(n, small[base]), lora.Of(base).Rank; {
		case n < rank:
			r.at("lora.init", fmt.Sprintf("%s has %d rows or columns, fewer than the rank of %d", base, n, rank), "lower lora.rank")
		case lora.Init == "pissa" && n > wholeMost:
			r.at("lora.init", fmt.Sprintf("a whole decomposition of %s, of %d rows and columns, takes minutes to hours here", base, n),
				"set it to pissa_niter_16")
		default:
			continue
		}
		return
	}
}

// wholeMost is how many rows and columns a matrix has whose singular vectors are all found: half a minute's.
const wholeMost = 1024

// patterns holds the patterns of lora and freeze to the model: one that matches nothing is a mistake, and
// something must be left to train.
func (r rules) patterns() {
	c := &r.c.Run
	frozen := Frozen(r.c)
	var names, modules, linear []string
	trained := false
	for _, p := range r.m.Params(Lora(r.c)) {
		names, modules = append(names, p.Name), append(modules, block.Module(p.Name))
		if base, ok := strings.CutSuffix(p.Name, ".lora_A.weight"); ok {
			linear = append(linear, base)
		}
		trained = trained || !frozen(p.Name)
	}
	matched := r.match("freeze", c.Freeze, names)
	if lora := Lora(r.c); lora != nil {
		matched = r.match("lora.targets", c.LoRA.Targets, linear) && matched
		for key, all := range map[string][]block.Patterned{"lora.rank_pattern": lora.Ranks, "lora.alpha_pattern": lora.Alphas} {
			for _, p := range all {
				r.match(key, []string{p.Pattern}, linear)
			}
		}
		r.match("lora.modules_to_save", lora.Saved, modules)
	}
	if !trained && matched {
		r.at("freeze", "nothing is left to train", "name less")
	}
}

// match reports the patterns that match none of names, and returns whether each matches one.
func (r rules) match(key string, patterns, names []string) bool {
	var missed []string
	for _, pat := range patterns {
		hit := false
		for _, n := range names {
			if hit = block.Match(pat, n); hit {
				break
			}
		}
		if !hit {
			missed = append(missed, fmt.Sprintf("%q", pat))
		}
	}
	if len(missed) > 0 {
		verb := " matches"
		if len(missed) > 1 {
			verb = " match"
		}
		r.at(key, strings.Join(missed, ", ")+verb+" nothing in the model", "name its layers as in *.q_proj")
	}
	return len(missed) == 0
}

// groups holds optimizer.groups to the model: each matches a parameter that is trained, and no two the same one.
func (r rules) groups() {
	const key = "optimizer.groups"
	frozen, of, clips := Frozen(r.c), map[string]string{}, 0
	for _, text := range r.c.Run.Optimizer.Groups {
		g, err := configs.ParseGroup(text)
		if err != nil {
			return // its section says so
		}
		if g.Clip > 0 {
			clips++
		}
		hits, decays := 0, false
		for _, p := range r.m.Params(Lora(r.c)) {
			if !block.Match(g.Pattern, p.Name) || frozen(p.Name) {
				continue
			}
			if other := of[p.Name]; other != "" {
				r.at(key, fmt.Sprintf("%q and %q both match %s", other, g.Pattern, p.Name), "narrow one of them")
				return
			}
			of[p.Name], hits, decays = g.Pattern, hits+1, decays || p.Decay
		}
		switch {
		case clips > ClipsMost:
			r.at(key, fmt.Sprintf("%d groups have clip=, %d at most may", clips, ClipsMost), "put patterns together")
			return
		case optim.Averages(g.Kind) && !optim.Averages(r.c.Run.Optimizer.Kind):
			r.at(key, fmt.Sprintf("%q: %s is for all parameters, whose average is the model", text, g.Kind),
				"set optimizer.kind to it")
		case hits == 0:
			r.at(key, fmt.Sprintf("%q matches nothing that is trained", g.Pattern), "name parameters as in *.weight")
		case g.Decays && !decays:
			r.at(key, fmt.Sprintf("%q: nothing that it matches has weight decay: biases and norms have none",
				g.Pattern), "leave decay= out")
		}
	}
}

// ClipsMost is how many groups may have a norm of their own to clip by.
const ClipsMost = 8

// Clipped gives the norm that the gradients of a parameter's group are clipped by together, and the group,
// from 1; group 0 are all that have none. Nil where no group has one.
func Clipped(c *configs.Config) func(param string) (limit float64, group int) {
	var own []configs.OptimizerGroup
	for _, g := range c.Run.Optimizer.ParsedGroups() {
		if g.Clip > 0 {
			own = append(own, g)
		}
	}
	if own == nil {
		return nil
	}
	return func(param string) (float64, int) {
		for i, g := range own {
			if block.Match(g.Pattern, param) {
				return g.Clip, 1 + i
			}
		}
		return 0, 0
	}
}

// Grouped gives the group of optimizer.groups that a parameter is of; one of factors of 1 where there is none.
func Grouped(c *configs.Config) func(param string) configs.OptimizerGroup {
	groups := c.Run.Optimizer.ParsedGroups()
	return func(param string) configs.OptimizerGroup {
		for _, g := range groups {
			if block.Match(g.Pattern, param) {
				return g
			}
		}
		return configs.OptimizerGroup{LR: 1, Decay: 1}
	}
}
