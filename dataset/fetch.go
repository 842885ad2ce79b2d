package dataset

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Encoder turns text into ids; *token.Tokenizer is one. It is used by several goroutines at once.
type Encoder interface {
	Encode(text string, addSpecial bool) []int32
	Fingerprint() string
}

// ChatEncoder turns conversations into ids, and says which of them the model learns. tools and vars are as
// Document has them. An error means that this conversation does not fit the template; it is quarantined.
type ChatEncoder interface {
	EncodeMessages(messages []Message, tools, vars []byte) (ids []int32, lossMask []bool, err error)
	Fingerprint() string
}

// EditingEncoder is a ChatEncoder that lets the text of a conversation be changed before it becomes ids, for
// models whose prompts have text of their own among media. What edit puts in is never learnt.
type EditingEncoder interface {
	ChatEncoder
	EncodeEdited(messages []Message, tools, vars []byte,
		edit func(text string) ([]Edit, error)) (ids []int32, lossMask []bool, err error)
}

// Edit puts a text in the place of the bytes From to To-1. Edits are in order and do not overlap.
type Edit struct {
	From, To int
	Text     string
}

// tokens is a document as ids.
type tokens struct {
	pieces
	place        Place
	key          string
	begins, ends bool       // the document does with these ids
	bad          *BadSample // the document cannot be used, and has no ids
	whole        bool       // the fault is that of the document, not of one piece
	left         string     // why a filter leaves the document out; it has no ids
}

// Continuer is an Encoder that can go on within a text.
type Continuer interface {
	// EncodeRest returns the ids of a text that stands behind another one, at the start of a line or of a
	// word: without what comes in front of a whole text.
	EncodeRest(text string) ([]int32, error)
}

// ErrStuck is within the error of an encoder that did not come to an end on a text. It is no fault of the
// data alone, and not certain to come again, so that the document is not quarantined: it ends the step.
var ErrStuck = errors.New("the encoder came to no end")

// Encode makes ids of a text, by the encoder's TryEncode if it has one, which may fail where Encode cannot say so.
func Encode(enc Encoder, text string, addSpecial bool) ([]int32, error) {
	if e, ok := enc.(interface {
		TryEncode(text string, addSpecial bool) ([]int32, error)
	}); ok {
		return e.TryEncode(text, addSpecial)
	}
	return enc.Encode(text, addSpecial), nil
}

// fetcher reads documents and turns them into ids, and remembers as many as it may.
type fetcher struct {
	seqLen     int
	vocab      int32
	sources    []Weighted
	enc        Encoder
	chat       ChatEncoder
	samples    SampleEncoder
	addSpecial bool
	eod        int32 // appended to texts; -1: nothing
	cache      tokenCache
	texts      longTexts
	verdicts   *verdicts
	reading    *pool
	encoding   *pool
	decoding   *hold        // nil: media stay files
	ahead      int          // documents of a source in the pools at once: its credits
	waited     atomic.Int64 // nanoseconds that the packer had to wait for documents
}

// readsMax is how often a document is read before an error of the moment is passed on.
const readsMax = 3

// start reads and encodes a document by the pools, and then closes p.done.
func (f *fetcher) start(source int, p *pendingDoc) {
	if t, ok := f.cache.get(source, p.unit); ok {
		p.out = t
		close(p.done)
		return
	}
	f.reading.put(func() { f.read(source, p) })
}

// read reads a document and hands it on. A bad one is not an error.
func (f *fetcher) read(source int, p *pendingDoc) {
	d, err := f.document(source, p.unit)
	for n := 1; err != nil && n < readsMax && asBad(err) == nil; n++ {
		d, err = f.document(source, p.unit)
	}
	if err != nil {
		f.finish(source, p, tokens{place: d.Place, whole: f.sources[source].Source.Kind() != KindTokens ||
			asBad(err) != nil && f.verdicts.bad(docKey{source, p.doc})}, err)
		return
	}
	f.reading.hand(f.encoding, func() {
		t, err := f.encode(d, f.sources[source].Source.Kind(), p.unit)
		if err != nil || f.decoding == nil || len(t.media) == 0 {
			f.finish(source, p, t, err)
			return
		}
		f.encoding.hand(f.decoding.pool, func() {
			if err := f.decoding.verify(t.media); err != nil {
				release(t.media)
				f.finish(source, p, t, &BadSample{t.place, fmt.Sprintf("sample %q: %v", t.key, err)})
				return
			}
			f.finish(source, p, t, nil)
		})
	})
}

// document reads what a unit needs of its document.
func (f *fetcher) document(source int, u unit) (Document, error) {
	s := f.sources[source].Source
	if u.part == partAll && u.pieces == 1 {
		return s.Read(u.doc)
	}
	if err := f.judge(source, u); err != nil {
		return Document{}, err
	}
	if s.Kind() != KindTokens {
		k := docKey{source, u.doc}
		d, ok := f.texts.get(k)
		if ok {
			return d, nil
		}
		d, err := s.Read(u.doc)
		if err == nil {
			f.texts.put(k, d)
		}
		return d, err
	}
	from, to := u.tokens(f.seqLen)
	return readPart(s, u.doc, from, to)
}

