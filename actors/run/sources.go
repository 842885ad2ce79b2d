package run

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// chat is the conversation encoder with the model's own template, or the one that data.template names.
func (d *data) chat() (dataset.ChatEncoder, error) {
	c := d.r.cfg.Run
	t, err := setup.Template(d.r.cfg, d.marked(), d.r.conf)
	if err != nil {
		return nil, err
	}
	return token.NewChat(d.r.tok, t, token.ChatOptions{LastTurnOnly: c.Data.LastTurn,
		TrainOnPrompt: c.Data.Prompt}), nil
}

// endToken is the token that ends a document: not the end of a chat turn, where a tokenizer has both.
func endToken(cfg *configs.Config, t *token.Tokenizer, c *token.Config) (int32, error) {
	if t == nil {
		return endOfIDs(cfg)
	}
	for _, name := range []string{"<|endoftext|>", "<|end_of_text|>", "</s>", c.EOS} {
		if id, ok := t.TokenID(name); ok {
			return id, nil
		}
	}
	if len(cfg.Model.EOS) > 0 && cfg.Model.EOS[0] < t.VocabSize() {
		return int32(cfg.Model.EOS[0]), nil
	}
	return 0, cfg.Fault("data.tokenizer", "the tokenizer has no token that ends a document",
		"give model.overrides.eos_token_id")
}

// endOfIDs is the token that ends a document where no tokenizer is there: the model's, or 0, which stands
// for what is behind a document and is never learnt, unless the loss of ends is to be left out.
func endOfIDs(cfg *configs.Config) (int32, error) {
	if len(cfg.Model.EOS) > 0 && cfg.Model.EOS[0] < cfg.Model.Vocab {
		return int32(cfg.Model.EOS[0]), nil
	}
	if cfg.Run.Data.EODMask {
		return 0, cfg.Fault("data.eod_mask_loss", "neither a tokenizer nor the model says which id ends a "+
			"document", "give data.tokenizer or model.overrides.eos_token_id")
	}
	return 0, nil
}

// openSources opens the training data and the sets of validation data.
func (d *data) openSources() (train []dataset.Weighted, valid [][]dataset.Weighted, err error) {
	c := d.r.cfg.Run.Data
	if c.Follow {
		valid, err = d.openValid(c.Valid)
		return nil, valid, err
	}
	if train, err = d.openPaths("data.paths", c.Paths, d.r.cfg.SFT); err != nil {
		return nil, nil, err
	}
	if len(c.Valid) > 0 {
		valid, err = d.openValid(c.Valid)
		return train, valid, err
	}
	sum := c.Split[0] + c.Split[1] + c.Split[2]
	if c.Split[1] == 0 {
		return train, nil, nil
	}
	seed := uint64(d.r.cfg.Run.Train.Seed)
	var held []dataset.Weighted
	for i, s := range train {
		train[i].Source = dataset.Sampled(s.Source, seed, 0, c.Split[0]/sum)
		v := dataset.Weighted{Source: dataset.Sampled(s.Source, seed, c.Split[0]/sum,
			(c.Split[0]+c.Split[1])/sum), Weight: s.Weight}
		for k := 0; d.ramps != nil && k < len(d.ramps[i].Turns); k++ { // one set, whatever training reads when
			v.Weight = max(v.Weight, d.ramps[i].Turns[k].Weight)
		}
		if v.Source.Len() > 0 {
			held = append(held, v)
		}
	}
	if len(held) == 0 && d.r.cfg.Run.Train.EvalInterval > 0 {
		return nil, nil, d.r.cfg.Fault("data.split", fmt.Sprintf("%v leaves no document of the data for validation, which "+
			"train.eval_interval wants", c.Split), "give validation a larger share, name its files by data.valid, or set "+
			"train.eval_interval=0")
	}
	if len(held) > 0 {
		valid = append(valid, held)
	}
	return train, valid, nil
}

