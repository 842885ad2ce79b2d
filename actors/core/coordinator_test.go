package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// tape is a Context that writes down what a behaviour does.
type tape struct{ log []string }

var kinds = map[actors.Kind]string{actors.Open: "open", actors.Commit: "commit", actors.Save: "save",
	actors.Halt: "halt", actors.Report: "report", actors.Rewind: "rewind"}

func (c *tape) Self() actors.Ref                                   { return 0 }
func (c *tape) Now() actors.Time                                   { return 0 }
func (c *tape) Rand() *rand.Rand                                   { return nil }
func (c *tape) After(actors.Duration, actors.Message) actors.Timer { return 0 }
func (c *tape) Cancel(actors.Timer)                                {}
func (c *tape) Spawn(string, actors.Behaviour) actors.Ref          { return 0 }
func (c *tape) Watch(actors.Ref)                                   {}
func (c *tape) Stop(actors.Ref)                                    {}
func (c *tape) Send(to actors.Ref, m actors.Message) {
	c.log = append(c.log, strings.TrimSpace(fmt.Sprintf("%s %d %s", kinds[m.Kind], m.Step, m.Text)))
}
func (c *tape) Do(j actors.Job) {
	c.log = append(c.log, fmt.Sprintf("job %s %d", map[actors.JobKind]string{actors.BeginJob: "begin",
		actors.CommitJob: "commit"}[j.Kind], j.Step))
}

// TestCommitFails: after a checkpoint that could not be committed, everybody goes back to the one before.
func TestCommitFails(t *testing.T) {
	ctx := &tape{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5}, Observer: 1, First: 1, Last: 4, SaveEvery: 1,
		Recover: true, LR: func(int64) float64 { return 0 }, LossScale: LossScale{Scale: 1}})
	say := func(m actors.Message) []string { ctx.take(); c.Receive(ctx, &m); return ctx.take() }
	say(actors.Message{Kind: actors.Started})
	say(actors.Message{Kind: actors.Ready, From: 5, Step: 1})
	say(actors.Message{Kind: actors.Closed, From: 5, Step: 1, Values: ready()})
	say(actors.Message{Kind: actors.Done, Job: c.job})
	say(actors.Message{Kind: actors.Queued, From: 5, Step: 1})
	require.Equal(t, []string{"job commit 1"}, say(actors.Message{Kind: actors.Durable, From: 5, Step: 1}))
	require.Empty(t, say(actors.Message{Kind: actors.Down, From: 5, Step: 1}))
	require.Empty(t, say(actors.Message{Kind: actors.Join, From: 5, Step: 1}),
		"what there is to go back to is not settled")
	require.Equal(t, []string{"report 1 savelost", "rewind 0"},
		say(actors.Message{Kind: actors.Done, Job: c.job, Err: errors.New("no space")}))
}

// TestJoinLate: what a rank said when it was back counts no more once it has ended again; and one that is
// back before its end is known has ended.
func TestJoinLate(t *testing.T) {
	ctx := &tape{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5}, Observer: 1, First: 1, Last: 4, Recover: true,
		LR: func(int64) float64 { return 0 }, LossScale: LossScale{Scale: 1}})
	say := func(kind actors.Kind, times int64) []string {
		ctx.take()
		c.Receive(ctx, &actors.Message{Kind: kind, From: 5, Step: times})
		return ctx.take()
	}
	say(actors.Started, 0)
	require.Empty(t, say(actors.Down, 1))
	require.Empty(t, say(actors.Down, 2))
	require.Empty(t, say(actors.Join, 1))
	require.Equal(t, []string{"rewind 0"}, say(actors.Join, 2))
	require.Equal(t, []string{"rewind 0"}, say(actors.Join, 3))
	require.Empty(t, say(actors.Down, 3))
	require.Equal(t, uint32(3), c.epoch)
}

