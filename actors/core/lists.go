package core

// The lists that follow records in the numbers of messages and jobs; see values.go.

// Figures is in the place of a Load's block where Rows are no layer's, but what a step's loss has shown: by figure of
// package objective a sum and of how many. They add up over ranks as loads do.
const Figures = 1 << 30

// Load is how a layer's experts were used in a step.
type Load struct {
	Block   int       // of the model, or Figures
	Tokens  float64   // that were routed
	Dropped float64   // rows that no expert took
	Entropy float64   // of the router's shares, in nats, added up over tokens
	Rows    []float64 // by expert
}

// AppendLoad writes a load as numbers, which travel with a rank's values at the end of a step.
func AppendLoad(v []float64, l Load) []float64 {
	v = append(v, float64(l.Block), float64(len(l.Rows)), l.Tokens, l.Dropped, l.Entropy)
	return append(v, l.Rows...)
}

// Loads reads what AppendLoad has written, among findings.
func Loads(v []float64) (out []Load) {
	for len(v) > 0 {
		if f, rest := findingOf(v); f != nil {
			v = rest
			continue
		}
		if len(v) < 5 || len(v) < 5+int(v[1]) {
			return out
		}
		n := int(v[1])
		out = append(out, Load{Block: int(v[0]), Tokens: v[2], Dropped: v[3], Entropy: v[4], Rows: v[5 : 5+n]})
		v = v[5+n:]
	}
	return out
}

// Finding is what is known behind a step of the errors of a weight's products of few bits. Of the greatest scores
// of a layer's attention, Error is the greatest and Product its head.
type Finding struct {
	Param   int     // in order of the layout
	Stay    float64 // steps for which they are of operands as they are; 0 is rounded
	Error   float64 // relative, of the worst of the three
	Product int     // that is it
	Flushed float64 // share of numbers that became 0
	Cut     float64 // share that was beyond the greatest
	Falls   float64 // times that it went back to operands as they are
	Changed bool    // it did in this step, or came back
}

// findingLen is how many numbers a finding is. The first tells it from a Load, whose block is not negative.
const findingLen = 8

// AppendFinding writes a finding as numbers, among loads.
func AppendFinding(v []float64, f Finding) []float64 {
	return append(v, float64(-1-f.Param), f.Stay, f.Error, float64(f.Product), f.Flushed, f.Cut, f.Falls,
		number(f.Changed))
}

// findingOf reads the finding that a list begins with; nil where it begins with another record.
func findingOf(v []float64) (*Finding, []float64) {
	if len(v) < findingLen || v[0] >= 0 {
		return nil, v
	}
	return &Finding{Param: -1 - int(v[0]), Stay: v[1], Error: v[2], Product: int(v[3]), Flushed: v[4], Cut: v[5],
		Falls: v[6], Changed: v[7] != 0}, v[findingLen:]
}

// Findings reads what AppendFinding has written, among loads.
func Findings(v []float64) (out []Finding) {
	for len(v) > 0 {
		f, rest := findingOf(v)
		switch {
		case f != nil:
			out = append(out, *f)
		case len(v) < 5 || len(v) < 5+int(v[1]):
			return out
		default:
			rest = v[5+int(v[1]):]
		}
		v = rest
	}
	return out
}

// Placed says where the experts of a layer lie: by place, the expert. Places of one rank are neighbours, and
// a busy expert may lie at several.
type Placed struct {
	Block  int // of the model
	Expert []int
}

// AppendPlaced writes where experts lie as numbers, behind a verdict.
func AppendPlaced(v []float64, ps ...Placed) []float64 {
	for _, p := range ps {
		v = append(v, float64(p.Block), float64(len(p.Expert)))
		for _, e := range p.Expert {
			v = append(v, float64(e))
		}
	}
	return v
}

// Placements reads what AppendPlaced has written.
func Placements(v []float64) (out []Placed) {
	for len(v) > 0 {
		p := Placed{Block: int(v[0])}
		n := int(v[1])
		for _, e := range v[2 : 2+n] {
			p.Expert = append(p.Expert, int(e))
		}
		out, v = append(out, p), v[2+n:]
	}
	return out
}

// ExpertNorms are the squared norms of a parameter's gradient by expert, as far as a rank has them. Each is a number of
// its own, summed in order of experts, so that the norm of all gradients does not depend on where experts lie.
type ExpertNorms struct {
	Param   int // as in RunLayout.Norms
	Experts []int
	Squares []float64
}

// AppendExpertNorms writes norms of experts as numbers, behind those of RunLayout.Norms. There may be none.
func AppendExpertNorms(v []float64, ns []ExpertNorms) []float64 {
	v = append(v, float64(len(ns)))
	for _, n := range ns {
		v = append(v, float64(n.Param), float64(len(n.Experts)))
		for i, e := range n.Experts {
			v = append(v, float64(e), n.Squares[i])
		}
	}
	return v
}

// expertNorms reads what AppendExpertNorms has written; what is left are loads. A rank that has no experts
// may have written nothing. It reports false where the numbers are cut short.
func expertNorms(v []float64) (out []ExpertNorms, loads []float64, ok bool) {
	if len(v) == 0 {
		return nil, nil, true
	}
	left := int(v[0])
	for v = v[1:]; left > 0; left-- {
		if len(v) < 2 || len(v) < 2+2*int(v[1]) {
			return nil, nil, false
		}
		x := ExpertNorms{Param: int(v[0])}
		rows := v[2 : 2+2*int(v[1])]
		for i := 0; i < len(rows); i += 2 {
			x.Experts, x.Squares = append(x.Experts, int(rows[i])), append(x.Squares, rows[i+1])
		}
		out, v = append(out, x), v[2+len(rows):]
	}
	return out, v, true
}

// Laid says where experts lie behind a step, and what is known of their use then.
type Laid struct {
	At    []Placed // layers that are not listed lie in order
	Loads []Load   // since the last move
}

// AppendLaid writes it as numbers, none where no expert has moved and nothing is known.
func AppendLaid(v []float64, x Laid) []float64 {
	if len(x.At) == 0 && len(x.Loads) == 0 {
		return v
	}
	at := AppendPlaced(nil, x.At...)
	v = append(append(v, float64(len(at))), at...)
	for _, l := range x.Loads {
		v = AppendLoad(v, l)
	}
	return v
}

// LaidOf reads what AppendLaid has written.
func LaidOf(v []float64) (x Laid) {
	if len(v) > 0 {
		n := 1 + int(v[0])
		x.At, x.Loads = Placements(v[1:n]), Loads(v[n:])
	}
	return x
}