// openValid opens the paths of each validation set.
func (d *data) openValid(paths []configs.WeightPath) (sets [][]dataset.Weighted, err error) {
	for _, name := range configs.Sets(paths) {
		var of []configs.WeightPath
		var sft []configs.SFTFormat
		for i, p := range paths {
			if p.Name == name {
				of = append(of, p)
				if d.r.cfg.SFTValid != nil {
					sft = append(sft, d.r.cfg.SFTValid[i])
				}
			}
		}
		set, err := d.openPaths("data.valid", of, sft)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// openKind finds what the data holds, and opens what samples with media need.
func (d *data) openKind() (err error) {
	if d.kind, err = setup.DataKind(d.r.cfg); err != nil {
		return err
	}
	task := d.r.job.Model.Task()
	name, acts := task.Name, task.Acts
	if d.r.cfg.Run.Policy.Tokens != "none" { // a model of language that writes actions
		name, acts = "token policy", true
	}
	if acts != (d.kind == dataset.KindEpisodes) { //lfvet:kind recordings and policies go together alone
		return d.r.cfg.Fault("data.paths", fmt.Sprintf("the data is %s: recordings of robots, and nothing else, "+
			"are what policies learn", d.kind), "name a data set of LeRobot for a policy, or for a vision-language "+
			"model with policy.tokens, and other data for other models")
	}
	if d.r.cfg.Run.Data.Named() != nil && (name != "language" || fit.Loss(d.r.cfg) != nil) {
		return d.r.cfg.Fault("data.paths", "names of sources are for the loss of a language model, which this run does not "+
			"train by", "leave name out")
	}
	if !acts && d.kind.Form() != dataset.InParts {
		return nil
	}
	x, err := openers[name](d)
	if err == nil {
		d.images = x
	}
	return err
}

// openers open what makes a task's inputs of media and recordings.
var openers = map[string]func(d *data) (imagery, error){
	"language":    (*data).openImages,
	"diffusion":   (*data).openPictures,
	"autoencoder": (*data).openPictures,
	"token policy": func(d *data) (imagery, error) {
		x, err := policies.NewTokenPolicy(d.r.cfg, d.r.job.Model, d.r.tok, d.r.conf, nil, d.notes())
		if err == nil {
			d.unread(x.Robots)
		}
		return x, err
	},
	"hosted policy": func(d *data) (imagery, error) {
		x, err := policies.NewHostedPolicy(d.r.cfg, d.r.job.Model, d.r.tok, d.r.conf, nil, d.notes())
		if err == nil {
			d.unread(x.Robots)
		}
		return x, err
	},
	"policy": func(d *data) (imagery, error) {
		x, err := policies.NewRobots(d.r.cfg, d.r.job.Model.Denoiser)
		if err == nil {
			d.unread(x)
		}
		return x, err
	},
}

// feeds are what loaders of kinds of data have beside what all have; texts and ids want nothing more.
var feeds = map[dataset.Kind]func(d *data, conf *dataset.LoaderConfig) error{
	dataset.KindChat: func(d *data, conf *dataset.LoaderConfig) (err error) {
		conf.Chat, err = d.chat()
		return err
	},
	dataset.KindParts: func(d *data, conf *dataset.LoaderConfig) (err error) {
		conf.Prepare = d.images.Prepare
		if x, ok := d.images.(*diffusion.Pictures); ok {
			conf.Samples, conf.Own = x.Samples(d.r.cfg), true
			conf.MediaMax *= 2 // a caption is a medium too
			return nil
		}
		conf.Samples, err = d.samples()
		return err
	},
	dataset.KindPrompts: func(d *data, conf *dataset.LoaderConfig) (err error) {
		conf.Packing, conf.MicroBatch, conf.KeepLast = dataset.PackNone, 1, false
		conf.GlobalBatch /= d.r.cfg.Run.Rollout.Group
		conf.Samples, err = d.promptEncoder()
		return err
	},
	dataset.KindEpisodes: func(d *data, conf *dataset.LoaderConfig) error {
		x := d.images.(robotic)
		conf.Samples, conf.Prepare, conf.Own = x.Samples(), x.Prepare, d.r.job.Model.Task().OwnRows
		return nil
	},
	dataset.KindPairs:   pairFeed,
	dataset.KindJudged:  pairFeed,
	dataset.KindSimilar: pairFeed,
}

// pairFeed is that of answers and texts in pairs.
func pairFeed(d *data, conf *dataset.LoaderConfig) (err error) {
	conf.Samples, err = d.pairEncoder(conf.EOD)
	return err
}

// unread tells what of recordings is not read, and has what is not read of prompts be told.
func (d *data) unread(x *policies.Robots) {
	x.Tell(d.notes())
	for _, why := range x.Left() {
		fmt.Fprintf(d.notes(), "note: %s; it is not read\n", why)
	}
	for _, text := range x.Said() {
		fmt.Fprintf(d.notes(), "note: %s\n", text)
	}
}

// robotic is what makes samples of the frames of recordings.
type robotic interface {
	Reads(o *dataset.Options)
	Samples() dataset.SampleEncoder
	Prepare(m *dataset.Media, n int) (v any, bytes int64, err error)
}

// openPaths opens paths, each by its entry of data.dataset_config if there are any.
func (d *data) openPaths(key string, paths []configs.WeightPath,
	sft []configs.SFTFormat) (out []dataset.Weighted, err error) {
	c := d.r.cfg.Run.Data
	o := dataset.Options{Format: setup.OpenedAs(&c), TextKey: c.TextKey, BytesMax: int64(c.LineMax),
		Full: c.Fingerprint == "full", Tags: dataset.Tags{Messages: c.MessageKey}}
	if x, ok := d.images.(robotic); ok {
		x.Reads(&o)
	}
	filters, err := setup.OpenFilters(d.r.cfg)
	if err != nil {
		return nil, err
	}
	weighted := slices.ContainsFunc(paths, func(p configs.WeightPath) bool { return p.Weight != 1 || p.Turns != nil })
	var opened []dataset.Weighted
	ramps := rampsOf(paths)
	for i, p := range paths {
		var entry *configs.SFTFormat
		if sft != nil {
			entry = &sft[i]
		}
		how := setup.SFTOptions(o, p.Path, entry, d.kind.Form() == dataset.InParts)
		list, err := dataset.OpenBlend(p.Path, how)
		if err != nil {
			return nil, setup.DataFault(d.r.cfg, key, err)
		}
		weighted = weighted || len(list) > 1
		for _, w := range list {
			if names := c.Named(); key == "data.paths" && names != nil {
				d.named = append(d.named, int32(slices.Index(names, p.Name)))
			}
			d.sources = append(d.sources, w.Source)
			if w.Source, err = filters.Of(w.Source, how.Tags); err != nil {
				return nil, d.r.cfg.Fault("data.filters", err.Error(), "")
			}
			if key == "data.paths" && c.Changes() {
				r := dataset.Ramp{Turns: slices.Clone(ramps[i].Turns), Linear: p.Linear}
				for k := range r.Turns { // of a blend in one path each has its part
					r.Turns[k].Weight *= w.Weight
				}
				d.ramps = append(d.ramps, r)
			}
			opened = append(opened, dataset.Weighted{Source: w.Source, Weight: p.Weight * w.Weight})
		}
	}
	for _, w := range opened {
		s := w.Source
		if both, ok := d.kind.With(s.Kind()); !ok || both != d.kind { // texts and ids are read together, as texts
			return nil, d.r.cfg.Fault(key, fmt.Sprintf("%s holds %s, and data.kind is %s", s.Name(),
				s.Kind(), c.Kind), "set data.kind, or data.messages to the shape of the conversations")
		}
		if !weighted {
			w.Weight = 0
		}
		out = append(out, w)
	}
	return out, nil
}

// quarantined summarises what was set aside.
func (d *data) quarantined() string {
	if d.bad == nil {
		return ""
	}
	n := len(d.bad.List())
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("bad samples set aside in quarantine.jsonl: %d", n)
}

// stages tells how busy each stage of the training data's pipeline was, over the run, and which one was busiest.
func (d *data) stages() string {
	if d.train == nil {
		return ""
	}
	list, wall := d.train.Stages()
	var words []string
	for _, s := range list {
		words = append(words, fmt.Sprintf("%s %.1f %% of %d", s.Name, 100*s.Use(wall), s.Workers))
	}
	return fmt.Sprintf("%s  (busiest: %s)", strings.Join(words, "  "), dataset.Bottleneck(list, wall).Name)
}

// stageUse is stages in numbers.
func (d *data) stageUse() (out []record.StageUse) {
	if d.train == nil {
		return nil
	}
	list, wall := d.train.Stages()
	for _, s := range list {
		out = append(out, record.StageUse{Name: s.Name, Workers: s.Workers, Items: s.Items, Use: s.Use(wall)})
	}
	return out
}

// openPictures loads what makes latents and captions for a model of diffusion.
func (d *data) openPictures() (imagery, error) {
	x, err := diffusion.NewPictures(d.r.cfg, d.r.job.Model.Denoiser)
	if err == nil {
		x.Tell(d.notes())
	}
	return x, err
}

// openImages loads the processor that data.processor names, or that lies beside the tokenizer.
func (d *data) openImages() (imagery, error) {
	v := d.r.job.Model.Vision
	if v == nil {
		return nil, d.r.cfg.Fault("data.kind", "media samples need a model with a vision encoder",
			"take a composed model, such as qwen-vl/2.5-3b")
	}
	return trained.NewImages(d.r.cfg, v)
}

// samples is the encoder of media samples: the chat template's text with as many image tokens as the processor says.
func (d *data) samples() (dataset.SampleEncoder, error) {
	c := d.r.cfg.Run
	chat, err := d.chat()
	if err != nil {
		return nil, err
	}
	x, err := format.NewProcessorExpander(d.images.(*trained.Images).Processor, d.marked())
	if err != nil {
		return nil, d.r.cfg.Fault("data.tokenizer", err.Error(), "")
	}
	v := &format.VisionEncoder{SampleType: c.Data.SampleType, Chat: chat, Expander: x, MediaMax: c.Data.ImagesMax}
	for i, f := range slices.Concat(d.r.cfg.SFT, d.r.cfg.SFTValid) {
		if tags := setup.TagsOf(&f); i == 0 {
			v.Tags = tags
		} else if tags != v.Tags {
			return nil, d.r.cfg.Fault("data.dataset", "images come with conversations of one entry",
				"name one for all paths")
		}
	}
	return v, nil
}

// marked is the tokenizer with the model's tokens for images and videos.
func (d *data) marked() token.Marked {
	return trained.Marks(d.r.tok, d.r.cfg.Model.Vision, d.notes())
}

// notes is where the first process says what it takes otherwise than it was told.
func (d *data) notes() io.Writer {
	if workerProc() != 0 {
		return io.Discard
	}
	return d.r.io.Progress
}

// byName gives a microbatch of training the number of the named source of each row.
func (d *data) byName(mb *family.Microbatch, b *dataset.Batch, step int64) {
	if d.named == nil || step < 0 {
		return
	}
	of, at := map[int64]int32{}, make([]int32, len(b.Tokens))
	for _, o := range b.Origins {
		of[o.Sample] = d.named[o.Source]
	}
	for s, id := range b.SampleIDs {
		for i := b.CuSeqlens[s]; i < b.CuSeqlens[s+1]; i++ {
			at[i] = of[id]
		}
	}
	mb.More = family.SourcesKey.With(mb.More, at)
}
