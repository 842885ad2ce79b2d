package dataset

import (
	"fmt"
)

// packs makes the rows of ModeSFT: the next Window documents of the blended sources, packed.
func (m *maker) packs() ([]row, error) {
	var docs []segment
	var origins []Origin
	var lengths []int
	for n := int64(0); n%int64(m.cfg.Window) != 0 || len(docs) == 0; n++ {
		source := m.blend.next()
		if m.over(m.at.Sources[source]) {
			break
		}
		s, o, err := m.document(source)
		if err != nil {
			return nil, err
		}
		if len(s.tokens) > 0 {
			docs, origins, lengths = append(docs, s), append(origins, o), append(lengths, len(s.tokens))
		} else if n > m.documents()+int64(m.cfg.Window) && len(docs) == 0 {
			return nil, fmt.Errorf("%s: %w", m.cfg.describe(), ErrNoTokens)
		}
	}
	var rows []row
	for _, bin := range m.cfg.Packing.pack(lengths, m.cfg.SeqLen) {
		var r row
		for _, i := range bin {
			r.segments, r.origins = append(r.segments, docs[i]), append(r.origins, origins[i])
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// documents is the number of documents of one pass over all sources.
func (m *maker) documents() (n int64) {
	for _, q := range m.queues {
		n += q.len()
	}
	return n
}

// document takes the next document of a source as a segment, empty where there is nothing to learn from it.
func (m *maker) document(source int) (segment, Origin, error) {
	q, s := m.queues[source], m.at.Sources[source]
	q.moveTo(s.Pass, s.Doc)
	d, err := q.at(0)
	if err != nil {
		return segment{}, Origin{}, err
	}
	if err := m.inspect(source, s, d); err != nil {
		return segment{}, Origin{}, err
	}
	sample := m.at.Sample
	o := Origin{Sample: sample, Source: source, Pass: s.Pass, Document: d.doc, Place: d.out.place}
	m.advance(&s, source)
	s.Taken++
	m.at.Sources[source] = s
	m.at.Sample++
	return m.learnt(sample, d.out), o, nil
}

// learnt makes a segment of a document: token i predicts token i+1 where that is to be learnt. A document that is too
// long is cut or left out, and one of which nothing is learnt is left out.
func (m *maker) learnt(sample int64, t tokens) segment {
	n := len(t.ids)
	if n > m.cfg.SeqLen {
		if m.cfg.DropLong {
			return segment{}
		}
		n = m.cfg.SeqLen
	}
	labels := make([]int32, n)
	any := false
	for i := range labels {
		labels[i] = IgnoreLabel
		if i+1 < n && (t.loss == nil || t.loss[i+1]) && !(m.cfg.MaskEOD && t.ids[i] == m.cfg.EOD) {
			labels[i] = t.ids[i+1]
			any = true
		}
	}
	if !any {
		return segment{}
	}
	return segment{sample, t.ids[:n], labels}
}
