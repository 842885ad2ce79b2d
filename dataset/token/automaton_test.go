package token

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// published are expressions of models' pre-tokenizers, and some that try each part of an automaton.
var published = map[string]string{
	"llama3": regexLlama3, "qwen2": regexQwen2, "gpt2": regexGPT2,
	"o200k":         `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"deepseek":      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
	"digits":        `\p{N}{1,3}`,
	"east asia":     "[一-龥\u3040-ゟ゠-ヿ]+",
	"qwen3.5":       `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"lazy":          `a+?b|a{2,}?|\d{1,2}?`,
	"order matters": `a|ab|abc|bc+|b`,
	"not text":      `x(?!\S)|y+(?!\S)|z`,
	"not words":     `\W+|[\W\d]x`,
}

// An automaton finds what the engine finds.
func TestAutomatonEqualsEngine(t *testing.T) {
	more := []string{"aaab aab abc bcc 1234567", "x xy yyy yyyz\u3000y",
		"日本語のテキスト、ﾃｷｽﾄ 123㍿", "z\U0001F600x\U00020000\U000e0100 y"}
	for name, expr := range published {
		a, err := newAutomaton(expr)
		require.NoError(t, err, name)
		engine, err := engineRegex(expr)
		require.NoError(t, err, name)
		found := 0
		for _, s := range append(goldenText(t), more...) {
			got := matches(a.finder(nil), s)
			require.Equal(t, matches(engine, s), got, "%s on %q", name, s)
			found += len(got)
		}
		require.Positive(t, found, name)
	}
}

func matches(find finder, text string) (out [][2]int) {
	find(text, func(start, stop int) { out = append(out, [2]int{start, stop}) })
	return out
}

// Expressions that mean something else to Go, or that look around, stay with the engine.
func TestNoAutomaton(t *testing.T) {
	for _, expr := range []string{`a(?=b)`, `(?<=a)b`, `(?!a)b`, `(a)\1`, `^a`, `a$`, `a.c`,
		`\ba`, `a\B`, `a*`, `a|`, `[[:alpah:]]`, `[a-z&&b`,
		`(?i:[a[bc]])`, `\p{Klingon}`, `(?<n>a)`, `(?m:a)`, `(?>a+)`, `a++`, `\h`, `\X`, `\Ka`, `(a`, `[a`, `a\`} {
		_, err := newAutomaton(expr)
		require.Error(t, err, expr)
	}
}

// Where an automaton would read the same text again and again, another finder takes over.
func TestAutomatonGivesUp(t *testing.T) {
	a, err := newAutomaton(`b|a+c`)
	require.NoError(t, err)
	text := "b" + strings.Repeat("a", 1<<10)
	var handed string
	find := a.finder(func(rest string, yield func(start, stop int)) { handed = rest; yield(1, 2) })
	got := matches(find, text)
	require.Zero(t, len(handed), "the square of a thousand is in bounds")
	require.Equal(t, [][2]int{{0, 1}}, got)
	text = "b" + strings.Repeat("a", 1<<14)
	got = matches(find, text)
	require.NotZero(t, len(handed))
	require.Len(t, got, 2)
	require.Equal(t, len(text)-len(handed)+1, got[1][0])
}

// Every Split of the golden pre-tokenizers that an automaton can be is one.
func TestGoldenAutomatons(t *testing.T) {
	b, err := os.ReadFile("testdata/cuts_all.json")
	require.NoError(t, err)
	var cases struct{ Cuts map[string][2]json.RawMessage }
	require.NoError(t, json.Unmarshal(b, &cases))
	n := 0
	for name, c := range cases.Cuts {
		leaves, err := flatten(c[0], "pre_tokenizer", "pretokenizers", 0)
		require.NoError(t, err, name)
		for _, l := range leaves {
			var f splitFile
			require.NoError(t, json.Unmarshal(l, &f))
			if f.Pattern.Regex != nil {
				_, err := newAutomaton(*f.Pattern.Regex)
				require.NoError(t, err, "%s: %s", name, *f.Pattern.Regex)
				n++
			}
		}
	}
	require.Greater(t, n, 5)
}

func FuzzAutomatonEqualsEngine(f *testing.F) {
	for _, s := range []string{"don't 'LL 'ſ", " \n \r x\t\ty", "123456 ٣٤٥٦",
		"a\u0301 é ①", "...\n\n!!\r", "日本\u3000a\U00020000"} {
		f.Add(s)
	}
	type pair struct{ automaton, engine finder }
	all := map[string]pair{}
	for name, expr := range published {
		a, err := newAutomaton(expr)
		require.NoError(f, err)
		engine, err := engineRegex(expr)
		require.NoError(f, err)
		all[name] = pair{a.finder(engine), engine}
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "")
		for name, p := range all {
			require.Equal(t, matches(p.engine, s), matches(p.automaton, s), name)
		}
	})
}
