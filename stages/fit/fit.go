// Package fit holds the settings of a run file to the model that they describe: what plan, train, lora and freeze
// may say of its experts, its images, its layers and its parameters. It is the one place for what several sections
// and a model decide together; what sections decide by their numbers alone is configs' own (configs/fit.go).
// Its rule is applied by configs.Load, which reports what it finds beside all other faults.
package fit

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	_ "github.com/lfactor/lfactor/stages/family/all" // that configurations may name
	"github.com/lfactor/lfactor/stages/family/autoencoders"
	"github.com/lfactor/lfactor/stages/texts"
)

func init() { configs.Hold(configs.Rule{Name: "model", Model: true, Check: check}) }

// check is the rule: it builds the model and holds every section to it. A vocabulary that only the tokenizer
// knows has one row here, since no rule asks for more.
func check(c *configs.Config, at configs.At) {
	arch := c.Model
	arch.Vocab = cmp.Or(arch.Vocab, 1)
	m, err := family.Build(arch, c.Run.Data.SeqLen)
	if err == nil {
		err = acts(c, m)
	}
	if err == nil {
		err = compose(c, m)
	}
	if err != nil {
		for _, f := range configs.Faults(err) {
			at(f.Key, f.Why, f.Try)
		}
		if len(configs.Faults(err)) == 0 {
			at("", err.Error(), "")
		}
		return
	}
	if c.Run.Train.MTPWeight == 0 {
		m.DropMTP()
	}
	r := rules{c, m, at}
	r.experts()
	r.indexer()
	r.chunks()
	r.layers()
	r.images()
	r.diffusion()
	r.objective()
	r.adapters()
	r.patterns()
	r.groups()
	r.lowPrecision()
	r.travels()
	r.gathers()
	r.moments()
	r.offloads()
	r.averaging()
	r.tensors()
	r.widths()
	r.reproducible()
	r.peaks()
	r.spikes()
	r.packed()
	r.fake()
	r.sameObjective()
}

// spikes refuses keys of steps out of the ordinary where nothing is.
func (r rules) spikes() {
	if t := &r.c.Run.Train; t.SpikeNorm > 0 || t.SpikeLoss > 0 {
		return
	}
	for _, key := range []string{"train.spike_after", "train.spike_back", "train.spike_most"} {
		if !r.c.Usual(key) {
			r.at(key, "is not read: only with train.spike_norm or train.spike_loss", "remove it")
		}
	}
}

// rules are those of one configuration and its model.
type rules struct {
	c  *configs.Config
	m  *family.Model
	at configs.At
}

// Rows is the number of tokens of a microbatch, with padding up to whole chunks, or to what the ranks of
// context parallelism can share.
func Rows(c *configs.Config) int {
	n, p, unit := c.Run.Train.MicroBatch*c.Run.Data.SeqLen, &c.Run.Plan, 1
	if p.ChunkSize > 0 {
		unit = p.ChunkSize
	} else if p.CP > 1 {
		unit = p.Parts()
	}
	return (n + unit - 1) / unit * unit
}

// chunks holds plan.chunk_size to what can be cut.
func (r rules) chunks() {
	const key = "plan.chunk_size"
	n := r.c.Run.Plan.ChunkSize
	if n == 0 {
		return
	}
	if taps := r.m.Spec.Delta.Taps; r.m.Spec.Carries() && n < taps {
		r.at(key, fmt.Sprintf("%d tokens are less than the %d that a layer of linear attention joins", n,
			taps), fmt.Sprintf("try %d or more", taps))
	}
	if r.m.Spec.Sees != nil {
		r.at(key, "the tokens of an image see each other both ways, and a chunk's border would cut between them",
			"remove it; plan.recompute=full saves memory too")
	}
}

// layers holds plan.layers to the layers of the decoder, those of multi-token prediction among them.
func (r rules) layers() {
	list := r.c.Run.Plan.Layers
	if len(list) == 0 {
		return
	}
	sum := 0
	for _, n := range list {
		sum += n
	}
	has := len(r.m.Blocks) - r.m.Foundation() - 2
	//lfvet:kind what gives actions is no layer of the decoder
	if d := r.m.Denoiser; d != nil && d.Hosted { // what gives actions goes with the last stage
		has = r.m.Spec.Layers
	}
	if sum != has {
		r.at("plan.layers", fmt.Sprintf("the stages have %d layers, the model %d", sum, has),
			"let the list add up to them")
	}
}

