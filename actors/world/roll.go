package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
)

// Rolling says how a policy is rolled out.
type Rolling struct {
	Episodes int    // how many
	Worlds   int    // at once, each made by Make; 0 is 1
	Seed     uint64 // episode i begins from Seed + i
	Executed int    // actions of a chunk that are carried out before the policy looks again; 0 is all
	Most     int    // steps of an episode that does not end before; 0 is 1,000
	Tries    int    // worlds that an episode may lose; 0 is 3
	Keep     bool   // scenes and actions of all episodes
	// Make begins a world.
	Make func(ctx context.Context) (World, error)
}

// Episode is how one went.
type Episode struct {
	Number  int     `json:"episode"`
	Seed    uint64  `json:"seed"`
	Success bool    `json:"success"`
	Steps   int     `json:"steps"`
	Reward  float64 `json:"reward"`           // the sum
	Faults  []Fault `json:"faults,omitempty"` // of worlds that it lost
	// why the policy gave no action, which ended it without success
	Failure string `json:"policy_failure,omitempty"`
	Lost    bool   `json:"quarantined,omitempty"`
	Task    string `json:"task"`

	Scenes  []Scene     `json:"-"` // that were seen, one more than actions
	Actions [][]float64 `json:"-"` // that were carried out
}

// Fault is what went wrong in a world.
type Fault struct {
	Step int    `json:"step"` // 0 is the reset
	Why  string `json:"why"`
}

// Result is how all went. Episodes of quarantine count in nothing.
type Result struct {
	World    string   `json:"world"`
	Rate     float64  `json:"success"`
	Interval Interval `json:"interval"` // of 95 %
	Reward   float64  `json:"reward"`   // of an episode, on average
	Steps    float64  `json:"steps"`    // the same
	Counted  int      `json:"counted"`
	// of those counted, without success: by their policy_failure
	Failed   int       `json:"policy_failed,omitempty"`
	Unsteady bool      `json:"unsteady,omitempty"` // two resets from one seed showed different things
	Episodes []Episode `json:"episodes"`
	Spec     Spec      `json:"-"`
}

// Lost are the episodes of quarantine.
func (r *Result) Lost() (out []Episode) {
	for _, e := range r.Episodes {
		if e.Lost {
			out = append(out, e)
		}
	}
	return out
}

// slot is a world and the episode that runs in it.
type slot struct {
	w    World
	e    *Episode
	now  Scene
	past []policies.Look // the earliest first, as many as the policy reads before the present one
	plan [][]float64
	err  error
}

// Roll has a policy act in episodes. A world that errs, that answers late or that says what no world of its
// kind can say is ended, and its episode begins again in a new one, from the same seed and the same noise;
// one that loses Tries worlds is set aside with what happened. An episode in which the policy gives what is
// no action ends there without success, and counts. An error is one that no episode can go on from.
func Roll(ctx context.Context, p Policy, r Rolling) (*Result, error) {
	r.Worlds, r.Most, r.Tries = max(1, min(r.Worlds, r.Episodes)), cmp.Or(r.Most, 1000), cmp.Or(r.Tries, 3)
	x := &roller{p: p, r: r, can: p.Abilities(), out: &Result{Episodes: make([]Episode, r.Episodes)}}
	defer x.close()
	if err := x.open(ctx); err != nil {
		return nil, err
	}
	for i := range x.out.Episodes {
		x.out.Episodes[i] = Episode{Number: i, Seed: r.Seed + uint64(i)}
	}
	for {
		x.assign()
		x.each(ctx, x.begin)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		asked := x.running()
		if len(asked) == 0 && x.next == r.Episodes && !x.busy() {
			break
		}
		if err := x.decide(asked); err != nil {
			return nil, err
		}
		x.each(ctx, x.carry)
		x.settle()
	}
	x.count()
	return x.out, nil
}

// roller is rollouts under way.
type roller struct {
	p       Policy
	r       Rolling
	can     policies.Abilities
	cameras []int // the world's, of each of the policy's
	slots   []*slot
	next    int // episode
	out     *Result
}

// open makes the first world, to see that the policy can act in it and that its resets are steady.
func (x *roller) open(ctx context.Context) error {
	for range x.r.Worlds {
		x.slots = append(x.slots, &slot{})
	}
	w, err := x.r.Make(ctx)
	if err != nil {
		return err
	}
	x.slots[0].w, x.out.Spec, x.out.World = w, w.Spec(), w.Spec().Name
	if x.cameras, err = fits(x.can, w.Spec()); err != nil {
		return err
	}
	a, err := w.Reset(ctx, x.r.Seed)
	if err == nil {
		var b Scene
		b, err = w.Reset(ctx, x.r.Seed)
		x.out.Unsteady = err == nil && !a.same(b)
	}
	if err != nil { // an episode is told of it when it loses the world too
		x.drop(x.slots[0])
	}
	return ctx.Err()
}

func (x *roller) close() {
	for _, s := range x.slots {
		x.drop(s)
	}
}

// drop ends a slot's world.
func (x *roller) drop(s *slot) {
	if s.w != nil {
		_ = s.w.Close() // what it has to say is of no episode
		s.w = nil
	}
}

// assign gives episodes to slots that have none, in their order.
func (x *roller) assign() {
	for _, s := range x.slots {
		if s.e == nil && x.next < x.r.Episodes {
			s.e = &x.out.Episodes[x.next]
			x.next++
			s.fresh()
		}
	}
}

