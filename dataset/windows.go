package dataset

import (
	"fmt"
	"io"
)

// windows makes the rows of ModePretrain: the next windows of the blended sources, in shuffled order.
func (m *maker) windows() ([]row, error) {
	first := m.at.Sample
	var cut []window
	for len(cut) < m.cfg.Shuffle {
		source := m.blend.next()
		w, err := m.window(source)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		m.take(source)
		cut = append(cut, w)
	}
	if len(cut) == 0 {
		return nil, nil
	}
	order := NewPermutation(int64(len(cut)), m.cfg.Seed, 0, blockShuffle, first)
	rows := make([]row, len(cut))
	for i := range rows {
		rows[i] = m.windowRow(cut[order.At(int64(i))], first+int64(i))
	}
	return rows, nil
}

// window is SeqLen+1 tokens of a source.
type window struct {
	tokens  []int32
	starts  []int // where documents begin, but for one that begins before the window
	origins []Origin
}

// window cuts the next window of a source and moves the source behind it, but for the window's last token, which is
// the next one's first.
func (m *maker) window(source int) (window, error) {
	q, s := m.queues[source], m.at.Sources[source]
	q.moveTo(s.Pass, s.Doc)
	want := m.cfg.SeqLen + 1
	w := window{tokens: make([]int32, 0, want)}
	last, empty := s, int64(0)
	for j := 0; len(w.tokens) < want; j++ {
		if m.over(s) {
			return m.remainder(w, source, s)
		}
		d, err := q.at(j)
		if err != nil {
			return w, err
		}
		if err := m.inspect(source, s, d); err != nil {
			return w, err
		}
		ids := d.out.ids
		if s.Token > int64(len(ids)) {
			return w, fmt.Errorf("document %d of %s has %d tokens and the position is at token %d: the data has changed", d.doc, m.cfg.Sources[source].Source.Name(), len(ids), s.Token)
		}
		ids = ids[s.Token:]
		if n := min(len(ids), want-len(w.tokens)); n > 0 {
			w.add(ids[:n], s, d, source)
			s.Token += int64(n)
			last, empty = s, 0
			last.Token--
		} else if empty++; empty > q.len() {
			return w, fmt.Errorf("%s: %w", m.cfg.Sources[source].Source.Name(), ErrNoTokens)
		}
		if s.Token >= int64(len(d.out.ids)) {
			m.advance(&s, source)
		}
	}
	m.at.Sources[source] = last
	return w, nil
}

// remainder is the end of a source's last pass: tokens that do not fill a window. At least two are needed to learn
// anything.
func (m *maker) remainder(w window, source int, end SourcePosition) (window, error) {
	if !m.cfg.KeepLast || len(w.tokens) < 2 {
		return w, io.EOF
	}
	m.at.Sources[source] = end
	return w, nil
}

// add appends tokens of a document, from its token s.Token on.
func (w *window) add(ids []int32, s SourcePosition, d *pendingDoc, source int) {
	if s.Token == 0 {
		w.starts = append(w.starts, len(w.tokens))
	}
	w.tokens = append(w.tokens, ids...)
	w.origins = append(w.origins, Origin{Source: source, Pass: s.Pass, Document: d.doc, Place: d.out.place})
}

// windowRow makes a row of a window: token i predicts token i+1.
func (m *maker) windowRow(w window, sample int64) row {
	n := len(w.tokens) - 1
	labels := append([]int32(nil), w.tokens[1:]...)
	bounds := []int{0}
	for _, at := range w.starts {
		if !m.cfg.Separate || at == 0 || at > n {
			continue
		}
		labels[at-1] = IgnoreLabel // it would predict another document's first token
		if at < n {
			bounds = append(bounds, at)
		}
	}
	for i, t := range w.tokens[:n] {
		if m.cfg.MaskEOD && t == m.cfg.EOD {
			labels[i] = IgnoreLabel
		}
	}
	r := row{origins: w.origins}
	for i := range r.origins {
		r.origins[i].Sample = sample
	}
	for i, from := range bounds {
		to := n
		if i+1 < len(bounds) {
			to = bounds[i+1]
		}
		r.segments = append(r.segments, segment{sample: sample, tokens: w.tokens[from:to], labels: labels[from:to]})
	}
	return r
}
