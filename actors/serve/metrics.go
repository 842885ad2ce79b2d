package serve

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// metrics count what handlers do.
type metrics struct{ requests, failed, cancelled atomic.Int64 }

// metrics answers in the text form of Prometheus.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	e, failed, _ := s.loop().snapshot() // the last error was told to whom it hit
	t := s.loop().trained()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"requests_total", "counter", "Requests that were taken.", s.counted.requests.Load()},
		{"requests_failed_total", "counter", "Requests that were answered with an error.", s.counted.failed.Load()},
		{"requests_cancelled_total", "counter", "Requests whose client went away or whose time was over.",
			s.counted.cancelled.Load()},
		{"weights_replaced_total", "counter", "Times that newer weights took the place of those that answered.", s.replaced.Load()},
		{"tokens_waiting", "gauge", "Tokens of answers that wait for room.", int64(e.WaitingTokens)},
		{"sequences_running", "gauge", "Answers under way.", int64(e.Running)},
		{"sequences_waiting", "gauge", "Answers that wait for room.", int64(e.Waiting)},
		{"pages_used", "gauge", "Pages of keys and values that answers hold.", int64(e.PagesUsed)},
		{"pages", "gauge", "Pages of keys and values.", int64(e.Pages)},
		{"prompt_tokens_total", "counter", "Tokens of prompts that were computed.", e.Prompt},
		{"prompt_tokens_shared_total", "counter", "Tokens of prompts that were found in pages.", e.Shared},
		{"tokens_total", "counter", "Tokens that were drawn.", e.Drawn},
		{"steps_total", "counter", "Microbatches.", e.Steps},
		{"steps_failed_total", "counter", "Microbatches that ended in an error.", failed},
		{"preempted_total", "counter", "Answers that gave their pages up and began again.", e.Preempted},
		{"drafts_total", "counter", "Tokens that the draft model proposed and the model computed.", e.Drafted},
		{"drafts_accepted_total", "counter", "Of these, tokens that the model drew itself.", e.Accepted},
		{"adapters", "gauge", "Adapters that clients train.", int64(len(s.tenants.list()))},
		{"train_tokens_total", "counter", "Tokens that adapters were trained or judged with.", t.tokens},
		{"train_steps_total", "counter", "Microbatches of training.", t.batches},
		{"train_pieces_total", "counter", "Pieces of work in them.", t.pieces},
		{"traces", "gauge", "Classes of microbatches that were recorded.", int64(e.Traces)},
	} {
		fmt.Fprintf(w, "# HELP lfactor_%s %s\n# TYPE lfactor_%s %s\nlfactor_%s %d\n", m.name, m.help, m.name, m.kind,
			m.name, m.value)
	}
	s.times.export(w)
}
