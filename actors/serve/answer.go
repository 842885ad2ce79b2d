package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// form is how an endpoint writes its answers.
type form interface {
	// choice is a whole answer.
	choice(index int, c *choice) map[string]any
	// delta is a part of a streamed answer; first says that it is the answer's first, finish why it ends,
	// nil while it goes on.
	delta(index int, c *choice, first bool, finish any) map[string]any
	// object names answers, and parts of them.
	object() (whole, part string)
	// head adds to a whole answer what it says of the prompt.
	head(v map[string]any)
	// prefix begins the names of answers.
	prefix() string
}

// choice is an answer, or a part of one.
type choice struct {
	text   string
	tokens []sample.Token
	end    sample.End
	of     *talk
}

// asked is a request that was understood.
type asked struct {
	b        *body
	form     form
	prompts  [][]int32
	files    [][]byte       // of images that the prompt of a chat has marks of
	pixels   int64          // of these, by what their headers say
	images   *family.Images // in the prompt of a chat, nil for none
	n        int
	params   sample.Params
	stops    []string
	top      int
	stream   bool
	usage    bool // of a stream
	each     bool // of each of its parts
	further  int  // of the likeliest tokens beside each of the prompt's, which are scored; -1 where they are not
	ids      bool
	guide    sample.Guide     // of each answer, nil for none
	shown    map[int32]string // special tokens that have a text
	model    string           // that the client named
	chosen   int64            // when
	identity string
}

// serve draws answers to a request and writes them.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, a *asked) {
	s.counted.requests.Add(1)
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Deadline)
	defer cancel()
	slot, leave, err := s.tenants.draw(ctx, r, a.model) // before anything that costs
	if err != nil {
		s.fail(w, s.refusal(err))
		return
	}
	defer leave()
	if err := s.look(ctx, a); err != nil {
		s.fail(w, s.refusal(err))
		return
	}
	var talks []*talk
	var requests []*sample.Request
	for _, p := range a.prompts {
		for k := range a.n {
			q := &sample.Request{Prompt: p, Params: a.params, Sample: k, Top: a.top, Guide: a.guide,
				Adapter: slot, Images: a.images, Further: max(0, a.further), Salt: or(a.b.Salt, ""), Share: shareOf(ctx)}
			if q.Max = min(max(q.Max, 1), s.context-len(p)); q.Max < 1 {
				s.fail(w, bad("prompt", "the prompt has %d tokens, and with its answer a text has at most %d", len(p),
					s.context))
				return
			}
			talks, requests = append(talks, newTalk(s, q, a)), append(requests, q)
		}
	}
	l, err := s.submit(ctx, requests)
	if err != nil {
		s.fail(w, s.refusal(err))
		return
	}
	if a.chosen, a.identity = s.now().Unix(), s.identity(a.form.prefix()); a.b.RequestID != nil {
		a.identity = a.form.prefix() + "-" + *a.b.RequestID
	}
	if a.stream {
		err = s.streamed(ctx, w, a, talks)
	} else {
		err = s.whole(ctx, w, a, talks)
	}
	if err != nil {
		s.counted.cancelled.Add(1)
		l.cancel(requests)
	}
}

// identity is a name of an answer that no other has.
func (s *Server) identity(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, s.began.UnixNano(), s.ids.Add(1))
}

// refusal is why the loop took no request.
func (s *Server) refusal(err error) error {
	switch {
	case errors.Is(err, queue.ErrFull):
		return fault{http.StatusTooManyRequests, "rate_limit_error", err.Error(), "", "queue_full"}
	case errors.Is(err, queue.ErrClosed):
		return fault{http.StatusServiceUnavailable, "server_error", err.Error(), "", ""}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return late
	}
	var f fault
	if errors.As(err, &f) {
		return f
	}
	return bad("", "%v", err)
}

var late = fault{http.StatusGatewayTimeout, "timeout_error", "the time of the request is over", "", "deadline"}

// whole waits for all answers and writes them.
func (s *Server) whole(ctx context.Context, w http.ResponseWriter, a *asked, talks []*talk) error {
	var choices []any
	drawn := 0
	for i, t := range talks {
		c := choice{of: t}
		for c.end == "" {
			pieces, err := t.take(ctx)
			if err != nil {
				s.fail(w, late)
				return err
			}
			c.add(pieces)
		}
		if f := s.broken(c.end); f != nil {
			s.fail(w, f)
			return nil
		}
		drawn += len(c.tokens)
		x := a.form.choice(i, &c)
		if x["index"] = i; x["finish_reason"] == nil {
			x["finish_reason"] = string(c.end)
		}
		if x["stop_reason"] = t.reason; a.further >= 0 {
			x["prompt_logprobs"] = s.spell.scored(t.scored)
		}
		if a.ids {
			x["token_ids"] = c.ids()
		}
		choices = append(choices, x)
	}
	kind, _ := a.form.object()
	v := map[string]any{"id": a.identity, "object": kind, "created": a.chosen, "model": a.model, "choices": choices,
		"usage": usage(a, drawn)}
	if a.ids {
		v["prompt_token_ids"] = a.prompts[0]
	}
	a.form.head(v)
	if d, ok := w.(speaker); ok {
		answer(w, http.StatusOK, d.in.whole(v))
	} else {
		answer(w, http.StatusOK, v)
	}
	return nil
}

