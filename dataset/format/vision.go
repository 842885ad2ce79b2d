package format

import (
	"fmt"

	"github.com/lfactor/lfactor/dataset"
)

// VisionEncoder makes tokens of samples with pictures and videos: the dataset.SampleEncoder of vision-language models.
// The chat template writes one mark for each medium; in its place come the tokens that the model's processor says.
type VisionEncoder struct {
	SampleType string // "" tells it from each sample
	Chat       dataset.ChatEncoder
	Expander   dataset.MediaExpander
	MediaMax   int // media of a conversation; 0 means no limit
}

// Fingerprint implements dataset.SampleEncoder.
func (v *VisionEncoder) Fingerprint() string {
	return hashOf("vision 1", v.SampleType, v.Chat.Fingerprint(), v.Expander.Fingerprint(), v.MediaMax)
}

// EncodeSample implements dataset.SampleEncoder.
func (v *VisionEncoder) EncodeSample(d *dataset.Document) (out []dataset.Sample, err error) {
	list, err := Converse(d, v.SampleType)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if v.MediaMax > 0 && len(c.Media) > v.MediaMax {
			return nil, fmt.Errorf("sample %q has %d media, over the limit of %d", d.Key, len(c.Media), v.MediaMax)
		}
		ids, loss, err := v.Chat.EncodeMessages(c.Messages, c.Tools)
		if err != nil {
			return nil, fmt.Errorf("sample %q: %w", d.Key, err)
		}
		s, err := v.expand(ids, loss, c.Media)
		if err != nil {
			return nil, fmt.Errorf("sample %q: %w", d.Key, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// expand puts the tokens of media in the places of their marks. They are never learnt.
func (v *VisionEncoder) expand(ids []int32, loss []bool, media []dataset.Media) (s dataset.Sample, err error) {
	n := len(media)
	marks := map[int32]dataset.MediaKind{}
	for _, k := range []dataset.MediaKind{dataset.Image, dataset.Video, dataset.Audio} {
		if id, ok := v.Expander.Mark(k); ok {
			marks[id] = k
		}
	}
	for i, id := range ids {
		kind, marked := marks[id]
		if !marked {
			s.Tokens, s.Loss = append(s.Tokens, id), append(s.Loss, loss == nil || loss[i])
			continue
		}
		if len(media) == 0 || media[0].Kind != kind {
			return s, fmt.Errorf("the chat template wrote a mark for %s %d and the conversation has no such medium there", kind, len(s.Media)+1)
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
