package policies

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// motion says in what numbers a policy learns actions and reads states, which recordings have in others:
// relative to the state or to the action before, and rotations in forms that have no jumps.
type motion struct {
	how           string // absolute, relative or delta
	kept          []int  // numbers of actions that stay as they are
	action, state []configs.Rotation
}

func newMotion(p *configs.Policy) (m motion) {
	m = motion{how: p.Actions, kept: p.Absolute}
	for _, text := range p.Rotations {
		r, err := configs.ParseRotation(text)
		if err != nil {
			continue // the section's check has refused it
		}
		if r.Of == "state" {
			m.state = append(m.state, r)
		} else {
			m.action = append(m.action, r)
		}
	}
	at := func(a, b configs.Rotation) int { return a.At - b.At }
	slices.SortFunc(m.action, at)
	slices.SortFunc(m.state, at)
	return m
}

// moves reports whether numbers are others than those of recordings.
func (m *motion) moves() bool { return m.shifts() || len(m.action)+len(m.state) > 0 }

// shifts reports whether actions are told relative to something.
func (m *motion) shifts() bool { return m.how == "relative" || m.how == "delta" }

// check holds what is said to a robot whose states and actions have so many numbers.
func (m *motion) check(states, actions int, at configs.At) {
	for _, s := range []struct {
		of []configs.Rotation
		n  int
	}{{m.state, states}, {m.action, actions}} {
		for _, r := range s.of {
			if end := r.At + r.Len(r.From); end > s.n {
				at("policy.rotations", fmt.Sprintf("the %s of %s has %d numbers, and %s from number %d on ends at %d",
					r.Of, "a recording", s.n, r.From, r.At, end), "numbers are counted from 0")
			}
		}
	}
	for _, i := range m.kept {
		if i >= actions {
			at("policy.absolute", fmt.Sprintf("number %d, and actions have %d numbers, counted from 0", i, actions), "")
		}
	}
	if !m.shifts() {
		return
	}
	if len(m.action) != len(m.state) {
		at("policy.rotations", fmt.Sprintf("actions have %d rotations and states %d, and those of actions are relative "+
			"to those of states", len(m.action), len(m.state)), "name as many of both, in the same order")
	}
	for i := range actions {
		if !m.turned(i) && !slices.Contains(m.kept, i) && i >= states {
			at("policy.actions", fmt.Sprintf("number %d of an action is told relative to that of the state, which has %d",
				i, states), fmt.Sprintf("name it in policy.absolute: [%d]", i))
			return
		}
	}
}

// turned reports whether a number of an action is one of a rotation.
func (m *motion) turned(i int) bool {
	return slices.ContainsFunc(m.action, func(r configs.Rotation) bool {
		return i >= r.At && i < r.At+r.Len(r.From)
	})
}

// reference is what an action is told relative to.
type reference struct {
	numbers []float64
	turns   []rotation
}

func newReference(v []float64, of []configs.Rotation) (ref reference, err error) {
	ref.numbers = v
	for _, r := range of {
		if end := r.At + r.Len(r.From); end > len(v) {
			return ref, fmt.Errorf("%d numbers, and a rotation ends at %d", len(v), end)
		}
		turn, err := rotationOf(r.From, v[r.At:])
		if err != nil {
			return ref, err
		}
		ref.turns = append(ref.turns, turn)
	}
	return ref, nil
}

// read is a state as the policy reads it.
func (m *motion) read(state []float64) ([]float64, error) {
	if len(m.state) == 0 {
		return state, nil
	}
	ref, err := newReference(state, m.state)
	if err != nil {
		return nil, err
	}
	return m.told(state, m.state, ref.turns, func(i int) float64 { return state[i] }), nil
}

// told is a vector with its rotations in the policy's forms.
func (m *motion) told(v []float64, of []configs.Rotation, turns []rotation, number func(i int) float64) []float64 {
	out, at := make([]float64, 0, len(v)), 0
	for i := 0; i < len(v); i++ {
		if at < len(of) && of[at].At == i {
			out = append(out, turns[at].in(of[at].To)...)
			i += of[at].Len(of[at].From) - 1
			at++
			continue
		}
		out = append(out, number(i))
	}
	return out
}

