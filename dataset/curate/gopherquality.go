package curate

import (
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset/words"
)

// gopher_quality: Gopher's rules about single documents, as Datatrove's GopherQualityFilter.
var _ = Register(Kind{Name: "gopher_quality", Doc: "drops what is no running text, by Gopher's rules",
	Source: "arXiv:2112.11446, table A1; Datatrove 0.10 GopherQualityFilter", Settings: func() Settings {
		return &gopherQuality{MinWords: 50, MaxWords: 100000, MinLength: 3, MaxLength: 10, Symbols: 0.1,
			Bullets: 0.9, Ellipses: 0.3, Alpha: 0.8, MinStop: 2,
			Stop: []string{"the", "be", "to", "of", "and", "that", "have", "with"}}
	}})

// gopherQuality is its settings. A zero switches a rule off.
type gopherQuality struct {
	MinWords  int      `yaml:"min_doc_words"`
	MaxWords  int      `yaml:"max_doc_words"`
	MinLength float64  `yaml:"min_avg_word_length"`
	MaxLength float64  `yaml:"max_avg_word_length"`
	Symbols   float64  `yaml:"max_symbol_word_ratio"`
	Bullets   float64  `yaml:"max_bullet_lines_ratio"`
	Ellipses  float64  `yaml:"max_ellipsis_lines_ratio"`
	Alpha     float64  `yaml:"max_non_alpha_words_ratio"`
	MinStop   int      `yaml:"min_stop_words"`
	Stop      []string `yaml:"stop_words"`
	stop      map[string]bool
}

func (g *gopherQuality) Open() (Step, error) {
	g.stop = map[string]bool{}
	for _, w := range g.Stop {
		g.stop[w] = true
	}
	return g, nil
}

func (g *gopherQuality) Columns() Columns { return Columns{} }

func (g *gopherQuality) Do(k *Desk, d *Doc) string {
	all := k.Words(d.Text)
	real, chars, alpha := 0, 0, 0
	for _, w := range all {
		symbols, letter := true, false
		n := 0
		for _, r := range w {
			n++
			symbols = symbols && words.IsSymbol(r)
			letter = letter || words.IsLetter(r)
		}
		if !symbols {
			real++
			chars += n
		}
		if letter {
			alpha++
		}
	}
	switch {
	case g.MinWords != 0 && real < g.MinWords, real == 0:
		return "gopher_short_doc"
	case g.MaxWords != 0 && real > g.MaxWords:
		return "gopher_long_doc"
	}
	mean, n := float64(chars)/float64(real), float64(len(all))
	ellipses := strings.Count(d.Text, "...") + strings.Count(d.Text, "…")
	switch {
	case g.MinLength != 0 && mean < g.MinLength:
		return "gopher_below_avg_threshold"
	case g.MaxLength != 0 && mean > g.MaxLength:
		return "gopher_above_avg_threshold"
	case g.Symbols != 0 && float64(strings.Count(d.Text, "#"))/n > g.Symbols:
		return "gopher_too_many_hashes"
	case g.Symbols != 0 && float64(ellipses)/n > g.Symbols:
		return "gopher_too_many_ellipsis"
	}
	if reason := g.lines(d.Text); reason != "" {
		return reason
	}
	switch {
	case g.Alpha != 0 && float64(alpha)/n < g.Alpha:
		return "gopher_below_alpha_threshold"
	case g.MinStop != 0 && g.stopWords(all) < g.MinStop:
		return "gopher_enough_stop_words"
	}
	return ""
}

// lines looks at how lines begin and end.
func (g *gopherQuality) lines(text string) string {
	lines := words.Lines(text)
	bullets, ends := 0, 0
	for _, l := range lines {
		r, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(l, words.IsSpace))
		if r == '•' || r == '-' {
			bullets++
		}
		l = strings.TrimRightFunc(l, words.IsSpace)
		if strings.HasSuffix(l, "...") || strings.HasSuffix(l, "…") {
			ends++
		}
	}
	n := float64(len(lines))
	switch {
	case g.Bullets != 0 && float64(bullets)/n > g.Bullets:
		return "gopher_too_many_bullets"
	case g.Ellipses != 0 && float64(ends)/n > g.Ellipses:
		return "gopher_too_many_end_ellipsis"
	}
	return ""
}

// stopWords counts the different stop words among words.
func (g *gopherQuality) stopWords(all []string) int {
	seen := map[string]bool{}
	for _, w := range all {
		if g.stop[w] {
			seen[w] = true
		}
	}
	return len(seen)
}
