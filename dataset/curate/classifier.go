package curate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/fasttext"
	"github.com/lfactor/lfactor/dataset/words"
)

// classifier: a fastText classifier of the user's, as Datatrove's FastTextClassifierFilter on whole documents.
var _ = Register(Kind{Name: "classifier",
	Doc:    "keeps or drops documents by the labels of a fastText classifier",
	Source: "Datatrove 0.10 FastTextClassifierFilter",
	Settings: func() Settings {
		return &classifier{Save: true}
	}})

// classifier is its settings: keep_labels or remove_labels, not both; neither writes scores down alone.
type classifier struct {
	Model   string       `yaml:"model"`
	Keep    []labelScore `yaml:"keep_labels"`
	Remove  []labelScore `yaml:"remove_labels"`
	Save    bool         `yaml:"save_labels_in_metadata"`
	NewLine string       `yaml:"newline_replacement"`
	model   *fasttext.Model
}

// labelScore is a label and the score from which on it counts.
type labelScore struct {
	Label string  `yaml:"label"`
	Score float64 `yaml:"score"`
}

func (c *classifier) Open() (Step, error) {
	if len(c.Keep) > 0 && len(c.Remove) > 0 {
		return nil, &Fault{"keep_labels", "remove_labels is given too", "give one of them, and use two steps for both"}
	}
	var err error
	if c.model, err = openClassifier(c.Model); err != nil {
		return nil, err
	}
	names := c.model.Labels()
	for _, l := range append(slices.Clone(c.Keep), c.Remove...) {
		if !slices.Contains(names, l.Label) {
			return nil, &Fault{"keep_labels", fmt.Sprintf("the classifier has no label %q", l.Label), listOf(names)}
		}
	}
	return c, nil
}

func (c *classifier) Columns() Columns {
	var out Columns
	if c.Save {
		for _, l := range c.model.Labels() {
			out.Writes = append(out.Writes, "__label__"+l)
		}
	}
	return out
}

func (c *classifier) Do(_ *Desk, d *Doc) string {
	scores := c.model.Predict(strings.ReplaceAll(words.Strip(d.Text), "\n", c.NewLine))
	reached := func(list []labelScore) bool {
		for _, l := range list {
			for _, s := range scores {
				if s.Label == l.Label && float64(s.P) >= l.Score {
					return true
				}
			}
		}
		return false
	}
	if c.Save {
		for _, s := range scores {
			d.Set("__label__"+s.Label, float64(s.P))
		}
	}
	switch {
	case len(c.Keep) > 0 && !reached(c.Keep), reached(c.Remove):
		return "classifier"
	case words.Strip(d.Text) == "":
		return "empty"
	}
	return ""
}

// Fingerprint implements Reading.
func (c *classifier) Fingerprint() (string, error) { return FingerprintOf(c.Model) }
