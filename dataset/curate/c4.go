package curate

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset/words"
)

// c4_quality: C4's rules about lines, as Datatrove's C4QualityFilter with split_paragraph.
var _ = Register(Kind{Name: "c4_quality",
	Doc:    "keeps lines that are sentences, and documents that have enough of them",
	Source: "arXiv:1910.10683; Datatrove 0.10 C4QualityFilter",
	Settings: func() Settings {
		return &c4Quality{Citations: true, Terminal: true, MinSentences: 5, MinWords: 3, MaxWord: 1000, Lorem: true,
			JavaScript: true, Curly: true, Policy: true}
	}})

// c4Quality is its settings; -1 switches a bound off.
type c4Quality struct {
	Citations    bool `yaml:"remove_citations"`
	Terminal     bool `yaml:"filter_no_terminal_punct"`
	MinSentences int  `yaml:"min_num_sentences"`
	MinWords     int  `yaml:"min_words_per_line"`
	MaxWord      int  `yaml:"max_word_length"`
	Lorem        bool `yaml:"filter_lorem_ipsum"`
	JavaScript   bool `yaml:"filter_javascript"`
	Curly        bool `yaml:"filter_curly_bracket"`
	Policy       bool `yaml:"filter_policy"`
}

func (c *c4Quality) Open() (Step, error) { return c, nil }
func (c *c4Quality) Columns() Columns    { return Columns{Text: true} }

var (
	citation = regexp.MustCompile(`\[\p{Nd}*\]|\[edit\]|\[citation needed\]`)
	policies = []string{"terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies",
		"use cookies"}
)

func (c *c4Quality) Do(k *Desk, d *Doc) string {
	sentences := 0
	var kept []string
	for _, line := range words.Lines(d.Text) {
		line = words.Strip(line)
		parts := words.Fields(line)
		if c.MaxWord != -1 && slices.ContainsFunc(parts, func(w string) bool {
			return len(w) > c.MaxWord && utf8.RuneCountInString(w) > c.MaxWord
		}) {
			continue
		}
		if c.Citations && strings.IndexByte(line, '[') >= 0 {
			line = citation.ReplaceAllString(line, "")
		}
		if c.Terminal && !endsSentence(line) || len(parts) < c.MinWords {
			continue
		}
		lower := words.Lower(line)
		if c.Lorem && strings.Contains(lower, "lorem ipsum") {
			return "lorem_ipsum"
		}
		if c.JavaScript && strings.Contains(lower, "javascript") {
			continue
		}
		if c.Curly && strings.Contains(line, "{") {
			return "curly_bracket"
		}
		if c.Policy && slices.ContainsFunc(policies, func(p string) bool {
			return strings.Contains(lower, p)
		}) {
			continue
		}
		if c.MinSentences != -1 {
			sentences += k.Sentences(line)
		}
		kept = append(kept, line)
	}
	if sentences < c.MinSentences {
		return "too_few_sentences"
	}
	d.Text = words.Strip(strings.Join(kept, "\n"))
	return ""
}

// endsSentence says whether a line ends as a sentence does.
func endsSentence(line string) bool {
	if line == "" || strings.HasSuffix(line, "...") {
		return false
	}
	return strings.IndexByte(`.?!"'`, line[len(line)-1]) >= 0
}

// c4_paragraphs: mC4's rule about paragraphs, as Datatrove's C4ParagraphFilter.
var _ = Register(Kind{Name: "c4_paragraphs", Doc: "drops documents with fewer than three long lines",
	Source:   "arXiv:2010.11934; Datatrove 0.10 C4ParagraphFilter",
	Settings: func() Settings { return &c4Paragraphs{Count: 3, Chars: 200} }})

// c4Paragraphs is its settings.
type c4Paragraphs struct {
	Count int `yaml:"min_paragraphs"`
	Chars int `yaml:"min_paragraph_len"`
}

func (c *c4Paragraphs) Open() (Step, error) { return c, nil }
func (c *c4Paragraphs) Columns() Columns    { return Columns{} }

func (c *c4Paragraphs) Do(_ *Desk, d *Doc) string {
	long := 0
	for l := range strings.SplitSeq(d.Text, "\n") {
		if utf8.RuneCountInString(l) >= c.Chars {
			long++
		}
	}
	if long < c.Count {
		return "too_few_paragraphs"
	}
	return ""
}
