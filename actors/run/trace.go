package run

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
)

// traceMax bounds trace.json: the first so many jobs of a run.
const traceMax = 50_000

// tracer writes what each actor's device did when, in Chrome's trace format: open it in chrome://tracing or
// Perfetto.
type tracer struct {
	mu   sync.Mutex
	f    *os.File
	w    *bufio.Writer
	n    int
	rows map[actors.Ref]bool
}

func newTracer(dir string) (*tracer, error) {
	f, err := os.Create(filepath.Join(dir, "trace.json"))
	if err != nil {
		return nil, err
	}
	t := &tracer{f: f, w: bufio.NewWriter(f), rows: map[actors.Ref]bool{}}
	_, err = t.w.WriteString("[\n")
	return t, err
}

var jobNames = map[actors.JobKind]string{actors.LoadBatch: "load", actors.SnapshotJob: "snapshot",
	actors.WriteJob: "write", actors.BeginJob: "begin save", actors.CommitJob: "commit save"}

// see implements host.System's Trace.
func (t *tracer) see(e host.TraceEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n++; t.n > traceMax {
		return
	}
	if !t.rows[e.Ref] {
		t.rows[e.Ref] = true
		fmt.Fprintf(t.w, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":%q}},\n", e.Ref, e.Name)
	}
	name, ok := jobNames[e.Job.Kind]
	if !ok {
		name = fmt.Sprintf("%v.%d", e.Job.Action, e.Job.Segment)
	}
	fmt.Fprintf(t.w, "{\"ph\":\"X\",\"name\":%q,\"cat\":%q,\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%d}},\n", name, e.Job.Action.Kind, e.Ref,
		float64(e.Start.Nanoseconds())/1e3, float64((e.End-e.Start).Nanoseconds())/1e3, e.Job.Step)
}

func (t *tracer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n = traceMax // devices may still report
	fmt.Fprintf(t.w, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"lfactor\"}}\n]\n")
	_ = t.w.Flush() // a full disk must not end training
	t.f.Close()
}
