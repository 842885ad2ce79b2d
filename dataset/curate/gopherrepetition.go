package curate

import (
	"fmt"
	"regexp"
	"sync"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset/words"
)

// gopher_repetition: Gopher's rules about repetition, as Datatrove's GopherRepetitionFilter.
var _ = Register(Kind{Name: "gopher_repetition",
	Doc:    "drops texts that repeat themselves, by Gopher's rules",
	Source: "arXiv:2112.11446, table A1; Datatrove 0.10 GopherRepetitionFilter",
	Settings: func() Settings {
		return &gopherRepetition{Lines: 0.3, Paragraphs: 0.3, LineChars: 0.2, ParagraphChars: 0.2,
			Top: [][2]float64{{2, 0.2}, {3, 0.18}, {4, 0.16}},
			Dup: [][2]float64{{5, 0.15}, {6, 0.14}, {7, 0.13}, {8, 0.12}, {9, 0.11}, {10, 0.10}}}
	}})

// gopherRepetition is its settings. A zero switches a rule off, an empty list those of n-grams.
type gopherRepetition struct {
	Lines          float64      `yaml:"dup_line_frac"`
	Paragraphs     float64      `yaml:"dup_para_frac"`
	LineChars      float64      `yaml:"dup_line_char_frac"`
	ParagraphChars float64      `yaml:"dup_para_char_frac"`
	Top            [][2]float64 `yaml:"top_n_grams"` // n and the fraction
	Dup            [][2]float64 `yaml:"dup_n_grams"`
	spare          sync.Pool    // of *gopherScratch
}

// gopherScratch is memory that documents share one after the other.
type gopherScratch struct {
	byWord, byByte repeats
	ends           []int // of the words, put beside each other: in bytes
	chars          []int // in characters, with 0 in front
	joined         []byte
	seen           map[uint64]int32
	counts         []int32
}

func (g *gopherRepetition) Open() (Step, error) {
	for key, list := range map[string][][2]float64{"top_n_grams": g.Top, "dup_n_grams": g.Dup} {
		for _, p := range list {
			if p[0] < 1 || p[0] != float64(int(p[0])) || p[0] > 1000 {
				return nil, &Fault{key, fmt.Sprintf("%v is no number of words", p[0]), "give pairs like [2, 0.2]"}
			}
		}
	}
	g.spare.New = func() any { return &gopherScratch{seen: map[uint64]int32{}} }
	return g, nil
}

func (g *gopherRepetition) Columns() Columns { return Columns{} }

var (
	paragraphEnd = regexp.MustCompile(`\n{2,}`)
	lineEnds     = regexp.MustCompile(`\n+`)
)

func (g *gopherRepetition) Do(k *Desk, d *Doc) string {
	if d.Text == "" {
		return "empty"
	}
	all := float64(utf8.RuneCountInString(d.Text))
	parts := paragraphEnd.Split(words.Strip(d.Text), -1)
	again, chars := duplicates(parts)
	switch {
	case g.Paragraphs != 0 && float64(again)/float64(len(parts)) > g.Paragraphs:
		return "dup_para_frac"
	case g.ParagraphChars != 0 && float64(chars)/all > g.ParagraphChars:
		return "dup_para_char_frac"
	}
	parts = lineEnds.Split(d.Text, -1)
	again, chars = duplicates(parts)
	switch {
	case g.Lines != 0 && float64(again)/float64(len(parts)) > g.Lines:
		return "dup_line_frac"
	case g.LineChars != 0 && float64(chars)/all > g.LineChars:
		return "dup_line_char_frac"
	}
	s := g.spare.Get().(*gopherScratch)
	defer g.spare.Put(s)
	s.take(k.Words(d.Text))
	for _, p := range g.Top {
		if n := int(p[0]); n <= len(s.ends) && float64(s.top(n))/all > p[1] {
			return fmt.Sprintf("top_%d_gram", n)
		}
	}
	for _, p := range g.Dup {
		if n := int(p[0]); float64(s.repeated(n))/all > p[1] {
			return fmt.Sprintf("duplicated_%d_n_grams", n)
		}
	}
	return ""
}

// take prepares the n-grams of words.
func (s *gopherScratch) take(list []string) {
	s.ends, s.chars, s.joined = s.ends[:0], append(s.chars[:0], 0), s.joined[:0]
	for _, w := range list {
		s.joined = append(s.joined, w...)
		s.ends = append(s.ends, len(s.joined))
		s.chars = append(s.chars, s.chars[len(s.chars)-1]+utf8.RuneCountInString(w))
	}
	s.byByte.over(len(s.joined), func(i int) uint64 { return uint64(s.joined[i]) })
	s.byWord.over(len(list), func(i int) uint64 { return s.byByte.hash(s.start(i), s.ends[i]) })
}

// start is the byte at which word i begins.
func (s *gopherScratch) start(i int) int {
	if i == 0 {
		return 0
	}
	return s.ends[i-1]
}

// top returns the characters, blanks between words counted, of all places of the n-gram that comes most
// often; of several the first one.
func (s *gopherScratch) top(n int) int {
	clear(s.seen)
	s.counts = s.counts[:0]
	var first []int
	for i := 0; i+n <= len(s.ends); i++ {
		h := s.byWord.hash(i, i+n)
		at, ok := s.seen[h]
		if !ok {
			at = int32(len(s.counts))
			s.seen[h] = at
			s.counts = append(s.counts, 0)
			first = append(first, i)
		}
		s.counts[at]++
	}
	best := 0
	for at, c := range s.counts {
		if c > s.counts[best] {
			best = at
		}
	}
	i := first[best]
	return (s.chars[i+n] - s.chars[i] + n - 1) * int(s.counts[best])
}

// repeated returns the characters of n-grams that have come before, without overlaps. Words are compared as
// they stand beside each other without blanks, as Datatrove does.
func (s *gopherScratch) repeated(n int) (chars int) {
	clear(s.seen)
	for i := 0; i+n <= len(s.ends); {
		h := s.byByte.hash(s.start(i), s.ends[i+n-1])
		if _, ok := s.seen[h]; ok {
			chars += s.chars[i+n] - s.chars[i]
			i += n
			continue
		}
		s.seen[h] = 0
		i++
	}
	return chars
}
