package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// dialect is another form in which clients talk: their requests become chats, and answers in OpenAI's form of chats
// become theirs. It is of one request.
type dialect interface {
	// whole is an answer, of a chat's.
	whole(v map[string]any) any
	// part is the events, each with its type, of a part of a streamed answer. The last has no choices, and the usage.
	part(v map[string]any) []map[string]any
	// fault is an error.
	fault(f fault) any
}

// speaker writes in a dialect.
type speaker struct {
	http.ResponseWriter
	in dialect
}

// Unwrap is for package http.
func (s speaker) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Flush implements http.Flusher.
func (s speaker) Flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() } // a stream that is cut shows by the context

// talks answers requests of a dialect, of which to makes chats and tells the dialect what it is to know of them.
func talks[T any](s *Server, in func() dialect, to func(b *T, in dialect) (*chatBody, error)) http.HandlerFunc {
	answers := reading(s, func(w http.ResponseWriter, r *http.Request, b *T) error {
		c, err := to(b, w.(speaker).in)
		if err == nil {
			err = s.chat(w, r, c)
		}
		return err
	})
	return func(w http.ResponseWriter, r *http.Request) { answers(speaker{w, in()}, r) }
}

// say writes what is to be told of a part of an answer, or of its failure.
func (s speaker) say(v map[string]any) {
	events := []map[string]any{{"type": "error", "error": v["error"]}}
	if v["error"] == nil {
		events = s.in.part(v)
	}
	for _, e := range events {
		b, err := json.Marshal(e)
		if err != nil {
			panic(fmt.Sprintf("serve: an event does not marshal: %v", err))
		}
		_, _ = fmt.Fprintf(s, "event: %v\ndata: %s\n\n", e["type"], b) // a client that has gone away needs none
	}
	s.Flush()
}

// listOf has the objects of a list that the server has made.
func listOf(v any) (out []map[string]any) {
	all, _ := v.([]any)
	for _, x := range all {
		out = append(out, x.(map[string]any))
	}
	return out
}
