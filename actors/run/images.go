package run

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/actors/trained"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/topology/machine"
)

// openImages loads the processor that data.processor names, or that lies beside the tokenizer.
func (d *data) openImages() error {
	c := d.r.cfg.Run
	v := d.r.job.Model.Vision
	if d.r.job.Model.Denoiser != nil {
		x, err := trained.NewPictures(d.r.cfg, d.r.job.Model.Denoiser)
		if err != nil {
			return err
		}
		d.images = x
		return nil
	}
	if v == nil {
		return d.r.cfg.Fault("data.kind", "media samples need a model with a vision encoder",
			"take a composed model, such as qwen-vl/2.5-3b")
	}
	dir := c.Data.Processor
	for _, other := range []string{c.Data.Tokenizer, c.Model.Path} {
		if dir == "" && other != "" && machine.Exists(filepath.Join(other, "preprocessor_config.json")) {
			dir = other
		}
	}
	if dir == "" {
		return d.r.cfg.Fault("data.processor",
			"is not given, and no preprocessor_config.json lies beside the tokenizer or the model",
			"name the directory that has it")
	}
	p, err := media.LoadFor(dir, v.Patch, v.Merge)
	if err != nil {
		return d.r.cfg.Fault("data.processor", err.Error(), "")
	}
	d.images = &trained.Images{V: v, Processor: p}
	return nil
}

// samples is the encoder of media samples: the chat template's text with as many image tokens as the
// processor says.
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
	v := &format.VisionEncoder{SampleType: c.Data.SampleType, Chat: chat, Expander: x,
		MediaMax: c.Data.ImagesMax}
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

// marked is the tokenizer with the tokens that the model's configuration names for images and videos. A
// tokenizer that has no such token is another model's, whose own marks are taken: features go where the
// marks stand, whatever their ids.
func (d *data) marked() token.Marked {
	m := token.Marked{Tokenizer: d.r.tok}
	v := d.r.cfg.Model.Vision
	for _, k := range []struct {
		key  string
		id   int
		mark *string
	}{{"image_token_id", v.ImageToken, &m.Image}, {"video_token_id", v.VideoToken, &m.Video}} {
		if k.id < 0 {
			continue
		}
		text, ok := m.Token(int32(k.id))
		if !ok && workerProc() == 0 {
			fmt.Fprintf(d.r.io.Progress,
				"note: model.overrides.vision.%s = %d is not a token of the tokenizer: the marks that "+
					"it is known for are taken\n", k.key, k.id)
		}
		*k.mark = text
	}
	return m
}
