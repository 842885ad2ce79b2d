package record

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/host/links"
)

// traceMax bounds trace.json: the first so many jobs of a run.
const traceMax = 50_000

// Tracer writes what each actor's device did when, in Chrome's trace format: open it in chrome://tracing or
// Perfetto. Other processes send what theirs did, in the time of the process that leads.
type Tracer struct {
	mu   sync.Mutex
	f    *os.File
	w    *bufio.Writer
	n    int
	most int // events of this process
	rows map[actors.Ref]bool
}

// TraceName is the file of log.dir with the jobs of all ranks by time.
const TraceName = "trace.json"

// NewTracer begins trace.json in dir, of a run of so many processes.
func NewTracer(dir string, procs int) (*Tracer, error) {
	f, err := os.Create(filepath.Join(dir, TraceName))
	if err != nil {
		return nil, err
	}
	t := &Tracer{f: f, w: bufio.NewWriter(f), rows: map[actors.Ref]bool{}, most: traceMax / max(1, procs)}
	_, err = t.w.WriteString("[\n")
	return t, err
}

var jobNames = map[actors.JobKind]string{actors.LoadBatch: "load", actors.SnapshotJob: "snapshot",
	actors.WriteJob: "write", actors.BeginJob: "begin save", actors.CommitJob: "commit save",
	actors.RestoreJob: "restore", actors.KeepJob: "copy state", actors.StateJob: "copy state"}

// traceRow names an actor's row.
func traceRow(w io.Writer, proc int, e host.TraceEvent) {
	fmt.Fprintf(w, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":%q}},\n", proc,
		e.Ref, e.Name)
}

// traceJob writes a job, whose times are ahead of those of the trace by so much less.
func traceJob(w io.Writer, proc int, e host.TraceEvent, ahead time.Duration) {
	name, ok := jobNames[e.Job.Kind]
	if !ok {
		name = fmt.Sprintf("%v.%d", e.Job.Action, e.Job.Segment)
	}
	fmt.Fprintf(w, "{\"ph\":\"X\",\"name\":%q,\"cat\":%q,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"+
		"\"args\":{\"step\":%d}},\n", name, e.Job.Action.Kind, proc, e.Ref,
		float64((e.Start+ahead).Nanoseconds())/1e3, float64((e.End-e.Start).Nanoseconds())/1e3, e.Job.Step)
}

// See implements host.System's Trace.
func (t *Tracer) See(e host.TraceEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n++; t.n > t.most {
		return
	}
	if !t.rows[e.Ref] {
		t.rows[e.Ref] = true
		traceRow(t.w, 0, e)
	}
	traceJob(t.w, 0, e, 0)
}

// Told takes the lines of another process.
func (t *Tracer) Told(_ int, lines []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n <= traceMax {
		_, _ = t.w.Write(lines) // a full disk must not end training
	}
}

// Close ends the file. Clocks say how far each process's clock was from this one's, which the file states.
func (t *Tracer) Close(clocks map[int]links.Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n = traceMax + 1 // devices may still report
	for _, p := range slices.Sorted(maps.Keys(clocks)) {
		o := clocks[p]
		fmt.Fprintf(t.w, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"process "+
			"%d\"}},\n{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":%d,\"args\":{\"labels\":\"clock %+.3f ms, "+
			"within %.3f ms\"}},\n", p, p, p, float64(o.Ahead.Nanoseconds())/1e6, float64(o.Within.Nanoseconds())/1e6)
	}
	fmt.Fprintf(t.w, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"lfactor\"}}\n]\n")
	_ = t.w.Flush() // a full disk must not end training
	t.f.Close()
}

// Merged says how well the clocks of a trace agree.
func Merged(clocks map[int]links.Offset) string {
	worst, of := time.Duration(0), 0
	for _, p := range slices.Sorted(maps.Keys(clocks)) {
		if clocks[p].Within > worst {
			worst, of = clocks[p].Within, p
		}
	}
	return fmt.Sprintf("trace   %d processes in trace.json, their clocks within %v of each other (process %d is "+
		"the least certain)", len(clocks)+1, worst.Round(time.Microsecond), of)
}

// Sender keeps what this process's devices did until the process that leads hears it.
type Sender struct {
	mu   sync.Mutex
	proc int
	left int // of the events that this process may send
	rows map[actors.Ref]bool
	wait []host.TraceEvent
}

// NewSender is that of process number proc of so many.
func NewSender(proc, procs int) *Sender {
	return &Sender{proc: proc, left: traceMax / max(1, procs), rows: map[actors.Ref]bool{}}
}

// See implements host.System's Trace.
func (t *Sender) See(e host.TraceEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left > 0 {
		t.left--
		t.wait = append(t.wait, e)
	}
}

// tellMost is how many events are sent at a time: beats are not to wait for them.
const tellMost = 1000

// Tell implements links.Links's Tell.
func (t *Sender) Tell(clock links.Offset) []byte {
	t.mu.Lock()
	some := t.wait[:min(len(t.wait), tellMost)]
	t.wait = t.wait[len(some):]
	t.mu.Unlock()
	var b bytes.Buffer
	for _, e := range some {
		if !t.rows[e.Ref] { // only one at a time asks
			t.rows[e.Ref] = true
			traceRow(&b, t.proc, e)
		}
		traceJob(&b, t.proc, e, clock.Ahead)
	}
	return b.Bytes()
}
