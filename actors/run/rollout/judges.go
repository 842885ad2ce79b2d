package rollout

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// newJudges has n judges, at places behind those of the samplers: processes of their own that hold the model of rewards,
// and begin with the first answers. Each has one answer at a time; one that ends, says nothing for too long, or says for
// ten times as long that it judges, is replaced, and its answer judged again, to the same bits. Where that is so often in
// vain that machines are at fault, all judging ends with an error of the run: no answer loses its reward for it.
func (r *Source) newJudges(n int, pause func(vain int) actors.Duration) *crew.Crew {
	return crew.New(crew.Options{Options: pool.Options{Desk: &pool.Queue{Places: n}, Silence: r.silence(),
		Start: r.start(), Longest: 10*r.silence() + r.start(), Tries: samplerTries, Pause: pause}, Places: n,
		First: 1 + r.Cfg.Run.Rollout.Samplers, Room: 1, Run: r.launcher.member("judge", envJudge+"=1"),
		Hear: r.hears("judging", "judged", "judged"), Turn: &r.table, Grace: beatEvery})
}

// judgePause lets a place rest for longer and longer, for half a minute in all: what begins processes may be
// away for a while.
func judgePause(vain int) actors.Duration {
	return actors.Duration(min(50*time.Millisecond<<vain, 8*time.Second))
}

// asks implements reward.Func.
func (r *Source) asks(ctx context.Context, a *reward.Answer) (float64, error) {
	m, err := r.judges.Ask(ctx, actors.Message{Payload: links.NewPack(nil, tensor.Of(tensor.I32, a.Tokens, len(a.Tokens)))})
	if err != nil || len(m.Values) != 1 {
		return 0, cmp.Or(err, errors.New("the judge gives no score"))
	}
	return m.Values[0], nil
}

// judgeProcess judges for a run in another process, until that is gone.
func judgeProcess(c *configs.Config, l *line) error {
	go func() {
		for range time.Tick(beatEvery) { // for as long as the process lives
			l.says(actors.Message{Kind: pool.Beat})
		}
	}()
	tok, _, err := tokenizer(c)
	if err != nil {
		return err
	}
	j := &judgeModel{dir: c.Run.Reward.Model}
	for {
		q, err := l.hear()
		if err != nil {
			return nil // the run is gone, or ends
		}
		r := actors.Message{Kind: pool.Result, Step: q.Step, Values: []float64{0}}
		r.Values[0], r.Err = j.judge(context.Background(), &reward.Answer{Tokens: q.Payload.(*links.Pack).Tensors[0].I32(),
			Tokenizer: tok})
		links.Release(q)
		l.says(r)
	}
}
