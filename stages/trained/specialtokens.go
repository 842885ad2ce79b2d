package trained

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology/machine"
)

// Marks is a tokenizer with the tokens that a model's configuration names for images and videos. A tokenizer
// that has no such token is another model's, whose own marks are taken: features go where the marks stand,
// whatever their ids; notes are told of it.
// In the words of the field: special tokens.
func Marks(tok *token.Tokenizer, v configs.Vision, notes io.Writer) token.Marked {
	m := token.Marked{Tokenizer: tok}
	for _, k := range []struct {
		key  string
		id   int
		mark *string
	}{{"image_token_id", v.ImageToken, &m.Image}, {"video_token_id", v.VideoToken, &m.Video}} {
		if k.id < 0 {
			continue
		}
		text, ok := m.Token(int32(k.id))
		if !ok {
			fmt.Fprintf(notes, "note: model.overrides.vision.%s = %d is not a token of the tokenizer: the marks that "+
				"it is known for are taken\n", k.key, k.id)
		}
		*k.mark = text
	}
	return m
}

// NewImages loads the processor that data.processor names, or that lies beside the tokenizer or the model.
func NewImages(cfg *configs.Config, v *family.Vision) (*Images, error) {
	c := &cfg.Run
	dir := c.Data.Processor
	for _, other := range []string{c.Data.Tokenizer, c.Model.Path} {
		if other != "" && machine.Exists(filepath.Join(other, "preprocessor_config.json")) {
			dir = cmp.Or(dir, other)
		}
	}
	if dir == "" {
		return nil, cfg.Fault("data.processor",
			"is not given, and no preprocessor_config.json lies beside the tokenizer or the model",
			"name the directory that has it")
	}
	p, err := media.LoadFor(dir, v.Patch, v.Merge)
	if err != nil {
		return nil, cfg.Fault("data.processor", err.Error(), "")
	}
	return &Images{V: v, Processor: p}, nil
}
