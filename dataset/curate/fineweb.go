package curate

import (
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset/words"
)

// fineweb_quality: FineWeb's own rules, as Datatrove's FineWebQualityFilter.
var _ = Register(Kind{Name: "fineweb_quality",
	Doc:    "drops lists, menus and repeated lines, by FineWeb's rules",
	Source: "arXiv:2406.17557; Datatrove 0.10 FineWebQualityFilter",
	Settings: func() Settings {
		return &fineWeb{Punct: 0.12, Short: 0.67, Length: 30, Duplicates: 0.01, NewLines: 0.3}
	}})

// fineWeb is its settings.
type fineWeb struct {
	Punct       float64  `yaml:"line_punct_thr"`
	ExcludeZero bool     `yaml:"line_punct_exclude_zero"`
	Stop        []string `yaml:"stop_chars"` // ends of sentences in any script, unless given
	Short       float64  `yaml:"short_line_thr"`
	Length      int      `yaml:"short_line_length"`
	Duplicates  float64  `yaml:"char_duplicates_ratio"`
	NewLines    float64  `yaml:"new_line_ratio"`
}

func (f *fineWeb) Open() (Step, error) { return f, nil }
func (f *fineWeb) Columns() Columns    { return Columns{} }

func (f *fineWeb) Do(k *Desk, d *Doc) string {
	var lines []string
	ends, short := 0, 0
	for l := range strings.SplitSeq(d.Text, "\n") {
		if words.Strip(l) == "" {
			continue
		}
		lines = append(lines, l)
		if f.ends(l) {
			ends++
		}
		if utf8.RuneCountInString(l) <= f.Length {
			short++
		}
	}
	if len(lines) == 0 {
		return "empty"
	}
	n := float64(len(lines))
	if ratio := float64(ends) / n; ratio < f.Punct && (ratio != 0 || !f.ExcludeZero) {
		return "line_punct_ratio"
	}
	if float64(short)/n > f.Short {
		return "short_line_ratio"
	}
	newLines := strings.Count(d.Text, "\n")
	_, chars := duplicates(lines)
	if float64(chars)/float64(utf8.RuneCountInString(d.Text)-newLines) > f.Duplicates {
		return "char_dup_ratio"
	}
	if float64(newLines)/float64(len(k.Words(d.Text))) > f.NewLines {
		return "list_ratio"
	}
	return ""
}

// ends says whether a line ends with one of the characters that end sentences.
func (f *fineWeb) ends(line string) bool {
	if f.Stop == nil {
		r, _ := utf8.DecodeLastRuneInString(line)
		return words.IsTerminal(r)
	}
	for _, s := range f.Stop {
		if strings.HasSuffix(line, s) {
			return true
		}
	}
	return false
}
