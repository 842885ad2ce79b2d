package token

import (
	"strings"
	"testing"
)

// prose is English-like text of about n bytes with a realistic mix of common and rare words.
func prose(t testing.TB, n int) string {
	var out strings.Builder
	for lines := goldenText(t)[:50]; out.Len() < n; {
		for _, l := range lines {
			out.WriteString(l + "\n")
		}
	}
	return out.String()[:n]
}

func benchmarkEncode(b *testing.B, name string) {
	tok, _ := loadGolden(b, name)
	text := strings.ToValidUTF8(prose(b, 1<<20), "")
	n := 0
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		n += len(tok.Encode(text, false))
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}

func BenchmarkEncodeLlama3(b *testing.B)        { benchmarkEncode(b, "llama3") }
func BenchmarkEncodeQwen(b *testing.B)          { benchmarkEncode(b, "qwen") }
func BenchmarkEncodeSentencePiece(b *testing.B) { benchmarkEncode(b, "sentencepiece") }

// BenchmarkEncodeChat encodes a conversation of five turns whose template has no generation blocks.
func BenchmarkEncodeChat(b *testing.B) {
	tok, _ := loadGolden(b, "qwen")
	tmpl, err := NewTemplate(chatML, nil)
	if err != nil {
		b.Fatal(err)
	}
	messages := append([]Message(nil), talk...)
	for i := range messages {
		messages[i].Content = prose(b, 400)
	}
	n := 0
	for b.Loop() {
		ids, _, err := EncodeChat(tok, tmpl, messages, ChatOptions{})
		if err != nil {
			b.Fatal(err)
		}
		n += len(ids)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}