// broken is why a request was not answered to its end, nil if it was.
func (s *Server) broken(end sample.End) error {
	switch end {
	case sample.EndStuck:
		return fault{http.StatusUnprocessableEntity, "invalid_request_error", "the model's vocabulary has no token " +
			"that goes on in the form that is asked for", "response_format", "no_token"}
	case sample.EndNumber:
		return fault{http.StatusInternalServerError, "server_error", "the model's logits are no numbers here, so " +
			"that no token can be drawn: its weights, or its adapter's, are spoilt", "model", "no_number"}
	case sample.EndError, sample.EndCancel:
	default:
		return nil
	}
	if _, _, err := s.loop().snapshot(); err != nil {
		return err
	}
	return fault{http.StatusServiceUnavailable, "server_error", queue.ErrClosed.Error(), "", ""}
}

// add takes pieces in.
func (c *choice) add(pieces []piece) {
	for _, p := range pieces {
		c.text += p.text
		if p.drawn {
			c.tokens = append(c.tokens, p.token)
		}
		if p.end != "" {
			c.end = p.end
		}
	}
}

func (c *choice) ids() []int32 {
	out := make([]int32, len(c.tokens))
	for i, t := range c.tokens {
		out[i] = t.ID
	}
	return out
}

// usage counts tokens.
func usage(a *asked, drawn int) map[string]any {
	n := 0
	for _, p := range a.prompts {
		n += len(p)
	}
	return map[string]any{"prompt_tokens": n, "completion_tokens": drawn, "total_tokens": n + drawn}
}

// streamed writes answers as they come, one event a token or a few.
func (s *Server) streamed(ctx context.Context, w http.ResponseWriter, a *asked, talks []*talk) error {
	flusher, ok := w.(http.Flusher)
	if !ok {
		s.fail(w, errors.New("the connection takes no stream"))
		return queue.ErrClosed
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	events := make(chan event, 1)
	for i, t := range talks {
		go func() { follow(ctx, i, t, events) }()
	}
	drawn, open := 0, len(talks)
	for open > 0 {
		e := <-events // every follower ends with an event, at the latest with the context
		if e.err != nil {
			s.note(w, flusher, map[string]any{"error": map[string]any{"message": late.message, "type": late.kind,
				"param": nil, "code": late.code}})
			for open--; open > 0; {
				if e := <-events; e.err != nil || e.c.end != "" {
					open--
				}
			}
			return e.err
		}
		drawn += len(e.c.tokens)
		if f := s.broken(e.c.end); f != nil {
			s.note(w, flusher, map[string]any{"error": map[string]any{"message": f.Error(), "type": "server_error",
				"param": nil, "code": nil}})
			open--
			continue
		}
		s.send(w, flusher, a, e, drawn)
		if e.c.end != "" {
			open--
		}
	}
	if a.usage {
		v := s.chunk(a, []any{})
		v["usage"] = usage(a, drawn)
		s.note(w, flusher, v)
	}
	if _, ok := w.(speaker); ok {
		return nil
	}
	_, err := w.Write([]byte("data: [DONE]\n\n"))
	flusher.Flush()
	return err
}

// event is what came of one of several answers.
type event struct {
	index int
	c     choice
	first bool
	err   error
}

// follow passes on what comes of an answer, until its end or the context's.
func follow(ctx context.Context, i int, t *talk, events chan<- event) {
	for first := true; ; first = false {
		pieces, err := t.take(ctx)
		e := event{index: i, first: first, err: err, c: choice{of: t}}
		e.c.add(pieces)
		events <- e
		if err != nil || e.c.end != "" {
			return
		}
	}
}

// send writes a part of an answer, and its end.
func (s *Server) send(w http.ResponseWriter, f http.Flusher, a *asked, e event, drawn int) {
	var finish any
	if e.c.end != "" {
		finish = string(e.c.end)
	}
	x := a.form.delta(e.index, &e.c, e.first, finish)
	if x["index"] = e.index; x["finish_reason"] == nil {
		x["finish_reason"] = finish
	}
	if finish != nil {
		x["stop_reason"] = e.c.of.reason
	}
	if a.ids {
		x["token_ids"] = e.c.ids()
	}
	v := s.chunk(a, []any{x})
	if a.each {
		v["usage"] = usage(a, drawn)
	}
	s.note(w, f, v)
}

func (s *Server) chunk(a *asked, choices []any) map[string]any {
	_, kind := a.form.object()
	v := map[string]any{"id": a.identity, "object": kind, "created": a.chosen, "model": a.model, "choices": choices}
	if a.usage {
		v["usage"] = nil // the last one has it
	}
	return v
}

// note writes an event; a client that has gone away shows by the context.
func (s *Server) note(w http.ResponseWriter, f http.Flusher, v map[string]any) {
	if d, ok := w.(speaker); ok {
		d.say(v)
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("serve: an event does not marshal: %v", err))
	}
	_, _ = fmt.Fprintf(w, "data: %s\n\n", b) // see above
	f.Flush()
}
