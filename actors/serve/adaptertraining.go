package serve

import (
	"errors"
	"time"

	"github.com/lfactor/lfactor/stages/tenants"
)

// job is work of a tenant that waits, or is under way.
type job struct {
	work  *tenants.Work
	begun bool
	err   error
	ended chan struct{}
}

// adapterTraining is what the loop trains with. It is the loop's alone.
type adapterTraining struct {
	trainer *tenants.Trainer
	jobs    []*job // in the order in which they came
	stats   trainingStats
	seen    map[int]int64 // the last batch of each slot
	took    time.Duration // the last batch
}

// trainingStats are what it has done.
type trainingStats struct {
	tokens, batches, pieces int64
}

func (b *adapterTraining) busy() bool { return b != nil && len(b.jobs) > 0 }

// patience is the part of a batch's time that it waits for tenants who were in the last ones.
const patience = 8

// linger is for how long the next batch may wait for more work: those who had work in one of the last two batches will
// likely have some soon, and a batch more costs much more than waiting. 0 is not at all.
func (b *adapterTraining) linger() time.Duration {
	if !b.busy() {
		return 0
	}
	here := map[int]bool{}
	for _, j := range b.jobs {
		here[j.work.Slot] = true
	}
	for slot, at := range b.seen { // in no order: any one is enough
		if !here[slot] && at+2 > b.stats.batches {
			return b.took / patience
		}
	}
	return 0
}

// step computes one microbatch: a piece of the oldest job of each tenant, if they want the same as the oldest of all.
func (b *adapterTraining) step() {
	if !b.busy() {
		return
	}
	taken := map[int]bool{}
	of := map[*tenants.Work]*job{}
	var works []*tenants.Work
	for _, j := range b.jobs {
		if w := j.work; !taken[w.Slot] {
			taken[w.Slot] = true
			if w.Backward == b.jobs[0].work.Backward {
				works, of[w] = append(works, w), j
			}
		}
	}
	began := time.Now()
	done, err := b.trainer.Run(works)
	b.took = time.Since(began)
	b.stats.batches++
	if b.seen == nil {
		b.seen = map[int]int64{}
	}
	for _, w := range works {
		if w.Begun() {
			of[w].begun = true
			b.stats.pieces++
			b.seen[w.Slot] = b.stats.batches
		}
	}
	for _, w := range done {
		b.end(of[w], nil)
	}
	if err != nil { // of what was computed together: nobody knows whose gradient has what
		for _, w := range works {
			b.trainer.Empty(w.Slot)
			b.end(of[w], errors.Join(errors.New("the step failed, and the adapter has no gradient"), err))
		}
	}
}

// end tells whoever waits that a job is over.
func (b *adapterTraining) end(j *job, err error) {
	for i, x := range b.jobs {
		if x == j {
			b.jobs = append(b.jobs[:i], b.jobs[i+1:]...)
			break
		}
	}
	for _, d := range j.work.Data {
		b.stats.tokens += int64(len(d.Tokens))
	}
	j.err = err
	close(j.ended)
}

// withdraw ends a job that has not begun.
func (b *adapterTraining) withdraw(j *job, err error) {
	select {
	case <-j.ended:
	default:
		if !j.begun {
			b.end(j, err)
		}
	}
}
