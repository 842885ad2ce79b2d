package configs

import "fmt"

// fit holds the plan and the batch to the model: what must divide.
type fit struct{ c *Config }

// Check implements section.
func (f fit) Check(at faults) {
	p, t, m := f.c.Run.Plan, f.c.Run.Train, f.c.Model
	common := gcd(m.Heads, m.Intermediate) // what a suggested tp must divide
	divide := func(what string, n, by int, key string) {
		if by > 1 && n > 0 && n%by != 0 {
			at.fault(key, fmt.Sprintf("%s = %d is not a multiple of %d", what, n, by),
				fmt.Sprintf("try %d", nearestDivisor(gcd(n, common), by)))
		}
	}
	divide("num_attention_heads", m.Heads, p.TP, "plan.tp")
	divide("intermediate_size", m.Intermediate, p.TP, "plan.tp")
	if kv := m.KVHeads; p.TP > 1 && kv > 0 && kv%p.TP != 0 && p.TP%kv != 0 {
		at.fault("plan.tp", fmt.Sprintf("num_key_value_heads = %d and %d: neither divides the other", kv,
			p.TP), fmt.Sprintf("try %d", nearestDivisor(kv, p.TP)))
	}
	if p.SequenceParallel {
		divide("data.seq_len · train.micro_batch", f.c.Run.Data.SeqLen*t.MicroBatch, p.TP, "plan.sequence_parallel")
	}
	if m.Positions != "rope" && f.c.Run.Data.SeqLen > m.MaxPositions {
		at.fault("data.seq_len", fmt.Sprintf("%d, but the model has %d positions",
			f.c.Run.Data.SeqLen, m.MaxPositions), fmt.Sprintf("try %d", m.MaxPositions))
	}
	f.context(at)
	f.encoder(at)
	f.layers(at)
	f.batch(at)
	f.chunks(at)
	if d := f.c.Run.Device; p.OffloadDir != "" && d != "cpu" && d != "auto" && p.Encoder.Device != "cpu" {
		at.fault("plan.offload_dir", "what ranks with device: "+d+" move lies in pinned memory", "remove it")
	}
}

// encoder holds the ranks of a vision encoder to its heads and to the decoder's ranks.
func (f fit) encoder(at faults) {
	p, v := f.c.Run.Plan, f.c.Model.Vision
	tp := p.Encoder.TP
	if v.None() {
		return
	}
	if p.Encoder.Over == "none" {
		tp = p.TP
	}
	key := map[bool]string{true: "plan.tp", false: "plan.encoder.tp"}[p.Encoder.Over == "none"]
	common := gcd(v.Heads, v.Inter)
	remedy := fmt.Sprintf("try %d", nearestDivisor(common, tp))
	if key == "plan.tp" {
		remedy = fmt.Sprintf("give the encoder its own: plan.encoder.over=first plan.encoder.tp=%d",
			nearestDivisor(gcd(common, p.TP), tp))
	}
	ranks := map[string]int{"first": p.TP, "all": p.TP * p.PP}[p.Encoder.Over]
	switch {
	case tp > 1 && v.Heads > 0 && v.Heads%tp != 0:
		at.fault(key, fmt.Sprintf("the encoder's num_heads = %d is not a multiple of %d", v.Heads, tp), remedy)
	case tp > 1 && v.Inter > 0 && v.Inter%tp != 0:
		at.fault(key, fmt.Sprintf("the encoder's intermediate_size = %d is not a multiple of %d", v.Inter, tp), remedy)
	case ranks > 0 && ranks%tp != 0:
		at.fault(key, fmt.Sprintf("%d does not divide the %d ranks that plan.encoder.over: %s gives the encoder", tp,
			ranks, p.Encoder.Over), fmt.Sprintf("try %d", nearestDivisor(gcd(ranks, common), tp)))
	}
}

// context holds the tokens that ranks share to the batch and to what is trained.
func (f fit) context(at faults) {
	p, m := f.c.Run.Plan, f.c.Model
	if p.CP == 1 {
		return
	}
	rows := f.c.Run.Data.SeqLen * f.c.Run.Train.MicroBatch
	if p.ChunkSize > 0 {
		rows = p.ChunkSize
	}
	u, heads := p.Exchanging(), p.TP*p.Exchanging()
	if padded := (rows + p.Parts() - 1) / p.Parts() * p.Parts(); padded > rows && p.ChunkSize == 0 {
		f.c.Notices = append(f.c.Notices, fmt.Sprintf(
			"microbatches of %d tokens are padded to %d, which plan.cp = %d ranks can share", rows, padded, p.CP))
	}
	switch {
	case p.ChunkSize > 0 && rows%p.Parts() != 0:
		at.fault("plan.chunk_size", fmt.Sprintf("%d tokens cannot be cut into %d parts for plan.cp = %d ranks", rows,
			p.Parts(), p.CP), fmt.Sprintf("try %d", (rows/p.Parts()+1)*p.Parts()))
	case rows < p.Parts():
		at.fault("plan.cp", fmt.Sprintf("data.seq_len · train.micro_batch = %d tokens cannot be cut "+
			"into %d parts", rows, p.Parts()), fmt.Sprintf("try %d", nearestDivisor(rows, p.CP)))
	}
	switch { // whatever the tokens, the heads that are exchanged
	case u > 1 && m.Heads > 0 && m.Heads%heads != 0:
		at.fault("plan.ulysses", fmt.Sprintf("num_attention_heads = %d is not a multiple of plan.tp · %d ranks "+
			"that exchange heads", m.Heads, u), fmt.Sprintf("try %d with plan.cp_comm: hybrid, or plan.cp_comm: ring",
			nearestDivisor(gcd(m.Heads/p.TP, p.CP), u)))
	case u > 1 && m.KVHeads > 0 && m.KVHeads%heads != 0 && heads%m.KVHeads != 0:
		at.fault("plan.ulysses", fmt.Sprintf("num_key_value_heads = %d and plan.tp · %d ranks that exchange heads: "+
			"neither divides the other", m.KVHeads, u), "set plan.cp_comm: ring")
	}
}

