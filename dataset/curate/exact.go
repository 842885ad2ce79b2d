package curate

import (
	"crypto/sha256"
	"strings"

	"github.com/lfactor/lfactor/dataset/words"
)

// keyBytes is how much of a SHA-256 stands for a text: two texts of 10¹⁰ are taken for equal with a chance below 1e-18.
const keyBytes = 16

// exact_dedup: documents with the same text; the first stays.
var _ = Register(Kind{Name: "exact_dedup", Doc: "drops documents whose text has come before",
	Source: "SHA-256 of the text, cut to 128 bits", Settings: func() Settings { return &exactDedup{} }})

// exactDedup is its settings.
type exactDedup struct {
	Simplify bool `yaml:"simplify"` // texts are compared in the form of minhash_dedup
}

func (e *exactDedup) Open() (Step, error)        { return e, nil }
func (e *exactDedup) Columns() Columns           { return Columns{} }
func (e *exactDedup) Do(*Desk, *Doc) string      { return "" }
func (e *exactDedup) Form() Form                 { return Form{Buckets: 1, Bytes: keyBytes} }
func (e *exactDedup) Drop(*Doc, []uint32) string { return "duplicate" }

func (e *exactDedup) Sign(_ *Desk, d *Doc, emit func(int, uint32, []byte)) {
	text := d.Text
	if e.Simplify {
		text = words.Simplify(text)
	}
	h := sha256.Sum256([]byte(text))
	emit(0, 0, h[:keyBytes])
}

// paragraph_dedup: lines that stood in an earlier document, or earlier in the same one.
var _ = Register(Kind{Name: "paragraph_dedup", Doc: "removes lines that have come before, in any document",
	Source:   "arXiv:1911.00359 (CCNet), section 3.2",
	Settings: func() Settings { return &paragraphDedup{MinChars: 20, MinLeft: 1} }})

// paragraphDedup is its settings. Lines are compared in the form of words.Simplify.
type paragraphDedup struct {
	MinChars int `yaml:"min_chars"` // bytes of a line in that form from which on it is compared
	MinLeft  int `yaml:"min_left"`  // lines that must be left of a document
}

func (p *paragraphDedup) Open() (Step, error) {
	if p.MinChars < 1 {
		return nil, &Fault{"min_chars", "must be at least 1", ""}
	}
	return p, nil
}

func (p *paragraphDedup) Columns() Columns      { return Columns{Text: true} }
func (p *paragraphDedup) Do(*Desk, *Doc) string { return "" }
func (p *paragraphDedup) Form() Form            { return Form{Buckets: 1, Bytes: keyBytes} }

func (p *paragraphDedup) Sign(_ *Desk, d *Doc, emit func(int, uint32, []byte)) {
	unit := uint32(0)
	for l := range strings.SplitSeq(d.Text, "\n") {
		if s := words.Simplify(l); len(s) >= p.MinChars {
			h := sha256.Sum256([]byte(s))
			emit(0, unit, h[:keyBytes])
		}
		unit++
	}
}

func (p *paragraphDedup) Drop(d *Doc, units []uint32) string {
	lines := strings.Split(d.Text, "\n")
	kept := lines[:0]
	left := 0
	for i, l := range lines {
		if len(units) > 0 && units[0] == uint32(i) {
			units = units[1:]
			continue
		}
		if words.Strip(l) != "" {
			left++
		}
		kept = append(kept, l)
	}
	if left < p.MinLeft {
		return "duplicate_paragraphs"
	}
	d.Text = strings.Join(kept, "\n")
	return ""
}
