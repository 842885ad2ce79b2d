package run

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/reward"
)

// question is an answer that a judge is to score, as tokens with its prompt.
type question struct{ Tokens []int32 }

// verdict is what a judge says: that it lives, a score, or why it has none.
type verdict struct {
	Beat  bool
	Score float64
	Err   string
}

// bench are the judges of a run: processes of their own that hold the model of rewards. Each has one answer
// at a time; one that ends, or says nothing for too long, is replaced, and its answer judged again, to the
// same bits.
type bench struct {
	r      *rollouts
	places chan *judge
	mu     sync.Mutex
	vain   int // processes that have ended since something was judged
}

// judge is a place on the bench.
type judge struct {
	place int
	life  *life // nil where nobody sits there
	heard bool  // it has said something
	ask   func(any) error
	said  chan verdict // closed with the life
}

// newBench has n places, behind those of the samplers. Processes begin with the first answers.
func newBench(r *rollouts, n int) *bench {
	b := &bench{r: r, places: make(chan *judge, n)}
	for k := range n {
		b.places <- &judge{place: 1 + r.d.r.cfg.Run.Rollout.Samplers + k}
	}
	return b
}

// errJudgeGone says that a judge has ended.
var errJudgeGone = errors.New("the judge has ended")

// judge implements reward.Func.
func (b *bench) judge(ctx context.Context, a *reward.Answer) (float64, error) {
	var j *judge
	select {
	case j = <-b.places:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { b.places <- j }()
	for {
		v, err := b.one(ctx, j, a)
		switch {
		case err == nil && v.Err != "":
			return 0, errors.New(v.Err)
		case err == nil || ctx.Err() != nil:
			return v.Score, err
		}
		b.mu.Lock()
		b.vain++
		vain := b.vain
		b.mu.Unlock()
		if vain >= samplerTries {
			return 0, err
		}
		b.r.d.r.report.say("! %v; another takes its place, and what it judged is judged again", err)
	}
}

// one asks a judge, who is begun where nobody sits in the place. With an error nobody does any more.
func (b *bench) one(ctx context.Context, j *judge, a *reward.Answer) (v verdict, err error) {
	if j.life == nil {
		if err := b.begin(j); err != nil {
			return v, fmt.Errorf("a judge: %w", err)
		}
	}
	l, why, patience := j.life, "", b.r.silence()
	if !j.heard {
		patience += samplerStart
	}
	if err = j.ask(question{a.Tokens}); err == nil {
		v, why, err = b.hear(ctx, j, patience)
	}
	if err == nil {
		b.mu.Lock()
		b.vain = 0
		b.mu.Unlock()
		return v, nil
	}
	j.life = nil
	l.kill()
	l.close()
	return v, fmt.Errorf("judge %s %s%s", l.name, why, l.ended())
}

// hear waits for what a judge says of an answer.
func (b *bench) hear(ctx context.Context, j *judge, patience time.Duration) (v verdict, why string,
	err error) {
	silent := time.NewTimer(patience)
	defer silent.Stop()
	for {
		select {
		case v, lives := <-j.said:
			if !lives {
				return v, "", errJudgeGone
			}
			if j.heard = true; !v.Beat {
				return v, "", nil
			}
			silent.Reset(b.r.silence())
		case <-silent.C:
			return v, fmt.Sprintf("said nothing for %v (rollout.silence) and ", b.r.silence()), errJudgeGone
		case <-ctx.Done():
			return v, "", ctx.Err()
		}
	}
}

// begin begins a judge's process.
func (b *bench) begin(j *judge) error {
	l, err := b.r.staff.begin(j.place, envJudge+"=1")
	if err != nil {
		return err
	}
	b.r.d.r.report.say("judge process: %s", l.name)
	j.life, j.heard, j.said = l, false, make(chan verdict, 1)
	e := gob.NewEncoder(l.in)
	j.ask = e.Encode
	said := j.said
	go func() {
		defer close(said)
		for {
			var v verdict
			if l.out.Decode(&v) != nil {
				return
			}
			select {
			case said <- v:
			case <-b.r.ctx.Done():
				_ = l.in.Close() // asks it to end
				return
			}
		}
	}()
	context.AfterFunc(b.r.ctx, func() { _ = l.in.Close() }) // as above
	return nil
}

// judgeProcess judges for a run in another process, until that is gone.
func (r *Run) judgeProcess(w *wire) error {
	over := make(chan struct{})
	defer close(over)
	go func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				w.say(verdict{Beat: true})
			}
		}
	}()
	if err := r.readTokenizer(); err != nil {
		return err
	}
	j := &judgeModel{dir: r.cfg.Run.Reward.Model}
	for {
		var q question
		if err := w.told.Decode(&q); err != nil {
			return nil // the run is gone, or ends
		}
		v := verdict{}
		var err error
		if v.Score, err = j.judge(context.Background(), &reward.Answer{Tokens: q.Tokens,
			Tokenizer: r.tok}); err != nil {
			v.Err = err.Error()
		}
		w.say(v)
	}
}
