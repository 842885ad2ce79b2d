package dataset

import (
	"errors"
	"fmt"
	"sort"
	"unicode/utf8"
)

// Sized is a source that knows how large its documents are without reading them.
type Sized interface {
	// Sizes sets out[k] to the size of document from+k: the number of ids where the source holds tokens,
	// else about the bytes of the text. It may be any number for a document that is bad. ErrNoSizes says
	// that they are not known after all.
	Sizes(from int64, out []int64) error
}

// Parted is a source of tokens that reads a part of a document by itself.
type Parted interface {
	// ReadPart returns document i with its tokens from to to-1 alone, 0 <= from <= to <= the document's size.
	ReadPart(i, from, to int64) (Document, error)
}

// Columned is a source whose documents are records with more columns than what is read of them.
type Columned interface {
	// Columns returns record i as a JSON object, with the column of the text in it, and where it lies. Its errors
	// are those of Source.Read.
	Columns(i int64) ([]byte, Place, error)
}

// ErrNoSizes says that sizes are not known without reading the documents.
var ErrNoSizes = errors.New("sizes are not known before the documents are read")

// sizesOf sets out to the sizes of the documents from from on.
func sizesOf(s Source, from int64, out []int64) error {
	if known, ok := s.(Sized); ok {
		return known.Sizes(from, out)
	}
	return ErrNoSizes
}

const (
	// unitStride is after how many documents the number of units before is remembered: 8 bytes for so many documents.
	unitStride = 256
	// pieceRows is how many rows a piece of a text should have: one for certain, and rarely two.
	// pieceBytesMin is the least that it has in bytes.
	pieceRows     = 1.5
	pieceBytesMin = 64
	// piecesMax bounds the pieces of a text, each of which costs reading its record.
	piecesMax = 256
)

// units are what is permuted in a source: its documents, and where their sizes are known the pieces of long ones,
// which would otherwise fill many rows one after the other. They are numbered in the order of the source.
type units struct {
	source Source
	n      int64
	seqLen int64
	bytes  int64   // that a piece of a text has; 0 for tokens
	before []int64 // units before every unitStride-th document; nil where a unit is a document
}

// newUnits counts the units of a source for rows of seqLen tokens. enc makes tokens of texts.
func newUnits(s Source, seqLen int, enc Encoder) (*units, error) {
	u := &units{source: s, seqLen: int64(seqLen)}
	sizes := make([]int64, 16*unitStride)
	for at := int64(0); at < s.Len(); at += int64(len(sizes)) {
		sizes = sizes[:min(int64(len(sizes)), s.Len()-at)]
		if err := sizesOf(s, at, sizes); errors.Is(err, ErrNoSizes) {
			return wholeDocuments(s), nil
		} else if err != nil {
			return nil, fmt.Errorf("sizes of the documents of %s: %w", s.Name(), err)
		}
		if at == 0 && s.Kind() == KindText {
			if err := u.measure(enc); err != nil {
				return nil, err
			}
		}
		for k, size := range sizes {
			if k%unitStride == 0 {
				u.before = append(u.before, u.n)
			}
			u.n += u.count(size)
		}
	}
	return u, nil
}

const (
	measureDocuments = 8
	measureBytes     = 16 << 10
)

// measure finds how many bytes of a text a piece is to have, from the starts of some documents all over the source.
func (u *units) measure(enc Encoder) error {
	bytes, ids := 0, 0
	n := min(measureDocuments, u.source.Len())
	for k := range n {
		d, err := u.source.Read(k * (u.source.Len() / n))
		if asBad(err) != nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("document %d of %s: %w", k*(u.source.Len()/n), u.source.Name(), err)
		}
		text := d.Text[:textCut(d.Text, 1, max(1, int64(len(d.Text))/measureBytes))]
		some, err := Encode(enc, text, false)
		if err != nil {
			return fmt.Errorf("document %d of %s: %s: %w", k*(u.source.Len()/n), u.source.Name(), d.Place, err)
		}
		bytes, ids = bytes+len(text), ids+len(some)
	}
	each := 4.0 // bytes of a token, usually
	if ids > 0 {
		each = float64(bytes) / float64(ids)
	}
	u.bytes = max(pieceBytesMin, int64(pieceRows*each*float64(u.seqLen)))
	return nil
}

// pieces is into how many pieces a document of a size is cut. Piece k of tokens is row k.
func (u *units) pieces(size int64) int64 {
	if u.bytes == 0 {
		return max(1, (size-1+u.seqLen-1)/u.seqLen)
	}
	return min(piecesMax, max(1, (size+u.bytes-1)/u.bytes))
}

// count is how many units a document of a size is. A piece of a text that may fill a row is two: what it has
// beyond full rows would else stand close to them.
func (u *units) count(size int64) int64 {
	if n := u.pieces(size); u.bytes == 0 || float64(size) <= float64(u.bytes)/pieceRows {
		return n
	} else {
		return 2 * n
	}
}

// wholeDocuments makes a unit of each document.
func wholeDocuments(s Source) *units { return &units{source: s, n: s.Len()} }

// unit is one piece of a document.
type unit struct {
	doc           int64
	piece, pieces int64
	size          int64 // of the document, where it has several pieces
	bytes         int64 // that a piece of a text is to have
	part          unitPart
}

// unitPart is what of a piece a unit has.
type unitPart byte

const (
	partAll  unitPart = iota
	partRows          // full rows, from its start on
	partRest          // what follows them
)

