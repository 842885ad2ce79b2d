package token

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is NAME.ids.json.gz, written by bench/golden/token_golden.py with the Python library.
type golden struct {
	Lead    int       `json:"lead"` // ids that the post-processor puts in front
	IDs     [][]int32 `json:"ids"`
	Decoded []uint32  `json:"decoded"` // CRC-32 of the text decoded with special tokens
	Skipped []uint32  `json:"skipped"` // … and without
}

func unzip(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	return out
}

func goldenText(t testing.TB) []string {
	t.Helper()
	var out []string
	for l := range bytes.Lines(unzip(t, "text.jsonl.gz")) {
		var s string
		require.NoError(t, json.Unmarshal(l, &s))
		out = append(out, s)
	}
	return out
}

// loaded keeps what loadGolden has read; tests of a package run one after another.
var loaded = map[string]struct {
	tok *Tokenizer
	golden
}{}

func loadGolden(t testing.TB, name string) (*Tokenizer, golden) {
	t.Helper()
	l, ok := loaded[name]
	if !ok {
		var err error
		l.tok, err = Parse(unzip(t, name+".tokenizer.json.gz"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(unzip(t, name+".ids.json.gz"), &l.golden))
		loaded[name] = l
	}
	return l.tok, l.golden
}

func goldenNames(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.ids.json.gz")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 12)
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".ids.json.gz")
	}
	return files
}

// Ids and decoded texts equal the Python library's on every line, for every tokenizer of testdata.
func TestGolden(t *testing.T) {
	text := goldenText(t)
	require.GreaterOrEqual(t, len(text), 2000)
	for _, name := range goldenNames(t) {
		t.Run(name, func(t *testing.T) {
			tok, g := loadGolden(t, name)
			for i, want := range g.IDs {
				require.Equal(t, want, tok.Encode(text[i], true), "line %d %q", i, text[i])
				require.Equal(t, want[g.Lead:], tok.Encode(text[i], false), "line %d %q", i, text[i])
				all, some := tok.Decode(want, false), tok.Decode(want, true)
				require.Equal(t, g.Decoded[i], crc32.ChecksumIEEE([]byte(all)), "line %d %q decoded %q",
					i, text[i], all)
				require.Equal(t, g.Skipped[i], crc32.ChecksumIEEE([]byte(some)), "line %d %q decoded %q",
					i, text[i], some)
			}
		})
	}
}

// The characters of each class are those of the Python library's regular expressions.
func TestClasses(t *testing.T) {
	b, err := os.ReadFile("testdata/classes.json")
	require.NoError(t, err)
	var want map[string][2]any
	require.NoError(t, json.Unmarshal(b, &want))
	classes := map[string]uint8{"letter": letter, "number": number, "space": space, "mark": mark}
	chars := map[string][]string{}
	for r := rune(0); r < 0x110000; r++ {
		of := classOf(r)
		if of == 0 {
			continue
		}
		for name, class := range classes {
			if of&class != 0 {
				chars[name] = append(chars[name], strconv.Itoa(int(r)))
			}
		}
	}
	for name, list := range chars {
		sum := sha256.Sum256([]byte(strings.Join(list, ",")))
		require.Equal(t, [2]any{float64(len(list)), hex.EncodeToString(sum[:])}, want[name], name)
	}
}
