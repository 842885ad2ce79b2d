package plan

import (
	"fmt"
	"strings"
)

// CheckError says where a program is wrong.
type CheckError struct {
	Rank, Index int
	Action      Action
	Why         string
}

// Error names rank, index in the rank's row, action and fault.
func (e *CheckError) Error() string {
	return fmt.Sprintf("rank %d action %d: %v %s", e.Rank, e.Index, e.Action, e.Why)
}

// Deps lists the actions that must have ended before a may start.
func (p *Program) Deps(a Action) (out []Action) {
	at := func(stage int, k Kind) Action { return Action{k, int16(stage), a.Chunk, a.Micro} }
	switch a.Kind {
	case F:
		for _, s := range p.Before(int(a.Stage)) {
			out = append(out, at(s, F))
		}
		if a.Chunk > 0 {
			prev := a
			prev.Chunk--
			out = append(out, prev)
		}
	case B, I:
		out = append(out, at(int(a.Stage), F))
		for _, s := range p.After(int(a.Stage)) {
			out = append(out, at(s, I))
		}
		if int(a.Chunk) < p.NumChunks(int(a.Micro))-1 {
			next := a
			next.Kind, next.Chunk = I, a.Chunk+1
			out = append(out, next)
		}
	case W:
		out = append(out, at(int(a.Stage), I))
	}
	return out
}

// done records what has ended; a whole backward counts as both halves.
type done map[Action]bool

func (d done) set(a Action) {
	d[a] = true
	if a.Kind == B {
		a.Kind = I
		d[a] = true
		a.Kind = W
		d[a] = true
	}
}

// Check proves the program: every (stage, microbatch, chunk) runs forward and backward exactly once on the stage's rank,
// and no cycle of waits exists.
func (p *Program) Check() error {
	if err := p.complete(); err != nil {
		return err
	}
	d, pc := done{}, make([]int, len(p.Rows))
	for moved := true; moved; {
		moved = false
		for r, row := range p.Rows {
			for pc[r] < len(row) && p.ready(row[pc[r]], d) {
				d.set(row[pc[r]].Action)
				if w := row[pc[r]].With; w.Kind != None {
					d.set(w)
				}
				pc[r]++
				moved = true
			}
		}
	}
	for r, row := range p.Rows {
		if pc[r] < len(row) {
			return &CheckError{r, pc[r], row[pc[r]].Action, "waits for ever: " + p.cycle(r, pc, d)}
		}
	}
	return nil
}

func (p *Program) ready(e Entry, d done) bool { return p.missing(e, d) == nil }

// missing is the first action that e still waits for, or nil. The two of a pair may not depend on each other.
func (p *Program) missing(e Entry, d done) *Action {
	for _, a := range []Action{e.Action, e.With} {
		for _, x := range p.Deps(a) {
			if !d[x] {
				return &x
			}
		}
	}
	return nil
}

// cycle follows the waits from rank r until a rank repeats.
func (p *Program) cycle(r int, pc []int, d done) string {
	var path []string
	seen := map[int]bool{}
	for !seen[r] && pc[r] < len(p.Rows[r]) {
		seen[r] = true
		e := p.Rows[r][pc[r]]
		x := p.missing(e, d)
		next := p.StageRank[x.Stage]
		path = append(path, fmt.Sprintf("rank %d at %v waits for %v of rank %d", r, e, *x, next))
		r = next
	}
	return strings.Join(path, "; ")
}

func (p *Program) complete() error {
	seen := map[Action]bool{}
	for r, row := range p.Rows {
		for i, e := range row {
			for _, a := range []Action{e.Action, e.With} {
				if why := p.wrong(r, a, seen); why != "" {
					return &CheckError{r, i, a, why}
				}
			}
		}
	}
	for s, r := range p.StageRank {
		for m := range p.Micro {
			for c := range p.NumChunks(m) {
				for _, k := range []Kind{F, I, W} {
					if a := (Action{k, int16(s), int16(c), int32(m)}); !seen[a] {
						return &CheckError{r, len(p.Rows[r]), a, "is missing"}
					}
				}
			}
		}
	}
	return nil
}

func (p *Program) wrong(rank int, a Action, seen map[Action]bool) string {
	switch {
	case a.Kind == None:
		return ""
	case int(a.Stage) >= len(p.StageRank):
		return fmt.Sprintf("names a stage beyond the %d of the plan", len(p.StageRank))
	case p.StageRank[a.Stage] != rank:
		return fmt.Sprintf("belongs to rank %d", p.StageRank[a.Stage])
	case a.Kind.Micro() && (int(a.Micro) >= p.Micro || int(a.Chunk) >= p.NumChunks(int(a.Micro))):
		return fmt.Sprintf("is beyond the step's %d microbatches or their chunks", p.Micro)
	}
	kinds := []Kind{a.Kind}
	if a.Kind == B {
		kinds = []Kind{I, W}
	}
	for _, k := range kinds {
		x := a
		x.Kind = k
		if seen[x] {
			return "runs twice"
		}
		seen[x] = true
	}
	return ""
}
