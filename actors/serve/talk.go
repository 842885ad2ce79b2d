package serve

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/sample"
)

// piece is what a token adds to an answer.
type piece struct {
	text  string
	token sample.Token
	drawn bool       // there is a token: else text that was held back, or the end
	end   sample.End // "" while the answer goes on
}

// talk is an answer under way: the loop puts tokens in, a handler takes pieces. It holds those that nobody has taken,
// which the tokens of the answer bound.
type talk struct {
	request *sample.Request
	mu      sync.Mutex
	pieces  []piece
	more    chan struct{} // has room for one: something was put in
	stream  *token.Stream
	stops   []string
	shown   map[int32]string // tokens that are special and have a text all the same
	with    bool             // the stop is in the text too
	mute    bool             // the prompt is all that is asked for
	ends    []int32          // the model's own stops, which are no reason
	drawn   int
	least   int            // tokens before any text ends the answer
	reason  any            // the text or the token that ended the answer
	scored  []sample.Token // of the prompt
	pace    pace
	held    string // text that may be the beginning of a stop
	cut     bool   // a stop was found
}

func newTalk(s *Server, r *sample.Request, a *asked) *talk {
	t := &talk{request: r, more: make(chan struct{}, 1), stream: s.tok.NewStream(or(a.b.Skip, true)), stops: a.stops,
		shown: a.shown, with: or(a.b.WithStop, false), mute: a.params.Max == 0, ends: s.m.Stops(), least: r.Least}
	t.pace = pace{l: s.times, now: s.now, came: s.now()}
	r.Emit, r.Done, r.Begun = t.emit, t.end, t.pace.begins
	if a.further >= 0 {
		r.Scored = func(k sample.Token) { t.scored = append(t.scored, k) }
	}
	return t
}

// put adds a piece.
func (t *talk) put(p piece) {
	t.mu.Lock()
	t.pieces = append(t.pieces, p)
	t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default: // somebody will look
	}
}

// take gives what has come since it was called last, and waits if that is nothing.
func (t *talk) take(ctx context.Context) ([]piece, error) {
	for {
		t.mu.Lock()
		p := t.pieces
		t.pieces = nil
		t.mu.Unlock()
		if len(p) > 0 {
			return p, nil
		}
		select {
		case <-t.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// emit implements sample.Request.Emit.
func (t *talk) emit(k sample.Token) bool {
	if t.mute {
		return false
	}
	text := ""
	t.drawn++
	t.pace.drew()
	if k.Stop && !slices.Contains(t.ends, k.ID) {
		t.reason = k.ID
	}
	if mark, ok := t.shown[k.ID]; ok && !k.Stop {
		text = t.release(t.stream.Flush()+mark, false)
	} else if !k.Stop || t.with {
		text = t.release(t.stream.Push(k.ID), false)
	}
	t.put(piece{text: text, token: k, drawn: true})
	return !t.cut
}

// end implements sample.Request.Done.
func (t *talk) end(why sample.End) {
	text := ""
	if why != sample.EndCancel && why != sample.EndError {
		t.pace.ended()
	}
	if !t.cut {
		text = t.release(t.stream.Flush(), true)
	}
	if t.cut {
		why = sample.EndStop
	} else if t.mute && why == sample.EndStop {
		why = sample.EndLength
	}
	t.put(piece{text: text, end: why})
}

// release adds text and returns what is certain: it stops before a stop, and keeps back what may begin one
// unless all is said.
func (t *talk) release(text string, all bool) string {
	if t.least > 0 && t.drawn <= t.least && !all {
		return text
	}
	t.held += text
	first, stop := -1, ""
	for _, s := range t.stops {
		if i := strings.Index(t.held, s); i >= 0 && (first < 0 || i < first) {
			first, stop = i, s
		}
	}
	if first >= 0 {
		if t.reason = stop; t.with {
			first += len(stop)
		}
		out := t.held[:first]
		t.held, t.cut = "", true
		return out
	}
	keep := 0
	for _, s := range t.stops {
		for n := min(len(s)-1, len(t.held)); n > keep; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				keep = n
			}
		}
	}
	if all {
		keep = 0
	}
	out := t.held[:len(t.held)-keep]
	t.held = t.held[len(t.held)-keep:]
	return out
}
