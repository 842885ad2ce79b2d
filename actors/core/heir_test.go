package core

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// succession is a run of two ranks whose coordinator has ended once; each is the other's buddy.
func succession(change func(l *RunLayout)) (*Coordinator, func(m actors.Message) []string) {
	ctx := &tape{}
	l := &RunLayout{Ranks: []actors.Ref{5, 6}, Observer: 1, First: 1, Last: 9, EvalEvery: 3, EvalSteps: 1,
		SaveEvery: 2, Recover: true, Buddies: [][]int{{1}, {0}}, Same: [][]int{{1}, {0}}, Alone: true, Durable: 2,
		OptimSteps: 2, LR: func(int64) float64 { return 0 }, LossScale: LossScale{Scale: 1}}
	if change != nil {
		change(l)
	}
	c := NewCoordinator(l)
	say := func(m actors.Message) []string { ctx.take(); c.Receive(ctx, &m); return ctx.take() }
	say(actors.Message{Kind: actors.Started, Step: 1})
	return c, say
}

// verdictOf is the commit of a step after which so many updates were made with a loss scale.
func verdictOf(step, updates int64, scale, loss float64) []float64 {
	return Verdict{Loss: loss, after: kept{step, updates, LossScale{Scale: scale, Good: 4, Left: 5}}}.Values()
}

// answer is what a rank tells a coordinator that takes over.
func answer(c *Coordinator, from actors.Ref, holds, pending int64, half float64, verdict []float64,
	copies ...copied) actors.Message {
	v := append([]float64{float64(pending), half, float64(len(verdict) / verdictLen)}, verdict...)
	for _, x := range copies {
		v = kept{x.step, x.step + 3, LossScale{Scale: 8}}.append(append(v, float64(x.of)))
	}
	return actors.Message{Kind: actors.Holding, From: from, Epoch: c.epoch, Step: holds, Values: v}
}

// TestUnread: where nothing durable can be read, a run goes on whose ranks hold its state together, as copies or as
// they are, and ends with that error where they do not.
func TestUnread(t *testing.T) {
	v4 := verdictOf(4, 7, 8, 1.5)
	lost := errors.New("step 2 is damaged")
	none4 := func(c *Coordinator) actors.Message { return answer(c, 5, none, none, 0, nil) }
	for _, x := range []struct {
		five, six func(c *Coordinator) actors.Message
		want      string
	}{
		{none4, func(c *Coordinator) actors.Message { return answer(c, 6, 4, none, 0, v4) }, "rewind 4"},
		{none4, func(c *Coordinator) actors.Message { return answer(c, 6, none, none, 0, nil) }, "report 2 failed"},
	} {
		c, say := succession(func(l *RunLayout) { l.Unread = lost })
		said := say(x.five(c))
		said = append(said, say(x.six(c))...)
		require.Contains(t, strings.Join(said, "\n"), x.want)
		require.Equal(t, x.want != "rewind 4", c.phase == over)
	}
}

// TestTakeOver: where a coordinator that takes over has everybody go, and what it then holds itself.
func TestTakeOver(t *testing.T) {
	v4, v3 := verdictOf(4, 7, 8, 1.5), verdictOf(3, 6, 16, 2.5)
	own := func(of actors.Ref, step int64) copied { return copied{of: of, step: step} }
	for _, x := range []struct {
		name           string
		change         func(l *RunLayout)
		five, six      func(c *Coordinator) actors.Message
		want           []string
		updates        int64
		scale          float64
		source         int32
		eval, waitSave bool
	}{
		{name: "all hold the newest step", want: []string{"report 4 step", "rewind 4", "rewind 4"},
			five:    func(c *Coordinator) actors.Message { return answer(c, 5, 4, none, 0, v4) },
			six:     func(c *Coordinator) actors.Message { return answer(c, 6, 4, none, 0, v4) },
			updates: 7, scale: 8, source: FromMember, waitSave: true},
		{name: "one owes it", want: []string{"report 4 step", "rewind 4", "rewind 4"},
			five:    func(c *Coordinator) actors.Message { return answer(c, 5, 3, 4, 0, v3) },
			six:     func(c *Coordinator) actors.Message { return answer(c, 6, 3, 4, 0, v4) },
			updates: 7, scale: 8, source: FromMember, waitSave: true},
		{name: "nobody has heard of its commit", want: []string{"report 3 step", "rewind 3", "rewind 3"},
			five:    func(c *Coordinator) actors.Message { return answer(c, 5, 3, 4, 0, v3) },
			six:     func(c *Coordinator) actors.Message { return answer(c, 6, 3, 4, 0, v3) },
			updates: 6, scale: 16, source: FromMember, eval: true},
		{name: "one holds nothing", want: []string{"report 4 step", "rewind 4", "rewind 4"},
			five:    func(c *Coordinator) actors.Message { return answer(c, 5, none, none, 0, nil) },
			six:     func(c *Coordinator) actors.Message { return answer(c, 6, 4, none, 0, v4) },
			updates: 7, scale: 8, source: FromMember, waitSave: true},
		{name: "half an update that others share", want: []string{"rewind 2", "rewind 2"},
			change:  func(l *RunLayout) { l.Alone = false },
			five:    func(c *Coordinator) actors.Message { return answer(c, 5, 4, none, 1, v4) },
			six:     func(c *Coordinator) actors.Message { return answer(c, 6, 4, none, 0, v4) },
			updates: 7, scale: 8, source: FromDisk, waitSave: true},
		{name: "copies", want: []string{"rewind 3", "rewind 3"}, change: func(l *RunLayout) { l.Same = nil },
			five: func(c *Coordinator) actors.Message { return answer(c, 5, none, none, 0, nil) },
			six: func(c *Coordinator) actors.Message {
				return answer(c, 6, 4, none, 0, v4, own(6, 3), own(5, 3), own(6, 4))
			},
			updates: 7, scale: 8, source: FromCopy, waitSave: true},
		{name: "a step that nobody can tell of", want: []string{"rewind 2", "rewind 2"},
			five:    func(c *Coordinator) actors.Message { return answer(c, 5, 4, none, 0, nil) },
			six:     func(c *Coordinator) actors.Message { return answer(c, 6, 4, none, 0, v3) },
			updates: 2, scale: 1, source: FromDisk, waitSave: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, say := succession(x.change)
			require.Equal(t, uint32(1<<16+1), c.epoch)
			require.Empty(t, say(x.five(c)))
			require.Equal(t, x.want, say(x.six(c)))
			require.Equal(t, uint32(1<<16+2), c.epoch)
			require.Equal(t, x.updates, c.updates)
			require.Equal(t, x.scale, c.l.LossScale.Scale)
			require.Equal(t, x.source, c.back.source)
			require.Equal(t, x.eval, c.back.eval == c.step)
			require.Equal(t, x.waitSave, c.due)
		})
	}
}

