package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// expertWords are arguments of Megatron's about experts and latent attention whose meaning depends on the
// model's family, or on each other.
var expertWords = source.Set("moe-router-load-balancing-type", "moe-aux-loss-coeff", "moe-router-enable-expert-bias",
	"moe-router-bias-update-rate", "moe-router-score-function", "moe-router-pre-softmax", "moe-ffn-hidden-size",
	"moe-shared-expert-intermediate-size", "moe-layer-freq", "multi-latent-attention", "rotary-scaling-factor",
	"mscale", "mscale-all-dim", "original-max-position-embeddings", "beta-fast", "beta-slow")

// word is the value of one of them; a switch has the value true.
type word struct {
	node   *yaml.Node
	origin Origin
}

// word keeps an argument until the model is known, and says whether it is one of these. What comes later is
// stronger, but a flag never beats one of LoongForge's files.
func (l *loader) word(name string, node *yaml.Node, o Origin) bool {
	if !expertWords[name] && !sparseWords[name] {
		return false
	}
	have, twice := l.words[name]
	switch {
	case !twice || o.Layer >= have.origin.Layer:
		l.words[name] = word{node, o}
	default:
		node, have = have.node, word{node, o}
	}
	if twice && node.Value != have.node.Value {
		l.Note(fmt.Sprintf("--%s %s overrules --%[1]s %s", name, node.Value, have.node.Value))
	}
	return true
}

// wrong reports a word, under the name that it has where it was given.
func (l *loader) wrong(name, why, try string) {
	o, key := l.words[name].origin, ""
	if o.File != "" {
		key = strings.ReplaceAll(name, "-", "_")
	}
	l.fail(o, key, why, try)
}

// wordFlag is word of a flag.
func (l *loader) wordFlag(name string, values []string, o Origin) bool {
	node := source.ScalarNode(cmp.Or(strings.Join(values, " "), "true"))
	if len(values) > 1 {
		node = source.ListNode(values)
	}
	return l.word(name, node, o)
}

// experts enters what the words mean for the model.
func (l *loader) experts() {
	if len(l.words) == 0 {
		return
	}
	name, _ := l.preset(overrides + ".model_type")
	f := hf.Families()[name]
	if text, _ := l.preset(overrides + ".text_model_type"); text != "" {
		f = hf.Families()[text]
	}
	l.latentWords(name, f)
	l.sparse(cmp.Or(name, "the model"), f)
	if f.Score == "" {
		for _, w := range source.SortedKeys(expertWords) {
			if _, ok := l.words[w]; ok && strings.HasPrefix(w, "moe-") {
				l.wrong(w, cmp.Or(name, "the model")+" has no experts", "")
			}
		}
		return
	}
	l.balanceWords()
	l.biasWords(name, f)
	l.scoreWords(name, f)
	l.widthWords(name, f)
	l.layerWords(f)
}

// number is a word's value; ok is false where it is not given or is none.
func (l *loader) number(name string) (x float64, ok bool) {
	w, ok := l.words[name]
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(w.node.Value, 64)
	if err != nil || x < 0 {
		l.wrong(name, source.Quoted(w.node.Value)+", want a number that is not negative", "")
		return 0, false
	}
	return x, true
}

// on says whether a switch is given and on.
func (l *loader) on(name string) bool {
	w, ok := l.words[name]
	return ok && !strings.EqualFold(w.node.Value, "false")
}

// put enters a setting in place of a word.
func (l *loader) put(key, value, from string) {
	node, err := source.ParseValue(value)
	if err != nil {
		panic(fmt.Sprintf("configs: %s: %s: %v", key, value, err))
	}
	k := table().byName[key]
	l.add(setting{k, node, l.words[from].origin})
	if !k.model { // those of the run are set by now
		l.applyKey(k)
	}
}

// balances are Megatron's losses of balance by ours.
var balances = map[string]string{"aux_loss": "layer", "seq_aux_loss": "sequence",
	"global_aux_loss": "batch", "none": "none"}

