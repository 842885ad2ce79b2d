package policy

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors/serve"
)

// kept is how many of the last answers quantiles are taken over.
const kept = 8192

// newLatencies are latencies by bounds in seconds.
func newLatencies() *latencies {
	return &latencies{taken: serve.Histogram{Bounds: []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}}}
}

// latencies count what the server does, and keep how long its last answers took: from the last byte of an
// observation to the last byte of its actions.
type latencies struct {
	answered, refused, late, full, dropped, batches atomic.Int64
	connections, turned, failed                     atomic.Int64

	taken serve.Histogram

	mu   sync.Mutex
	ring []time.Duration
	next int
}

// add counts an answer.
func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < kept {
		l.ring = append(l.ring, d)
	} else {
		l.ring[l.next] = d
	}
	l.next = (l.next + 1) % kept
	l.taken.Add(d)
	l.answered.Add(1)
}

// quantiles are those of the last answers, by the nearest rank; zeros where there is none.
func (l *latencies) quantiles(q ...float64) []time.Duration {
	l.mu.Lock()
	s := slices.Clone(l.ring)
	l.mu.Unlock()
	slices.Sort(s)
	out := make([]time.Duration, len(q))
	for i, x := range q {
		if n := len(s); n > 0 {
			out[i] = s[min(n-1, int(x*float64(n)))]
		}
	}
	return out
}

// Summary is what a server says of itself at its end.
type Summary struct {
	Answered int64 `json:"answered"` // observations that were given actions
	Refused  int64 `json:"refused"`  // that were not understood, or named what the policy does not read
	Late     int64 `json:"late"`     // whose time was over before their turn
	Full     int64 `json:"full"`     // that found no room to wait
	Failed   int64 `json:"failed"`   // to which the policy gave no finite actions; refused has them too
	Dropped  int64 `json:"dropped"`  // connections that were ended for what they did or did not do
	Turned   int64 `json:"turned"`   // connections that were one too many
	Batches  int64 `json:"batches"`
	// milliseconds of an answer, from the observation's last byte to the actions'
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// summary is what was done until now.
func (l *latencies) summary() Summary {
	q := l.quantiles(0.5, 0.99)
	return Summary{Answered: l.answered.Load(), Refused: l.refused.Load(), Late: l.late.Load(), Full: l.full.Load(),
		Dropped: l.dropped.Load(), Turned: l.turned.Load(), Batches: l.batches.Load(), Failed: l.failed.Load(),
		P50: milli(q[0]), P99: milli(q[1])}
}

// milli is a time in milliseconds.
func milli(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// String is a summary in a line.
func (s Summary) String() string {
	text := fmt.Sprintf("%d observations answered in %d batches, p50 %.1f ms, p99 %.1f ms", s.Answered, s.Batches,
		s.P50, s.P99)
	for _, x := range []struct {
		n    int64
		what string
	}{{s.Refused, "refused"}, {s.Late, "late"}, {s.Full, "without room to wait"},
		{s.Failed, "to which the policy gave no finite actions"},
		{s.Dropped, "connections dropped"}, {s.Turned, "connections turned away"}} {
		if x.n > 0 {
			text += fmt.Sprintf(" · %d %s", x.n, x.what)
		}
	}
	return text
}

// export writes the counts in the text form of Prometheus.
func (l *latencies) export(w io.Writer, waiting int) {
	s := l.summary()
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"observations_answered_total", "counter", "Observations that were given actions.", s.Answered},
		{"observations_refused_total", "counter", "Observations that were not understood.", s.Refused},
		{"observations_late_total", "counter", "Observations whose time was over before their turn.", s.Late},
		{"observations_full_total", "counter", "Observations that found no room to wait.", s.Full},
		{"observations_failed_total", "counter", "Observations to which the policy gave no finite actions.", s.Failed},
		{"observations_waiting", "gauge", "Observations that wait for a replica.", int64(waiting)},
		{"connections", "gauge", "Connections of robots.", l.connections.Load()},
		{"connections_dropped_total", "counter", "Connections that were ended for what they did.", s.Dropped},
		{"connections_refused_total", "counter", "Connections that were one too many.", s.Turned},
		{"batches_total", "counter", "Batches of observations.", s.Batches},
	} {
		fmt.Fprintf(w, "# HELP lfactor_policy_%s %s\n# TYPE lfactor_policy_%s %s\nlfactor_policy_%s %d\n", m.name,
			m.help, m.name, m.kind, m.name, m.value)
	}
	l.taken.Export(w, "lfactor_policy_latency_seconds", "From an observation's last byte to its actions'.")
	const recent = "lfactor_policy_latency_recent_seconds"
	fmt.Fprintf(w, "# HELP %s Of the last %d answers.\n# TYPE %s gauge\n", recent, kept, recent)
	fmt.Fprintf(w, "%s{quantile=\"0.5\"} %g\n%s{quantile=\"0.99\"} %g\n", recent, s.P50/1000, recent, s.P99/1000)
}
