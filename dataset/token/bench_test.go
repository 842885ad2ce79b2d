package token

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	vocabulary = flag.String("vocabulary", "", "tokenizer.json to measure; bench/tokens.py names some")
	texts      = flag.String("texts", "", "file of texts to encode, a JSON string a line")
)

// BenchmarkTexts encodes texts of a file and prints CPU seconds and a sum of the ids.
func BenchmarkTexts(b *testing.B) {
	if *vocabulary == "" {
		b.Skip("left out: -vocabulary and -texts name what to encode")
	}
	tok, err := Load(*vocabulary)
	require.NoError(b, err)
	f, err := os.Open(*texts)
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	var all []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		var s string
		require.NoError(b, json.Unmarshal(lines.Bytes(), &s))
		all = append(all, s)
	}
	require.NoError(b, lines.Err())
	sum := uint32(0)
	spent := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := spent()
	ids := make([][]int32, len(all))
	for i, s := range all {
		ids[i] = tok.Encode(s, false)
	}
	took := spent() - start
	for _, text := range ids {
		for _, id := range text {
			sum = crc32.Update(sum, crc32.IEEETable, binary.LittleEndian.AppendUint32(nil, uint32(id)))
		}
	}
	fmt.Printf("texts: %.3f CPU seconds, ids %08x\n", took.Seconds(), sum)
}

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