// balanceWords enters the loss of balance: Megatron's coefficient is 0 where it is not given, which is none.
func (l *loader) balanceWords() {
	const kind, coef = "moe-router-load-balancing-type", "moe-aux-loss-coeff"
	w, given := l.words[kind]
	loss := "layer"
	if given {
		if loss = balances[w.node.Value]; loss == "" {
			l.wrong(kind, source.Quoted(w.node.Value)+" is no loss that is built",
				source.OneOf(source.SortedKeys(balances)))
			return
		}
	}
	x, ok := l.number(coef)
	switch {
	case loss == "none":
		l.put("train.router.loss", "none", kind)
		if ok && x > 0 {
			l.Note(fmt.Sprintf("no effect with --%s none: --%s %s", kind, coef, l.words[coef].node.Value))
		}
	case !ok || x == 0:
		from := kind
		if ok {
			from = coef
		}
		if ok || given {
			l.put("train.router.loss", "none", from)
			l.Note(fmt.Sprintf("train.router.loss = none: --%s is 0 or not given, so --%s has no effect", coef, kind))
		}
	default:
		l.put("train.router.loss", loss, coef)
		l.put("train.router.loss_coef", l.words[coef].node.Value, coef)
	}
}

// biasWords enters the rate by which the numbers move that experts are chosen by.
func (l *loader) biasWords(name string, f hf.Family) {
	const bias, rate = "moe-router-enable-expert-bias", "moe-router-bias-update-rate"
	x, given := l.number(rate)
	switch {
	case l.on(bias) && !f.Corrected:
		l.wrong(bias, name+" has no numbers that experts are chosen by", "remove it")
	case l.on(bias) && !given:
		l.put("train.router.bias_rate", "0.001", bias)
	case l.on(bias):
		l.put("train.router.bias_rate", strconv.FormatFloat(x, 'g', -1, 64), rate)
	case given:
		l.Note(fmt.Sprintf("no effect without --%s: --%s %s", bias, rate, l.words[rate].node.Value))
	}
}

// scoreWords holds the router to the family's; a softmax before the choice leaves weights that are not
// divided by their sum.
func (l *loader) scoreWords(name string, f hf.Family) {
	const score, before = "moe-router-score-function", "moe-router-pre-softmax"
	if w, ok := l.words[score]; ok && w.node.Value != f.Score {
		l.wrong(score, fmt.Sprintf("%s, but the router of %s takes a %s", source.Quoted(w.node.Value), name,
			f.Score), "")
	}
	switch renorm := slices.Contains(f.Has, "norm_topk_prob"); {
	case l.on(before) && (f.Score != "softmax" || !renorm && !f.Early):
		l.wrong(before, "the router of "+name+" scores the chosen experts alone", "remove it")
	case l.on(before) && renorm:
		l.put(overrides+".norm_topk_prob", "false", before)
	case l.on(before):
		l.Note(fmt.Sprintf("accepted, no effect: --%s, as %s always does", before, name))
	}
}

// widthWords enters the widths of experts, and of those that all tokens go to.
func (l *loader) widthWords(name string, f hf.Family) {
	const own, shared = "moe-ffn-hidden-size", "moe-shared-expert-intermediate-size"
	width, ok := l.number(own)
	key := overrides + ".moe_intermediate_size"
	switch {
	case !ok:
	case slices.Contains(f.Has, "moe_intermediate_size"):
		l.put(key, l.words[own].node.Value, own)
	default:
		if have, _ := l.preset(overrides + ".intermediate_size"); !source.SameValue(have, l.words[own].node.Value) {
			l.wrong(own, fmt.Sprintf("%s, but the experts of %s have intermediate_size = %s",
				l.words[own].node.Value, name, have), "")
		}
	}
	all, ok := l.number(shared)
	if !ok {
		return
	}
	if text, _ := l.preset(key); width == 0 && text != "" {
		width, _ = strconv.ParseFloat(text, 64) // the preset is checked: it is a number
	}
	switch {
	case slices.Contains(f.Has, "shared_expert_intermediate_size"):
		l.put(overrides+".shared_expert_intermediate_size", l.words[shared].node.Value, shared)
	case !slices.Contains(f.Has, "n_shared_experts"):
		l.wrong(shared, name+" has no expert that all tokens go to", "remove it")
	case width == 0 || all != width*float64(int(all/width)):
		l.wrong(shared, fmt.Sprintf("%g is not a multiple of an expert's width, %g", all, width), "")
	default:
		l.put(overrides+".n_shared_experts", strconv.Itoa(int(all/width)), shared)
	}
}

