package words

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// The golden file is spaCy's and Python's own answer, by bench/golden/words_spacy.py.
func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/words.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := NewCutter()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	n := 0
	for in.Scan() {
		var g struct {
			Text, Simple                    string
			Words, Sentences, Lines, Fields []string
		}
		if err := json.Unmarshal(in.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		n++
		if have := c.Words(g.Text); !slices.Equal(have, g.Words) {
			for i := range have {
				if i >= len(g.Words) || have[i] != g.Words[i] {
					t.Errorf("%.80q: word %d: %q, want %q", g.Text, i, have[i:min(i+4, len(have))],
						g.Words[i:min(i+4, len(g.Words))])
					break
				}
			}
		}
		var sentences []string
		last := 0
		for _, end := range c.SentenceEnds(g.Text) {
			sentences = append(sentences, g.Text[last:end])
			last = end
		}
		if !slices.Equal(cleared(sentences), cleared(g.Sentences)) {
			t.Errorf("%q: sentences %q, want %q", g.Text, sentences, g.Sentences)
		}
		if have := Lines(g.Text); !slices.Equal(have, g.Lines) {
			t.Errorf("%q: lines %q, want %q", g.Text, have, g.Lines)
		}
		if have := Fields(g.Text); !slices.Equal(have, g.Fields) {
			t.Errorf("%q: fields %q, want %q", g.Text, have, g.Fields)
		}
		if have := Simplify(g.Text); have != g.Simple {
			t.Errorf("%q:\n%q, want\n%q", g.Text, have, g.Simple)
		}
	}
	if n < 900 {
		t.Fatalf("%d texts were compared", n)
	}
}

// cleared is sentences without the blanks around them: the ends of the golden ones are in characters of
// Python's, which count blanks between sentences to the one behind.
func cleared(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Strip(s)
	}
	return out
}

func BenchmarkWords(b *testing.B) {
	c := NewCutter()
	text, err := os.ReadFile("words.go")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		c.Words(string(text))
	}
}
