package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/actors/world"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/sample"
)

// Heard is a turn of an environment, and its tokens [At, At+N) of the answer, which the model did not draw:
// of the first, at the reset, and of the last there are none.
type Heard struct {
	world.Turn
	At int `json:"at"`
	N  int `json:"n,omitempty"`
}

// earned is what an environment gave for all turns.
func earned(all []Heard) (sum float64) {
	for _, h := range all {
		sum += h.Reward
	}
	return sum
}

// Told tells which tokens of an answer an environment said; nil where it said none.
func (a *Answer) Told() []bool {
	var out []bool
	for _, h := range a.Heard {
		for i := h.At; i < h.At+h.N; i++ {
			if out == nil {
				out = make([]bool, len(a.Answer))
			}
			out[i] = true
		}
	}
	return out
}

// own is the number of tokens of an answer that the model drew.
func (a *Answer) own() int {
	n := len(a.Answer)
	for _, h := range a.Heard {
		n -= h.N
	}
	return n
}

// drawnOf are the numbers of tokens that the model drew, of those of all.
func (a *Answer) drawnOf(v []float32) []float32 {
	told := a.Told()
	if told == nil || v == nil {
		return v
	}
	out := make([]float32, 0, a.own())
	for i, x := range v[:len(told)] {
		if !told[i] {
			out = append(out, x)
		}
	}
	return out
}

// spread is the inverse, with zeros for tokens that the environment said.
func (a *Answer) spread(v []float32) []float32 {
	told := a.Told()
	if told == nil {
		return v
	}
	out := make([]float32, len(told))
	for i := range out {
		if !told[i] {
			out[i], v = v[0], v[1:]
		}
	}
	return out
}

// Environments give rewards turn by turn.
var _ = reward.Register(reward.Kind{Name: "environment", Doc: "the sum of what rollout.environment gives in all turns",
	New: func(*configs.Reward) (reward.Func, error) {
		return func(_ context.Context, a *reward.Answer) (float64, error) {
			if a.Earned == nil {
				return 0, errors.New("no environment was asked: rollout.environment names its command")
			}
			return *a.Earned, nil
		}, nil
	}})

// conversation is what models and an environment say by turns: token in, token out. What the environment
// says is written as the chat template writes a message behind an answer, or as it is where there is none.
type conversation struct {
	talks *world.Talks
	tok   *token.Tokenizer
	chat  *token.Template
	stops []int32
	role  string
	turns int
	most  int // tokens of an answer
	ctx   context.Context
	leave context.CancelFunc
	heard chan func() error
	waits int // turns that the environment is waited for
}

// converses readies the environment of a run, nil where it has none.
func converses(c *configs.Config, stops []int32) (*conversation, error) {
	o := &c.Run.Rollout
	if len(o.Environment) == 0 {
		return nil, nil
	}
	x := &conversation{stops: stops, role: o.Role, turns: o.Turns, most: o.Max, heard: make(chan func() error)}
	tok, conf, err := setup.RunTokenizer(c)
	if err != nil {
		return nil, err
	}
	if tok == nil {
		return nil, c.Fault("rollout.environment", "texts want a tokenizer", "set data.tokenizer")
	}
	x.tok = tok
	if conf.ChatTemplate != "" || c.Run.Data.Template != "" {
		if x.chat, err = setup.Template(c, tok, conf); err != nil {
			return nil, err
		}
		if _, err := x.write("so", stops[0]); err != nil {
			return nil, c.Fault("rollout.environment", err.Error(), "name another data.template or rollout.role")
		}
	}
	wait := time.Duration(o.Wait * float64(time.Second))
	if o.Served() {
		x.talks = world.OpenEnv{URL: o.Environment[0], Action: o.Action, Texts: o.Observation}.Talks(o.Processes, wait)
	} else {
		x.talks = world.NewTalks(o.Environment, o.Processes, wait)
	}
	x.ctx, x.leave = context.WithCancel(context.Background())
	return x, nil
}

// tryEnvironment asks the environment, before the first answer is drawn, for an episode of the first prompt in which
// the model says nothing: one that does not start, dies, hangs or says what is no answer is a fault of the run file.
// What it says itself to be an error is none. Samplers of a cluster ask it from other hosts.
func (r *Source) tryEnvironment(n int64) error {
	c := r.Cfg
	if r.opened() || len(c.Run.Rollout.Environment) == 0 || r.Away && c.Run.Rollout.Samplers > 0 {
		return nil
	}
	batches, err := r.prompts(n, n)
	if err != nil || len(batches) == 0 {
		return err
	}
	first := r.ask(rounds.Part{Round: n}, batches[:1])[0]
	x, err := converses(c, r.stops)
	if err != nil {
		return err
	}
	defer x.close()
	stop := context.AfterFunc(r.left, x.leave)
	defer stop()
	e := &world.Dialogue{Seed: first.Seed, Record: first.Record, Told: []string{""}}
	_, err = x.next(e, &draft{})
	switch {
	case r.left.Err() != nil:
		return ErrLeft
	case err == nil || errors.As(err, new(*world.Refusal)):
		return nil
	}
	return c.Fault("rollout.environment", err.Error(), "it is asked for a reset with the first prompt's "+
		"record and for a step, before anything is drawn")
}

// answerMark stands for an answer in a conversation that shows how a template goes on behind one.
const answerMark = "qzanswerzq"

