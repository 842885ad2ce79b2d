package run

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
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

// openSources opens the training and the validation data.
func (d *data) openSources() (train, valid []dataset.Weighted, err error) {
	c := d.r.cfg.Run.Data
	if train, err = d.openPaths("data.paths", c.Paths, d.r.cfg.SFT); err != nil {
		return nil, nil, err
	}
	if len(c.Valid) > 0 {
		valid, err = d.openPaths("data.valid", c.Valid, d.r.cfg.SFTValid)
		return train, valid, err
	}
	sum := c.Split[0] + c.Split[1] + c.Split[2]
	if c.Split[1] == 0 {
		return train, nil, nil
	}
	seed := uint64(d.r.cfg.Run.Train.Seed)
	for i, s := range train {
		train[i].Source = dataset.Sampled(s.Source, seed, 0, c.Split[0]/sum)
		v := dataset.Weighted{Source: dataset.Sampled(s.Source, seed, c.Split[0]/sum,
			(c.Split[0]+c.Split[1])/sum), Weight: s.Weight}
		if v.Source.Len() > 0 {
			valid = append(valid, v)
		}
	}
	return train, valid, nil
}

// formatOf names the format of a run's data, "" where the files tell: chat data has a shape, and media lie
// in shards, folders of them, or jobs.
func formatOf(c *configs.Data) string {
	switch {
	case c.Kind == "media", c.Kind == "chat" && c.Messages == "auto":
		return ""
	case c.Kind == "chat":
		return c.Messages
	}
	return c.Kind
}

// openPaths opens paths, each by its entry of data.dataset_config if there are any.
func (d *data) openPaths(key string, paths []configs.WeightPath,
	sft []configs.SFTFormat) (out []dataset.Weighted, err error) {
	c := d.r.cfg.Run.Data
	o := dataset.Options{Format: formatOf(&c), TextKey: c.TextKey, BytesMax: int64(c.LineMax),
		Full: c.Fingerprint == "full", Tags: dataset.Tags{Messages: c.MessageKey}}
	weighted := slices.ContainsFunc(paths, func(p configs.WeightPath) bool { return p.Weight != 1 })
	var opened []dataset.Weighted
	for i, p := range paths {
		var entry *configs.SFTFormat
		if sft != nil {
			entry = &sft[i]
		}
		list, err := dataset.OpenBlend(p.Path, setup.SFTOptions(o, p.Path, entry, c.Kind == "media"))
		if err != nil {
			return nil, d.r.cfg.Fault(key, err.Error(), "")
		}
		weighted = weighted || len(list) > 1
		for _, w := range list {
			d.sources = append(d.sources, w.Source)
			opened = append(opened, dataset.Weighted{Source: w.Source, Weight: p.Weight * w.Weight})
		}
	}
	for _, w := range opened {
		s := w.Source
		if chat, parts := c.Kind == "chat", c.Kind == "media"; chat != (s.Kind() == dataset.KindChat) ||
			parts != (s.Kind() == dataset.KindParts) {
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