// learn is a chunk of actions as the policy learns it of a robot that is in a state.
func (m *motion) learn(state []float64, actions [][]float64) ([][]float64, error) {
	if !m.shifts() && len(m.action) == 0 {
		return actions, nil
	}
	ref, err := newReference(state, m.state)
	if err != nil && m.shifts() {
		return nil, fmt.Errorf("the state: %w", err)
	}
	out := make([][]float64, len(actions))
	for k, a := range actions {
		own, err := newReference(a, m.action)
		if err != nil {
			return nil, fmt.Errorf("action %d: %w", k, err)
		}
		turns := slices.Clone(own.turns)
		for i := range turns {
			if m.shifts() {
				turns[i] = ref.turns[i].transposed().times(turns[i])
			}
		}
		out[k] = m.told(a, m.action, turns, func(i int) float64 { return a[i] - m.offset(ref.numbers, i) })
		if m.how == "delta" {
			ref = own
		}
	}
	return out, nil
}

// offset is what number i of an action is told relative to.
func (m *motion) offset(from []float64, i int) float64 {
	if !m.shifts() || slices.Contains(m.kept, i) || i >= len(from) {
		return 0
	}
	return from[i]
}

// act is the inverse of learn: what a robot in a state is to do. A rotation of which the policy says
// nothing that can be one is that of no turn.
func (m *motion) act(state []float64, chunk [][]float64) [][]float64 {
	if !m.shifts() && len(m.action) == 0 {
		return chunk
	}
	ref, err := newReference(state, m.state)
	if err != nil && m.shifts() {
		panic("trained: a state that was read: " + err.Error())
	}
	out := make([][]float64, len(chunk))
	for k, v := range chunk {
		var own reference
		at := 0
		for i := 0; i < len(v); i++ {
			if at == len(m.action) || m.action[at].At != len(own.numbers) {
				own.numbers = append(own.numbers, v[i]+m.offset(ref.numbers, len(own.numbers)))
				continue
			}
			r := m.action[at]
			turn, err := rotationOf(r.To, v[i:])
			if err != nil {
				turn = rotation{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}
			}
			if m.shifts() {
				turn = ref.turns[at].times(turn)
			}
			own.numbers, own.turns = append(own.numbers, turn.in(r.From)...), append(own.turns, turn)
			i += r.Len(r.To) - 1
			at++
		}
		if out[k] = own.numbers; m.how == "delta" {
			ref = own
		}
	}
	return out
}

// mostMotions is of how many actions statistics are made, about.
const mostMotions = 1 << 20

// statistics are those of states and actions as a policy of chunks of so many actions reads and learns them,
// from past steps before the present one: of all frames, or of some at equal distances where all would be over
// mostMotions actions. Frames that cannot be read, which are set aside when they are learnt, count for none.
func (m *motion) statistics(l recordings.Robots, chunk, past int, padding bool) (out [2]recordings.RobotStats, err error) {
	var columns [2][][]float64
	add := func(which int, v []float64) {
		if columns[which] == nil {
			columns[which] = make([][]float64, len(v))
		}
		for i := range min(len(v), len(columns[which])) {
			columns[which][i] = append(columns[which][i], v[i])
		}
	}
	every, at := max(1, int(l.Steps())*chunk/mostMotions), 0
	err = l.Numbers(func(states, actions [][]float64) {
		for k := range states {
			if at++; (at-1)%every != 0 {
				continue
			}
			var ahead [][]float64
			for n := k - past; n < k-past+chunk; n++ {
				if padding || n >= 0 && n < len(actions) {
					ahead = append(ahead, actions[min(max(0, n), len(actions)-1)])
				}
			}
			state, err := m.read(states[k])
			if err != nil {
				continue
			}
			learnt, err := m.learn(states[k], ahead)
			if err != nil {
				continue
			}
			add(0, state)
			for _, a := range learnt {
				add(1, a)
			}
		}
	})
	if err == nil && (columns[0] == nil || columns[1] == nil) {
		err = fmt.Errorf("no frame of %s has a state and actions that can be read", l.Name())
	}
	for i, c := range columns {
		out[i] = recordings.StatsOf(c)
	}
	return out, err
}

// refuseMotion says why a policy's folder cannot have a motion.
func refuseMotion(p *configs.Policy) error {
	if m := newMotion(p); m.moves() {
		return exit.Usagef("policy.actions and policy.rotations: a folder of lerobot's form has no word for them; " +
			"take the run's own checkpoint")
	}
	return nil
}

func init() {
	configs.Hold(configs.Rule{Name: "policy motion", Check: func(c *configs.Config, at configs.At) {
		if m := newMotion(&c.Run.Policy); m.moves() && c.Run.Checkpoint.SaveHF {
			at("checkpoint.save_hf", "lerobot's files have no word for policy.actions and policy.rotations",
				"set checkpoint.save_hf: false; the run's own checkpoints act and serve")
		}
	}})
}
