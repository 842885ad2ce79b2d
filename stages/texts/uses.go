package texts

import (
	"fmt"
	"html"
	"strings"
	"unicode"
)

// Rest says what becomes of the rows behind a caption's own tokens.
type Rest uint8

// The rests. Tokens that fill are encoded like others, and seen by the caption's own if attention is not
// causal; or rows of zeros lie behind what the caption alone gives; or there is nothing.
const (
	Encoded Rest = iota
	Zeroed
	Dropped
)

// Use is how a pipeline of diffusers uses one of its text encoders.
type Use struct {
	Pipeline  string // of model_index.json
	Component string // folder of the encoder; the tokenizer's has the same ending
	Take      Take
	Length    int // tokens of a caption with its special ones; a longer one is cut
	Rest      Rest
	Beside    bool // its states stand beside those of the encoder before, in the same rows, and so do its pooled ones
	// its rows stand behind those of the encoders before, to which zeros are added up to its width; a model whose
	// encoder is left out reads zeros in the place of its rows
	Behind bool
	// Clean resolves HTML's entities and joins white space, as Wan's pipelines do before they tokenize. They
	// mend broken encodings as well where the package ftfy is installed, which is not done here.
	Clean bool
}

// uses are those of diffusers 0.42, and those of other programs whose use of Wan's encoder is another.
var uses = []Use{
	{Pipeline: "StableDiffusionPipeline", Component: "text_encoder", Take: Last, Length: 77},
	{Pipeline: "StableDiffusionXLPipeline", Component: "text_encoder", Take: Penultimate, Length: 77},
	{Pipeline: "StableDiffusionXLPipeline", Component: "text_encoder_2", Take: Take{Skip: 1, Pooled: true},
		Length: 77, Beside: true},
	{Pipeline: "StableDiffusion3Pipeline", Component: "text_encoder", Take: Take{Skip: 1, Pooled: true}, Length: 77},
	{Pipeline: "StableDiffusion3Pipeline", Component: "text_encoder_2", Take: Take{Skip: 1, Pooled: true}, Length: 77,
		Beside: true},
	{Pipeline: "StableDiffusion3Pipeline", Component: "text_encoder_3", Take: Last, Length: 256, Behind: true},
	{Pipeline: "FluxPipeline", Component: "text_encoder", Take: Take{Norm: true, Pooled: true}, Length: 77},
	{Pipeline: "FluxPipeline", Component: "text_encoder_2", Take: Last, Length: 512},
	{Pipeline: "WanPipeline", Component: "text_encoder", Take: Last, Length: 512, Rest: Zeroed, Clean: true},
	{Pipeline: "WanImageToVideoPipeline", Component: "text_encoder", Take: Last, Length: 512, Rest: Zeroed,
		Clean: true},
	// lerobot's policy, which hands what it is told to the tokenizer as it is
	{Pipeline: "FastWAM", Component: "text_encoder", Take: Last, Length: 512, Rest: Zeroed},
}

// UseOf finds the use of a pipeline's encoder.
func UseOf(pipeline, component string) (Use, error) {
	var have []string
	for _, u := range uses {
		if u.Pipeline == pipeline && u.Component == component {
			return u, nil
		}
		have = append(have, u.Pipeline+"/"+u.Component)
	}
	return Use{}, fmt.Errorf("texts: how %s uses its %s is not known; it is of %s", pipeline, component,
		strings.Join(have, ", "))
}

// Tokens are the ids of a caption, filled up where the use encodes what fills.
func (u Use) Tokens(t *Tokenizer, caption string) ([]int32, error) {
	if u.Clean {
		caption = cleaned(caption)
	}
	ids, err := t.IDs(caption, u.Length)
	if err != nil || u.Rest != Encoded {
		return ids, err
	}
	if t.Pad < 0 && len(ids) < u.Length {
		return nil, fmt.Errorf("texts: tokenizer_config.json of %s names no pad_token to fill captions with", t.dir)
	}
	for len(ids) < u.Length {
		ids = append(ids, t.Pad)
	}
	return ids, nil
}

// cleaned is a text whose entities are resolved twice, as some data sets have them, with single spaces.
func cleaned(text string) string {
	text = html.UnescapeString(html.UnescapeString(text))
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f // as Python has it
	}), " ")
}

// Captions gives the states [rows W] of captions as a use has them, and their pooled rows, which are nil
// where it takes none.
func (e *Encoder) Captions(u Use, t *Tokenizer, captions ...string) (states, pooled [][]float32, err error) {
	ids := make([][]int32, len(captions))
	for i, c := range captions {
		if ids[i], err = u.Tokens(t, c); err != nil {
			return nil, nil, fmt.Errorf("caption %d: %w", i, err)
		}
	}
	e.Take = u.Take
	if states, pooled, err = e.Encode(ids); err != nil || u.Rest != Zeroed {
		return states, pooled, err
	}
	for i, s := range states {
		states[i] = append(s, make([]float32, u.Length*e.Width-len(s))...)
	}
	return states, pooled, nil
}
