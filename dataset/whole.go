package dataset

import "sync"

// A document or sample with an id that the model has no row for is bad as a whole, in every format: what is
// left of it without the id is not what its author wrote, and such an id mostly says that all the others are
// of another vocabulary too. Long documents are read in pieces, so that the piece without the id does not know
// of it: the first piece that is read looks at all of its document, once.

// verdicts remember which documents of several pieces were looked at.
type verdicts struct {
	mu    sync.Mutex
	sound [][]uint64 // by source: a bit for each document without a fault
	found map[docKey]*BadSample
}

// newVerdicts keeps one bit for each document that was found sound, as there may be billions.
func newVerdicts(sources []Weighted) *verdicts {
	v := &verdicts{sound: make([][]uint64, len(sources)), found: map[docKey]*BadSample{}}
	for i, s := range sources {
		v.sound[i] = make([]uint64, s.Source.Len()/64+1)
	}
	return v
}

// of returns what is known of a document.
func (v *verdicts) of(k docKey) (known bool, bad *BadSample) {
	v.mu.Lock()
	defer v.mu.Unlock()
	bad = v.found[k]
	return bad != nil || v.sound[k.source][k.doc/64]>>(k.doc%64)&1 == 1, bad
}

// bad says whether a document was looked at and is bad.
func (v *verdicts) bad(k docKey) bool {
	_, bad := v.of(k)
	return bad != nil
}

// keep notes what was found about a document; a bad one is kept with its reason.
func (v *verdicts) keep(k docKey, bad *BadSample) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if bad != nil {
		v.found[k] = bad
	} else {
		v.sound[k.source][k.doc/64] |= 1 << (k.doc % 64)
	}
}

// wholeStep is how many ids of a document are read at once to look at them.
const wholeStep = 1 << 16

// judge looks at all of the document of a piece of several, unless it was looked at. What is wrong with the document is a
// *BadSample, the same one for each of its pieces.
func (f *fetcher) judge(source int, u unit) error {
	kind := f.sources[source].Source.Kind()
	if kind == KindText && f.allKnown() {
		return nil
	}
	k := docKey{source, u.doc}
	known, bad := f.verdicts.of(k)
	if !known {
		err := f.whole(source, u, kind)
		if bad = asBad(err); bad == nil && err != nil {
			return err
		}
		f.verdicts.keep(k, bad)
	}
	if bad != nil {
		return bad
	}
	return nil
}

// allKnown says that the encoder gives no id that the model has no row for.
func (f *fetcher) allKnown() bool {
	e, ok := f.enc.(interface{ VocabSize() int })
	return f.vocab <= 0 || ok && e.VocabSize() <= int(f.vocab)
}

// whole looks at the ids of a whole document.
func (f *fetcher) whole(source int, u unit, kind Kind) error {
	if kind == KindText {
		u.piece, u.pieces, u.part = 0, 1, partAll
		d, err := f.sources[source].Source.Read(u.doc)
		if err != nil {
			return err
		}
		_, err = f.encode(d, kind, u)
		return err
	}
	for at := int64(0); at < u.size; at += wholeStep {
		d, err := readPart(f.sources[source].Source, u.doc, at, min(at+wholeStep, u.size))
		if err != nil {
			return err
		}
		if err := f.known(&tokens{place: d.Place, pieces: pieces{ids: d.Tokens}}, int(at)); err != nil {
			return err
		}
	}
	return nil
}