// at returns unit i, 0 <= i < n.
func (u *units) at(i int64) (unit, error) {
	if u.before == nil {
		return unit{doc: i, pieces: 1}, nil
	}
	k := int64(sort.Search(len(u.before), func(k int) bool { return u.before[k] > i }) - 1)
	i -= u.before[k]
	var sizes [unitStride]int64
	from := k * unitStride
	n := min(unitStride, u.source.Len()-from)
	if err := sizesOf(u.source, from, sizes[:n]); err != nil {
		return unit{}, fmt.Errorf("sizes of the documents of %s: %w", u.source.Name(), err)
	}
	for k, size := range sizes[:n] {
		count, out := u.count(size), unit{doc: from + int64(k), piece: i, pieces: u.pieces(size), size: size,
			bytes: u.bytes, part: partAll}
		if i >= count {
			i -= count
			continue
		}
		if count > out.pieces {
			out.piece, out.part = i/2, partRows+unitPart(i%2)
		}
		return out, nil
	}
	return unit{}, fmt.Errorf("the sizes of the documents of %s are not those that they were: the data "+
		"has changed", u.source.Name())
}

// last says whether the unit ends its document.
func (u unit) last() bool { return u.piece == u.pieces-1 }

// of returns the unit's part of a piece's ids: the full rows with the last one's last label, or what follows
// them. One id behind full rows was their label, and joined with another document it would teach nothing.
func (u unit) of(ids []int32, seqLen int) (part []int32, from int) {
	rows := max(0, len(ids)-1) / seqLen * seqLen
	switch {
	case u.part == partAll:
		return ids, 0
	case u.part == partRest && (rows == 0 || len(ids)-rows > 1):
		return ids[rows:], rows
	case u.part == partRows && rows > 0:
		return ids[:rows+1], 0
	}
	return nil, 0
}

// tokens is where the unit's ids lie in a document of tokens: a row's, and the first of the row behind it,
// which is the last one's label.
func (u unit) tokens(seqLen int) (from, to int64) {
	from = u.piece * int64(seqLen)
	if u.last() {
		return from, u.size
	}
	return from, from + int64(seqLen) + 1
}

// text is the unit's part of a text. Parts follow each other without a gap; where the text is shorter than
// its record, as beside other members of an object, the last parts are empty.
func (u unit) text(text string) (part string, last bool) {
	pieces := min(u.pieces, max(1, (int64(len(text))+u.bytes-1)/u.bytes))
	if u.piece >= pieces {
		return "", false
	}
	return text[textCut(text, u.piece, pieces):textCut(text, u.piece+1, pieces)], u.piece == pieces-1
}

// cutSearch is how far behind the even cut a place is looked for at which tokens end in any case.
const cutSearch = 4096

// textCut is where piece k of a text begins: behind its even share, at the start of a line that begins with
// no white space, where the tokenizers in use never join what lies on both sides; else in front of a space;
// else between two characters.
func textCut(text string, k, pieces int64) int {
	n := int64(len(text))
	at := int(n/pieces*k + n%pieces*k/pieces)
	if k == 0 || k == pieces {
		return at
	}
	end := min(at+cutSearch, int(n/pieces*(k+1)+n%pieces*(k+1)/pieces))
	space := -1
	for i := max(at, 1); i < end; i++ {
		before, c := text[i-1], text[i]
		if before == '\n' && c != '\n' && c != '\r' && c != ' ' && c != '\t' {
			return i
		}
		if space < 0 && c == ' ' && before > ' ' {
			space = i
		}
	}
	if space >= 0 {
		return space
	}
	for at < end && !utf8.RuneStart(text[at]) {
		at++
	}
	return at
}

// Sizes implements Sized.
func (c *concat) Sizes(from int64, out []int64) error {
	begin := int64(0)
	for k, s := range c.sources {
		end := c.ends[k]
		if lo, hi := max(from, begin), min(from+int64(len(out)), end); lo < hi {
			if err := sizesOf(s, lo-begin, out[lo-from:hi-from]); err != nil {
				return err
			}
		}
		begin = end
	}
	return nil
}

// ReadPart implements Parted.
func (c *concat) ReadPart(i, from, to int64) (Document, error) {
	k := sort.Search(len(c.ends), func(k int) bool { return c.ends[k] > i })
	if k > 0 {
		i -= c.ends[k-1]
	}
	return readPart(c.sources[k], i, from, to)
}

// Sizes implements Sized.
func (p *part) Sizes(from int64, out []int64) error {
	if p.order == nil {
		return sizesOf(p.Source, p.from+from, out)
	}
	for k := range out {
		if err := sizesOf(p.Source, p.order.At(p.from+from+int64(k)), out[k:k+1]); err != nil {
			return err
		}
	}
	return nil
}

// ReadPart implements Parted.
func (p *part) ReadPart(i, from, to int64) (Document, error) {
	if i += p.from; p.order != nil {
		i = p.order.At(i)
	}
	return readPart(p.Source, i, from, to)
}

// readPart reads a part of a document of tokens, by way of the whole where the source cannot do else.
func readPart(s Source, i, from, to int64) (Document, error) {
	if parted, ok := s.(Parted); ok {
		return parted.ReadPart(i, from, to)
	}
	d, err := s.Read(i)
	if err != nil {
		return d, err
	}
	if to > int64(len(d.Tokens)) {
		return d, &BadSample{d.Place, fmt.Sprintf("it has %d ids, fewer than the %d that its size says",
			len(d.Tokens), to)}
	}
	d.Tokens = d.Tokens[from:to]
	return d, nil
}
