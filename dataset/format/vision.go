package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// VisionEncoder makes tokens of samples with images and videos: the dataset.SampleEncoder of vision-language models.
// The chat template writes one mark for each medium; in its place come the tokens that the model's processor says.
type VisionEncoder struct {
	SampleType string // "" tells it from each sample
	Chat       dataset.ChatEncoder
	Expander   dataset.MediaExpander
	MediaMax   int          // media of a conversation; 0 means no limit
	Tags       dataset.Tags // names of keys and roles of messages that are not the usual ones
}

// Fingerprint implements dataset.SampleEncoder.
func (v *VisionEncoder) Fingerprint() string {
	print := HashOf("vision 1", v.SampleType, v.Chat.Fingerprint(), v.Expander.Fingerprint(), v.MediaMax)
	if v.Tags != (dataset.Tags{}) {
		print = HashOf(print, v.Tags)
	}
	return print
}

// EncodeSample implements dataset.SampleEncoder.
func (v *VisionEncoder) EncodeSample(d *dataset.Document) (out []dataset.Sample, err error) {
	list, err := Converse(d, v.SampleType, v.Tags)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if v.MediaMax > 0 && len(c.Media) > v.MediaMax {
			return nil, fmt.Errorf("sample %q has %d media, over the limit of %d", d.Key, len(c.Media), v.MediaMax)
		}
		s, err := v.Converse(c)
		if err != nil {
			return nil, fmt.Errorf("sample %q: %w", d.Key, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// Converse makes tokens of a conversation, of whose media it reads the headers alone.
func (v *VisionEncoder) Converse(c Conversation) (s dataset.Sample, err error) {
	films, err := v.films(c.Media)
	if err != nil {
		return s, err
	}
	ids, loss, err := v.encode(c, films)
	if err != nil {
		return s, err
	}
	return v.expand(ids, loss, c.Media, films)
}

// expand puts the tokens of media in the places of their marks. They are never learnt.
func (v *VisionEncoder) expand(ids []int32, loss []bool, media []dataset.Media,
	films []*writtenMedium) (s dataset.Sample, err error) {
	n := len(media)
	marks := map[int32]dataset.MediaKind{}
	for _, k := range []dataset.MediaKind{dataset.Image, dataset.Video, dataset.Audio} {
		if id, ok := v.Expander.Mark(k); ok {
			marks[id] = k
		}
	}
	for i := 0; i < len(ids); i++ {
		id := ids[i]
		if k := len(s.Media); k < len(films) && films[k] != nil && id == films[k].token {
			if i, err = v.frames(&s, ids, loss, i, media[0], films[k]); err != nil {
				return s, err
			}
			media = media[1:]
			continue
		}
		kind, marked := marks[id]
		if !marked {
			s.Tokens, s.Loss = append(s.Tokens, id), append(s.Loss, loss == nil || loss[i])
			continue
		}
		if len(media) == 0 || media[0].Kind != kind {
			return s, fmt.Errorf("the chat template wrote a mark for %s %d and the conversation has no "+
				"such medium there", kind, len(s.Media)+1)
		}
		m := media[0]
		media = media[1:]
		tokens, fill, err := v.Expander.Expand(&m, n)
		if err != nil {
			return s, fmt.Errorf("%s: %w", m.Key, err)
		}
		at := int32(len(s.Tokens))
		for _, f := range fill {
			m.Spans = append(m.Spans, dataset.Span{From: at + f.From, To: at + f.To})
		}
		s.Tokens = append(s.Tokens, tokens...)
		s.Loss = append(s.Loss, make([]bool, len(tokens))...)
		s.Media = append(s.Media, m)
	}
	if len(media) > 0 {
		return s, fmt.Errorf("the chat template wrote no mark for %s; it may be one for text only", media[0].Key)
	}
	return s, nil
}

// films are, for each medium, how the model's prompts show it; nil where no text changes.
func (v *VisionEncoder) films(media []dataset.Media) ([]*writtenMedium, error) {
	x, ok := v.Expander.(interface {
		written(m *dataset.Media, n int) (*writtenMedium, error)
	})
	if !ok {
		return nil, nil
	}
	out := make([]*writtenMedium, len(media))
	for i := range media {
		var err error
		if out[i], err = x.written(&media[i], len(media)); err != nil {
			return nil, fmt.Errorf("%s: %w", media[i].Key, err)
		}
	}
	return out, nil
}

// encode makes ids of a conversation in which the films' text stands, with one token a frame.
func (v *VisionEncoder) encode(c Conversation, films []*writtenMedium) ([]int32, []bool, error) {
	if !slices.ContainsFunc(films, func(f *writtenMedium) bool { return f != nil }) {
		return v.Chat.EncodeMessages(c.Messages, c.Tools, nil)
	}
	chat, ok := v.Chat.(dataset.EditingEncoder)
	if !ok {
		return nil, nil, errors.New("the model's prompts have text around images or the frames of a video, " +
			"which this encoder of conversations cannot write")
	}
	return chat.EncodeEdited(c.Messages, c.Tools, nil, func(text string) (out []dataset.Edit, err error) {
		at, images := 0, 0
		for i, f := range films {
			if f == nil {
				images++
				continue
			}
			from := strings.Index(text[at:], f.Mark)
			if from < 0 {
				return nil, fmt.Errorf("the chat template wrote no mark %s for %s; it may be one for "+
					"text only", f.Mark, c.Media[i].Key)
			}
			// a frame could pass for an image
			if n := strings.Count(text[at:at+from], f.image); n != images {
				return nil, fmt.Errorf("the chat template wrote %d marks %s before that of %s, and the "+
					"conversation has %d images there", n, f.image, c.Media[i].Key, images)
			}
			images = 0
			out = append(out, dataset.Edit{From: at + from, To: at + from + len(f.Mark), Text: f.Text})
			at += from + len(f.Mark)
		}
		return out, nil
	})
}

// frames puts a film's tokens in the places of those that stand for its frames, of which the first is
// ids[i], and returns the place of the last.
func (v *VisionEncoder) frames(s *dataset.Sample, ids []int32, loss []bool, i int, m dataset.Media,
	f *writtenMedium) (int, error) {
	for n := 0; ; i++ {
		if i == len(ids) {
			return i, fmt.Errorf("%s: the conversation ends behind frame %d of %d", m.Key, n, f.Frames)
		}
		if ids[i] != f.token {
			s.Tokens, s.Loss = append(s.Tokens, ids[i]), append(s.Loss, loss == nil || loss[i])
			continue
		}
		at := int32(len(s.Tokens))
		for range f.Each {
			s.Tokens, s.Loss = append(s.Tokens, f.token), append(s.Loss, false)
		}
		m.Spans = append(m.Spans, dataset.Span{From: at, To: at + int32(f.Each)})
		if n++; n == f.Frames {
			s.Media = append(s.Media, m)
			return i, nil
		}
	}
}
