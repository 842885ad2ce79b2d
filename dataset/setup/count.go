package setup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/token"
)

// TokenCounter counts a document's tokens as training would see them.
type TokenCounter func(d *dataset.Document) (int64, error)

// NewTokenCounter makes the counter of a kind of documents by a model's folder: its tokenizer, and for
// conversations its chat template, and for samples with media its processor.
func NewTokenCounter(model, sampleType string, kind dataset.Kind, tags dataset.Tags) (TokenCounter, error) {
	if kind == dataset.KindParts {
		enc, err := VisionEncoder(model, "", sampleType)
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
		chat, err := chatOf(model)
		if err != nil {
			return nil, err
		}
		return countChat(chat), nil
	}
	switch kind {
	case dataset.KindPairs, dataset.KindJudged, dataset.KindPrompts, dataset.KindSimilar:
		return sampleCounter(kind, tok, conf)
	}
	return nil, errors.New("tokens of " + string(kind) + " cannot be counted")
}

// chatOf is the encoder of conversations of a model's folder.
func chatOf(model string) (*token.Chat, error) {
	tok, conf, err := token.LoadDir(model)
	if err != nil {
		return nil, err
	}
	t, err := token.NewTemplate(conf.ChatTemplate, conf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(model, "tokenizer_config.json"), err)
	}
	return token.NewChat(tok, t, token.ChatOptions{}), nil
}

func countChat(chat *token.Chat) TokenCounter {
	return func(d *dataset.Document) (int64, error) {
		ids, _, err := chat.EncodeMessages(d.Messages, d.Tools, d.Vars)
		return int64(len(ids)), err
	}
}

// sampleCounter counts the tokens of pairs of answers, both with their prompts, and of prompts.
func sampleCounter(kind dataset.Kind, tok *token.Tokenizer, conf *token.Config) (TokenCounter, error) {
	eos, _ := tok.TokenID(conf.EOS) // one token more or less where there is none
	pairs := &format.PairEncoder{Text: tok, EOS: eos, SeqLen: math.MaxInt}
	prompts := &format.PromptEncoder{Text: tok, Most: math.MaxInt}
	if conf.ChatTemplate != "" {
		t, err := token.NewTemplate(conf.ChatTemplate, conf)
		if err != nil {
			return nil, err
		}
		pairs.Chat = token.NewChat(tok, t, token.ChatOptions{})
		prompts.Write = t.Prompt
	}
	encode := pairs.EncodeSample
	switch kind {
	case dataset.KindPrompts:
		encode = prompts.EncodeSample
	case dataset.KindSimilar:
		encode = (&format.SimilarEncoder{Text: tok, SeqLen: math.MaxInt}).EncodeSample
	case dataset.KindJudged:
		encode = (&format.JudgedEncoder{PairEncoder: *pairs}).EncodeSample
	}
	return func(d *dataset.Document) (n int64, err error) {
		samples, err := encode(d)
		for _, s := range samples {
			n += int64(len(s.Tokens))
		}
		return n, err
	}, nil
}

// EachDocument reads all of a source. A bad document goes to bad, and any other error ends it; one of an
// interruption has its exit code.
func EachDocument(ctx context.Context, s dataset.Source, good func(i int64, d *dataset.Document),
	bad func(i int64, b *dataset.BadSample)) error {
	err := dataset.Stream(ctx, s, 0, s.Len(), func(i int64, d *dataset.Document, b *dataset.BadSample) error {
		if b != nil {
			bad(i, b)
		} else {
			good(i, d)
		}
		return nil
	})
	if ctx.Err() != nil {
		return exit.With(errors.New("interrupted"), exit.Interrupted)
	}
	return err
}
