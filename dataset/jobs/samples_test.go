package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

func open(t testing.TB, path string, o dataset.Options) dataset.Source {
	t.Helper()
	s, err := dataset.Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type goldenSample struct {
	Key   string            `json:"key"`
	Parts map[string]string `json:"parts"`
}

func samplesOf(t *testing.T, s dataset.Source) (out []goldenSample) {
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		g := goldenSample{d.Key, map[string]string{}}
		for _, p := range d.Parts {
			sum := sha256.Sum256(p.Bytes)
			g.Parts[p.Name] = hex.EncodeToString(sum[:])[:16]
		}
		out = append(out, g)
	}
	return out
}

// letters encodes a conversation letter by letter, with 1 for an image and 2 for a video.
type letters struct{}

func (letters) Fingerprint() string { return "letters" }
func (letters) EncodeMessages(messages []dataset.Message, _ []byte) (ids []int32, loss []bool, err error) {
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
			put(map[string]string{"image": "\x01", "video": "\x02", "text": p.Text}[p.Type],
				m.Role == "assistant")
		}
	}
	return ids, loss, nil
}

// perByte stands for an image by a frame around as many tokens as it has bytes.
type perByte struct{}

func (perByte) Fingerprint() string { return "per byte" }
func (perByte) Mark(k dataset.MediaKind) (int32, bool) {
	return map[dataset.MediaKind]int32{dataset.Image: 1, dataset.Video: 2}[k], k != dataset.Audio
}
func (perByte) Expand(m *dataset.Media, _ int) ([]int32, []dataset.Span, error) {
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

// sampleOf makes a sample of a JSON text and files "name=content".
func sampleOf(text string, files ...string) dataset.Document {
	d := dataset.Document{Key: "k", Place: dataset.Place{File: "s.tar", Offset: 512}}
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		d.Parts = append(d.Parts, dataset.Part{Name: name, Bytes: []byte(content)})
	}
	d.Parts = append(d.Parts, dataset.Part{Name: "json", Bytes: []byte(text)})
	return d
}

// show writes a sample's tokens, those learnt in brackets.
func show(samples []dataset.Sample) string {
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
