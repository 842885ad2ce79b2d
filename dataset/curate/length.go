package curate

import (
	"fmt"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// length: bounds of a text.
var _ = Register(Kind{Name: "length", Doc: "drops documents that are too short or too long",
	Source:   "characters, words of dataset/words, or a column of numbers such as token_count",
	Settings: func() Settings { return &length{} }})

// length is its settings; a zero switches a bound off.
type length struct {
	MinChars int     `yaml:"min_chars"`
	MaxChars int     `yaml:"max_chars"`
	MinWords int     `yaml:"min_words"`
	MaxWords int     `yaml:"max_words"`
	Column   string  `yaml:"column"`
	Min      float64 `yaml:"min"` // of the column
	Max      float64 `yaml:"max"`
}

func (l *length) Open() (Step, error) {
	if *l == (length{}) {
		return nil, &Fault{"min_chars", "no bound is given",
			"give min_chars, max_chars, min_words, max_words, or column with min or max"}
	}
	if l.Column == "" && (l.Min != 0 || l.Max != 0) {
		return nil, &Fault{"column", "is not given, and min and max are bounds of a column", ""}
	}
	return l, nil
}

func (l *length) Columns() Columns {
	if l.Column != "" {
		return Columns{Reads: []string{l.Column}}
	}
	return Columns{}
}

func (l *length) Do(k *Desk, d *Doc) string {
	if l.MinChars != 0 || l.MaxChars != 0 {
		switch n := utf8.RuneCountInString(d.Text); {
		case n < l.MinChars:
			return "too_short"
		case l.MaxChars != 0 && n > l.MaxChars:
			return "too_long"
		}
	}
	if l.MinWords != 0 || l.MaxWords != 0 {
		switch n := len(k.Words(d.Text)); {
		case n < l.MinWords:
			return "too_few_words"
		case l.MaxWords != 0 && n > l.MaxWords:
			return "too_many_words"
		}
	}
	if l.Column != "" {
		var v float64
		if _, err := fmt.Sscan(string(d.Field(l.Column)), &v); err != nil {
			return "no_" + l.Column
		}
		switch {
		case v < l.Min:
			return "low_" + l.Column
		case l.Max != 0 && v > l.Max:
			return "high_" + l.Column
		}
	}
	return ""
}

// sample: a share of the documents of each input, drawn by number, so that it does not depend on what other
// steps have done.
var _ = Register(Kind{Name: "sample", Doc: "keeps a share of the documents, of each input its own",
	Source: "xxHash64 of seed, input and number", Settings: func() Settings { return &sample{Fraction: 1} }})

// sample is its settings.
type sample struct {
	Fraction float64            `yaml:"fraction"` // of inputs that are not named
	Inputs   map[string]float64 `yaml:"inputs"`
	Seed     int64              `yaml:"seed"`
}

func (s *sample) Open() (Step, error) {
	if s.Fraction < 0 || s.Fraction > 1 {
		return nil, &Fault{"fraction", fmt.Sprintf("%g is not within 0 and 1", s.Fraction), ""}
	}
	for name, f := range s.Inputs {
		if f < 0 || f > 1 {
			return nil, &Fault{"inputs." + name, fmt.Sprintf("%g is not within 0 and 1", f), ""}
		}
	}
	return s, nil
}

func (s *sample) Columns() Columns { return Columns{} }

func (s *sample) Do(_ *Desk, d *Doc) string {
	f, ok := s.Inputs[d.Input]
	if !ok {
		f = s.Fraction
	}
	h := xxhash.Sum64String(fmt.Sprintf("%d\x00%s\x00%d", s.Seed, d.Input, d.Number))
	if float64(h>>11)/(1<<53) >= f {
		return "not_sampled"
	}
	return ""
}
