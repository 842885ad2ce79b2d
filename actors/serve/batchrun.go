package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// start has a batch's requests asked; the caller holds the lock, or is alone.
func (b *batches) start(x *batch) {
	ctx, cancel := context.WithDeadline(b.over, time.Unix(x.Expires, 0))
	if x.cancel = cancel; x.Status == "cancelling" {
		cancel()
	}
	b.tasks.Add(1)
	go func() {
		defer b.tasks.Done()
		defer cancel()
		b.run(ctx, x)
	}()
}

// outcome is a line of an output file.
type outcome struct {
	ID       string         `json:"id"`
	CustomID string         `json:"custom_id"`
	Response map[string]any `json:"response"`
	Error    any            `json:"error"`
}

// outputs are the two files of a batch's outcomes.
type outputs struct {
	b     *batches
	x     *batch
	mu    sync.Mutex
	files [2]*os.File // answers and errors, nil before the first
	fault error
}

// put writes an outcome, which is of the file of errors where its status is no 200.
func (o *outputs) put(line outcome, good bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	which, id := 0, &o.x.Output
	if !good {
		which, id = 1, &o.x.Failed
	}
	text, err := json.Marshal(line)
	if err == nil && o.files[which] == nil {
		name := o.b.s.identity("file")
		if *id != nil {
			name = **id
		}
		o.files[which], err = os.OpenFile(filepath.Join(o.b.dir, name+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		o.b.mu.Lock()
		*id = &name
		err = errors.Join(err, o.b.save(o.x))
		o.b.mu.Unlock()
	}
	if err == nil {
		_, err = o.files[which].Write(append(text, '\n'))
	}
	o.fault = errors.Join(o.fault, err)
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	if o.x.Counts.Completed++; !good {
		o.x.Counts.Completed, o.x.Counts.Failed = o.x.Counts.Completed-1, o.x.Counts.Failed+1
	}
}

// answered are the requests of a batch that have an outcome, of a run before. A last line that was cut off is dropped.
func (o *outputs) answered() map[string]bool {
	done := map[string]bool{}
	o.x.Counts.Completed, o.x.Counts.Failed = 0, 0
	for i, id := range []*string{o.x.Output, o.x.Failed} {
		if id == nil {
			continue
		}
		name := filepath.Join(o.b.dir, *id+".jsonl")
		text, err := os.ReadFile(name)
		whole := bytes.LastIndexByte(text, '\n') + 1
		if whole < len(text) {
			err = errors.Join(err, os.Truncate(name, int64(whole)))
		}
		o.fault = errors.Join(o.fault, err)
		for line := range bytes.Lines(text[:whole]) {
			var l outcome
			if json.Unmarshal(line, &l) == nil && !done[l.CustomID] {
				done[l.CustomID] = true
				*[]*int{&o.x.Counts.Completed, &o.x.Counts.Failed}[i]++
			}
		}
	}
	return done
}

// run asks the requests of a batch that have no outcome yet, some at once, and says how it ended. One whose server ends
// stays under way.
func (b *batches) run(ctx context.Context, x *batch) {
	out := &outputs{b: b, x: x}
	b.mu.Lock()
	done := out.answered()
	b.mu.Unlock()
	todo := make(chan *batchLine)
	var asking sync.WaitGroup
	for range min(batchAtOnce, b.s.o.Queue) {
		asking.Go(func() {
			for l := range todo {
				if status, body := b.ask(ctx, l); status != 0 {
					out.put(outcome{b.s.identity("batch_req"), l.CustomID, map[string]any{"status_code": status,
						"request_id": b.s.identity("req"), "body": body}, nil}, status == http.StatusOK)
				}
			}
		})
	}
	err := b.lines(x.Input, func(_ int, l *batchLine, err error) bool {
		if err != nil || done[l.CustomID] {
			return err == nil
		}
		select {
		case todo <- l:
			return true
		case <-ctx.Done():
			return false
		}
	})
	close(todo)
	asking.Wait()
	b.finish(ctx, x, out, errors.Join(err, out.fault))
}

// finish says how a batch ended, unless it is to go on with the next server.
func (b *batches) finish(ctx context.Context, x *batch, out *outputs, err error) {
	for i, f := range out.files {
		if f == nil {
			continue
		}
		id := *[]*string{x.Output, x.Failed}[i]
		info, fault := f.Stat()
		err = errors.Join(err, fault, f.Close())
		if fault == nil {
			err = errors.Join(err, b.keep(batchFile{id, "file", info.Size(), x.Created, x.ID + "_output.jsonl", "batch_output"}))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		x.Status, x.Errors = "failed", &batchErrors{"list", []batchError{{"server_error", err.Error(), "", 0}}}
	case x.Status == "cancelling":
		x.Status = "cancelled"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		x.Status = "expired"
	case ctx.Err() != nil: // the server ends
		return
	default:
		x.Status = "completed"
	}
	x.Over = b.s.now().Unix()
	_ = b.save(x) // where the disk is full it goes on with the next server
}

// ask gives a request to the server as a client would, and again while there is no room; status 0 says that the batch
// ends.
func (b *batches) ask(ctx context.Context, l *batchLine) (status int, body json.RawMessage) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		if ctx.Err() != nil {
			return 0, nil
		}
		w := &kept{header: http.Header{}, status: http.StatusOK}
		var asked struct{ Stream bool }
		if json.Unmarshal(l.Body, &asked) == nil && asked.Stream {
			b.s.fail(w, bad("stream", "an answer of a batch comes whole"))
			return w.status, bytes.TrimSpace(w.text.Bytes())
		}
		r, err := http.NewRequestWithContext(context.WithValue(ctx, shareKey{}, "batches"), http.MethodPost, l.URL, bytes.NewReader(l.Body))
		if err != nil {
			panic(fmt.Sprintf("serve: a request of a batch cannot be made: %v", err)) // its path is one of a list
		}
		b.s.ServeHTTP(w, r)
		switch full := w.status == http.StatusTooManyRequests || w.status == http.StatusServiceUnavailable; {
		case ctx.Err() != nil:
			return 0, nil
		case !full:
			return w.status, bytes.TrimSpace(w.text.Bytes())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// kept is an answer that is kept.
type kept struct {
	header http.Header
	status int
	text   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(status int) { k.status = status }

// Write implements http.ResponseWriter.
func (k *kept) Write(b []byte) (int, error) { return k.text.Write(b) }

func (b *batches) stop(r *http.Request) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.all[r.PathValue("id")]
	if x == nil {
		return nil, fault{http.StatusNotFound, "invalid_request_error", "there is no such batch", "id", "not_found"}
	}
	if x.Status == "in_progress" {
		x.Status = "cancelling"
		if err := b.save(x); err != nil {
			return nil, err
		}
		x.cancel()
	}
	return x.view(), nil
}
