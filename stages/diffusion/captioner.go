package diffusion

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/texts"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// CaptionEncoder makes states of captions by the encoders of a run, as the pipeline of the model has them. It
// opens weights when they are needed first: whoever finds all states in a store needs none.
type CaptionEncoder struct {
	d     *family.Denoiser
	parts []*captionPart
	zeros int // rows of zeros in the place of those of an encoder that is left out
	print string

	mu   sync.Mutex // of the encoders, which one caption at a time may use
	open func(p *captionPart) error
}

// captionPart is one encoder with its tokenizer.
type captionPart struct {
	dir      string
	tok      *texts.Tokenizer
	use      texts.Use
	model    *texts.Model    // of an encoder
	template *texts.Template // of a decoder that serves as an encoder, nil for an encoder
	encoder  *texts.Encoder
	decoder  *texts.Decoder
	look     *trained.Images // of a decoder that sees the images that captions speak of
}

// NewCaptionEncoder reads what the section diffusion says of encoders of captions.
func NewCaptionEncoder(cfg *configs.Config, d *family.Denoiser) (*CaptionEncoder, error) {
	x := &CaptionEncoder{d: d}
	for _, e := range []struct{ key, name, given string }{
		{"diffusion.text_encoder", "text_encoder", cfg.Run.Diffusion.Text},
		{"diffusion.text_encoder_2", "text_encoder_2", cfg.Run.Diffusion.Text2},
		{"diffusion.text_encoder_3", "text_encoder_3", cfg.Run.Diffusion.Text3}} {
		dir := fit.Beside(cfg, e.given, e.name)
		if use, err := texts.UseOf(d.Pipeline, e.name); dir == "" && err == nil && use.Behind {
			x.zeros = use.Length
		} else if err != nil && e.given != "" && e.name == "text_encoder_3" {
			return nil, cfg.Fault(e.key, "the model reads no third encoder", "remove it")
		}
		if dir == "" {
			continue
		}
		p, err := newCaptionPart(dir, e.name, d)
		if err != nil {
			return nil, cfg.Fault(e.key, err.Error(), "")
		}
		x.parts = append(x.parts, p)
	}
	if len(x.parts) == 0 {
		return nil, cfg.Fault("diffusion.text_encoder", "is not given, and no text_encoder lies beside the model",
			"name the folder of the model's encoder of captions")
	}
	if err := x.fits(); err != nil {
		return nil, cfg.Fault("diffusion.text_encoder", err.Error(), "take the model's own encoders")
	}
	dtype := fit.Precisions[cfg.Run.Train.Precision]
	if dtype == tensor.F16 {
		dtype = tensor.F32 // in which states of T5 do not fit
	}
	device, strict := cfg.Run.Device, cfg.Run.Strict
	x.open = func(p *captionPart) error {
		b, err := kernels.Open(device, kernels.Options{Strict: strict})
		if err != nil {
			return err
		}
		if p.template != nil {
			p.decoder, err = texts.OpenDecoder(p.dir, b, dtype, *p.template)
			if err == nil && d.Further > 0 {
				p.look, err = p.sight()
			}
		} else {
			p.encoder, err = texts.Open(p.dir, b, dtype)
		}
		return err
	}
	prints := []any{"captions 1", dtype.String(), d.TextRows}
	if d.Further > 0 {
		prints = append(prints, d.Pipeline)
	}
	for _, p := range x.parts {
		print, err := trained.FolderPrint(p.dir)
		if err == nil && cfg.Run.Diffusion.Encoders == "cached" { // a live one may begin from random weights
			err = trained.HasWeights(p.dir)
		}
		if err != nil {
			return nil, cfg.Fault("diffusion.text_encoder", err.Error(), "")
		}
		prints = append(prints, print, p.use.Length, p.use.Take, p.use.Rest, p.use.Clean, p.tok.Fingerprint())
	}
	x.print = format.HashOf(prints...)
	return x, nil
}

// templates are those of pipelines whose encoder of captions is a decoder.
var templates = map[string]texts.Template{"QwenImagePipeline": texts.QwenImage,
	"QwenImageEditPlusPipeline": texts.QwenImageEdit}

// newCaptionPart opens a tokenizer, and finds how captions are put to the encoder beside it.
func newCaptionPart(dir, name string, d *family.Denoiser) (*captionPart, error) {
	p := &captionPart{dir: dir}
	from := filepath.Join(filepath.Dir(filepath.Clean(dir)), strings.Replace(name, "text_encoder", "tokenizer", 1))
	if machine.Exists(filepath.Join(dir, "tokenizer.json")) || !machine.Exists(from) {
		from = dir
	}
	var err error
	if p.tok, err = texts.OpenTokenizer(from); err != nil {
		return nil, err
	}
	if t, ok := templates[d.Pipeline]; ok {
		p.template = &t
		return p, t.Check(p.tok)
	}
	e, err := texts.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	p.model = e
	if p.use, err = texts.UseOf(d.Pipeline, name); err != nil { // an encoder of one's own
		p.use = texts.Use{Take: fit.TextTake(d), Length: 512, Rest: texts.Dropped}
	}
	if e.Most > 0 {
		p.use.Length = min(p.use.Length, e.Most)
	}
	if d.TextRows > 0 { // zeros behind a caption are the denoiser's own
		p.use.Length, p.use.Rest = min(p.use.Length, d.TextRows), texts.Dropped
	}
	if p.use.Take.Pooled && e.Pooled == 0 {
		p.use.Take.Pooled = false
	}
	return p, nil
}

