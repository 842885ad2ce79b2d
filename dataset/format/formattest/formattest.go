// Package formattest has a template and a processor of images that tests of formats and of jobs read with: what
// they make of a sample can be written as a line of text.
package formattest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// Letters encodes a conversation letter by letter, with 1 for an image and 2 for a video.
type Letters struct{}

// Fingerprint is a constant.
func (Letters) Fingerprint() string { return "letters" }

// EncodeMessages learns what assistants say.
func (Letters) EncodeMessages(messages []dataset.Message, _, _ []byte) (ids []int32, loss []bool, err error) {
	put := func(text string, learn bool) {
		for _, r := range text {
			ids, loss = append(ids, int32(r)), append(loss, learn)
		}
	}
	for _, m := range messages {
		var parts struct{ Content []struct{ Type, Text string } }
		if m.Raw == nil || json.Unmarshal(m.Raw, &parts) != nil {
			put(m.Content, m.Role == "assistant")
			continue
		}
		for _, p := range parts.Content {
			put(map[string]string{"image": "\x01", "video": "\x02", "text": p.Text}[p.Type], m.Role == "assistant")
		}
	}
	return ids, loss, nil
}

// PerByte stands for an image by a frame around as many tokens as it has bytes.
type PerByte struct{}

// Fingerprint is a constant.
func (PerByte) Fingerprint() string { return "per byte" }

// Mark is 1 for images and 2 for videos.
func (PerByte) Mark(k dataset.MediaKind) (int32, bool) {
	return map[dataset.MediaKind]int32{dataset.Image: 1, dataset.Video: 2}[k], k != dataset.Audio
}

// Expand refuses an image of no bytes.
func (PerByte) Expand(m *dataset.Media, _ int) ([]int32, []dataset.Span, error) {
	n := len(m.Bytes)
	if n == 0 {
		return nil, nil, errors.New("it is empty")
	}
	ids := []int32{'('}
	for range n {
		ids = append(ids, 7)
	}
	return append(ids, ')'), []dataset.Span{{From: 1, To: int32(n + 1)}}, nil
}

// SampleOf makes a sample of a JSON text and files "name=content".
func SampleOf(text string, files ...string) dataset.Document {
	d := dataset.Document{Key: "k", Place: dataset.Place{File: "s.tar", Offset: 512}}
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		d.Parts = append(d.Parts, dataset.Part{Name: name, Bytes: []byte(content)})
	}
	d.Parts = append(d.Parts, dataset.Part{Name: "json", Bytes: []byte(text)})
	return d
}

// Show writes a sample's tokens, those learnt in brackets.
func Show(samples []dataset.Sample) string {
	var b strings.Builder
	for i, s := range samples {
		if i > 0 {
			b.WriteString(" / ")
		}
		for k, id := range s.Tokens {
			r := string(rune(id))
			if id == 7 {
				r = "#"
			}
			if s.Loss[k] {
				r = "[" + r + "]"
			}
			b.WriteString(r)
		}
		for _, m := range s.Media {
			fmt.Fprintf(&b, " %s %v", m.Kind, m.Spans)
			for _, p := range m.Spans {
				for _, id := range s.Tokens[p.From:p.To] {
					if id != 7 {
						fmt.Fprint(&b, " (a place that is no place holder)")
					}
				}
			}
		}
	}
	return b.String()
}
