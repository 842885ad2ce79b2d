package fit

import "fmt"

// experts holds what is said of experts and their router to the model's.
func (r rules) experts() {
	p, t := &r.c.Run.Plan, &r.c.Run.Train
	r.m.Spec.Experts.Limit.Copies = p.RedundantExperts
	if key, why := r.m.ExpertAxes(p.EP, p.ETP); why != "" {
		try := "choose a divisor, or 1"
		if !r.m.Spec.Mixes() || key == "redundant_experts" {
			try = "remove it"
		}
		r.at("plan."+key, why, try)
	}
	if !r.m.Spec.Mixes() {
		r.noExperts()
		return
	}
	if t.Router.BiasRate > 0 && r.m.Spec.Experts.Bias == "" {
		r.at("train.router.bias_rate", r.m.Family+" has no numbers that experts are chosen by", "use train.router.loss")
	}
	r.moves()
	if r.m.Spec.Experts.Images != nil && t.Routing != "own" {
		r.at("train.routing", r.m.Family+" has experts of their own for images, and a trace has one router a layer",
			"remove it")
	}
	parts := p.CP * p.TP
	if p.Zigzag() {
		parts *= 2
	}
	rows := t.MicroBatch * r.c.Run.Data.SeqLen
	if rows%parts != 0 {
		r.at("plan.tp", fmt.Sprintf("the %d tokens of a microbatch cannot be shared "+
			"out evenly in %d parts, as layers of experts want them", rows, parts),
			"choose data.seq_len · train.micro_batch that plan.tp and plan.cp divide")
	} else if Rows(r.c) != rows {
		r.at("plan.chunk_size", "the last chunk would be filled up with padding, which experts would get as well",
			"set a divisor of data.seq_len · train.micro_batch")
	}
}

// moves holds a run file's moves of experts to its plan.
func (r rules) moves() {
	const every, copies = "train.balance_every", "plan.redundant_experts"
	p, t := &r.c.Run.Plan, &r.c.Run.Train
	if p.RedundantExperts > 0 && t.BalanceEvery == 0 {
		r.at(copies, "which experts are busy is only known where experts move", "set train.balance_every, or remove it")
	}
	if p.RedundantExperts > 0 && t.Router.Capacity > 0 {
		r.at(copies, "a bound on what an expert takes would be one on each of its copies",
			"remove it, or train.router.capacity")
	}
	if t.BalanceEvery == 0 {
		return
	}
	switch {
	case r.m.Spec.Experts.Images != nil:
		r.at(every, r.m.Family+" has experts of their own for images, and only one set can move", "remove it")
	case p.EP == 1:
		r.at(every, "with plan.ep = 1 every rank has all experts, and none can move", "remove it, or set plan.ep")
	case p.OffloadOptimizer:
		r.at(every, "experts whose optimizer state waits on the host stay where they are",
			"remove it, or plan.offload_optimizer")
	}
	if p.EP > 1 && p.EP%t.BalanceHosts != 0 {
		r.at("train.balance_hosts", fmt.Sprintf("plan.ep = %d ranks cannot be spread evenly over %d hosts", p.EP,
			t.BalanceHosts), "try a divisor of plan.ep")
	}
}

// noExperts holds that nothing is said of routers and experts that a model does not have.
func (r rules) noExperts() {
	x, t := &r.c.Run.Train.Router, &r.c.Run.Train
	for _, k := range []struct {
		key string
		set bool
	}{
		{"train.router.loss", x.Loss != "model" && x.Loss != "none"},
		{"train.router.loss_coef", x.Coef > 0},
		{"train.router.z_loss_coef", x.Z > 0},
		{"train.router.jitter", x.Jitter > 0},
		{"train.router.bias_rate", x.BiasRate > 0},
		{"train.router.capacity", x.Capacity > 0},
		{"train.routing", t.Routing != "own"},
		{"train.routing_bound", t.RoutingBound > 0},
		{"log.experts", r.c.Run.Log.Experts > 0},
		{"train.balance_every", t.BalanceEvery > 0},
		{"plan.redundant_experts", r.c.Run.Plan.RedundantExperts > 0},
	} {
		if k.set {
			r.at(k.key, "the model has no experts", "remove it")
		}
	}
}
