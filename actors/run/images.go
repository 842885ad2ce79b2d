package run

import (
	"io"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/trained"
)

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
