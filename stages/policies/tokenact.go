package policies

import (
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// asked is a question to a policy that writes.
type asked struct {
	ids   []int32
	views family.Images
}

// ask makes tokens and features of what a robot sees.
func (s *TokenPolicy) ask(r Seen) (*asked, error) {
	if len(r.Before) > 0 {
		return nil, fmt.Errorf("%d earlier steps, and the model reads the present one alone", len(r.Before))
	}
	if len(r.Views) > len(s.Policy.Cameras) {
		return nil, fmt.Errorf("%d cameras, and the policy learnt of %d", len(r.Views), len(s.Policy.Cameras))
	}
	there := 0
	for _, v := range r.Views {
		if v != nil {
			there++
		}
	}
	q, err := s.question(s.Scale, r.Task, r.State, there)
	if err != nil {
		return nil, err
	}
	out := &asked{ids: q.Tokens}
	for camera, v := range r.Views {
		if v == nil {
			continue
		}
		m := &q.Media[len(out.views.Grids)]
		f, err := s.features(s.shown(s.pixels(v), camera, -1, -1), there)
		if err == nil {
			err = s.images.Fits(m, f)
		}
		if err != nil {
			return nil, err
		}
		grid, values, err := s.images.Laid(m, f)
		if err != nil {
			return nil, err
		}
		for _, span := range m.Spans {
			grid.Spans = append(grid.Spans, [2]int32{span.From, span.To})
		}
		out.views.Grids, out.views.Values = append(out.views.Grids, grid), append(out.views.Values, values...)
	}
	return out, nil
}

// answer is the chunk that the model writes, in its own numbers: always the likeliest token of those that can
// follow, so that a chunk comes of it whatever the model thinks.
func (s *TokenPolicy) answer(g *sample.Generator, q *asked, width int) ([][]float64, error) {
	g.Reset()
	defer g.Reset()
	pen := s.pen(width)
	feed, pics := q.ids, q.views
	m, _ := g.Model()
	vocab := m.Spec.Vocab
	if len(s.before) > 0 { // by itself: what is asked may see itself both ways, and an answer does not
		if _, err := g.LogitsWith(feed, pics); err != nil {
			return nil, err
		}
		feed, pics = s.before, family.Images{}
	}
	for !pen.Done() {
		logits, err := g.LogitsWith(feed, pics)
		if err != nil {
			return nil, err
		}
		last := logits[len(logits)-vocab:]
		best := int32(-1)
		for k := range int32(s.tokens()) {
			if id := s.ends - 1 - k; pen.Allows(k) && (best < 0 || last[id] > last[best]) {
				best = id
			}
		}
		if best < 0 || last[best] != last[best] {
			return nil, errors.New("no token of an action can follow: the tokenizer of policy.fast is damaged, " +
				"or the weights are no numbers")
		}
		pen.Take(s.ends - 1 - best)
		feed, pics = []int32{best}, family.Images{}
	}
	return pen.chunk()
}

// pen writes a chunk token by token, each counted from 0.
type pen interface {
	Done() bool
	Allows(k int32) bool
	Take(k int32)
	chunk() ([][]float64, error)
}

// pen begins a chunk of actions of some width.
func (s *TokenPolicy) pen(width int) pen {
	if s.fast != nil {
		return &fastPen{s.fast.Guide(s.Chunk, width), s.fast, s.Chunk, width}
	}
	return &binPen{time: s.Chunk, width: width}
}

// binPen writes a token for each number.
type binPen struct {
	ids         []int32
	time, width int
}

func (p *binPen) Done() bool        { return len(p.ids) == p.time*p.width }
func (p *binPen) Allows(int32) bool { return true }
func (p *binPen) Take(k int32)      { p.ids = append(p.ids, bins-1-k) }

func (p *binPen) chunk() (out [][]float64, err error) {
	for at := 0; at < len(p.ids); at += p.width {
		out = append(out, token.Bins{Vocab: bins}.Decode(p.ids[at:at+p.width]))
	}
	return out, nil
}

// fastPen writes FAST's tokens.
type fastPen struct {
	*token.FASTGuide
	f           *token.FAST
	time, width int
}

func (p *fastPen) chunk() ([][]float64, error) { return p.f.Decode(p.Tokens(), p.time, p.width) }
