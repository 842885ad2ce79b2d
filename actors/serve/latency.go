package serve

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Histogram counts times by bounds in seconds, as Prometheus reads them. Its methods are for any goroutine.
type Histogram struct {
	Bounds []float64 // ascending

	mu    sync.Mutex
	sum   time.Duration
	count []int64 // one more than bounds
}

// Add counts a time.
func (h *Histogram) Add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count == nil {
		h.count = make([]int64, len(h.Bounds)+1)
	}
	at, _ := slices.BinarySearch(h.Bounds, d.Seconds())
	h.count[at]++
	h.sum += d
}

// Export writes it in the text form of Prometheus.
func (h *Histogram) Export(w io.Writer, name, help string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name)
	n := int64(0)
	for i := range len(h.Bounds) + 1 {
		le := "+Inf"
		if h.count != nil {
			n += h.count[i]
		}
		if i < len(h.Bounds) {
			le = fmt.Sprint(h.Bounds[i])
		}
		fmt.Fprintf(w, "%s_bucket{le=%q} %d\n", name, le, n)
	}
	fmt.Fprintf(w, "%s_sum %g\n%s_count %d\n", name, h.sum.Seconds(), name, n)
}

// latencies are how long answers take, under vLLM's names and by its bounds.
type latencies struct{ queue, first, token, whole Histogram }

func newLatencies() *latencies {
	long := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	return &latencies{Histogram{Bounds: long}, Histogram{Bounds: []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25,
		0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}}, Histogram{Bounds: []float64{0.01, 0.025, 0.05, 0.075, 0.1,
		0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}}, Histogram{Bounds: long}}
}

func (l *latencies) export(w io.Writer) {
	l.queue.Export(w, "lfactor_request_queue_time_seconds", "From a request to its first microbatch, of each answer.")
	l.first.Export(w, "lfactor_time_to_first_token_seconds", "From a request to the first token, of each answer.")
	l.token.Export(w, "lfactor_inter_token_latency_seconds", "From one token of an answer to the next.")
	l.whole.Export(w, "lfactor_e2e_request_latency_seconds", "From a request to the end, of each answer that has one.")
	// the same under the names of OpenTelemetry's conventions for servers of generative models, as its exporter writes them
	l.first.Export(w, "gen_ai_server_time_to_first_token_seconds", "Time to generate the first token for successful responses.")
	l.token.Export(w, "gen_ai_server_time_per_output_token_seconds", "Time per output token generated after the first token.")
	l.whole.Export(w, "gen_ai_server_request_duration_seconds", "Generative AI server request duration.")
}

// pace is when an answer's events were.
type pace struct {
	l         *latencies
	now       func() time.Time
	came      time.Time
	last      time.Time // its last token, zero before the first
	hasWaited bool
}

// begins is told when the answer is computed, for the first time or again.
func (p *pace) begins() {
	if !p.hasWaited {
		p.hasWaited = true
		p.l.queue.Add(p.now().Sub(p.came))
	}
}

// drew is told of a token.
func (p *pace) drew() {
	now := p.now()
	if p.last.IsZero() {
		p.l.first.Add(now.Sub(p.came))
	} else {
		p.l.token.Add(now.Sub(p.last))
	}
	p.last = now
}

// ended is told of the end of an answer that was not cut off.
func (p *pace) ended() { p.l.whole.Add(p.now().Sub(p.came)) }
