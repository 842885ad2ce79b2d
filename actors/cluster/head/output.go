package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// Chunk is a piece of what a job writes, or its end.
type Chunk struct {
	At     int64  `json:"at"` // where the next one begins
	Proc   int    `json:"proc"`
	Gen    int    `json:"gen,omitempty"`
	Seq    int64  `json:"seq,omitempty"` // counts what the process has written in pieces, from 1
	Host   string `json:"host,omitempty"`
	Stream string `json:"stream,omitempty"`
	Data   []byte `json:"data,omitempty"`
	End    *Job   `json:"end,omitempty"`
}

func (h *Head) outputFile(id string) string {
	return filepath.Join(h.o.Dir, "jobs", id+".jsonl")
}

// written is what a job has written.
type written struct {
	size int64 // of its file
	mute bool  // what it wrote last could not be kept
}

// writtenOf is what a job has written; the lock is held.
func (h *Head) writtenOf(id string) *written {
	x := h.outputs[id]
	if x == nil {
		x = &written{}
		h.outputs[id] = x
	}
	return x
}

// outputMost is how much of what a job writes is kept, in bytes: the disk is the cluster's.
const outputMost = 1 << 30

// output keeps what a process on a host has written and wakes who follows it.
func (h *Head) output(host string, m control.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Proc < 0 || m.Proc >= h.m.Count(m.Job) {
		return
	}
	j := h.writtenOf(m.Job)
	k := procKey{m.Job, m.Proc, m.Gen}
	if m.At > 0 && m.At <= h.wrote[k] {
		return // an agent has sent it again, not knowing that it came
	}
	if j.size > outputMost {
		if !j.mute {
			j.mute = true
			h.stepLocked(decide.Note{Event: Event{Kind: "disk", Job: m.Job, Text: fmt.Sprintf(
				"job %s has written %d MiB: what it writes from here on is not kept, and the job goes on", m.Job,
				outputMost>>20)}})
		}
		return
	}
	line, err := json.Marshal(Chunk{Proc: m.Proc, Gen: m.Gen, Seq: m.At, Host: host,
		Stream: m.Stream, Data: m.Data})
	if err != nil {
		return
	}
	f, err := os.OpenFile(h.outputFile(m.Job), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		_ = os.Truncate(h.outputFile(m.Job), j.size) // a line that is torn is none
		if !j.mute {
			j.mute = true
			h.stepLocked(decide.Note{Event: Event{Kind: "disk", Job: m.Job,
				Text: fmt.Sprintf("output of job %s is lost, though the job goes on: %v", m.Job, err)}})
		}
		return
	}
	j.mute = false
	h.wrote[k] = m.At
	j.size += int64(len(line)) + 1
	h.heard.Broadcast()
}

// follow streams what a job has written from an offset on, until its end.
func (h *Head) follow(w http.ResponseWriter, r *http.Request) {
	j, err := h.job(r)
	if err != nil {
		refuse(w, err)
		return
	}
	at, _ := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64) // 0 where there is none
	wait := r.URL.Query().Get("follow") != "0"
	enc := json.NewEncoder(w)
	// a reader that is gone ends the request's context
	flush := func() { _ = http.NewResponseController(w).Flush() }
	gone := h.wakeAt(r)
	defer gone()
	flush() // that the head answers is known at once
	for {
		h.mu.Lock()
		out := h.writtenOf(j.ID)
		for at >= out.size && h.m.State(j.ID) != Ended && wait && r.Context().Err() == nil && !h.gone {
			h.heard.Wait()
		}
		size := out.size
		h.mu.Unlock()
		var end Job
		// it is there, for no job is forgotten
		err := h.look(r.Context(), func(m *decide.Head) { end, _ = m.Job(j.ID) })
		if err != nil {
			return
		}
		over := end.State == Ended || !wait
		next, err := h.copyOutput(enc, j.ID, at, size)
		if err != nil {
			return
		}
		flush()
		if over && next >= size {
			end = shown(end)
			_ = enc.Encode(Chunk{At: next, End: &end}) // as above
			return
		}
		if next == at { // the head ends
			return
		}
		at = next
	}
}

// copyOutput sends the chunks between two offsets and returns where the next begins.
func (h *Head) copyOutput(enc *json.Encoder, id string, from, to int64) (int64, error) {
	if from >= to {
		return from, nil
	}
	f, err := os.Open(h.outputFile(id))
	if err != nil {
		return from, err
	}
	defer f.Close()
	dec := json.NewDecoder(io.NewSectionReader(f, from, to-from))
	at := from
	for {
		var c Chunk
		if err := dec.Decode(&c); err != nil {
			return at, nil // the end, or a line that a crash has torn: what is whole was sent
		}
		at = from + dec.InputOffset() + 1
		c.At = at
		if err := enc.Encode(c); err != nil {
			return at, err
		}
	}
}

// wakeAt wakes a follower when its request ends; the result stops that.
func (h *Head) wakeAt(r *http.Request) func() {
	done := make(chan struct{})
	go func() {
		select {
		case <-r.Context().Done():
			h.mu.Lock()
			h.heard.Broadcast()
			h.mu.Unlock()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// followEvents streams events after a number, until the request ends; with follow=0 those there are.
func (h *Head) followEvents(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.Atoi(r.URL.Query().Get("after")) // 0 where there is none
	wait := r.URL.Query().Get("follow") == "1"
	enc := json.NewEncoder(w)
	defer h.wakeAt(r)()
	_ = http.NewResponseController(w).Flush() // that the head answers is known at once
	for {
		h.mu.Lock()
		for len(h.m.Events(after)) == 0 && wait && r.Context().Err() == nil && !h.gone {
			h.heard.Wait()
		}
		ending := h.gone || h.m.Ending()
		h.mu.Unlock()
		var some []Event
		if h.look(r.Context(), func(m *decide.Head) { some = m.Events(after) }) != nil {
			return
		}
		for _, e := range some {
			if enc.Encode(e) != nil {
				return
			}
			after = e.N
		}
		_ = http.NewResponseController(w).Flush() // a reader that is gone ends the request's context
		if !wait || ending || r.Context().Err() != nil {
			return
		}
	}
}