// same is the value by which a part of a composed model takes what the whole model has.
const same = "same"

// images holds that nothing is said of parts that a model of text alone does not have.
func (r rules) images() {
	if r.m.Vision != nil {
		return
	}
	p, t := &r.c.Run.Plan, &r.c.Run.Train
	ahead := r.m.Ahead()
	for _, w := range r.m.Widths {
		if ahead && w%p.Encoder.TP != 0 {
			r.at("plan.encoder.tp", fmt.Sprintf("%d does not divide the encoder's heads and widths %v", p.Encoder.TP,
				r.m.Widths), "set it to a divisor")
			break
		}
	}
	for _, k := range []struct {
		key, part, try string
		set            bool
	}{
		{"plan.encoder.over", "vision encoder",
			"set it to none; models of diffusion have one with diffusion.encoders or diffusion.latents: live",
			p.Encoder.Over != "none" && !ahead},
		{"plan.encoder.recompute", "vision encoder", "use plan.recompute", p.Encoder.Recompute != same},
		{"plan.projector_recompute", "projector", "use plan.recompute", p.ProjRecompute != same},
		{"train.encoder_precision", "vision encoder", "use train.precision", t.EncoderPrecision != same},
		{"train.projector_precision", "projector", "use train.precision", t.ProjectorPrecision != same},
	} {
		if k.set {
			r.at(k.key, "the model has no "+k.part, k.try)
		}
	}
}

// indexer holds train.indexer to models with sparse attention.
func (r rules) indexer() {
	x := r.c.Run.Train.Indexer
	if !r.m.Spec.Indexes() {
		if x.Stage != "sparse" {
			r.at("train.indexer.stage", "the model has no sparse attention", "remove it")
		}
		if x.Coef != 1 {
			r.at("train.indexer.loss_coef", "the model has no sparse attention", "remove it")
		}
	} else if x.Stage == "warmup" && r.c.Run.LoRA.Rank > 0 {
		r.at("train.indexer.stage", "warmup trains indexers alone, and lora adapters alone", "remove one of the two")
	}
}

// Lora is what the section lora says of adapters; nil for none.
func Lora(c *configs.Config) *block.Lora {
	l := c.Run.LoRA
	if l.Rank == 0 {
		return nil
	}
	of := func(all []string) (out []block.Patterned) {
		for _, text := range all {
			if p, n, err := configs.Patterned(text); err == nil { // its section says what is no number
				out = append(out, block.Patterned{Pattern: p, Value: n})
			}
		}
		return out
	}
	return &block.Lora{Targets: l.Targets, Rank: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, Root: l.RSLoRA, DoRA: l.DoRA, Init: l.Init,
		Ranks: of(l.RankPattern), Alphas: of(l.AlphaPattern), Saved: l.Modules, Tokens: l.Tokens}
}

// Frozen says which parameters are not trained: with adapters everything else, and what freeze names.
func Frozen(c *configs.Config) func(param string) bool {
	adapters, warmup, lora := c.Run.LoRA.Rank > 0, c.Run.Train.Indexer.Stage == "warmup", Lora(c)
	//lfvet:kind encoders of captions stand still by the section diffusion
	still := c.Model.Denoises() && !c.Run.Diffusion.TrainText
	seen := c.Run.Diffusion.Latents == alive
	return func(name string) bool {
		if still && strings.HasPrefix(name, texts.Component+".") || strings.HasPrefix(name, Perceptual+".") ||
			seen && strings.HasPrefix(name, autoencoders.Component+".") {
			return true
		}
		if warmup && !family.IndexerParam(name) {
			return true
		}
		if adapters && !isAdapter(name) && name != family.ScoreName+".weight" &&
			!strings.HasPrefix(name, family.ExpertName) && !lora.Saves(name) {
			return true
		}
		for _, p := range c.Run.Freeze {
			if block.Match(p, name) {
				return true
			}
		}
		return false
	}
}

func isAdapter(name string) bool {
	return block.Match("*lora_A.weight", name) || block.Match("*lora_B.weight", name) || strings.HasSuffix(name, block.Magnitude) || name == family.TokenRows
}
