package plan

import (
	"fmt"
	"strings"
)

// gangs runs a program whose stages have Homes: an action runs on all rows of its group at once, when each
// has come to it.
type gangs struct {
	p    *Program
	t    *table
	done []bool
	ends []float64
	pc   []int
	free []float64 // by row: when its last action ended
}

// newGangs prepares a replay in which a stage may occupy several rows at once.
func newGangs(p *Program) *gangs {
	t := newTable(p)
	return &gangs{p: p, t: t, done: make([]bool, t.size), ends: make([]float64, t.size),
		pc: make([]int, len(p.Rows)), free: make([]float64, len(p.Rows))}
}

// ready reports whether the entry at row r can run: the whole group has come to it, and what it needs has ended.
func (g *gangs) ready(r int) (e Entry, rows []int, ok bool) {
	e = g.p.Rows[r][g.pc[r]]
	rows = g.p.Home(int(e.Stage), int(e.Micro))
	for _, q := range rows {
		if g.pc[q] >= len(g.p.Rows[q]) || g.p.Rows[q][g.pc[q]] != e {
			return e, rows, false
		}
	}
	ok = true
	for _, a := range [2]Action{e.Action, e.With} {
		g.t.needs(a, func(n, _ int) bool { ok = ok && g.done[n]; return ok })
	}
	return e, rows, ok
}

// run runs rows in turn until none moves; do sees each entry with its group and times.
func (g *gangs) run(c *Costs, do func(rows []int, e Entry, start, end float64)) {
	for moved := true; moved; {
		moved = false
		for r := range g.p.Rows {
			for g.pc[r] < len(g.p.Rows[r]) {
				e, rows, ok := g.ready(r)
				if !ok || rows[0] != r {
					break
				}
				g.step(c, e, rows, do)
				moved = true
			}
		}
	}
}

// step runs entry e on all of its rows together, from the time when the last of them is free and
// all inputs have arrived. do, if not nil, is told the times.
func (g *gangs) step(c *Costs, e Entry, rows []int, do func(rows []int, e Entry, start, end float64)) {
	start := 0.0
	for _, q := range rows {
		start = max(start, g.free[q])
	}
	for _, a := range [2]Action{e.Action, e.With} {
		g.t.needs(a, func(n, stage int) bool {
			at := g.ends[n]
			// What was computed on other rows has to travel first.
			if g.p.Home(stage, int(a.Micro))[0] != rows[0] {
				at += c.Comm
			}
			start = max(start, at)
			return true
		})
	}
	end := start + c.entry(e)
	for _, q := range rows {
		g.free[q] = end
		g.pc[q]++
	}
	for _, a := range [2]Action{e.Action, e.With} {
		hs, n := g.t.works(a)
		for _, h := range hs[:n] {
			g.done[h], g.ends[h] = true, end
		}
	}
	if do != nil {
		do(rows, e, start, end)
	}
}

// checkHomes is Check for programs with Homes.
func (p *Program) checkHomes() error {
	if err := p.bounds(); err != nil {
		return err
	}
	t := newTable(p)
	count := make([]int, t.size)
	for r, row := range p.Rows {
		for i, e := range row {
			for _, a := range [2]Action{e.Action, e.With} {
				if a.Kind == None {
					continue
				}
				if why := p.strange(r, a); why != "" {
					return &CheckError{r, i, a, why}
				}
				hs, n := t.works(a)
				for _, h := range hs[:n] {
					count[h]++
				}
			}
		}
	}
	for n, k := range count {
		a := t.name(n)
		want := len(p.Home(int(a.Stage), int(a.Micro)))
		if a.Kind != F && p.NoBack != nil && p.NoBack[a.Stage] || int(a.Chunk) >= p.NumChunks(int(a.Micro)) {
			want = 0
		}
		if k != want {
			r := p.Home(int(a.Stage), int(a.Micro))[0]
			return &CheckError{r, len(p.Rows[r]), a, fmt.Sprintf("runs on %d rows, want %d", k, want)}
		}
	}
	g := newGangs(p)
	g.run(&Costs{}, nil)
	return g.stuck()
}

