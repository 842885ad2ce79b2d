package curate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/fasttext"
)

// language: languages by a fastText classifier of the user's, as Datatrove's LanguageFilter with the
// models lid.176 and GlotLID.
var _ = Register(Kind{Name: "language", Doc: "keeps documents of some languages, by a fastText model",
	Source: "Datatrove 0.10 LanguageFilter; arXiv:1607.01759", Settings: func() Settings {
		return &language{Threshold: 0.65, Backend: "ft176", Top: -1}
	}})

// language is its settings.
type language struct {
	Model     string   `yaml:"model"`     // the classifier's file
	Languages []string `yaml:"languages"` // to keep; none means each that is recognized
	Threshold float64  `yaml:"language_threshold"`
	LabelOnly bool     `yaml:"label_only"`
	Backend   string   `yaml:"backend"`
	Top       float64  `yaml:"keep_top_pairs_threshold"`
	model     *fasttext.Model
}

func (l *language) Open() (Step, error) {
	if l.Backend != "ft176" && l.Backend != "glotlid" {
		return nil, &Fault{"backend", fmt.Sprintf("%q is none", l.Backend),
			"use ft176, or glotlid, whose labels are a language and a script"}
	}
	var err error
	if l.model, err = openClassifier(l.Model); err != nil {
		return nil, err
	}
	names := l.model.Labels()
	for _, n := range l.Languages {
		if !slices.Contains(names, n) {
			return nil, &Fault{"languages", fmt.Sprintf("the model knows no language %q", n), listOf(names)}
		}
	}
	return l, nil
}

// openClassifier opens the file of a setting "model".
func openClassifier(path string) (*fasttext.Model, error) {
	if path == "" {
		return nil, &Fault{"model", "is not given", "name a .bin or .ftz of fastText"}
	}
	m, err := fasttext.Open(path)
	if err != nil {
		return nil, &Fault{"model", err.Error(), ""}
	}
	return m, nil
}

// listOf names some of a model's labels.
func listOf(names []string) string {
	names = slices.Sorted(slices.Values(names))
	more := ""
	if len(names) > 12 {
		names, more = names[:12], ", …"
	}
	return "it knows " + strings.Join(names, ", ") + more
}

func (l *language) Columns() Columns {
	c := Columns{Writes: []string{"language", "language_score"}}
	if l.Backend == "glotlid" {
		c.Writes = append(c.Writes, "language_script")
	}
	return c
}

func (l *language) Do(_ *Desk, d *Doc) string {
	scores := l.model.Predict(strings.ReplaceAll(d.Text, "\n", " "))
	if len(scores) == 0 {
		return "language_unknown"
	}
	best, bestP := scores[0].Label, float64(scores[0].P)
	if l.Backend == "glotlid" {
		var script string
		best, script, _ = strings.Cut(best, "_")
		d.Set("language_script", script)
	}
	d.Set("language", best)
	d.Set("language_score", bestP)
	if l.Top != -1 {
		for _, s := range scores {
			if float64(s.P) > l.Top && (len(l.Languages) == 0 || slices.Contains(l.Languages, s.Label)) {
				d.Set("top_language_"+s.Label+"_score", float64(s.P))
			}
		}
	}
	if l.LabelOnly {
		return ""
	}
	if len(l.Languages) == 0 && bestP > l.Threshold {
		return ""
	}
	for _, s := range scores {
		if float64(s.P) > l.Threshold && slices.Contains(l.Languages, s.Label) {
			return ""
		}
	}
	return "language"
}

// Fingerprint implements Reading.
func (l *language) Fingerprint() (string, error) { return FingerprintOf(l.Model) }
