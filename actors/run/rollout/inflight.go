package rollout

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/sample"
)

// Section is where a checkpoint has the answers that weights before its own have drawn and that are
// not trained on: those weights are gone when the run goes on.
const Section = "rollouts"

// InFlight are the answers that were drawn by what was published until a step, and are trained on behind it.
// It waits until they are drawn, and leaves out what later weights have drawn of them meanwhile.
func (r *Source) InFlight(step int64) []*Answer {
	published := r.Plan.Round(step)
	_ = r.wait(r.ctx, func() bool { return r.desk.Worked(published) }) // or what is missing will be drawn anew
	r.table.Lock()
	defer r.table.Unlock()
	var out []*Answer
	for n := r.Plan.Round(step + 1); r.Plan.Begin(n) <= published; n++ {
		x := r.round[n]
		if x == nil || !r.desk.Worked(published) {
			continue
		}
		for _, a := range x.answers {
			out = append(out, a.until(r.Plan.Version(published)))
		}
	}
	return out
}

// until is an answer as the weights up to a version have drawn it, before it is judged.
func (a *Answer) until(version int64) *Answer {
	b := &Answer{Step: a.Step, Sample: a.Sample, Index: a.Index, Version: a.Version, Seed: a.Seed,
		Prompt: a.Prompt, Answer: a.Answer, LogProbs: a.LogProbs, Values: a.Values, Versions: a.Versions,
		End: a.End, Record: a.Record, Heard: a.Heard, HeardFault: a.HeardFault}
	for i, v := range a.Versions {
		if v[1] > version {
			b.Answer, b.LogProbs, b.Values, b.Versions = a.Answer[:v[0]], a.LogProbs[:v[0]], nil, a.Versions[:i]
			b.End, b.HeardFault = sample.EndLength, ""
			b.Heard = slices.DeleteFunc(slices.Clone(b.Heard),
				func(h Heard) bool { return h.At > len(b.Answer) }) // an empty text has no token behind At
			break
		}
	}
	if len(b.Versions) < 2 {
		b.Versions = nil
	}
	return b
}

// resume takes the answers in flight of the checkpoint that the run goes on from, which are judged again.
func (r *Source) resume() error {
	var all []*Answer
	var bad *checkpoint.Error
	err := r.Saved.Section(Section, &all)
	if err != nil && !(errors.As(err, &bad) && bad.Fault == checkpoint.Missing) {
		return err
	}
	each := r.Cfg.Run.Train.GlobalBatch
	for i, a := range all {
		n := r.Plan.Round(a.Step)
		if a.Step != r.Plan.First(n) || i%each > 0 && a.Step != all[i-1].Step {
			return fmt.Errorf("the checkpoint's answers in flight are of another schedule: answer %d is of step %d",
				i, a.Step)
		}
		if r.round[n] == nil {
			r.round[n] = &round{number: n}
		}
		r.round[n].answers = append(r.round[n].answers, a)
	}
	for n, x := range r.round { // in no order: each by itself
		if len(x.answers) != each {
			return fmt.Errorf("the checkpoint has %d answers of step %d in place of %d", len(x.answers),
				r.Plan.First(n), each)
		}
	}
	return nil
}

// cutLog takes the answers from a step on out of a log.
func cutLog(path string, step int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a truncation needs no flush
	at := int64(0)
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return f.Truncate(at) // a last line without an end was cut off
		} else if err != nil {
			return err
		}
		var a struct{ Step int64 }
		if err := json.Unmarshal(line, &a); err != nil {
			return exit.With(fmt.Errorf("%s: %w", path, err), exit.Corrupt)
		}
		if a.Step >= step {
			return f.Truncate(at)
		}
		at += int64(len(line))
	}
}
