package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/dataset"
)

// openChain opens the record by which others can audit the run, and says in it what the run is.
func (p *reporter) openChain() {
	r := p.r
	r.chain = record.OpenChain(r.cfg.Run.Log.Dir, r.recordsEnd())
	p.onClose(func() {
		if err := r.chain.Close(); err != nil {
			p.say("! the chain of steps is not written to its end: %v; lfactor audit will not know the steps behind",
				err)
		}
	})
	if r.heir == nil {
		r.chain.Begin(record.Began{First: r.start.first, Own: r.start.step, Steps: r.cfg.Run.Train.Steps, Config: r.given,
			Build: buildHash(), Data: r.data.train.Position().Order, From: r.start.from})
	}
}

// buildHead is how much of a program's file is hashed: linkers of Go write a hash of all of it into the first 32 KiB.
const buildHead = 64 << 10

// buildHash is a hash that another build of the program does not have: of what it was made from, of the beginning of
// its file and of the file's length.
func buildHash() string {
	h := sha256.New()
	if info, ok := debug.ReadBuildInfo(); ok {
		fmt.Fprint(h, info)
	}
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // it is only read
	if i, err := f.Stat(); err == nil {
		fmt.Fprint(h, i.Size())
	}
	if _, err := io.CopyN(h, f, buildHead); err != nil && err != io.EOF {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// chained adds a committed step to the chain.
func (r *Run) chained(m actors.Message) {
	if r.chain == nil || r.heir != nil && m.Step <= r.chain.Last() { // the process that led before has
		return
	}
	r.data.mu.Lock()
	made := r.data.recent[m.Step]
	r.data.mu.Unlock()
	v := core.SummaryOf(m.Values)
	x := finite(Metrics{Loss: v.Loss, GradNorm: v.Norm})
	t := record.Taken{Step: m.Step, Loss: x.Loss, GradNorm: x.GradNorm, LR: v.LR}
	if made != nil {
		t.Samples = samplesHash(made.batches)
	}
	r.chain.Take(t)
}

// samplesHash is a hash of all that a step's samples teach.
func samplesHash(batches []dataset.Batch) string {
	h := sha256.New()
	for i := range batches {
		batches[i].Hash(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}
