package core

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   M-1: Copies of a step count only when every rank has its own and every buddy its second. Shown by
//     17_copies_whole, watched by Monitor.source, broken by "copies count when all but one are made".
//   M-2: What is copied is the state of a whole step: the next update waits for the copy. Shown by
//     11_lost_rank_copy, watched by Monitor.applies, broken by "the update does not wait for the copy".

// Every rank keeps a copy of its state in memory from time to time, and buddies in other processes second
// ones, so that nobody reads a checkpoint when a process is lost: the ranks that are left go back to their
// own copies, and the one that comes back gets a buddy's. The copy is made behind the forwards of the next
// step; only that step's update waits for it.

// Sources of the state that a rank goes back to: the Segment of Rewind and of a RestoreJob.
const (
	FromDisk int32 = iota // the durable state
	FromCopy              // a copy in memory: its own, or for a rank without one the message State
	// what it holds, for a rank that has lost nothing; State is that of a rank that holds the same
	FromMember
)

// copied is a rank's state after a step, its own or another's.
type copied struct {
	of   actors.Ref
	step int64
	p    actors.Payload
	kept []float64 // what the coordinator held then
}

// keep begins to copy the rank's state. Copies before the newest step that everybody has copied are not
// needed any more.
func (r *Rank) keep(ctx actors.Context, m *actors.Message) {
	whole, buddies, now := keepOf(m.Values)
	r.dropCopies(func(c *copied) bool { return c.step < whole })
	r.buddies = buddies
	r.do(ctx, &actors.Job{Kind: actors.KeepJob, Engine: actors.Copy, Step: m.Step})
	r.io[len(r.io)-1].kept = now
}

// kept takes in the copy that was made, and lets the buddies have it.
func (r *Rank) kept(ctx actors.Context, m *actors.Message, kept []float64) {
	p := m.Out[0].Payload
	r.store(ctx, copied{ctx.Self(), m.Step, p, kept}, UsageOf(m.Values).Busy)
	for _, buddy := range r.buddies {
		p.Retain()
		ctx.Send(actors.Ref(buddy), actors.Message{Kind: actors.Buddy, Step: m.Step, Epoch: r.epoch, Payload: p, Values: kept})
	}
}

// store keeps a copy in place of one of the same step.
func (r *Rank) store(ctx actors.Context, x copied, took float64) {
	r.dropCopies(func(c *copied) bool { return c.of == x.of && c.step == x.step })
	r.copies = append(r.copies, x)
	ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Kept, Step: x.step, Epoch: r.epoch,
		Member: int32(x.of), Values: keptValues(took)})
}

// dropCopies releases and forgets the copies that old holds of. Each copy owns its payload, so that
// dropping it without the release would leak memory.
func (r *Rank) dropCopies(old func(c *copied) bool) {
	r.copies = slices.DeleteFunc(r.copies, func(c copied) bool {
		if old(&c) {
			c.p.Release()
			return true
		}
		return false
	})
}

// copyOf gives a reference to a copy, nil if there is none, and what the coordinator held then.
func (r *Rank) copyOf(of actors.Ref, step int64) (actors.Payload, []float64) {
	for i := range r.copies {
		if c := &r.copies[i]; c.of == of && c.step == step {
			c.p.Retain()
			return c.p, c.kept
		}
	}
	return nil, nil
}

// give sends a state to a rank that has none. It is a copy in memory, or this rank's own state.
func (r *Rank) give(ctx actors.Context, m *actors.Message) {
	to := actors.Ref(m.Member)
	if m.Segment == FromCopy {
		p, kept := r.copyOf(actors.Ref(m.Port), m.Step)
		ctx.Send(to, actors.Message{Kind: actors.State, Step: m.Step, Epoch: r.epoch, Payload: p, Values: kept})
		return
	}
	r.do(ctx, &actors.Job{Kind: actors.StateJob, Engine: actors.Copy, Step: m.Step})
	r.io[len(r.io)-1].to = to
}

// copying reports whether a job reads the rank's state beside the computation.
func (r *Rank) copying() bool {
	return slices.ContainsFunc(r.io, func(j ioJob) bool {
		return j.kind == actors.SnapshotJob || j.kind == actors.KeepJob || j.kind == actors.StateJob
	})
}