// TestEvalAgain: an evaluation that a loss has ended is made again from its first batch.
func TestEvalAgain(t *testing.T) {
	ctx := &tape{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5}, Observer: 1, First: 1, Last: 1, EvalEvery: 1,
		EvalSteps: 2, Recover: true, Keep: 1, LR: func(int64) float64 { return 0 },
		LossScale: LossScale{Scale: 1}})
	say := func(m actors.Message) []string { ctx.take(); c.Receive(ctx, &m); return ctx.take() }
	closed := func(step int64) []string {
		return say(actors.Message{Kind: actors.Closed, From: 5, Epoch: c.epoch, Step: step,
			Values: ready()})
	}
	c.l.Same, c.l.Alone = [][]int{{}}, true
	say(actors.Message{Kind: actors.Started})
	say(actors.Message{Kind: actors.Ready, From: 5, Step: 1})
	require.Equal(t, []string{"report 1 step", "open -1"}, closed(1))
	require.Equal(t, []string{"open -2"}, closed(-1))
	say(actors.Message{Kind: actors.Broken, From: 5})
	require.Equal(t, []string{"report 1 broken", "rewind 1"},
		say(actors.Message{Kind: actors.Tick, Epoch: 0}))
	require.Equal(t, []string{"report 1 back", "open -1"},
		say(actors.Message{Kind: actors.Rewound, From: 5, Epoch: 1, Step: 1}))
	require.Equal(t, []string{"open -2"}, closed(-1))
	require.Equal(t, []string{"report 1 eval"}, closed(-2)[:1])
}

// commits lets rank 5 be ready for a step, so that the coordinator commits it.
func commits(ctx *tape, c *Coordinator, step int64) {
	c.Receive(ctx, &actors.Message{Kind: actors.Ready, From: 5, Step: step})
	ctx.log = ctx.log[:len(ctx.log)-1]
}

func (c *tape) take() (out []string) { out, c.log = c.log, nil; return }

// TestSaveBetweenSteps: a save that falls due while the one before is still being written waits for the end
// of a step, and what it saves is that step, never one under way.
func TestSaveBetweenSteps(t *testing.T) {
	ctx := &tape{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5}, Observer: 1, First: 1, Last: 4, SaveEvery: 1,
		SaveAtEnd: true, LR: func(int64) float64 { return 0 }, LossScale: LossScale{Scale: 1}})
	closed := func(step int64) []string {
		commits(ctx, c, step)
		c.Receive(ctx, &actors.Message{Kind: actors.Closed, From: 5, Step: step,
			Values: ready()})
		return ctx.take()
	}
	say := func(m actors.Message) []string { c.Receive(ctx, &m); return ctx.take() }
	require.Equal(t, []string{"open 1"}, say(actors.Message{Kind: actors.Started}))
	require.Equal(t, []string{"report 1 step", "job begin 1"}, closed(1),
		"no step opens before the ranks have copied their state")
	require.Equal(t, []string{"save 1"}, say(actors.Message{Kind: actors.Done, Job: c.job}))
	require.Equal(t, []string{"report 1 queued", "open 2"},
		say(actors.Message{Kind: actors.Queued, From: 5, Step: 1}))
	require.Equal(t, []string{"report 2 step", "open 3"}, closed(2),
		"step 2 is due, but step 1 is still being written")
	require.Equal(t, []string{"job commit 1"}, say(actors.Message{Kind: actors.Durable, From: 5, Step: 1,
		Text: "part"}))
	require.Equal(t, []string{"report 1 durable"}, say(actors.Message{Kind: actors.Done, Job: c.job}),
		"step 3 is under way: nothing may be saved")
	require.Equal(t, []string{"report 3 step", "job begin 3"}, closed(3))
	say(actors.Message{Kind: actors.Done, Job: c.job})
	say(actors.Message{Kind: actors.Queued, From: 5, Step: 3})
	require.Equal(t, []string{"report 4 step"}, closed(4), "the last save waits for the one before")
	say(actors.Message{Kind: actors.Durable, From: 5, Step: 3})
	require.Equal(t, []string{"report 3 durable", "job begin 4"},
		say(actors.Message{Kind: actors.Done, Job: c.job}))
	say(actors.Message{Kind: actors.Done, Job: c.job})
	say(actors.Message{Kind: actors.Queued, From: 5, Step: 4})
	say(actors.Message{Kind: actors.Durable, From: 5, Step: 4})
	require.Equal(t, []string{"report 4 durable", "halt 0", "report 4 end"},
		say(actors.Message{Kind: actors.Done, Job: c.job}))
}