// finish hands a document to who waits for it.
func (f *fetcher) finish(source int, p *pendingDoc, t tokens, err error) {
	if bad := asBad(err); bad != nil {
		t, err = tokens{place: bad.Place, bad: bad, whole: t.whole}, nil
	} else if err == nil {
		f.cache.put(source, p.unit, t)
	} else {
		err = fmt.Errorf("read document %d of %s (%d times): %w", p.doc, f.sources[source].Source.Name(), readsMax, err)
	}
	p.out, p.err = t, err
	close(p.done)
}

// asBad returns the error of a document that cannot be used, nil for any other.
func asBad(err error) *BadSample {
	var bad *BadSample
	if errors.As(err, &bad) {
		return bad
	}
	return nil
}

// encode makes ids of what was read for a unit. All ids come by here, and those that the model has no row
// for are refused.
func (f *fetcher) encode(d Document, kind Kind, u unit) (t tokens, err error) {
	t = tokens{place: d.Place, key: d.Key, begins: u.piece == 0, ends: u.last(), pieces: pieces{ids: d.Tokens}}
	if d.Left != "" {
		t.left, t.ids = d.Left, nil
		return t, nil
	}
	switch kind.Form() {
	case InMessages:
		if f.chat == nil {
			return t, errors.New("the data holds conversations, and there is no chat template to write them as text")
		}
		if t.ids, t.loss, err = f.chat.EncodeMessages(d.Messages, d.Tools, d.Vars); err != nil {
			return t, badOr(err, d.Place)
		}
	case InParts, InRecord:
		if f.samples == nil {
			return t, errors.New("the data holds samples of several files, not text, and nothing is " +
				"given to make tokens of them")
		}
		samples, err := f.samples.EncodeSample(&d)
		if err != nil {
			return t, badOr(err, d.Place)
		}
		for i := range samples {
			if f.decoding != nil {
				f.decoding.attach(&samples[i])
			}
		}
		t.pieces = join(samples)
	case InText:
		from := 0
		if t.ids, t.ends, err = f.text(d.Text, u); err != nil {
			return t, badOr(err, d.Place)
		}
		t.ids, from = u.of(t.ids, f.seqLen)
		t.begins, t.ends = t.begins && from == 0, t.ends && u.part != partRows
	}
	return t, f.known(&t, 0)
}

// text makes ids of a text or of a piece of it, and says whether the text ends there.
func (f *fetcher) text(text string, u unit) (ids []int32, ends bool, err error) {
	ends = true
	if u.pieces > 1 {
		text, ends = u.text(text)
	}
	if rest, ok := f.enc.(Continuer); ok && u.piece > 0 {
		ids, err = rest.EncodeRest(text)
	} else {
		ids, err = Encode(f.enc, text, f.addSpecial)
	}
	if ends && f.eod >= 0 {
		ids = append(ids, f.eod)
	}
	return ids, ends, err
}

// known makes a bad sample of ids that are outside the vocabulary: there is nothing that the model could
// learn of them. The ids are those of a document from number from on.
func (f *fetcher) known(t *tokens, from int) error {
	for i, id := range t.ids {
		if id < 0 || f.vocab > 0 && id >= f.vocab {
			return &BadSample{t.place, fmt.Sprintf("its token %d is id %d, and the model has the ids 0 to %d: the "+
				"tokenizer may be another model's", from+i, id, f.vocab-1)}
		}
	}
	return nil
}

// badOr makes a bad sample of an error, which may be one already, unless it is no fault of the sample.
func badOr(err error, at Place) error {
	if errors.Is(err, ErrStuck) {
		return fmt.Errorf("%s: %w", at, err)
	}
	var bad *BadSample
	if errors.As(err, &bad) {
		return err
	}
	return &BadSample{at, err.Error()}
}

// tokenCache keeps the first documents it is given, up to its size, for ever. Passes go through all
// documents in turn, and then no other choice hits more often.
type tokenCache struct {
	mu   sync.Mutex
	room int64 // bytes
	docs map[cacheKey]tokens
}

type cacheKey struct {
	source     int
	doc, piece int64
	part       unitPart
}

// cacheOverhead is about what a document takes in the cache beside its ids.
const cacheOverhead = 160

// get gives the tokens of a unit if an earlier pass kept them.
func (c *tokenCache) get(source int, u unit) (tokens, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.docs[cacheKey{source, u.doc, u.piece, u.part}]
	return t, ok
}

// put keeps the tokens of a unit while there is room. Nothing is ever dropped for it, because a
// pass over the data would else replace all before it comes again.
func (c *tokenCache) put(source int, u unit, t tokens) {
	size := int64(4*len(t.ids)+len(t.loss)+len(t.place.File)) + cacheOverhead
	for _, m := range t.media {
		size += int64(len(m.Bytes)) + cacheOverhead
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if size > c.room {
		return
	}
	if c.docs == nil {
		c.docs = map[cacheKey]tokens{}
	}
	c.room -= size
	c.docs[cacheKey{source, u.doc, u.piece, u.part}] = t
}
