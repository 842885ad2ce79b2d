package token

import (
	"slices"
	"strings"
	"testing"
	"unicode"

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
	for regex, scan := range map[string]scanner{regexLlama3: knownScanners[regexLlama3], regexQwen2: knownScanners[regexQwen2], regexGPT2: scanGPT2} {
		find, err := compileRegex(regex)
		require.NoError(t, err)
		text := goldenText(t)
		for _, s := range text[:len(text)-1] { // the last line has characters the engine's tables lack
			require.Equal(t, pieces(&cutter{find: find}, s), pieces(scan, s), "%s on %q", regex, s)
		}
	}
}

func FuzzScannersEqualRegex(f *testing.F) {
	for _, s := range []string{"don't 'LL 'ſ", " \n \r x\t\ty", "123456 ٣٤٥٦", "a\u0301 é ①", "...\n\n!!\r", "\u00a0\u2003 \u3000a"} {
		f.Add(s)
	}
	find := map[string]finder{}
	for _, regex := range []string{regexLlama3, regexQwen2, regexGPT2} {
		find[regex], _ = compileRegex(regex)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.Map(knownRune, strings.ToValidUTF8(s, ""))
		require.Equal(t, pieces(&cutter{find: find[regexLlama3]}, s), pieces(knownScanners[regexLlama3], s))
		require.Equal(t, pieces(&cutter{find: find[regexQwen2]}, s), pieces(knownScanners[regexQwen2], s))
		require.Equal(t, pieces(&cutter{find: find[regexGPT2]}, s), pieces(scanner(scanGPT2), s))
	})
}

// knownRune drops the characters that only this package's tables know.
func knownRune(r rune) rune {
	if unicode.In(r, laterLetters, laterNumbers, laterMarks) {
		return -1
	}
	return r
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
		require.Equal(t, want, pieces(&cutter{find: literalFinder("-"), behavior: b}, "the-final--countdown"), name)
	}
}

// The row of ranks and the heap join alike, whatever the length.
func TestJoinShortEqualsLong(t *testing.T) {
	tok, _ := loadGolden(t, "gpt2")
	m, s := &tok.model, newScratch()
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