// TestTakeOverLosses: a rank that ends, or comes back, while a coordinator takes over is waited for; what it
// said before does not count, and lost messages are asked for again.
func TestTakeOverLosses(t *testing.T) {
	c, say := succession(nil)
	v4 := verdictOf(4, 7, 8, 1.5)
	first := answer(c, 5, 4, none, 0, v4)
	require.Empty(t, say(first))
	require.Empty(t, say(actors.Message{Kind: actors.Down, From: 5, Step: 1}))
	require.Empty(t, say(first), "it has ended since")
	require.Empty(t, say(answer(c, 6, 4, none, 0, v4)))
	require.Equal(t, actors.Ref(5), c.Waits().For)
	say(actors.Message{Kind: actors.Broken, From: 6, Epoch: c.epoch})
	require.Len(t, say(actors.Message{Kind: actors.Tick, Epoch: c.epoch}), 2, "all are asked again")
	require.Empty(t, say(actors.Message{Kind: actors.Join, From: 5, Step: 1}))
	require.Equal(t, []string{"report 4 step", "rewind 4", "rewind 4"}, say(answer(c, 6, 4, none, 0, v4)))
	require.Equal(t, []bool{true, false}, c.back.blank)
	require.Empty(t, say(answer(c, 6, 4, none, 0, v4)), "a second answer")
}

// TestKeptValues: what the coordinator holds comes back from what messages carry of it.
func TestKeptValues(t *testing.T) {
	k := kept{3, 5, LossScale{Dynamic: true, Scale: 8, Min: 1, Window: 9, Hysteresis: 2, Good: 6, Left: 7}}
	base := k.scale
	base.Scale, base.Good, base.Left = 0, 0, 0
	require.Equal(t, k, keptOf(k.append(nil), base))
	require.Len(t, k.append(nil), keptLen)
}

// letters keeps what an actor sends.
type letters struct {
	tape
	sent []actors.Message
}

// Send implements actors.Context.
func (l *letters) Send(_ actors.Ref, m actors.Message) { l.sent = append(l.sent, m) }

// TestClaimed: what a rank tells a coordinator that takes over, in the middle of a step, of an update that
// waits for others, and of one that it owes; a second claim gets the same answer.
func TestClaimed(t *testing.T) {
	v3, v4 := verdictOf(3, 6, 16, 2.5), verdictOf(4, 7, 8, 1.5)
	kept := kept{step: 2}.append(nil)
	for _, x := range []struct {
		name string
		set  func(r *Rank)
		want []float64
		step int64
	}{
		{"nothing", func(r *Rank) { r.phase = resting }, []float64{none, 0, 0}, none},
		{"a step under way", func(r *Rank) { r.made(3, v3) }, append([]float64{4, 0, 1}, v3...), 3},
		{"a commit that is not carried out", func(r *Rank) { r.made(3, v3); r.verdict = v4 },
			append([]float64{4, 0, 1}, v4...), 3},
		{"half an update", func(r *Rank) { r.verdict, r.update = v4, applied; r.made(4, v4) },
			append([]float64{none, 1, 1}, v4...), 4},
		{"an update that is owed", func(r *Rank) {
			r.phase, r.update, r.last.holds = resting, owed, 3
			r.target = wanted{step: 4, source: FromMember, verdict: v4}
		}, append([]float64{4, 0, 1}, v4...), 3},
		{"a copy", func(r *Rank) { r.phase, r.copies = resting, []copied{{of: 6, step: 2, kept: kept}} },
			append([]float64{none, 0, 0, 6}, kept...), none},
	} {
		t.Run(x.name, func(t *testing.T) {
			ctx := &letters{}
			r := NewRank(&RankLayout{Coordinator: 9, Program: &plan.Program{}})
			r.phase, r.step, r.life = working, 4, 2
			x.set(r)
			for epoch := uint32(70000); epoch < 70002; epoch++ {
				ctx.sent = nil
				r.Receive(ctx, &actors.Message{Kind: actors.Claim, Epoch: epoch})
				require.Equal(t, []actors.Message{{Kind: actors.Holding, Epoch: epoch, Step: x.step, Port: 2,
					Values: x.want}}, ctx.sent)
				require.Equal(t, epoch, r.epoch)
				require.Equal(t, behind, r.phase)
				require.Empty(t, ctx.log, "it goes nowhere")
			}
		})
	}
}
