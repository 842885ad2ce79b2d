package plan

// table numbers the halves of a program's work densely: forward, input gradient and weight gradient of every
// (stage, microbatch, chunk). Walks over programs index slices by it instead of maps by Action.
type table struct {
	p      *Program
	chunks int // most chunks of a microbatch
	size   int
	before [][]int // stages by stage, as Program.Before
	after  [][]int
}

// The halves.
const (
	halfF = iota
	halfI
	halfW
	halves
)

// newTable numbers the halves of all actions densely, so that walks over a program index slices and need no maps.
func newTable(p *Program) *table {
	t := &table{p: p, chunks: 1}
	for m := range p.Micro {
		t.chunks = max(t.chunks, p.NumChunks(m))
	}
	t.size = len(p.StageRank) * p.Micro * t.chunks * halves
	for s := range p.StageRank {
		t.before, t.after = append(t.before, p.Before(s)), append(t.after, p.After(s))
	}
	return t
}

// at is the number of one half; stage, microbatch and chunk are within the program's bounds.
func (t *table) at(half, stage, micro, chunk int) int {
	return ((stage*t.p.Micro+micro)*t.chunks+chunk)*halves + half
}

// name is the action of a number.
func (t *table) name(n int) Action {
	kind := [halves]Kind{F, I, W}[n%halves]
	n /= halves
	chunk := n % t.chunks
	n /= t.chunks
	return Action{kind, int16(n / t.p.Micro), int16(chunk), int32(n % t.p.Micro)}
}

// works lists the halves that a does: none for actions that are not F, B, I or W.
func (t *table) works(a Action) (out [2]int, n int) {
	s, m, c := int(a.Stage), int(a.Micro), int(a.Chunk)
	switch a.Kind {
	case F:
		return [2]int{t.at(halfF, s, m, c)}, 1
	case I:
		return [2]int{t.at(halfI, s, m, c)}, 1
	case W:
		return [2]int{t.at(halfW, s, m, c)}, 1
	case B:
		return [2]int{t.at(halfI, s, m, c), t.at(halfW, s, m, c)}, 2
	}
	return
}

// needs calls f with every half that must have ended before a may start, with whether it is another stage's;
// it stops when f returns false.
func (t *table) needs(a Action, f func(n int, stage int) bool) {
	s, m, c := int(a.Stage), int(a.Micro), int(a.Chunk)
	switch a.Kind {
	case F:
		for _, b := range t.before[s] {
			if !f(t.at(halfF, b, m, c), b) {
				return
			}
		}
		if c > 0 {
			f(t.at(halfF, s, m, c-1), s)
		}
	case B, I:
		if !f(t.at(halfF, s, m, c), s) {
			return
		}
		for _, b := range t.after[s] {
			if !f(t.at(halfI, b, m, c), b) {
				return
			}
		}
		if c+1 < t.p.NumChunks(m) {
			f(t.at(halfI, s, m, c+1), s)
		}
	case W:
		f(t.at(halfI, s, m, c), s)
	}
}