// write is what an environment says, as tokens behind the one that ended an answer, up to where the next answer begins.
func (x *conversation) write(text string, ended int32) ([]int32, error) {
	if x.chat == nil {
		return x.tok.TryEncode(text, false)
	}
	before := []dataset.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: answerMark}}
	short, err := x.chat.Render(before, nil, false, nil)
	if err != nil {
		return nil, err
	}
	long, err := x.chat.Render(append(before, dataset.Message{Role: x.role, Content: text}), nil, true, nil)
	if err != nil {
		return nil, err
	}
	first, end, whole := strings.Cut(short, answerMark)
	again, rest, ok := strings.Cut(long, answerMark)
	if !whole || !ok || first != again {
		return nil, fmt.Errorf("the chat template writes an answer otherwise when a message of the role %s follows", x.role)
	}
	return x.tok.TryEncode(x.behind(rest, end, ended), false)
}

// behind is what stands in a template behind the token that ended an answer: rest follows the answer
// where a message follows, and end where none does. The token may end the answer, or begin the message
// that the template writes next. Where another one ends answers in the template, that one's place is taken.
func (x *conversation) behind(rest, end string, ended int32) string {
	if after, ok := strings.CutPrefix(rest, x.spelled(ended)); ok {
		return after
	}
	for _, id := range append([]int32{ended}, x.stops...) {
		blank, _, ok := strings.Cut(end, x.spelled(id))
		upTo := blank + x.spelled(id)
		if after, same := strings.CutPrefix(rest, upTo); ok && same && strings.TrimSpace(blank) == "" {
			return after
		}
	}
	return rest
}

// spelled is a token's text, also of a special one.
func (x *conversation) spelled(id int32) string { return x.tok.Decode([]int32{id}, false) }

// episode is what was said so far, of a draft with what was drawn of it now.
func (x *conversation) episode(a *draft, got *draft) (*world.Dialogue, []Heard) {
	answer := append(a.Answer[:len(a.Answer):len(a.Answer)], got.Answer...)
	all := append(a.Heard[:len(a.Heard):len(a.Heard)], got.Heard...)
	e := &world.Dialogue{Seed: a.Seed, Record: a.Record}
	from := 0
	for k, h := range all {
		if e.Heard = append(e.Heard, h.Turn); k > 0 { // the reset answers nothing
			e.Told = append(e.Told, x.said(answer[from:h.At]))
			from = h.At + h.N
		}
	}
	e.Told = append(e.Told, x.said(answer[from:]))
	return e, all
}

// said is the text of a turn's tokens, of which the last ends it.
func (x *conversation) said(ids []int32) string { return x.tok.Decode(ids[:max(0, len(ids)-1)], true) }

// ask has the environment answer what was drawn; then on is called in the loop that draws: to go on, or at the end.
func (x *conversation) ask(a *draft, got *draft, on func(over bool) error) {
	e, before := x.episode(a, got)
	had := got.ids
	if had == nil {
		had = e
	} else { // the process that is in the episode goes on
		had.Told, had.Heard = e.Told, e.Heard
	}
	got.ids = had
	x.waits++
	go func() {
		turns, err := x.next(had, a)
		f := func() error {
			x.waits--
			return x.hear(a, got, before, turns, err, on)
		}
		select {
		case x.heard <- f:
		case <-x.ctx.Done():
		}
	}()
}

// next are the turns that follow: the first of an episode is that of its reset. Those of a script are not asked for.
func (x *conversation) next(e *world.Dialogue, a *draft) (out []world.Turn, err error) {
	for len(e.Heard) <= len(e.Told) {
		n := len(e.Heard)
		var t world.Turn
		switch {
		case n < len(a.Script):
			t = a.Script[n].Turn
			e.Heard = append(e.Heard, t)
		case a.ScriptFault != "":
			err = errors.New(a.ScriptFault)
		default:
			t, err = x.talks.Next(x.ctx, e)
		}
		if err == nil && n == 0 && (t.Text != "" || t.Done) {
			err = errors.New("the environment says a text at the reset, or ends: prompts are those of the data")
		}
		if err != nil {
			return out, err
		}
		out = append(out, t)
	}
	return out, nil
}

// hear adds turns to an answer.
func (x *conversation) hear(a, got *draft, before []Heard, turns []world.Turn, err error,
	on func(over bool) error) error {
	at := len(a.Answer) + len(got.Answer)
	for _, t := range turns {
		got.Heard = append(got.Heard, Heard{Turn: t, At: at})
	}
	got.End = sample.EndStop
	if err != nil {
		got.HeardFault = err.Error()
		return on(true)
	}
	last := &got.Heard[len(got.Heard)-1]
	if last.Done || len(before)+len(turns)-1 >= x.turns {
		return on(true)
	}
	drawn := append(a.Answer[:len(a.Answer):len(a.Answer)], got.Answer...)
	ids, err := x.write(last.Text, drawn[len(drawn)-1])
	if err != nil {
		got.HeardFault = fmt.Sprintf("what the environment says has no tokens: %v", err)
		return on(true)
	}
	if at+len(ids)+1 >= x.most { // no room for an answer
		return on(true)
	}
	last.N = len(ids)
	got.Answer, got.LogProbs = append(got.Answer, ids...), append(got.LogProbs, make([]float32, len(ids))...)
	return on(false)
}

// take hears all that environments have said. Where nothing else is to be done it waits for a moment.
func (x *conversation) take(waits bool) error {
	heard := false
	for there := true; there && x.waits > 0; {
		select {
		case f := <-x.heard:
			heard = true
			if err := f(); err != nil {
				return err
			}
		default:
			there = false
		}
	}
	if heard || !waits || x.waits == 0 {
		return nil
	}
	late := time.NewTimer(beatEvery)
	defer late.Stop()
	select {
	case f := <-x.heard:
		return f()
	case <-late.C:
		return nil
	}
}

func (x *conversation) close() {
	x.leave()
	x.talks.Close()
}
