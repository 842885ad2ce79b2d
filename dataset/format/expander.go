package format

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// TokenNames finds special tokens by their text; *token.Tokenizer is one.
type TokenNames interface {
	TokenID(text string) (int32, bool)
	Fingerprint() string
}

// ProcessorExpander is the dataset.MediaExpander of a model's own processor: as many of the model's image or video
// tokens as the processor says, between its frame tokens where the processor, and not the chat template, writes them.
type ProcessorExpander struct {
	processor *media.Processor
	marks     map[dataset.MediaKind]int32
	open, end int32 // around the tokens of an image; -1 for none
	print     string
	names     TokenNames
	image     string // what templates write for an image
	probe     func(b []byte) (media.VideoInfo, error)
}

// markNames are the tokens that chat templates write for media, the first that a tokenizer has.
var markNames = map[dataset.MediaKind][]string{
	dataset.Image: {"<IMG_CONTEXT>", "<|image_pad|>", "<image>", "<|media_content|>", "<|image|>",
		"<image_soft_token>"},
	dataset.Video: {"<|video_pad|>", "<video>", "<|video|>"},
}

// NewProcessorExpander returns the expander of a processor that was loaded from a checkpoint's folder,
// settings of which enter the fingerprint.
func NewProcessorExpander(p *media.Processor, names TokenNames, settings ...any) (*ProcessorExpander, error) {
	x := &ProcessorExpander{processor: p, marks: map[dataset.MediaKind]int32{}, open: -1, end: -1, names: names}
	x.probe = func(b []byte) (media.VideoInfo, error) {
		return media.FFmpeg{}.ProbeBytes(context.Background(), b)
	}
	x.print = HashOf(append([]any{"expander 2", p.Class, fmt.Sprintf("%T", p.Video), names.Fingerprint()},
		settings...)...)
	own := map[dataset.MediaKind]string{}
	if m, ok := names.(interface{ MediaMarks() (image, video string) }); ok {
		own[dataset.Image], own[dataset.Video] = m.MediaMarks()
	}
	for kind, list := range markNames {
		if own[kind] != "" {
			list = []string{own[kind]}
		}
		for _, name := range list {
			if id, ok := names.TokenID(name); ok {
				if x.marks[kind] = id; kind == dataset.Image {
					x.image = name
				}
				break
			}
		}
	}
	if _, ok := x.marks[dataset.Image]; !ok {
		return nil, fmt.Errorf("the tokenizer has none of the image tokens %v: it is that of a model "+
			"for text", markNames[dataset.Image])
	}
	if id, ok := names.TokenID("<IMG_CONTEXT>"); ok && id == x.marks[dataset.Image] {
		var both bool
		if x.open, both = names.TokenID("<img>"); both {
			x.end, both = names.TokenID("</img>")
		}
		// beside the marks of the language model it was made of
		if id, ok := names.TokenID("<video>"); ok && own[dataset.Video] == "" {
			x.marks[dataset.Video] = id
		}
		if !both {
			return nil, errors.New("the tokenizer has <IMG_CONTEXT> and not <img> and </img>")
		}
	}
	return x, nil
}

// Mark implements dataset.MediaExpander.
func (x *ProcessorExpander) Mark(kind dataset.MediaKind) (int32, bool) {
	id, ok := x.marks[kind]
	return id, ok
}

// Fingerprint implements dataset.MediaExpander.
func (x *ProcessorExpander) Fingerprint() string { return x.print }

// Expand implements dataset.MediaExpander.
func (x *ProcessorExpander) Expand(m *dataset.Media, n int) ([]int32, []dataset.Span, error) {
	var e media.Extent
	var err error
	switch m.Kind {
	case dataset.Image:
		if _, written := x.processor.Image.(media.ImageWriter); written {
			err = errors.New("the model's prompts have text around images, and only conversations are written so")
		} else {
			e, err = x.extent(m, n)
		}
	case dataset.Video:
		var p media.Prompt
		if p, e, err = x.video(m); err == nil && p.Mark != "" {
			err = errors.New("the model's prompts have text between the frames of a video, and only " +
				"conversations are written so")
		}
	default:
		err = fmt.Errorf("the model takes no %s", m.Kind)
	}
	if err != nil {
		return nil, nil, err
	}
	ids := slices.Repeat([]int32{x.marks[m.Kind]}, e.Tokens)
	if x.open < 0 {
		return ids, []dataset.Span{{From: 0, To: int32(e.Tokens)}}, nil
	}
	return append(append([]int32{x.open}, ids...), x.end), []dataset.Span{{From: 1, To: int32(e.Tokens) + 1}}, nil
}

// extent is that of an image, one of n.
func (x *ProcessorExpander) extent(m *dataset.Media, n int) (e media.Extent, err error) {
	w, h, err := media.Size(m.Bytes, media.Options{})
	if err != nil {
		return e, fmt.Errorf("it is not an image: %w", err)
	}
	return x.processor.Image.ImageExtent(w, h, n)
}

// video tells what a video becomes from its container.
func (x *ProcessorExpander) video(m *dataset.Media) (p media.Prompt, e media.Extent, err error) {
	if x.processor.Video == nil {
		return p, e, errors.New("the model takes no videos")
	}
	w, ok := x.processor.Video.(media.VideoWriter)
	if !ok {
		return p, e, fmt.Errorf("how the model's prompts show videos is not known (%T)", x.processor.Video)
	}
	info, err := x.probe(m.Bytes)
	if err != nil {
		return p, e, err
	}
	frames, err := x.processor.Video.Pick(info)
	if err != nil {
		return p, e, err
	}
	if e, err = x.processor.Video.VideoExtent(len(frames), info.W, info.H); err != nil {
		return p, e, err
	}
	p = w.Prompt(info, frames, e)
	if p.Frames*p.Each != e.Tokens {
		return p, e, fmt.Errorf("%d frames of %d tokens are not the %d tokens of its features", p.Frames,
			p.Each, e.Tokens)
	}
	return p, e, nil
}

// writtenMedium is a video or an image whose prompt has text.
type writtenMedium struct {
	media.Prompt
	token int32  // one stands for each frame in the text
	image string // the mark of an image
}

// written tells how a prompt shows a video or one of n images, nil where only tokens change.
func (x *ProcessorExpander) written(m *dataset.Media, n int) (_ *writtenMedium, err error) {
	var p media.Prompt
	if w, ok := x.processor.Image.(media.ImageWriter); m.Kind == dataset.Image && ok {
		var e media.Extent
		if e, err = x.extent(m, n); err == nil {
			p = w.ImagePrompt(e)
		}
	} else if m.Kind == dataset.Video {
		p, _, err = x.video(m)
	}
	if err != nil || p.Mark == "" {
		return nil, err
	}
	for _, name := range append([]string{p.Token}, p.Needs...) {
		if _, ok := x.names.TokenID(name); !ok {
			return nil, fmt.Errorf("the tokenizer has no token %s, which the model's prompts show "+
				"images and videos with", name)
		}
	}
	id, _ := x.names.TokenID(p.Token)
	return &writtenMedium{p, id, x.image}, nil
}
