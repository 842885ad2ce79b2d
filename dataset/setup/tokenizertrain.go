package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/topology/machine"
)

// TokenizerJob is the training of a byte-level BPE tokenizer.
type TokenizerJob struct {
	Vocab   int      // ids in all
	Special []string // further special tokens; they take the last ids
	Chat    bool     // the special tokens and the template of ChatML are added
	Sample  int64    // bytes of text that are looked at
	Out     string   // folder that gets tokenizer.json and tokenizer_config.json
	// Progress is told how many bytes of so many have been read; nil for nobody
	Progress func(done, all int64)
}

// TokenizerReport is what was made of which texts.
type TokenizerReport struct {
	Folder    string  `json:"folder"`
	Vocab     int     `json:"vocab"`     // ids in all
	Documents int64   `json:"documents"` // that were looked at
	Of        int64   `json:"of"`        // documents that there are
	Bytes     int64   `json:"bytes"`     // of text
	PerToken  float64 `json:"bytes_per_token"`
	Bad       int64   `json:"bad"` // documents that could not be read
}

// Special tokens of a tokenizer of our own.
const (
	endOfText = "<|endoftext|>"
	turnStart = "<|im_start|>"
	turnEnd   = "<|im_end|>"

	tokenizerFile = "tokenizer.json"
)

// chatML is the template of ChatML, as Qwen's models have it.
const chatML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}" +
	"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// Train reads documents of all sources, spread evenly over each, until it has as much text as it may look
// at, and writes the tokenizer. The same sources give the same tokenizer. A folder that has one is refused.
func (j TokenizerJob) Train(ctx context.Context, sources []dataset.Source) (*TokenizerReport, error) {
	r := &TokenizerReport{Folder: j.Out}
	file := filepath.Join(j.Out, tokenizerFile)
	if _, err := os.Stat(file); err == nil {
		return nil, exit.With(fmt.Errorf("%s is there already: name another folder, or remove it", file), exit.Usage)
	}
	var texts []string
	for i, s := range sources {
		if f := s.Kind().Form(); f != dataset.InText && f != dataset.InMessages {
			return nil, exit.With(fmt.Errorf("%s holds %s: a tokenizer is made of texts and conversations", s.Name(),
				s.Kind()), exit.Usage)
		}
		room := (j.Sample - r.Bytes) / int64(len(sources)-i)
		got, err := j.read(ctx, s, room, r)
		if err != nil {
			return nil, err
		}
		texts = append(texts, got...)
		r.Of += s.Len()
	}
	if r.Bytes == 0 {
		return nil, errors.New("the documents have no text that a tokenizer could be made of")
	}
	special := append([]string{endOfText}, j.Special...)
	if j.Chat {
		special = append(special, turnStart, turnEnd)
	}
	text, err := token.Train(token.TrainConfig{VocabSize: j.Vocab, Special: special}, func(yield func(string) bool) {
		for _, t := range texts {
			if !yield(t) {
				return
			}
		}
	})
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	if err := j.write(text); err != nil {
		return nil, err
	}
	t, _, err := token.LoadDir(j.Out)
	if err != nil {
		return nil, fmt.Errorf("the tokenizer that was written: %w", err)
	}
	r.Vocab = t.VocabSize()
	r.measure(t, texts)
	return r, nil
}

// mostMeasured is how much text the bytes of a token are taken of.
const mostMeasured = 4 << 20

func (r *TokenizerReport) measure(t *token.Tokenizer, texts []string) {
	var size, ids int
	for _, text := range texts {
		if size > mostMeasured {
			break
		}
		size, ids = size+len(text), ids+len(t.Encode(text, false))
	}
	r.PerToken = float64(size) / float64(max(1, ids))
}

// read takes documents of a source in an order that is spread over all of it, up to room bytes.
func (j TokenizerJob) read(ctx context.Context, s dataset.Source, room int64, r *TokenizerReport) (texts []string,
	err error) {
	n := s.Len()
	step := spread(n)
	for i, at := int64(0), int64(0); i < n && room > 0; i, at = i+1, (at+step)%n {
		if ctx.Err() != nil {
			return nil, exit.With(errors.New("interrupted"), exit.Interrupted)
		}
		d, err := s.Read(at)
		var bad *dataset.BadSample
		switch {
		case errors.As(err, &bad):
			r.Bad++
			continue
		case err != nil:
			return nil, err
		}
		text := d.Text
		for _, m := range d.Messages {
			text += m.Content + "\n"
		}
		texts, room, r.Documents, r.Bytes = append(texts, text), room-int64(len(text)), r.Documents+1,
			r.Bytes+int64(len(text))
		if j.Progress != nil {
			j.Progress(r.Bytes, j.Sample)
		}
	}
	return texts, nil
}

// spread is a step near the golden section of n with which all of n are reached, once each.
func spread(n int64) int64 {
	step := max(1, int64(float64(n)*0.6180339887))
	for a, b := step, n; ; a, b = step, n {
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 || n == 0 {
			return step
		}
		step++
	}
}

// write puts both files into the folder, tokenizer.json last, so that a folder that has it is whole.
func (j TokenizerJob) write(text []byte) error {
	if err := os.MkdirAll(j.Out, 0o755); err != nil {
		return err
	}
	conf := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": endOfText, "pad_token": endOfText}
	if j.Chat {
		conf["eos_token"], conf["chat_template"] = turnEnd, chatML
	}
	var more bytes.Buffer
	e := json.NewEncoder(&more)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(conf); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{"tokenizer_config.json", more.Bytes()}, {tokenizerFile, text}} {
		if err := machine.ReplaceBytes(filepath.Join(j.Out, f.name), 0o644, f.text); err != nil {
			return err
		}
	}
	return nil
}
