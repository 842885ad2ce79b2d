package dataset

import "sync"

// longTextsBytes bounds the texts that are kept because further pieces of them will be asked for.
const longTextsBytes = 64 << 20

// longTexts keeps documents of several pieces that were read last, since each piece costs reading its whole
// record. The oldest go first.
type longTexts struct {
	mu    sync.Mutex
	docs  map[docKey]Document
	order []docKey
	bytes int64
}

type docKey struct {
	source int
	doc    int64
}

// get gives a long document that another unit of it has read already.
func (l *longTexts) get(k docKey) (Document, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.docs[k]
	return d, ok
}

// put keeps a long document for its further units. The oldest ones make room, as units of one
// document follow each other closely.
func (l *longTexts) put(k docKey, d Document) {
	size := int64(len(d.Text))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.docs[k]; ok || size > longTextsBytes {
		return
	}
	if l.docs == nil {
		l.docs = map[docKey]Document{}
	}
	for l.bytes+size > longTextsBytes {
		l.bytes -= int64(len(l.docs[l.order[0]].Text))
		delete(l.docs, l.order[0])
		l.order = l.order[1:]
	}
	l.docs[k], l.order = d, append(l.order, k)
	l.bytes += size
}
