package rollout

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/configs"
)

// question is an answer that a judge is to score, as tokens with its prompt.
type question struct{ Tokens []int32 }

// verdict is what a judge says: that it lives, a score, or why it has none.
type verdict struct {
	Beat  bool
	Score float64
	Err   string
}

// judges are those of a run: processes of their own that hold the model of rewards. Each has one answer
// at a time; one that ends, or says nothing for too long, is replaced, and its answer judged again, to the
// same bits. Where that is so often in vain that machines are at fault, all judging ends with an error of the
// run: no answer loses its reward for it.
type judges struct {
	r      *Source
	places chan *judge
	begins func(place int, env ...string) (*workerProcess, error)
	pause  func(vain int) time.Duration // before another process takes a place
	over   context.Context              // ends with the run, or with why nobody judges any more
	fail   context.CancelCauseFunc
}

// judge is a place for one.
type judge struct {
	place  int
	worker *workerProcess // nil where nobody sits there
	vain   int            // processes that have ended here since something was judged here
	heard  bool           // it has said something
	ask    func(any) error
	said   chan verdict // closed with the process
}

// newJudges has n places, behind those of the samplers. Processes begin with the first answers.
func newJudges(r *Source, n int) *judges {
	b := &judges{r: r, places: make(chan *judge, n), begins: r.launcher.begin, pause: judgePause}
	b.over, b.fail = context.WithCancelCause(r.ctx)
	for k := range n {
		b.places <- &judge{place: 1 + r.Cfg.Run.Rollout.Samplers + k}
	}
	return b
}

// judgePause lets a place rest for longer and longer, for half a minute in all: what begins processes may be
// away for a while.
func judgePause(vain int) time.Duration { return min(50*time.Millisecond<<vain, 8*time.Second) }

// failed is why nobody judges any more, nil while somebody does. There may be none.
func (b *judges) failed() error {
	if b == nil || b.over.Err() == nil {
		return nil
	}
	why := context.Cause(b.over)
	if errors.Is(why, context.Canceled) {
		return ErrLeft
	}
	return fmt.Errorf("judging answers: %w", why)
}

// close ends the judges. Nobody asks them any more, as the run has ended.
func (b *judges) close() {
	if b == nil {
		return
	}
	var left sync.WaitGroup
	for range cap(b.places) {
		if j := <-b.places; j.worker != nil {
			left.Go(j.dismiss)
		}
	}
	left.Wait()
}

// dismiss asks a judge to end, and ends one that does not.
func (j *judge) dismiss() {
	l := j.worker
	j.worker = nil
	_ = l.in.Close() // it may have ended
	late := time.NewTimer(beatEvery)
	defer late.Stop()
	for lives := true; lives; {
		select {
		case _, lives = <-j.said:
		case <-late.C:
			lives = false
		}
	}
	l.kill()
	l.close()
	l.ended()
}

// errJudgeGone says that a judge has ended.
var errJudgeGone = errors.New("the judge has ended")

// judge implements reward.Func.
func (b *judges) judge(ctx context.Context, a *reward.Answer) (float64, error) {
	var j *judge
	select {
	case j = <-b.places:
	case <-b.over.Done():
		return 0, context.Cause(b.over)
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
		if j.vain++; j.vain >= samplerTries {
			b.fail(err)
			return 0, err
		}
		b.r.Say("! %v; another takes its place, and what it judged is judged again", err)
		select {
		case <-time.After(b.pause(j.vain)):
		case <-b.over.Done():
			return 0, context.Cause(b.over)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// one asks a judge, who is begun where nobody sits in the place. With an error nobody does any more.
func (b *judges) one(ctx context.Context, j *judge, a *reward.Answer) (v verdict, err error) {
	if j.worker == nil {
		if err := b.begin(j); err != nil {
			return v, fmt.Errorf("a judge: %w", err)
		}
	}
	l, why, patience := j.worker, "", b.r.silence()
	if !j.heard {
		patience += samplerStart
	}
	if err = j.ask(question{a.Tokens}); err == nil {
		v, why, err = b.hear(ctx, j, patience)
	}
	if err == nil {
		j.vain = 0
		return v, nil
	}
	j.worker = nil
	l.kill()
	l.close()
	return v, fmt.Errorf("judge %s %s%s", l.name, why, l.ended())
}

// hear waits for what a judge says of an answer.
func (b *judges) hear(ctx context.Context, j *judge, patience time.Duration) (v verdict, why string, err error) {
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
func (b *judges) begin(j *judge) error {
	l, err := b.begins(j.place, envJudge+"=1")
	if err != nil {
		return err
	}
	b.r.Say("judge process: %s", l.name)
	j.worker, j.heard, j.said = l, false, make(chan verdict, 1)
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
			case <-b.r.ctx.Done(): // it is asked to end, and nobody listens until it has
			}
		}
	}()
	context.AfterFunc(b.r.ctx, func() { _ = l.in.Close() }) // asks it to end
	return nil
}

// judgeProcess judges for a run in another process, until that is gone.
func judgeProcess(c *configs.Config, w *wire) error {
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
	tok, _, err := tokenizer(c)
	if err != nil {
		return err
	}
	j := &judgeModel{dir: c.Run.Reward.Model}
	for {
		var q question
		if err := w.told.Decode(&q); err != nil {
			return nil // the run is gone, or ends
		}
		v := verdict{}
		if v.Score, err = j.judge(context.Background(), &reward.Answer{Tokens: q.Tokens,
			Tokenizer: tok}); err != nil {
			v.Err = err.Error()
		}
		w.say(v)
	}
}
