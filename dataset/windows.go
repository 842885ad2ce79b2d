package dataset

import (
	"fmt"
	"io"
)

// windows makes the rows of ModePretrain: the next windows of the blended sources, in shuffled order.
func (m *maker) windows() ([]row, error) {
	first := m.at.Sample
	m.cuts = make([]*cutter, len(m.queues))
	var cut []window
	ended := make([]bool, len(m.queues))
	for len(cut) < m.cfg.Shuffle {
		if m.blend.turn(m.at.Rows+int64(len(cut))) && len(cut) > 0 {
			break // windows from both sides of a change are not shuffled with each other
		}
		source := m.blend.next(ended)
		if source < 0 {
			break
		}
		w, err := m.window(source)
		if err == io.EOF { // the passes of a blend are over when those of all its sources are
			m.blend.undo(source)
			ended[source] = true
			continue
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
		at := int64(i)
		if !m.cfg.Sequential {
			at = order.At(at)
		}
		rows[i] = m.windowRow(cut[at], first+int64(i))
	}
	return rows, nil
}

// window is SeqLen+1 tokens of a source, or fewer at its end.
type window struct {
	tokens []int32
	starts []int // where stretches of another document begin, but for the first
	// for each of starts: a document ends in front of it and it begins one, so that a label may reach across
	joined  []bool
	origins []Origin
}

// cutter cuts the windows of one source. A unit that fills rows alone gives those first, from its start on.
// What it has beyond them is joined with what others have, in the order of the units, so that no token is left out and
// most rows of a long document are of that alone. In files' order (Sequential) all units are joined.
//
// Its state is a function of a SourcePosition: the unit and token where what is joined begins, how many
// units were opened from there, and how many rows the last of them gave.
type cutter struct {
	*maker
	source int
	at     SourcePosition
	rows   []window  // of the last unit opened, not given yet
	rest   []stretch // joined, not given yet
	n      int       // tokens of rest
	empty  int64     // units without tokens since the last one with some
	done   bool      // the source has no more units
}

// stretch is tokens of a unit that are joined with others.
type stretch struct {
	*pendingDoc
	pass, place int64
	from        int // of the unit's ids
}

// cutterOf opens the units anew that a position says were opened.
func (m *maker) cutterOf(source int) (*cutter, error) {
	if m.cuts[source] != nil {
		return m.cuts[source], nil
	}
	c := &cutter{maker: m, source: source, at: m.at.Sources[source]}
	opened, given, from := c.at.Ahead, c.at.Given, c.at.Token
	m.queues[source].moveTo(c.at.Pass, c.at.Doc)
	for j := range opened {
		if err := c.open(int(j), false); err != nil {
			return nil, err
		}
		if j < opened-1 {
			c.rows = nil
		}
	}
	if given > int64(len(c.rows)) || opened == 0 && (given > 0 || from > 0) {
		return nil, c.changed("row", given)
	}
	c.rows = c.rows[given:]
	if from > 0 {
		if len(c.rest) == 0 || c.rest[0].place != c.at.Doc || from < int64(c.rest[0].from) ||
			from >= int64(len(c.rest[0].out.ids)) {
			return nil, c.changed("token", from)
		}
		c.n -= int(from) - c.rest[0].from
		c.rest[0].from = int(from)
	}
	m.cuts[source] = c
	return c, nil
}

// changed is the error for a saved position that the data does not have any more.
func (c *cutter) changed(what string, at int64) error {
	return fmt.Errorf("%s: the position is at %s %d of unit %d, which has no such one: the data has changed",
		c.cfg.Sources[c.source].Source.Name(), what, at, c.at.Doc)
}

// window cuts the next window of a source.
func (m *maker) window(source int) (window, error) {
	c, err := m.cutterOf(source)
	if err != nil {
		return window{}, err
	}
	for len(c.rows) == 0 && c.n <= c.cfg.SeqLen && !c.done {
		if err := c.open(int(c.at.Ahead), true); err != nil {
			return window{}, err
		}
	}
	var w window
	switch {
	case len(c.rows) > 0:
		w, c.rows = c.rows[0], c.rows[1:]
		c.at.Given++
	case c.n > c.cfg.SeqLen:
		w = c.join(c.cfg.SeqLen + 1)
	case c.cfg.KeepLast && c.n > 1: // at least two tokens are needed to learn anything
		w = c.join(c.n)
	default:
		return w, io.EOF
	}
	c.at = c.position()
	m.queues[source].moveTo(c.at.Pass, c.at.Doc)
	taken := m.at.Sources[source].Taken
	m.at.Sources[source] = c.at
	m.at.Sources[source].Taken = taken
	return w, nil
}

// open takes up the unit j places behind the position. first says that it was not opened before an
// interruption, so that a fault counts.
func (c *cutter) open(j int, first bool) error {
	q := c.queues[c.source]
	s := c.at
	s.Doc += int64(j)
	s.Pass, s.Doc = s.Pass+s.Doc/q.len(), s.Doc%q.len()
	if c.over(s) {
		c.done = true
		return nil
	}
	d, err := q.at(j)
	if err != nil {
		return err
	}
	if first {
		if err := c.inspect(c.source, s, d); err != nil {
			return err
		}
		if c.empty++; len(d.out.ids) > 0 {
			c.empty = 0
		} else if c.empty > q.len() {
			return c.cfg.noTokens(c.cfg.Sources[c.source].Source.Name())
		}
		c.at.Ahead, c.at.Given = int64(j)+1, 0
	}
	c.rows = nil
	ids, from, size := d.out.ids, 0, c.cfg.SeqLen
	for ; !c.cfg.Sequential && len(ids)-from > size; from += size {
		w := window{tokens: ids[from : from+size+1], origins: []Origin{c.origin(stretch{d, s.Pass, s.Doc, from})}}
		c.rows = append(c.rows, w)
	}
	// One token behind full rows was their label, and joined with another document it would teach nothing.
	if n := len(ids) - from; n > 1 || n == 1 && from == 0 {
		c.rest = append(c.rest, stretch{d, s.Pass, s.Doc, from})
		c.n += n
	}
	return nil
}

func (c *cutter) origin(s stretch) Origin {
	return Origin{Source: c.source, Pass: s.pass, Document: s.doc, Place: s.out.place}
}

// join makes a window of the next n tokens of what is joined, and keeps the last of them for the next one.
func (c *cutter) join(n int) window {
	w := window{tokens: make([]int32, 0, n)}
	ended := false
	for {
		s := &c.rest[0]
		have := s.out.ids[s.from:]
		take := min(n-len(w.tokens), len(have))
		if at := len(w.tokens); at > 0 {
			w.starts, w.joined = append(w.starts, at), append(w.joined, ended && s.from == 0 && s.out.begins)
		}
		w.tokens = append(w.tokens, have[:take]...)
		w.origins = append(w.origins, c.origin(*s))
		if len(w.tokens) == n {
			c.n -= n - 1
			s.from += take - 1
			return w
		}
		ended = s.out.ends
		c.rest = c.rest[1:]
	}
}

// position is where the cutter stands.
func (c *cutter) position() SourcePosition {
	p, q := c.at, c.queues[c.source]
	p.Token = 0
	last := p.Ahead - 1 // the last unit opened, from p.Doc on
	switch {
	case len(c.rest) > 0:
		s := c.rest[0]
		p.Ahead -= (s.pass-p.Pass)*q.len() + s.place - p.Doc
		p.Pass, p.Doc, p.Token = s.pass, s.place, int64(s.from)
	case len(c.rows) > 0:
		p.Doc, p.Ahead = p.Doc+last, 1
	default:
		p.Doc, p.Ahead, p.Given = p.Doc+last+1, 0, 0
	}
	p.Pass, p.Doc = p.Pass+p.Doc/q.len(), p.Doc%q.len()
	return p
}

// windowRow makes a row of a window: token i predicts token i+1.
func (m *maker) windowRow(w window, sample int64) row {
	n := len(w.tokens) - 1
	labels := append([]int32(nil), w.tokens[1:]...)
	bounds := []int{0}
	for k, at := range w.starts {
		if m.cfg.Separate || !w.joined[k] {
			labels[at-1] = IgnoreLabel // it would predict another document's token
		}
		if m.cfg.Separate && at < n {
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
