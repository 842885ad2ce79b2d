package setup

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/token"
)

// lintKeysMax bounds the keys that are compared for doubles: about 1 GiB.
const lintKeysMax = 1 << 24

// LintReport is what is wrong with data; NewLint begins one.
type LintReport struct {
	Documents int64               `json:"documents"`
	Bad       int64               `json:"bad"`
	Findings  []string            `json:"findings"`
	Run       *dataset.Inspection `json:"run,omitempty"` // of --config
	keys      map[uint64]bool
	seed      maphash.Seed
}

// NewLint begins a report that compares keys over all that is linted.
func NewLint() *LintReport { return &LintReport{keys: map[uint64]bool{}, seed: maphash.MakeSeed()} }

// lintFindingsMax bounds the list; more are counted.
const lintFindingsMax = 10_000

// Find adds a finding.
func (r *LintReport) Find(format string, args ...any) {
	r.Bad++
	if len(r.Findings) < lintFindingsMax {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// Lint reads a path to the end. With a model's folder its tokenizer has to know all ids and its
// template all conversations.
func (r *LintReport) Lint(ctx context.Context, path, model string, o dataset.Options) error {
	s, err := dataset.Open(path, o)
	if err != nil {
		return err
	}
	defer s.Close()
	count := func(*dataset.Document) (int64, error) { return 0, nil }
	var chat *token.Chat
	switch {
	case model != "" && s.Kind().Form() == dataset.InMessages:
		if chat, err = chatOf(model); err != nil {
			return err
		}
		count = countChat(chat)
	case model != "":
		if count, err = NewTokenCounter(model, "", s.Kind(), o.Tags); err != nil {
			return err
		}
	}
	r.Documents += s.Len()
	err = EachDocument(ctx, s, func(i int64, d *dataset.Document) {
		if _, err := count(d); err != nil {
			r.Find("%s: %v", d.Place, err)
		}
		h := maphash.String(r.seed, d.Key)
		if d.Parts != nil && r.keys[h] {
			r.Find("%s: the key %q is there before", d.Place, d.Key)
		}
		if d.Parts != nil && len(r.keys) < lintKeysMax {
			r.keys[h] = true
		}
		if d.Parts != nil && o.Tags != (dataset.Tags{}) {
			if _, err := format.Converse(d, "", o.Tags); err != nil {
				r.Find("%v", err)
			}
		}
	}, func(i int64, b *dataset.BadSample) { r.Find("%s", b) })
	if chat != nil && chat.Endless() {
		r.Find("%s: %s", s.Name(), token.EndlessNote)
	}
	if e, bad := format.ReadEnergon(path); err == nil && bad == nil {
		return r.counts(e)
	}
	return err
}

// counts compares what an Energon data set says of its shards with what they hold.
func (r *LintReport) counts(e *format.Energon) error {
	have, err := e.Count()
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(have)) {
		if want, ok := e.Counts[n]; !ok || want != have[n] {
			r.Find("%s: it holds %d samples, .info.json says %d; run `energon prepare` again", n, have[n], want)
		}
	}
	return nil
}
