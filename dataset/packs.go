package dataset

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/dataset/pack"
)

// item is a document for packing: its segments, which stay together in a row.
// In the words of the field: sequence packing.
type item struct {
	segments []segment
	origin   Origin
	tokens   int
	media    int
	alike    string // Sample.Alike
}

// packOpen is how many rows PackSequential keeps open.
const packOpen = 16

// packs makes the rows of ModeSFT: the next Window documents of the blended sources, packed.
func (m *maker) packs() ([]row, error) {
	var items []item
	var sizes []pack.Item
	ended := make([]bool, len(m.queues))
	m.blend.turn(m.at.Rows)
	for n := int64(0); n%int64(m.cfg.Window) != 0 || len(items) == 0; n++ {
		for i := range ended { // the passes of a blend are over when those of all its sources are
			ended[i] = m.over(m.at.Sources[i])
		}
		source := m.blend.next(ended)
		if source < 0 {
			break
		}
		d, err := m.document(source)
		if err != nil {
			return nil, err
		}
		if d.tokens > 0 {
			items, sizes = append(items, d), append(sizes, pack.Item{Tokens: d.tokens, Images: d.media})
		} else if n > m.documents()+int64(m.cfg.Window) && len(items) == 0 {
			return nil, m.cfg.noTokens(m.cfg.describe())
		}
	}
	var rows []row
	for _, bin := range m.alike(items, sizes) {
		var r row
		for _, i := range bin {
			r.segments, r.origins = append(r.segments, items[i].segments...), append(r.origins, items[i].origin)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// alike packs items with those that they may share a row with, as if there were no others; rows are in the order
// of their first items.
func (m *maker) alike(items []item, sizes []pack.Item) (bins [][]int) {
	limits := pack.Limits{Tokens: m.cfg.SeqLen, Images: m.cfg.MediaMax, Open: packOpen}
	kinds := map[string][]int{}
	var order []string
	for i, x := range items {
		if kinds[x.alike] == nil {
			order = append(order, x.alike)
		}
		kinds[x.alike] = append(kinds[x.alike], i)
	}
	if len(order) < 2 {
		return m.cfg.Packing.rows(sizes, limits)
	}
	for _, kind := range order {
		var own []pack.Item
		for _, i := range kinds[kind] {
			own = append(own, sizes[i])
		}
		for _, bin := range m.cfg.Packing.rows(own, limits) {
			for k, i := range bin {
				bin[k] = kinds[kind][i]
			}
			bins = append(bins, bin)
		}
	}
	slices.SortFunc(bins, func(a, b []int) int { return a[0] - b[0] })
	return bins
}

// documents is the number of documents of one pass over all sources.
func (m *maker) documents() (n int64) {
	for _, q := range m.queues {
		n += q.len()
	}
	return n
}

// document takes the next document of a source, without segments where there is nothing to learn from it.
func (m *maker) document(source int) (item, error) {
	q, s := m.queues[source], m.at.Sources[source]
	q.moveTo(s.Pass, s.Doc)
	d, err := q.at(0)
	if err != nil {
		return item{}, err
	}
	if fault := m.mediaFault(d.out); fault != "" {
		release(d.out.media)
		d = &pendingDoc{unit: d.unit, out: tokens{place: d.out.place, bad: &BadSample{d.out.place, fault}}}
	}
	if err := m.inspect(source, s, d); err != nil {
		return item{}, err
	}
	sample := m.at.Sample
	o := Origin{Sample: sample, Source: source, Pass: s.Pass, Document: d.doc, Key: d.out.key, Place: d.out.place}
	m.advance(&s, source)
	s.Taken++
	m.at.Sources[source] = s
	m.at.Sample++
	it := m.learnt(sample, d.out, o)
	if it.tokens == 0 {
		release(d.out.media)
	}
	return it, nil
}

// mediaFault says why a document with media fits no row, "" where it does: text may be cut, an image not,
// and its tokens without the image would mean nothing.
func (m *maker) mediaFault(t tokens) string {
	if n := m.cfg.MediaMax; n > 0 && len(t.media) > n {
		return fmt.Sprintf("it has %d media, over the limit of %d a row", len(t.media), n)
	}
	n := len(t.ids)
	if n <= m.cfg.SeqLen || m.cfg.DropLong || len(t.media) == 0 || t.media[len(t.media)-1].end() <= m.cfg.SeqLen {
		return ""
	}
	return fmt.Sprintf("it has %d tokens, over the sequence length of %d, and cutting it there would "+
		"cut its media", n, m.cfg.SeqLen)
}

// learnt makes segments of a document: token i predicts token i+1 where that is to be learnt. A document
// that is too long is cut or left out, and one of which nothing is learnt is left out.
func (m *maker) learnt(sample int64, t tokens, o Origin) item {
	n := len(t.ids)
	if n > m.cfg.SeqLen {
		if m.cfg.DropLong {
			return item{}
		}
		n = m.cfg.SeqLen
	}
	out := item{origin: o, tokens: n, media: len(t.media), alike: t.alike}
	any, from := false, 0
	for _, to := range append(t.cuts[:len(t.cuts):len(t.cuts)], n) {
		if to = min(to, n); to == from {
			continue
		}
		labels := make([]int32, to-from)
		for i := range labels {
			labels[i] = IgnoreLabel
			at := from + i
			if m.cfg.Own {
				labels[i], any = t.ids[at], true
				continue
			}
			if at+1 < to && (t.loss == nil || t.loss[at+1]) && !(m.cfg.MaskEOD && t.ids[at] == m.cfg.EOD) {
				labels[i] = t.ids[at+1]
				any = true
			}
		}
		out.segments = append(out.segments, segment{sample: sample, tokens: t.ids[from:to], labels: labels,
			media: t.between(from, to)})
		from = to
	}
	if !any {
		return item{}
	}
	return out
}

// between returns the media of the tokens from to to-1, with places counted from there.
func (p *pieces) between(from, to int) (out []Media) {
	for _, m := range p.media {
		if len(m.Spans) > 0 && int(m.Spans[0].From) >= from && m.end() <= to {
			out = append(out, m.moved(int32(-from)))
		}
	}
	return out
}
