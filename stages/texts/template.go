package texts

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// Template says how a caption is put to a decoder that serves as a text encoder: in a conversation, of
// whose states those of the first tokens are dropped.
type Template struct {
	Text string // with {} in the caption's place
	Drop int    // tokens before the caption
	Most int    // tokens that are kept at most
}

// QwenImage is the template of QwenImagePipeline of diffusers 0.42, for Qwen2.5-VL.
var QwenImage = Template{Text: "<|im_start|>system\nDescribe the image by detailing the color, shape, " +
	"size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n" +
	"<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", Drop: 34, Most: 1024}

// QwenImageEdit is the template of QwenImageEditPlusPipeline, which changes images: Picture stands before
// the caption once for each of them, with its number.
var QwenImageEdit = Template{Text: "<|im_start|>system\nDescribe the key features of the input image (color, shape, " +
	"size, texture, objects, background), then explain how the user's text instruction should alter or modify the " +
	"image. Generate a new image that meets the user's requirements while maintaining consistency with the original " +
	"input where appropriate.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", Drop: 64,
	Most: 1 << 20}

// Picture is what the conversation says of image i.
func Picture(i int) string {
	return fmt.Sprintf("Picture %d: <|vision_start|>%s<|vision_end|>", i+1, PicturePad)
}

// PicturePad is the token in whose place the features of an image stand.
const PicturePad = "<|image_pad|>"

// Check holds a tokenizer to the template: what stands before the caption is as many tokens as are dropped.
func (p Template) Check(t *Tokenizer) error {
	before, _, ok := strings.Cut(p.Text, "{}")
	if !ok {
		return fmt.Errorf("texts: the template %q has no place for a caption: write {} there", p.Text)
	}
	ids, err := t.TryEncode(before, false)
	if err != nil {
		return fmt.Errorf("texts: %s: %w", t.dir, err)
	}
	if len(ids) != p.Drop {
		return fmt.Errorf("texts: before the caption the template has %d tokens of %s, and %d are dropped: "+
			"take the tokenizer that the template was made for", len(ids), t.dir, p.Drop)
	}
	return nil
}

// Tokens are the ids of the template around a caption. Of a longer one the last tokens are left out, those
// of the template's end among them, as in diffusers.
func (p Template) Tokens(t *Tokenizer, caption string) ([]int32, error) {
	ids, err := t.TryEncode(strings.Replace(p.Text, "{}", caption, 1), false)
	if err != nil {
		return nil, fmt.Errorf("texts: %s: %w", t.dir, err)
	}
	return ids[:min(len(ids), p.Drop+p.Most)], nil
}

// Decoder is a decoder of package family that gives states of captions: those behind its final norm. It is
// not safe for concurrent use.
type Decoder struct {
	Template Template
	Width    int
	Vision   *family.Vision // nil for a decoder that does not see
	vocab    int
	gen      *sample.Generator
}

// OpenDecoder opens the folder of a decoder, with or without a vision tower, in float32 or another type.
// Its family must be registered: a program imports stages/family/all. A weight that is missing or unused
// is an error that names it.
func OpenDecoder(dir string, b kernels.Backend, d tensor.DType, p Template) (*Decoder, error) {
	c, err := configs.ReadModel(dir)
	if err != nil {
		return nil, err
	}
	m, err := family.Build(c, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	src, err := checkpoint.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it was read only
	w, err := m.OpenWeights(src, dir)
	if err != nil {
		return nil, err
	}
	m.DropMTP()
	gen, err := sample.New(m, nil, d, b, tensor.NewPool("text encoder", 0),
		func(p *grad.Param, g family.Region, dst []float32) error {
			_, err := w.Read(p, g, dst)
			return err
		})
	if err != nil {
		return nil, err
	}
	return &Decoder{Template: p, Width: m.Spec.Hidden, Vision: m.Vision, vocab: m.Spec.Vocab, gen: gen}, nil
}

// Encode gives the states [tokens-Drop W] of each row of tokens. Rows run one after another, so that the
// bits of one do not depend on the others.
func (x *Decoder) Encode(ids [][]int32) (states [][]float32, err error) {
	for i, c := range ids {
		if len(c) <= x.Template.Drop {
			return nil, fmt.Errorf("texts: caption %d: %d tokens, of which the first %d are dropped; "+
				"encode it in the template (Template.Tokens)", i, len(c), x.Template.Drop)
		}
		for _, id := range c {
			if id < 0 || int(id) >= x.vocab {
				return nil, fmt.Errorf("texts: caption %d: the id %d is outside of the vocabulary of %d; "+
					"take the tokenizer that came with the decoder", i, id, x.vocab)
			}
		}
		s, err := x.gen.States(c, family.Images{})
		if err != nil {
			return nil, fmt.Errorf("texts: caption %d: %w", i, err)
		}
		states = append(states, s[x.Template.Drop*x.Width:])
	}
	return states, nil
}

// With gives the states [tokens-Drop W] of tokens some of which features of images stand for.
func (x *Decoder) With(ids []int32, pics family.Images) ([]float32, error) {
	s, err := x.gen.States(ids, pics)
	if err != nil {
		return nil, err
	}
	return s[x.Template.Drop*x.Width:], nil
}

// Captions gives the states of captions in the template.
func (x *Decoder) Captions(t *Tokenizer, captions ...string) (states [][]float32, err error) {
	if err := x.Template.Check(t); err != nil {
		return nil, err
	}
	ids := make([][]int32, len(captions))
	for i, c := range captions {
		if ids[i], err = x.Template.Tokens(t, c); err != nil {
			return nil, fmt.Errorf("caption %d: %w", i, err)
		}
	}
	return x.Encode(ids)
}

// Close gives the weights back.
func (x *Decoder) Close() { x.gen.Close() }
