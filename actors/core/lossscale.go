package core

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
