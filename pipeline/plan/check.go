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

// Deps lists the halves (F, I or W) that must have ended before a may start.
func (p *Program) Deps(a Action) (out []Action) {
	t := newTable(p)
	t.needs(a, func(n, _ int) bool { out = append(out, t.name(n)); return true })
	return
}

// Check proves the program: every (stage, microbatch, chunk) runs forward and backward exactly once on the
// stage's rank, and no cycle of waits exists.
func (p *Program) Check() error {
	if p.Homes != nil {
		return p.checkHomes()
	}
	if err := p.complete(); err != nil {
		return err
	}
	w := newWalk(p)
	w.run(func(int, Entry) {})
	return w.stuck()
}

// Peak is the most half activations of a stage that each rank holds at once: F holds two, I gives one back
// and W the other.
func (p *Program) Peak() []int {
	t, err := p.Evaluate(Costs{})
	if err != nil {
		return nil
	}
	return t.Peak
}

// walk runs a program's rows in an order that respects all waits: a rank goes on until it lacks something,
// and is looked at again when a rank that it may wait for has moved.
type walk struct {
	p    *Program
	t    *table
	done []bool
	pc   []int
}

// newWalk prepares to run through the program in the order of its rows, with nothing done.
func newWalk(p *Program) *walk {
	t := newTable(p)
	return &walk{p: p, t: t, done: make([]bool, t.size), pc: make([]int, len(p.Rows))}
}

// run calls do for every entry as it runs; at a deadlock it returns with rows left.
func (w *walk) run(do func(rank int, e Entry)) {
	ready, queued := make([]int, 0, len(w.p.Rows)), make([]bool, len(w.p.Rows))
	push := func(r int) {
		if !queued[r] {
			ready, queued[r] = append(ready, r), true
		}
	}
	for r := range w.p.Rows {
		push(r)
	}
	for len(ready) > 0 {
		r := ready[0]
		ready, queued[r] = ready[1:], false
		row := w.p.Rows[r]
		for w.pc[r] < len(row) {
			e := row[w.pc[r]]
			if _, waits := w.missing(e); waits {
				break
			}
			do(r, e)
			w.pc[r]++
			for _, a := range [2]Action{e.Action, e.With} {
				w.end(a, push)
			}
		}
	}
}

// end marks an action's halves and wakes the ranks of the stages that take its results.
func (w *walk) end(a Action, wake func(rank int)) {
	hs, n := w.t.works(a)
	for _, h := range hs[:n] {
		w.done[h] = true
	}
	next := w.t.after
	if a.Kind == B || a.Kind == I {
		next = w.t.before
	}
	if n > 0 && a.Kind != W {
		for _, s := range next[a.Stage] {
			wake(w.p.StageRank[s])
		}
	}
}

// missing is the first half that e still waits for. The two of a pair may not depend on each other.
func (w *walk) missing(e Entry) (out Action, waits bool) {
	for _, a := range [2]Action{e.Action, e.With} {
		w.t.needs(a, func(n, _ int) bool {
			if waits = !w.done[n]; waits {
				out = w.t.name(n)
			}
			return !waits
		})
		if waits {
			return
		}
	}
	return
}

// stuck is the deadlock at which run ended, or nil.
func (w *walk) stuck() error {
	for r, row := range w.p.Rows {
		if w.pc[r] < len(row) {
			return &CheckError{r, w.pc[r], row[w.pc[r]].Action, "waits for ever: " + w.cycle(r)}
		}
	}
	return nil
}

// cycle follows the waits from rank r until a rank repeats, and returns the cycle.
func (w *walk) cycle(r int) string {
	var path []string
	seen := map[int]int{}
	for w.pc[r] < len(w.p.Rows[r]) {
		if first, again := seen[r]; again {
			path = path[first:]
			break
		}
		seen[r] = len(path)
		e := w.p.Rows[r][w.pc[r]]
		x, _ := w.missing(e)
		next := w.p.StageRank[x.Stage]
		path = append(path, fmt.Sprintf("rank %d at %v waits for %v of rank %d", r, e, x, next))
		r = next
	}
	return strings.Join(path, "; ")
}

// complete checks that every row holds only its own actions and that each half of each action runs
// exactly once. It says nothing about their order.
func (p *Program) complete() error {
	if err := p.bounds(); err != nil {
		return err
	}
	t := newTable(p)
	seen := make([]bool, t.size)
	for r, row := range p.Rows {
		for i, e := range row {
			for _, a := range [2]Action{e.Action, e.With} {
				if a.Kind == None {
					continue
				}
				if why := p.foreign(r, a); why != "" {
					return &CheckError{r, i, a, why}
				}
				hs, n := t.works(a)
				for _, h := range hs[:n] {
					if seen[h] {
						return &CheckError{r, i, a, "runs twice"}
					}
					seen[h] = true
				}
			}
		}
	}
	for s, r := range p.StageRank {
		for m := range p.Micro {
			for c := range p.NumChunks(m) {
				for h := range halves {
					if n := t.at(h, s, m, c); !seen[n] {
						return &CheckError{r, len(p.Rows[r]), t.name(n), "is missing"}
					}
				}
			}
		}
	}
	return nil
}

// bounds refuses a program whose parts do not fit together, before anything is indexed by them.
func (p *Program) bounds() error {
	switch {
	case p.Micro < 1:
		return fmt.Errorf("program: %d microbatches", p.Micro)
	case p.Chunks != nil && len(p.Chunks) != p.Micro:
		return fmt.Errorf("program: chunks of %d microbatches, it has %d", len(p.Chunks), p.Micro)
	}
	for s, r := range p.StageRank {
		if r < 0 || r >= len(p.Rows) {
			return fmt.Errorf("program: stage %d belongs to rank %d of %d", s, r, len(p.Rows))
		}
	}
	for _, e := range p.Edges {
		if min(e.From, e.To) < 0 || max(e.From, e.To) >= len(p.StageRank) {
			return fmt.Errorf("program: edge %d→%d leaves the %d stages", e.From, e.To, len(p.StageRank))
		}
	}
	for m := range p.Micro {
		if p.NumChunks(m) < 1 {
			return fmt.Errorf("program: microbatch %d has %d chunks", m, p.NumChunks(m))
		}
	}
	return nil
}

// foreign says why a cannot be rank's, "" if it can.
func (p *Program) foreign(rank int, a Action) string {
	switch {
	case a.Stage < 0 || int(a.Stage) >= len(p.StageRank):
		return fmt.Sprintf("names a stage beyond the %d of the plan", len(p.StageRank))
	case p.StageRank[a.Stage] != rank:
		return fmt.Sprintf("belongs to rank %d", p.StageRank[a.Stage])
	case a.Kind.Micro() && (a.Micro < 0 || a.Chunk < 0 || int(a.Micro) >= p.Micro ||
		int(a.Chunk) >= p.NumChunks(int(a.Micro))):
		return fmt.Sprintf("is beyond the step's %d microbatches or their chunks", p.Micro)
	}
	return ""
}