// chunks holds the chunks of sequences to the batch.
func (f fit) chunks(at faults) {
	p, n, rows := f.c.Run.Plan, f.c.Run.Plan.ChunkSize, f.c.Run.Data.SeqLen*f.c.Run.Train.MicroBatch
	if n > 0 && rows%n != 0 {
		f.c.Notices = append(f.c.Notices, fmt.Sprintf(
			"microbatches of %d tokens are padded to %d, a multiple of plan.chunk_size = %d", rows, (rows+n-1)/n*n, n))
	}
	switch {
	case p.KeepChunks > 0 && n == 0:
		at.fault("plan.keep_chunks", "sequences have no chunks", "set plan.chunk_size")
	case p.KeepChunks > 0 && p.Recompute == "none":
		at.fault("plan.keep_chunks", "nothing is recomputed", "set plan.recompute, or remove it")
	}
	switch {
	case n == 0:
	case !f.c.Model.Vision.None():
		at.fault("plan.chunk_size", "sequences with images have no chunks",
			"remove it: a microbatch's features belong to its whole sequences")
	case p.SequenceParallel && n%p.TP != 0:
		at.fault("plan.chunk_size",
			fmt.Sprintf("%d is not a multiple of plan.tp = %d, which plan.sequence_parallel needs", n,
				p.TP), fmt.Sprintf("try %d", (n/p.TP+1)*p.TP))
	}
}

// gcd is the greatest common divisor; that of 0 and n is n.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// layers holds the stages to the layers of the model.
func (f fit) layers(at faults) {
	p, n := f.c.Run.Plan, f.c.Model.Layers
	stages := p.PP * p.VirtualStages
	if len(p.Layers) > 0 {
		sum := 0
		for _, k := range p.Layers {
			sum += k
		}
		if sum != n && len(p.Layers) == stages {
			at.fault("plan.layers", fmt.Sprintf("the stages have %d layers, the model %d", sum, n),
				"try "+formatList(even(n, stages)))
		}
		return
	}
	e := &f.c.Run.Policy
	acts := e.Expert != "none" || f.c.Model.Text != "" && f.c.Model.Has("chunk_size")
	if e.Expert != "none" {
		n += e.ExpertLayers
	}
	switch {
	case n == 0 || n%stages == 0 || acts && stages <= n: // stages have equal work of both
	case stages > n:
		at.fault("plan.pp", fmt.Sprintf("%d stages for %d layers", stages, n),
			fmt.Sprintf("try %d", nearestDivisor(n, p.PP)))
	default:
		at.fault("plan.pp", fmt.Sprintf("%d layers cannot be cut evenly into %d stages", n, stages),
			fmt.Sprintf("try %d, or plan.layers: %s", nearestDivisor(n, p.PP), formatList(even(n, stages))))
	}
}

// even spreads n layers over stages, the first ones taking what is left over.
func even(n, stages int) []int {
	out := make([]int, stages)
	for i := range out {
		out[i] = n / stages
		if i < n%stages {
			out[i]++
		}
	}
	return out
}

func formatList(list []int) string {
	s := ""
	for i, n := range list {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprint(n)
	}
	return "[" + s + "]"
}

// batch holds the global batch to micro-batches and copies of the model.
func (f fit) batch(at faults) {
	p, t := f.c.Run.Plan, f.c.Run.Train
	unit := t.MicroBatch * p.DP
	if t.GlobalBatch%unit != 0 {
		at.fault("train.global_batch", fmt.Sprintf("%d is not a multiple of train.micro_batch · plan.dp = %d · %d",
			t.GlobalBatch, t.MicroBatch, p.DP), fmt.Sprintf("try %d", (t.GlobalBatch/unit+1)*unit))
		return
	}
	if micro := t.GlobalBatch / unit; p.VirtualStages > 1 && micro%p.PP != 0 {
		at.fault("train.global_batch",
			fmt.Sprintf("%d microbatches are no multiple of plan.pp = %d, which plan.virtual_stages = %d needs", micro,
				p.PP, p.VirtualStages), fmt.Sprintf("try %d", (micro/p.PP+1)*p.PP*unit))
	}
}

// Microbatches is how many microbatches each rank computes for an update.
func (c *Config) Microbatches() int {
	return c.Run.Train.GlobalBatch / (c.Run.Train.MicroBatch * c.Run.Plan.DP)
}

// CheckVocab checks the tokenizer's size against the model's, and takes it over where the model's file gives
// none. Embeddings may have more rows than the tokenizer has tokens, never fewer.
func (c *Config) CheckVocab(tokens int) error {
	if c.Model.Vocab == 0 {
		c.Model.Vocab = tokens
		return nil
	}
	if tokens > c.Model.Vocab {
		return c.Fault("model.overrides.vocab_size",
			fmt.Sprintf("the tokenizer has %d tokens, the model %d rows", tokens, c.Model.Vocab),
			"use the model's own tokenizer, or another model.overrides.vocab_size with model.init: random")
	}
	return nil
}
