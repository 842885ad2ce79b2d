package training

import (
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/model"
	"github.com/lfactor/lfactor/cmd/lfactor/setup"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
)

// OpenPictures loads the processor that data.processor names, or that lies beside the tokenizer.
func (d *Data) OpenPictures() error {
	c := d.R.Cfg.Run
	v := d.R.Job.Model.Vision
	if v == nil {
		return d.R.Cfg.Fault("data.kind", "media samples need a model with a vision encoder", "take a composed model, such as qwen-vl/2.5-3b")
	}
	dir := c.Data.Processor
	for _, other := range []string{c.Data.Tokenizer, c.Model.Path} {
		if dir == "" && other != "" && cli.FileExists(filepath.Join(other, "preprocessor_config.json")) {
			dir = other
		}
	}
	if dir == "" {
		return d.R.Cfg.Fault("data.processor", "is not given, and no preprocessor_config.json lies beside the tokenizer or the model", "name the directory that has it")
	}
	p, err := media.LoadFor(dir, v.Patch, v.Merge)
	if err != nil {
		return d.R.Cfg.Fault("data.processor", err.Error(), "")
	}
	d.pictures = &model.Pictures{V: v, Processor: p}
	return nil
}

// samples is the encoder of media samples: the chat template's text with as many picture tokens as the processor says.
func (d *Data) samples() (dataset.SampleEncoder, error) {
	c := d.R.Cfg.Run
	chat, err := d.chat()
	if err != nil {
		return nil, err
	}
	x, err := format.NewProcessorExpander(d.pictures.Processor, d.R.Tok)
	if err != nil {
		return nil, d.R.Cfg.Fault("data.tokenizer", err.Error(), "")
	}
	v := &format.VisionEncoder{SampleType: c.Data.SampleType, Chat: chat, Expander: x, MediaMax: c.Data.ImagesMax}
	for i, f := range slices.Concat(d.R.Cfg.SFT, d.R.Cfg.SFTValid) {
		if tags := setup.TagsOf(&f); i == 0 {
			v.Tags = tags
		} else if tags != v.Tags {
			return nil, d.R.Cfg.Fault("data.dataset", "pictures come with conversations of one entry", "name one for all paths")
		}
	}
	return v, nil
}
