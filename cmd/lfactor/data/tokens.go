package data

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
)

// tokenCounter counts a document's tokens as training would see them.
type tokenCounter func(d *dataset.Document) (int64, error)

// newTokenCounter makes the counter of a kind of documents by a model's folder: its tokenizer, and for conversations
// its chat template, and for samples with media its processor.
func newTokenCounter(model, sampleType string, kind dataset.Kind, tags dataset.Tags) (tokenCounter, error) {
	if kind == dataset.KindParts {
		enc, err := setup.VisionEncoder(model, "", sampleType)
		if err != nil {
			return nil, err
		}
		enc.Tags = tags
		return func(d *dataset.Document) (n int64, err error) {
			samples, err := enc.EncodeSample(d)
			for _, s := range samples {
				n += int64(len(s.Tokens))
			}
			return n, err
		}, nil
	}
	tok, conf, err := token.LoadDir(model)
	if err != nil {
		return nil, err
	}
	switch kind {
	case dataset.KindText:
		return func(d *dataset.Document) (int64, error) {
			ids, err := tok.TryEncode(d.Text, false)
			return int64(len(ids)), err
		}, nil
	case dataset.KindTokens:
		return func(d *dataset.Document) (int64, error) {
			for i, id := range d.Tokens {
				if int(id) >= tok.VocabSize() {
					return 0, fmt.Errorf("its token %d is id %d, and the tokenizer has %d", i, id, tok.VocabSize())
				}
			}
			return int64(len(d.Tokens)), nil
		}, nil
	case dataset.KindChat:
		t, err := token.NewTemplate(conf.ChatTemplate, conf)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(model, "tokenizer_config.json"), err)
		}
		chat := token.NewChat(tok, t, token.ChatOptions{})
		return func(d *dataset.Document) (int64, error) {
			ids, _, err := chat.EncodeMessages(d.Messages, d.Tools)
			return int64(len(ids)), err
		}, nil
	}
	return nil, errors.New("tokens of " + string(kind) + " cannot be counted")
}