// TestAbandon: a request to stop at once saves the step before the one under way, and what comes of that one
// afterwards counts for nothing; a step that is committed is waited for.
func TestAbandon(t *testing.T) {
	begin := func() (*Coordinator, func(m actors.Message) []string) {
		ctx := &tape{}
		c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6}, Observer: 1, First: 1, Last: 9,
			SaveAtEnd: true, LR: func(int64) float64 { return 0 }, LossScale: LossScale{Scale: 1}})
		say := func(m actors.Message) []string { c.Receive(ctx, &m); return ctx.take() }
		say(actors.Message{Kind: actors.Started})
		for _, r := range []actors.Ref{5, 6} {
			say(actors.Message{Kind: actors.Ready, From: r, Step: 1})
		}
		say(actors.Message{Kind: actors.Closed, From: 5, Step: 1, Values: ready()})
		require.Equal(t, []string{"report 1 step", "open 2", "open 2"},
			say(actors.Message{Kind: actors.Closed, From: 6, Step: 1, Values: ready()}))
		return c, say
	}
	c, say := begin()
	say(actors.Message{Kind: actors.Ready, From: 5, Step: 2})
	require.Empty(t, say(actors.Message{Kind: actors.Halt}), "the step may still end")
	require.Equal(t, []string{"job begin 1"}, say(actors.Message{Kind: actors.Halt, Text: HaltNow}))
	require.Empty(t, say(actors.Message{Kind: actors.Ready, From: 6, Step: 2}),
		"it must not be committed any more")
	require.Empty(t, say(actors.Message{Kind: actors.Failed, From: 9,
		Err: fmt.Errorf("the loader gives up")}))
	require.Equal(t, []string{"save 1", "save 1"}, say(actors.Message{Kind: actors.Done, Job: c.job}))
	for _, r := range []actors.Ref{5, 6} {
		say(actors.Message{Kind: actors.Queued, From: r, Step: 1})
	}
	say(actors.Message{Kind: actors.Durable, From: 5, Step: 1})
	require.Equal(t, []string{"job commit 1"}, say(actors.Message{Kind: actors.Durable, From: 6, Step: 1}))
	require.Equal(t, []string{"report 1 durable", "halt 0", "halt 0", "report 1 end"},
		say(actors.Message{Kind: actors.Done, Job: c.job}))

	_, say = begin()
	say(actors.Message{Kind: actors.Ready, From: 5, Step: 2})
	require.Len(t, say(actors.Message{Kind: actors.Ready, From: 6, Step: 2}), 2, "committed")
	require.Empty(t, say(actors.Message{Kind: actors.Halt, Text: HaltNow}))
	say(actors.Message{Kind: actors.Closed, From: 5, Step: 2, Values: ready()})
	require.Equal(t, []string{"report 2 step", "job begin 2"},
		say(actors.Message{Kind: actors.Closed, From: 6, Step: 2, Values: ready()}))

	_, say = begin()
	require.Equal(t, []string{"job begin 1"}, say(actors.Message{Kind: actors.Halt, Text: HaltNow}))
	require.Equal(t, []string{"halt 0", "halt 0", "report 1 failed"},
		say(actors.Message{Kind: actors.Failed, From: 6, Err: fmt.Errorf("a rank's snapshot fails")}))
}

// TestSaveLost: a save that fails does not end the run, and the next one is tried.
func TestSaveLost(t *testing.T) {
	ctx := &tape{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5}, Observer: 1, First: 1, Last: 3, SaveEvery: 1,
		LR: func(int64) float64 { return 0 }, LossScale: LossScale{Scale: 1}})
	c.Receive(ctx, &actors.Message{Kind: actors.Started})
	commits(ctx, c, 1)
	c.Receive(ctx, &actors.Message{Kind: actors.Closed, From: 5, Step: 1, Values: ready()})
	ctx.take()
	c.Receive(ctx, &actors.Message{Kind: actors.Done, Job: c.job, Err: fmt.Errorf("no space left on device")})
	require.Equal(t, []string{"report 1 savelost", "open 2"}, ctx.take())
	commits(ctx, c, 2)
	c.Receive(ctx, &actors.Message{Kind: actors.Closed, From: 5, Step: 2, Values: ready()})
	require.Equal(t, []string{"report 2 step", "job begin 2"}, ctx.take())
}

// TestLossScale pins Megatron's rule: the second overflow in a row halves the scale, and a window of good
// steps doubles it.
func TestLossScale(t *testing.T) {
	s := LossScale{Dynamic: true, Scale: 65536, Min: 1, Window: 3, Hysteresis: 2, Left: 2}
	var got []float64
	for _, over := range []bool{true, true, true, false, false, false, true, false, true, false, false} {
		s.Update(over)
		got = append(got, s.Scale)
	}
	require.Equal(t, []float64{65536, 32768, 16384, 16384, 16384, 32768, 32768, 32768, 16384, 16384,
		16384}, got)
	fixed := LossScale{Scale: 8}
	fixed.Update(true)
	require.Equal(t, 8.0, fixed.Scale)
}