// layerWords enters which layers have experts: all, or all but the first.
func (l *loader) layerWords(f hf.Family) {
	const freq = "moe-layer-freq"
	w, ok := l.words[freq]
	if !ok || source.SameValue(w.node.Value, "1") && w.node.Kind == yaml.ScalarNode {
		return
	}
	dense, rest := 0, false
	for _, item := range w.node.Content {
		switch item.Value {
		case "0":
			if rest {
				dense = -1
			} else if dense >= 0 {
				dense++
			}
		case "1":
			rest = true
		default:
			dense = -1
		}
	}
	layers, _ := l.preset(overrides + ".num_hidden_layers")
	first := slices.Contains(f.Has, "first_k_dense_replace")
	// layers that are no number match no list
	if n, _ := strconv.Atoi(layers); len(w.node.Content) != n || dense < 0 || dense > 0 && !first {
		l.wrong(freq, fmt.Sprintf("want a number for each of %s layers, 0 for the first ones that have one MLP "+
			"and 1 for the others", layers), "set model.overrides.first_k_dense_replace")
		return
	}
	if first {
		l.put(overrides+".first_k_dense_replace", strconv.Itoa(dense), freq)
	}
}

// yarnWords are numbers of rope_type yarn with Megatron's defaults for latent attention.
var yarnWords = [][3]string{{"rotary-scaling-factor", "factor", "40"},
	{"original-max-position-embeddings", "original_max_position_embeddings", "4096"}, {"beta-fast", "beta_fast", "32"},
	{"beta-slow", "beta_slow", "1"}, {"mscale", "mscale", "1"}, {"mscale-all-dim", "mscale_all_dim", "0"}}

// latentWords enters how latent attention stretches its positions: what words do not say is as in the
// published model, if there is one.
func (l *loader) latentWords(name string, f hf.Family) {
	latent := slices.Contains(f.Has, "kv_lora_rank")
	if w, ok := l.words["multi-latent-attention"]; ok && l.on("multi-latent-attention") != latent {
		l.wrong("multi-latent-attention", fmt.Sprintf("%s, but %s has %s", w.node.Value, cmp.Or(name, "the model"),
			map[bool]string{true: "latent attention", false: "none"}[latent]), "")
	}
	key := table().byName[overrides+".rope_scaling"]
	var base *yaml.Node
	if given := l.c.given[key.Name]; len(given) > 0 {
		base = given[len(given)-1].node
	}
	node, from := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, ""
	put := func(k, v string) {
		node.Content = append(node.Content, source.ScalarNode(k), source.ScalarNode(v))
	}
	put("rope_type", "yarn")
	for _, y := range yarnWords {
		value := y[2]
		if base != nil {
			if have := source.Lookup(base, y[1]); have != nil {
				value = have.Value
			}
		}
		if w, ok := l.words[y[0]]; ok {
			if !latent {
				l.wrong(y[0], "set model.overrides.rope_scaling={rope_type: yarn, …} instead", "")
				continue
			}
			value, from = w.node.Value, y[0]
		}
		put(y[1], value)
	}
	if from != "" {
		l.add(setting{key, node, l.words[from].origin})
	}
	l.latentNorms(latent)
}

// latentNorms takes Megatron's --qk-layernorm for the norms that latents always have.
func (l *loader) latentNorms(latent bool) {
	const key = overrides + ".qk_norm"
	if !latent {
		return
	}
	for _, s := range l.c.given[key] {
		if !strings.EqualFold(s.node.Value, "true") {
			l.fail(s.origin, key, "latent attention has norms", "remove it")
		}
	}
	delete(l.c.given, key)
}

// replicas gives a launch script as many replicas as its experts are shared out over, since scripts leave
// them to the number of processes.
func (l *loader) replicas() {
	p := &l.c.Run.Plan
	if l.c.Origin("plan.ep").Layer != source.LayerFlag || l.c.Origin("plan.dp").Layer != source.LayerDefault {
		return
	}
	each := p.EP * p.ETP
	if n := each / gcd(each, p.CP*p.TP); n > 1 {
		p.DP = n
		l.Note(fmt.Sprintf("plan.dp = %d: the fewest replicas for plan.ep = %d, which a launch script "+
			"leaves to its number of processes", n, p.EP))
	}
}