// strange says why an action does not belong to a row.
func (p *Program) strange(r int, a Action) string {
	switch {
	case int(a.Stage) >= len(p.StageRank) || a.Stage < 0:
		return fmt.Sprintf("is of no stage: there are %d", len(p.StageRank))
	case a.Kind.Micro() && (int(a.Micro) >= p.Micro || a.Micro < 0):
		return fmt.Sprintf("is of no microbatch: there are %d", p.Micro)
	}
	for _, q := range p.Home(int(a.Stage), int(a.Micro)) {
		if q == r {
			return ""
		}
	}
	return fmt.Sprintf("belongs to rows %v", p.Home(int(a.Stage), int(a.Micro)))
}

// stuck is the deadlock at which run ended, or nil: the cycle of waits from the first row that did not come to its end.
func (g *gangs) stuck() error {
	for r := range g.p.Rows {
		if g.pc[r] < len(g.p.Rows[r]) {
			return &CheckError{r, g.pc[r], g.p.Rows[r][g.pc[r]].Action, "waits for ever: " + g.cycle(r)}
		}
	}
	return nil
}

// cycle explains why row r cannot go on, by following who waits for whom until a row comes again or one has ended.
func (g *gangs) cycle(r int) string {
	var path []string
	seen := map[int]int{}
	for {
		if first, again := seen[r]; again {
			return strings.Join(path[first:], "; ")
		}
		seen[r] = len(path)
		if g.pc[r] >= len(g.p.Rows[r]) {
			return strings.Join(append(path, fmt.Sprintf("rank %d has ended", r)), "; ")
		}
		next, what := g.lacks(r)
		path = append(path, fmt.Sprintf("rank %d at %v waits for %s of rank %d", r, g.p.Rows[r][g.pc[r]], what, next))
		r = next
	}
}

// lacks is the row that row r waits for, and its action.
func (g *gangs) lacks(r int) (row int, what string) {
	e, rows, _ := g.ready(r)
	for _, a := range [2]Action{e.Action, e.With} {
		found := false
		g.t.needs(a, func(n, stage int) bool {
			if !g.done[n] {
				row, what, found = g.p.Home(stage, int(a.Micro))[0], fmt.Sprint(g.t.name(n)), true
			}
			return !found
		})
		if found {
			return
		}
	}
	for _, q := range rows {
		if g.pc[q] >= len(g.p.Rows[q]) || g.p.Rows[q][g.pc[q]] != e {
			return q, fmt.Sprint(e)
		}
	}
	return r, fmt.Sprint(e)
}

// evaluateHomes is Evaluate for programs with Homes.
func (p *Program) evaluateHomes(c Costs) (*Timing, error) {
	out := &Timing{Start: make([][]float64, len(p.Rows)), End: make([][]float64, len(p.Rows)),
		Span: make([]float64, len(p.Rows)), Busy: make([]float64, len(p.Rows)), Peak: make([]int, len(p.Rows))}
	g, held := newGangs(p), make([]int, len(p.Rows))
	g.run(&c, func(rows []int, e Entry, start, end float64) {
		for _, r := range rows {
			out.Start[r], out.End[r] = append(out.Start[r], start), append(out.End[r], end)
			out.Busy[r] += end - start
			for _, a := range [2]Action{e.Action, e.With} {
				switch {
				case a.Kind == F && (p.NoBack == nil || !p.NoBack[a.Stage]):
					held[r] += 2
				case a.Kind == B:
					held[r] -= 2
				case a.Kind == I || a.Kind == W:
					held[r]--
				}
			}
			out.Peak[r] = max(out.Peak[r], held[r])
		}
	})
	if err := g.stuck(); err != nil {
		return nil, err
	}
	out.sum()
	return out, nil
}