// keeper is what the coordinator knows of copies in memory.
type keeper struct {
	under  bool // copies of step are being made
	step   kept
	left   int // copies of it that are not reported yet
	whole  kept
	own    []bool      // by rank: it has its own copy of whole
	far    [][]int     // by rank: the others that have one of its state
	older  *keeper     // for where whole does not serve any more, nil for none
	next   int64       // the step after which the next copies are made
	mine   actors.Time // when the last rank had its own copy
	owns   int         // own copies that are not reported yet
	cost   float64     // nanoseconds that the slowest of them took
	period int64       // steps from one to the next
}

// keep begins copies of the state between two steps, when it is time.
func (c *Coordinator) keep(ctx actors.Context) {
	k := &c.copies
	if c.l.Keep == 0 || k.under || c.phase.lost() || c.step < k.next || c.step >= c.l.Last || c.asked >= stops {
		return
	}
	n, needed := len(c.l.Ranks), k.whole.step
	if k.older != nil {
		needed = k.older.whole.step
	}
	k.under, k.step, k.left, k.owns, k.cost = true, c.now(), n, n, 0
	c.moves.copying = c.moves.now
	for i, r := range c.l.Ranks {
		var buddies []float64
		if c.buddies != nil {
			for _, b := range c.buddies[i] {
				buddies = append(buddies, float64(c.l.Ranks[b]))
			}
		}
		k.left += len(buddies)
		ctx.Send(r, actors.Message{Kind: actors.Keep, Epoch: c.epoch, Step: c.step,
			Values: keepValues(needed, buddies, k.step)})
	}
}

// counted takes in a copy; with the last one everybody can go back to that step.
func (c *Coordinator) counted(ctx actors.Context, m *actors.Message) {
	k := &c.copies
	if !k.under || m.Step != k.step.step {
		return
	}
	if actors.Ref(m.Member) == m.From {
		if k.owns--; k.owns == 0 {
			k.mine = ctx.Now()
		}
		k.cost = max(k.cost, tookOf(m.Values))
	}
	if k.left--; k.left > 0 {
		return
	}
	k.under, k.whole, k.older = false, k.step, nil
	c.moves.copied = c.moves.copying
	k.own, k.far = slices.Repeat([]bool{true}, len(c.l.Ranks)), make([][]int, len(c.l.Ranks))
	for i := range c.buddies {
		k.far[i] = slices.Clone(c.buddies[i])
	}
	took := k.cost + float64(ctx.Now()-k.mine)
	k.period = c.l.Keep
	if c.l.Keep == KeepAuto {
		k.period = KeepPeriod(took, c.fastest)
	}
	k.next = k.step.step + k.period
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicCopied, Step: k.whole.step,
		Values: Copying{float64(k.period), took}.Values()})
}

// moved takes in where a rank lives that is back: the next copies are spread by that.
func (c *Coordinator) moved(i int, host string) {
	if c.l.Spread != nil && host != "" && host != c.hosts[i] {
		c.hosts[i] = host
		c.buddies = c.l.Spread(c.hosts)
	}
}

// KeepAuto lets the coordinator choose how often copies are made.
const KeepAuto = -1

// Copies cost at most one part in keepShare of the run's time, and are made at least every keepMost steps.
const (
	keepShare = 100
	keepMost  = 1000
)

// KeepPeriod is how many steps KeepAuto puts between copies that take so long where a step takes so long, in one unit.
func KeepPeriod(copying, step float64) int64 {
	if step == 0 {
		return 1
	}
	return int64(min(keepMost, max(1, math.Ceil(copying*keepShare/step))))
}

// without takes in that a rank is lost with its copies.
func (k *keeper) without(i int) {
	if k == nil || k.own == nil {
		return
	}
	k.older.without(i)
	k.own[i] = false
	for j := range k.far {
		k.far[j] = slices.DeleteFunc(k.far[j], func(b int) bool { return b == i })
	}
}

// holder finds who can give rank i a copy of its state, which rank i lost. The copy may be of another rank, of, with the
// same state. A rank counts only if it has its own copy. Both are -1 for nobody.
func (c *Coordinator) holder(i int) (by, of int) {
	k, twins := &c.copies, []int{i}
	if c.l.Same != nil {
		twins = append(twins, c.l.Same[i]...)
	}
	for _, of := range twins {
		if k.own[of] {
			return of, of
		}
		for _, by := range k.far[of] {
			if k.own[by] {
				return by, of
			}
		}
	}
	return -1, -1
}

// serve reports whether everybody can go back to the copies: a rank to its own, or to what it is given.
func (c *Coordinator) serve() bool {
	for i := range c.copies.own {
		if by, _ := c.holder(i); by < 0 {
			return false
		}
	}
	return c.copies.own != nil
}