// fits refuses encoders whose numbers are not those that the denoiser reads.
func (x *CaptionEncoder) fits() error {
	pooled, width := 0, 0
	for i, p := range x.parts {
		if p.template != nil {
			continue
		}
		e := p.model
		if !p.use.Beside && p.use.Take.Pooled {
			pooled = 0
		}
		if p.use.Take.Pooled {
			pooled += e.Pooled
		}
		if p.use.Behind && width > e.Width {
			return fmt.Errorf("the states of %s have %d numbers, and those before it %d", p.dir, e.Width, width)
		}
		if !p.use.Beside {
			width = 0
		}
		width += e.Width
		if i == len(x.parts)-1 && width != x.d.Texts && (x.zeros == 0 || width > x.d.Texts) {
			return fmt.Errorf("the states of %s have %d numbers, and the model reads %d", p.dir, width, x.d.Texts)
		}
	}
	if x.d.Pooled > 0 && pooled != x.d.Pooled {
		return fmt.Errorf("the pooled rows of captions have %d numbers, and the model reads %d", pooled, x.d.Pooled)
	}
	return nil
}

// Length is how many tokens a caption has for the encoder of states, the last, and how many of them this reads; of a
// decoder that serves as an encoder it says that all are read.
func (x *CaptionEncoder) Length(caption string) (n, most int, err error) {
	p := x.parts[len(x.parts)-1]
	if p.template != nil {
		return 0, math.MaxInt, nil
	}
	all := p.use
	all.Length, all.Rest = math.MaxInt, texts.Dropped
	ids, err := all.Tokens(p.tok, caption)
	return len(ids), p.use.Length, err
}

// IDs are the tokens of a caption for the one encoder of a model that has it among its blocks.
func (x *CaptionEncoder) IDs(caption string) ([]int32, error) {
	p := x.parts[0]
	ids, err := p.use.Tokens(p.tok, caption)
	if err != nil {
		return nil, err
	}
	return ids, p.model.Fits(ids)
}

// States implements Captioner: of several encoders one gives pooled rows and the next states, or both give both, side
// by side, or the states of the last stand behind the others' (texts.Use).
func (x *CaptionEncoder) States(caption string) (states, pooled []float32, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	width := 0
	for _, p := range x.parts {
		if p.encoder == nil && p.decoder == nil {
			if err := x.open(p); err != nil {
				return nil, nil, err
			}
		}
		var s, row [][]float32
		if p.decoder != nil && x.d.Further > 0 {
			s = make([][]float32, 1)
			s[0], err = p.changes(caption)
		} else if p.decoder != nil {
			s, err = p.decoder.Captions(p.tok, caption)
		} else {
			s, row, err = p.encoder.Captions(p.use, p.tok, caption)
		}
		if err != nil {
			return nil, nil, err
		}
		switch {
		case p.use.Beside:
			s[0], width = beside(states, s[0], p.model.Width), width+p.model.Width
		case p.use.Behind:
			s[0], width = append(widened(states, width, p.model.Width), s[0]...), p.model.Width
		case p.model != nil:
			width = p.model.Width
		}
		if states = s[0]; len(row) > 0 && row[0] != nil {
			if p.use.Beside {
				row[0] = slices.Concat(pooled, row[0])
			}
			pooled = row[0]
		}
	}
	if x.zeros > 0 {
		states = append(widened(states, width, x.d.Texts), make([]float32, x.zeros*x.d.Texts)...)
	}
	return states, pooled, nil
}

// widened are rows of a, of so many numbers, with zeros behind each up to another number of them.
func widened(a []float32, from, to int) (out []float32) {
	for row := range slices.Chunk(a, from) {
		out = append(append(out, row...), make([]float32, to-from)...)
	}
	return out
}

// beside joins rows of a with as many rows of b, of so many numbers.
func beside(a, b []float32, width int) []float32 {
	rows := len(b) / width
	out := make([]float32, 0, len(a)+len(b))
	for i := range rows {
		out = append(append(out, a[i*len(a)/rows:(i+1)*len(a)/rows]...), b[i*width:(i+1)*width]...)
	}
	return out
}

// Fingerprint implements Captioner.
func (x *CaptionEncoder) Fingerprint() string { return x.print }
