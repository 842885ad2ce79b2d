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
	if kind.Form() == dataset.InParts {
		enc, err := VisionEncoder(model, "", sampleType)
		if err != nil {
			return nil, err
		}
		enc.Tags = tags
		return countSamples(enc.EncodeSample), nil
	}
	tok, conf, err := token.LoadDir(model)
	if err != nil {
		return nil, err
	}
	switch kind.Form() {
	case dataset.InText:
		return func(d *dataset.Document) (int64, error) {
			ids, err := tok.TryEncode(d.Text, false)
			return int64(len(ids)), err
		}, nil
	case dataset.InTokens:
		return func(d *dataset.Document) (int64, error) {
			for i, id := range d.Tokens {
				if int(id) >= tok.VocabSize() {
					return 0, fmt.Errorf("its token %d is id %d, and the tokenizer has %d", i, id, tok.VocabSize())
				}
			}
			return int64(len(d.Tokens)), nil
		}, nil
	case dataset.InMessages:
		chat, err := chatOf(model)
		if err != nil {
			return nil, err
		}
		return countChat(chat), nil
	}
	if e := recordEncoders[kind]; e != nil {
		return sampleCounter(e, tok, conf)
	}
	return nil, errors.New("tokens of " + string(kind) + " cannot be counted")
}

// recordEncoder makes samples of the records of a kind: pairs has a tokenizer, the token that ends a text and where
// there is one a chat template, and write renders prompts, nil without a template.
type recordEncoder func(pairs *format.PairEncoder, write format.PromptWriter) sampleEncoder

// sampleEncoder makes samples of a document.
type sampleEncoder func(d *dataset.Document) ([]dataset.Sample, error)

// recordEncoders are those of all kinds that have one.
var recordEncoders = map[dataset.Kind]recordEncoder{
	dataset.KindPairs: func(p *format.PairEncoder, _ format.PromptWriter) sampleEncoder { return p.EncodeSample },
	dataset.KindJudged: func(p *format.PairEncoder, _ format.PromptWriter) sampleEncoder {
		return (&format.JudgedEncoder{PairEncoder: *p}).EncodeSample
	},
	dataset.KindSimilar: func(p *format.PairEncoder, _ format.PromptWriter) sampleEncoder {
		return (&format.SimilarEncoder{Text: p.Text, SeqLen: p.SeqLen}).EncodeSample
	},
	dataset.KindPrompts: func(p *format.PairEncoder, write format.PromptWriter) sampleEncoder {
		return (&format.PromptEncoder{Text: p.Text, Most: p.SeqLen, Write: write}).EncodeSample
	},
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

// sampleCounter counts the tokens of records: those of pairs of answers have both with their prompts.
func sampleCounter(make recordEncoder, tok *token.Tokenizer, conf *token.Config) (TokenCounter, error) {
	eos, _ := tok.TokenID(conf.EOS) // one token more or less where there is none
	pairs := &format.PairEncoder{Text: tok, EOS: eos, SeqLen: math.MaxInt}
	var write format.PromptWriter
	if conf.ChatTemplate != "" {
		t, err := token.NewTemplate(conf.ChatTemplate, conf)
		if err != nil {
			return nil, err
		}
		pairs.Chat = token.NewChat(tok, t, token.ChatOptions{})
		write = t.Prompt
	}
	return countSamples(make(pairs, write)), nil
}

// countSamples counts the tokens of all samples of a document.
func countSamples(encode sampleEncoder) TokenCounter {
	return func(d *dataset.Document) (n int64, err error) {
		samples, err := encode(d)
		for _, s := range samples {
			n += int64(len(s.Tokens))
		}
		return n, err
	}
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
