package rounds

// Schedule says which weights draw which tokens. Rounds and publications count from 0, steps from 1.
type Schedule struct {
	Staleness int64 // publications that may lie between the one that draws and the one that is trained
	Updates   int64 // steps trained on each round, at least 1
	// Span is how many tokens of an answer a publication draws, before the next one goes on with it; 0 lets
	// the one that begins an answer end it. The last that may draw before the round is trained on ends it.
	Span int64
}

// Part is the tokens of a round's answers that one publication draws: From up to To, or to their end where To is 0.
type Part struct{ Publication, Round, From, To int64 }

// Round is the round that a step is trained on.
func (s Schedule) Round(step int64) int64 { return (step - 1) / s.Updates }

// First is the first step that is trained on a round.
func (s Schedule) First(round int64) int64 { return round*s.Updates + 1 }

// Version is how many updates lie behind the weights of a publication.
func (s Schedule) Version(publication int64) int64 { return publication * s.Updates }

// Begin is the publication that begins a round.
func (s Schedule) Begin(round int64) int64 { return max(0, round-s.Staleness) }

// End is the publication that ends a round.
func (s Schedule) End(round int64) int64 {
	if s.Span == 0 {
		return s.Begin(round)
	}
	return round
}

// Parts are the parts of a round, in order.
func (s Schedule) Parts(round int64) (out []Part) {
	for p := s.Begin(round); p <= s.End(round); p++ {
		from := (p - s.Begin(round)) * s.Span
		to := from + s.Span
		if p == s.End(round) {
			to = 0
		}
		out = append(out, Part{p, round, from, to})
	}
	return out
}