// fresh has a slot's episode begin.
func (s *slot) fresh() {
	e := s.e
	*e = Episode{Number: e.Number, Seed: e.Seed, Faults: e.Faults}
	s.past, s.plan, s.now, s.err = nil, nil, Scene{}, nil
}

// begun reports whether the slot's episode has been reset.
func (s *slot) begun() bool { return s.e != nil && s.now.State != nil }

// each runs a part of all slots' work at the same time.
func (x *roller) each(ctx context.Context, do func(context.Context, *slot)) {
	var all sync.WaitGroup
	for _, s := range x.slots {
		if s.e != nil {
			all.Go(func() { do(ctx, s) })
		}
	}
	all.Wait()
}

// begin resets a slot's world for an episode that has not begun.
func (x *roller) begin(ctx context.Context, s *slot) {
	if s.begun() {
		return
	}
	if s.w == nil {
		if s.w, s.err = x.r.Make(ctx); s.err != nil {
			s.w = nil
			return
		}
		if _, s.err = fits(x.can, s.w.Spec()); s.err != nil {
			return
		}
	}
	if s.now, s.err = s.w.Reset(ctx, s.e.Seed); s.err == nil {
		s.err = s.now.check(s.w.Spec())
	}
	if s.err != nil {
		s.now = Scene{}
		return
	}
	s.e.Task = s.now.Task
	x.keep(s)
}

func (x *roller) keep(s *slot) {
	if x.r.Keep {
		s.e.Scenes = append(s.e.Scenes, s.now)
	}
}

// running are the slots whose episodes ask the policy. Those that have lost a world are not among them.
func (x *roller) running() (out []*slot) {
	for _, s := range x.slots {
		if s.begun() && s.err == nil {
			out = append(out, s)
		}
	}
	return out
}

// busy reports whether a slot has an episode.
func (x *roller) busy() bool {
	return slices.ContainsFunc(x.slots, func(s *slot) bool { return s.e != nil })
}

// look is what the policy sees of a scene.
func (x *roller) look(c Scene) policies.Look {
	views := make([]*media.Image, len(x.cameras))
	for i, at := range x.cameras {
		views[i] = c.Views[at]
	}
	return policies.Look{State: c.State, Views: views}
}

// decide asks the policy for the next actions of each slot. The noise that actions begin with follows from
// the episode's seed and its step.
func (x *roller) decide(asked []*slot) error {
	if len(asked) == 0 {
		return nil
	}
	var seen []policies.Seen
	for _, s := range asked {
		l := x.look(s.now)
		seen = append(seen, policies.Seen{Task: s.now.Task, State: l.State, Views: l.Views, Before: s.past,
			Seed: s.e.Seed<<20 + uint64(s.e.Steps)})
	}
	plans, err := x.p.Act(seen)
	if err != nil {
		return fmt.Errorf("the policy does not act: %w", err)
	}
	for i, s := range asked {
		n := len(plans[i])
		if x.r.Executed > 0 {
			n = min(n, x.r.Executed)
		}
		if s.plan = plans[i][:n]; n == 0 {
			return errors.New("the policy does not act: it gives no actions")
		}
		if err := policies.Fault(s.plan); err != nil { // no world is asked to carry it out, nor blamed
			s.plan, s.e.Failure, s.e.Success = nil, err.Error(), false
		}
	}
	return nil
}

// carry has a slot's world carry out what the policy gave.
func (x *roller) carry(ctx context.Context, s *slot) {
	if s.err != nil {
		return
	}
	for _, action := range s.plan {
		if s.now.Done || s.e.Steps >= x.r.Most {
			break
		}
		if before := max(0, x.can.Steps-1); before > 0 {
			s.past = append(s.past, x.look(s.now))
			s.past = s.past[max(0, len(s.past)-before):]
		}
		next, err := s.w.Step(ctx, action)
		if err == nil {
			err = next.check(s.w.Spec())
		}
		s.e.Steps++
		if err != nil {
			s.err = err
			return
		}
		s.now, s.e.Reward, s.e.Success = next, s.e.Reward+next.Reward, s.e.Success || next.Success
		if x.r.Keep {
			s.e.Actions = append(s.e.Actions, action)
		}
		x.keep(s)
	}
	s.plan = nil
}

// settle takes episodes that are over from their slots, and has those that lost their world begin again.
func (x *roller) settle() {
	for _, s := range x.slots {
		switch {
		case s.e == nil:
		case s.err != nil:
			s.e.Faults = append(s.e.Faults, Fault{s.e.Steps, s.err.Error()})
			x.drop(s)
			e := s.e
			s.fresh()
			if len(e.Faults) >= x.r.Tries {
				e.Lost, s.e = true, nil
			}
		case s.now.Done || s.e.Steps >= x.r.Most || s.e.Failure != "":
			s.e, s.now = nil, Scene{}
		}
	}
}

// count sums up.
func (x *roller) count() {
	won := 0
	for _, e := range x.out.Episodes {
		if e.Lost {
			continue
		}
		x.out.Counted++
		x.out.Reward += e.Reward
		x.out.Steps += float64(e.Steps)
		if e.Success {
			won++
		}
		if e.Failure != "" {
			x.out.Failed++
		}
	}
	if n := float64(x.out.Counted); n > 0 {
		x.out.Rate, x.out.Reward, x.out.Steps = float64(won)/n, x.out.Reward/n, x.out.Steps/n
	}
	x.out.Interval = Wilson(won, x.out.Counted)
}

// ErrLost says that no episode came to its end.
var ErrLost = errors.New("every episode lost its worlds")
