package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
)

// VisionEncoder makes the encoder of samples with media of a model's folder: its tokenizer, processor and
// chat template, or the one of a file.
func VisionEncoder(model, template, sampleType string) (*format.VisionEncoder, error) {
	tok, conf, err := token.LoadDir(model)
	if err != nil {
		return nil, err
	}
	text := conf.ChatTemplate
	if template != "" {
		b, err := os.ReadFile(template)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	t, err := token.NewTemplate(text, conf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", model, err)
	}
	proc, err := media.Load(model)
	if err != nil {
		return nil, err
	}
	var settings []any
	for _, name := range []string{"processor_config.json", "preprocessor_config.json",
		"video_preprocessor_config.json"} {
		b, err := os.ReadFile(filepath.Join(model, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		settings = append(settings, string(b))
	}
	x, err := format.NewProcessorExpander(proc, tok, settings...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", model, err)
	}
	return &format.VisionEncoder{SampleType: sampleType, Chat: token.NewChat(tok, t, token.ChatOptions{}),
		Expander: x}, nil
}
