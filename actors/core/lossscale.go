package core

import "math"

// LossScale is what steps that were committed leave behind for the next: what they were like, and dynamic
// loss scaling as in Megatron: halve after hysteresis overflows, double after window good steps.
type LossScale struct {
	Dynamic    bool
	Scale      float64
	Min        float64
	Window     int
	Hysteresis int
	Good, Left int // state: good steps in a row, overflows left before backing off
	Usual      Usual
	// FixedPoint says that sums are taken in fixed point, of numbers below 2^Reach, which follows from the norm of the
	// step before alone: it is the same in every plan
	FixedPoint bool
	Reach      float64
}

// Reach of the first step, before anything is known; how far it lies above the norm of the step before; and how much
// farther after a step that it was too near for.
const (
	ReachFirst = 20
	reachAbove = 10
	reachMore  = 16
)

// follow moves the reach of sums in fixed point behind a step, whose norm is that of gradients as they are summed.
func (s *LossScale) follow(norm float64, lost bool) {
	switch _, exp := math.Frexp(norm); {
	case !s.FixedPoint:
	case lost:
		s.Reach += reachMore
	case norm > 0: // of nothing at all nothing is learnt
		s.Reach = float64(exp + reachAbove)
	}
}

// beyond reports whether a norm is too large for sums in fixed point to be those of every plan.
func (s *LossScale) beyond(norm float64) bool {
	return s.FixedPoint && norm >= math.Ldexp(1, int(s.Reach))
}

// Update takes in whether a step overflowed.
func (s *LossScale) Update(overflow bool) {
	if !s.Dynamic {
		return
	}
	if !overflow {
		if s.Good++; s.Good == s.Window {
			s.Good, s.Left = 0, s.Hysteresis
			s.Scale *= 2
		}
		return
	}
	s.Good = 0
	if s.Left--; s.Left <= 0 {
		s.Scale = max(s.Min, s.Scale/2)
	}
}
