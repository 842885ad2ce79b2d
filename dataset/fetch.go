package dataset

import (
	"errors"
	"fmt"
	"sync"
)

// Encoder turns text into ids; *token.Tokenizer is one. It is used by several goroutines at once.
type Encoder interface {
	Encode(text string, addSpecial bool) []int32
	Fingerprint() string
}

// ChatEncoder turns conversations into ids, and says which of them the model learns. An error means that this
// conversation does not fit the template; it is quarantined.
type ChatEncoder interface {
	EncodeMessages(messages []Message, tools []byte) (ids []int32, lossMask []bool, err error)
	Fingerprint() string
}

// tokens is a document as ids.
type tokens struct {
	pieces
	place Place
	bad   *BadSample // the document cannot be used, and has no ids
}

// fetcher reads documents and turns them into ids, and remembers as many as it may.
type fetcher struct {
	sources    []Weighted
	enc        Encoder
	chat       ChatEncoder
	samples    SampleEncoder
	addSpecial bool
	eod        int32 // appended to texts; -1: nothing
	cache      tokenCache
}

// readsMax is how often a document is read before an error of the moment is passed on.
const readsMax = 3

// fetch returns document doc of a source.
func (f *fetcher) fetch(source int, doc int64) (t tokens, err error) {
	if t, ok := f.cache.get(source, doc); ok {
		return t, nil
	}
	for range readsMax {
		if t, err = f.read(source, doc); err == nil {
			return t, nil
		}
	}
	return t, fmt.Errorf("read document %d of %s (%d times): %w", doc, f.sources[source].Source.Name(), readsMax, err)
}

// read reads and encodes a document. A bad one is no error.
func (f *fetcher) read(source int, doc int64) (tokens, error) {
	d, err := f.sources[source].Source.Read(doc)
	var t tokens
	if err == nil {
		t, err = f.encode(d, f.sources[source].Source.Kind())
	}
	var bad *BadSample
	if errors.As(err, &bad) {
		return tokens{place: bad.Place, bad: bad}, nil
	}
	if err == nil {
		f.cache.put(source, doc, t)
	}
	return t, err
}

func (f *fetcher) encode(d Document, kind Kind) (tokens, error) {
	t := tokens{place: d.Place, pieces: pieces{ids: d.Tokens}}
	switch kind {
	case KindChat:
		if f.chat == nil {
			return t, errors.New("the data holds conversations, and there is no chat template to write them as text")
		}
		var err error
		if t.ids, t.loss, err = f.chat.EncodeMessages(d.Messages, d.Tools); err != nil {
			return t, &BadSample{d.Place, err.Error()}
		}
	case KindParts:
		if f.samples == nil {
			return t, errors.New("the data holds samples of several files, not text, and nothing is given to make tokens of them")
		}
		samples, err := f.samples.EncodeSample(&d)
		if err != nil {
			return t, badOr(err, d.Place)
		}
		t.pieces = join(samples)
	case KindText:
		t.ids = f.enc.Encode(d.Text, f.addSpecial)
		if f.eod >= 0 {
			t.ids = append(t.ids, f.eod)
		}
	}
	return t, nil
}

// badOr makes a bad sample of an error, which may be one already.
func badOr(err error, at Place) error {
	var bad *BadSample
	if errors.As(err, &bad) {
		return err
	}
	return &BadSample{at, err.Error()}
}

// tokenCache keeps the first documents it is given, up to its size, for ever. Passes go through all documents in turn,
// and then no other choice hits more often.
type tokenCache struct {
	mu   sync.Mutex
	room int64 // bytes
	docs map[cacheKey]tokens
}

type cacheKey struct {
	source int
	doc    int64
}

// cacheOverhead is about what a document takes in the cache beside its ids.
const cacheOverhead = 160

func (c *tokenCache) get(source int, doc int64) (tokens, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.docs[cacheKey{source, doc}]
	return t, ok
}

func (c *tokenCache) put(source int, doc int64, t tokens) {
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
	c.docs[cacheKey{source, doc}] = t
}

// docQueue reads documents of one source ahead, in the source's order. It is used by one goroutine; the readers it
// starts end by themselves, and wait returns when they have.
type docQueue struct {
	f       *fetcher
	source  int
	seed    uint64
	readers int
	items   []*pendingDoc
	pass    int64 // of items[0]
	place   int64
	order   Permutation
	ordered int64 // pass that order belongs to, -1 for none
	running sync.WaitGroup
}

// pendingDoc is a document that is being read.
type pendingDoc struct {
	doc  int64
	done chan struct{}
	out  tokens
	err  error
}

func newDocQueue(f *fetcher, source int, seed uint64, readers int) *docQueue {
	return &docQueue{f: f, source: source, seed: seed, readers: readers, ordered: -1}
}

func (q *docQueue) len() int64 { return q.f.sources[q.source].Source.Len() }

// moveTo makes the document at a place of a pass the first of the queue.
func (q *docQueue) moveTo(pass, place int64) {
	n := (pass-q.pass)*q.len() + place - q.place
	if n < 0 || n > int64(len(q.items)) {
		n = int64(len(q.items))
	}
	q.items = q.items[n:]
	q.pass, q.place = pass, place
}

// at returns the document j places behind the first, and has the next ones read meanwhile. After an error that place
// is read again when it is asked for again.
func (q *docQueue) at(j int) (*pendingDoc, error) {
	for len(q.items) < j+q.readers {
		q.items = append(q.items, q.start(q.place+int64(len(q.items))))
	}
	p := q.items[j]
	<-p.done
	if p.err != nil {
		q.items = q.items[:j]
		return nil, p.err
	}
	return p, nil
}

// start begins to read the document at a place, which may lie in a later pass.
func (q *docQueue) start(place int64) *pendingDoc {
	pass := q.pass + place/q.len()
	if pass != q.ordered {
		q.order, q.ordered = NewPermutation(q.len(), q.seed, pass, blockOrder, int64(q.source)), pass
	}
	p := &pendingDoc{doc: q.order.At(place % q.len()), done: make(chan struct{})}
	read := func() {
		p.out, p.err = q.f.fetch(q.source, p.doc)
		close(p.done)
	}
	if q.readers == 1 {
		read()
		return p
	}
	q.running.Go(read)
	return p
}

// wait returns when no reader runs any more.
func (q *docQueue) wait() { q.running.Wait() }
