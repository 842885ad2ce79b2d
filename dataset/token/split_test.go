package token

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func pieces(s splitter, text string) (out []string) {
	if text != "" {
		s.split(text, true, func(p string, _ bool) { out = append(out, p) })
	}
	return out
}

// The hand-written scanners cut as their expressions do in a regular-expression engine.
func TestScannersEqualRegex(t *testing.T) {
	for regex, scan := range map[string]scanner{regexLlama3: knownScanners[regexLlama3],
		regexQwen2: knownScanners[regexQwen2], regexGPT2: scanGPT2} {
		find, err := compileRegex(regex)
		require.NoError(t, err)
		for _, s := range goldenText(t) {
			require.Equal(t, pieces(&cutter{find: find}, s), pieces(scan, s), "%s on %q", regex, s)
		}
	}
}

func FuzzScannersEqualRegex(f *testing.F) {
	for _, s := range []string{"don't 'LL 'ſ", " \n \r x\t\ty", "123456 ٣٤٥٦", "a\u0301 é ①", "...\n\n!!\r",
		"\u00a0\u2003 \u3000a"} {
		f.Add(s)
	}
	find := map[string]finder{}
	for _, regex := range []string{regexLlama3, regexQwen2, regexGPT2} {
		find[regex], _ = compileRegex(regex)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "")
		require.Equal(t, pieces(&cutter{find: find[regexLlama3]}, s), pieces(knownScanners[regexLlama3], s))
		require.Equal(t, pieces(&cutter{find: find[regexQwen2]}, s), pieces(knownScanners[regexQwen2], s))
		require.Equal(t, pieces(&cutter{find: find[regexGPT2]}, s), pieces(scanner(scanGPT2), s))
	})
}

// TestCutsBesideEveryCharacter: pre-tokenizers cut, and normalizers change, every character of Unicode as
// the library does.
func TestCutsBesideEveryCharacter(t *testing.T) {
	b, err := os.ReadFile("testdata/cuts_all.json")
	require.NoError(t, err)
	var want struct {
		Cuts  map[string][2]json.RawMessage
		Forms map[string]uint32
	}
	require.NoError(t, json.Unmarshal(b, &want))
	require.GreaterOrEqual(t, len(want.Cuts)+len(want.Forms), 20)
	each := func(use func(text string)) {
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if (r < 0xd800 || r > 0xdfff) && (r < 0x20000 || r%61 == 0) {
				use("x" + string(r) + "'1 ")
			}
		}
	}
	for name, c := range want.Cuts {
		splits, _, err := parseSplits(c[0])
		require.NoError(t, err, name)
		var crc, sum uint32
		require.NoError(t, json.Unmarshal(c[1], &crc))
		each(func(text string) {
			for _, p := range piecesOf(splits, text) {
				sum = crc32.Update(sum, crc32.IEEETable, append([]byte(p), 0))
			}
		})
		assert.Equal(t, crc, sum, name)
	}
	for name, crc := range want.Forms {
		n, err := parseNormalizer([]byte(fmt.Sprintf(`{"type":%q,"clean_text":true,"handle_chinese_chars":true,"lowercase":true}`, name)))
		require.NoError(t, err, name)
		sum := uint32(0)
		each(func(text string) { sum = crc32.Update(sum, crc32.IEEETable, append([]byte(n(text)), 0)) })
		assert.Equal(t, crc, sum, name)
	}
}

// piecesOf sends a text through pre-tokenizers one after the other.
func piecesOf(splits []splitter, text string) (out []string) {
	if len(splits) == 0 {
		return []string{text}
	}
	for _, p := range pieces(splits[0], text) {
		out = append(out, piecesOf(splits[1:], p)...)
	}
	return out
}

// What becomes of matches, on the example of the library's documentation.
func TestBehaviors(t *testing.T) {
	for name, want := range map[string][]string{
		"Isolated":           {"the", "-", "final", "-", "-", "countdown"},
		"Removed":            {"the", "final", "countdown"},
		"MergedWithPrevious": {"the-", "final-", "-", "countdown"},
		"MergedWithNext":     {"the", "-final", "-", "-countdown"},
		"Contiguous":         {"the", "-", "final", "--", "countdown"},
	} {
		b, err := parseBehavior(name)
		require.NoError(t, err)
		require.Equal(t, want, pieces(&cutter{find: literalFinder("-"), behavior: b},
			"the-final--countdown"), name)
	}
}

// The row of ranks and the heap join alike, whatever the length.
func TestJoinShortEqualsLong(t *testing.T) {
	tok, _ := loadGolden(t, "gpt2")
	m, s := tok.model.(*bpe), newScratch()
	for _, line := range goldenText(t) {
		for piece := range slices.Chunk([]byte(line), scanMax) {
			start := m.start(nil, string(piece))
			if len(start) == 0 {
				continue
			}
			s.word = slices.Clone(start)
			short := m.joinShort(s, nil)
			s.word = slices.Clone(start)
			require.Equal(t, m.joinLong(s, nil), short, "%q", piece)
		}
	}
}
