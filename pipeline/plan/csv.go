package plan

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds on a program that is read from a file.
const (
	csvBytesMax   = 64 << 20
	csvStagesMax  = 1 << 14
	csvActionsMax = 1 << 22
)

// ParseCSV reads PyTorch's table of a schedule: one row a rank, one cell an action, an empty cell is an idle
// step. Stages belong to the rank whose row names them, the stages are a chain, and the microbatches are as
// many as the table names. In the older spelling B is the input gradient where the same row has W of the
// same microbatch. Errors name rank and cell.
func ParseCSV(in io.Reader) (*Program, error) {
	text, err := io.ReadAll(io.LimitReader(in, csvBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(text) > csvBytesMax {
		return nil, errors.New("schedule: the table is larger than 64 MiB")
	}
	p, n := &Program{}, 0
	for r, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		var row []Entry
		for i, cell := range strings.Split(line, ",") {
			if cell = strings.TrimSpace(cell); cell == "" {
				continue
			}
			e, err := ParseEntry(cell)
			if err != nil {
				return nil, fmt.Errorf("rank %d cell %d: %w", r, i, err)
			}
			if n++; n > csvActionsMax {
				return nil, fmt.Errorf("rank %d cell %d: more than %d actions", r, i, csvActionsMax)
			}
			if err := p.place(r, e); err != nil {
				return nil, fmt.Errorf("rank %d cell %d: %w", r, i, err)
			}
			row = append(row, e)
		}
		p.Rows = append(p.Rows, modern(row))
	}
	for s, r := range p.StageRank {
		if r < 0 {
			return nil, fmt.Errorf("schedule: no rank has stage %d", s)
		}
	}
	return p, nil
}

// place takes in which rank, stages and microbatches an entry shows.
func (p *Program) place(r int, e Entry) error {
	for _, a := range [2]Action{e.Action, e.With} {
		if a.Kind == None {
			continue
		}
		if a.Chunk != 0 {
			return fmt.Errorf("%v: PyTorch's tables have no chunks", a)
		}
		if a.Stage >= csvStagesMax || a.Micro >= csvActionsMax {
			return fmt.Errorf("%v: more than %d stages or %d microbatches", a, csvStagesMax, csvActionsMax)
		}
		for int(a.Stage) >= len(p.StageRank) {
			p.StageRank = append(p.StageRank, -1)
		}
		if have := p.StageRank[a.Stage]; have >= 0 && have != r {
			return fmt.Errorf("%v: stage %d belongs to rank %d", a, a.Stage, have)
		}
		p.StageRank[a.Stage] = r
		if a.Kind.Micro() {
			p.Micro = max(p.Micro, int(a.Micro)+1)
		}
	}
	return nil
}

// modern reads a row of the older spelling: a B that has a W beside it is an I.
func modern(row []Entry) []Entry {
	split := map[Action]bool{}
	for _, e := range row {
		for _, a := range [2]Action{e.Action, e.With} {
			if a.Kind == W {
				a.Kind = B
				split[a] = true
			}
		}
	}
	for i := range row {
		if split[row[i].Action] {
			row[i].Kind = I
		}
		if split[row[i].With] {
			row[i].With.Kind = I
		}
	}
	return row
}

// Work is the program without messages and gathers, which whoever carries it out does by itself: F, B, I and W alone.
func (p *Program) Work() *Program {
	q := *p
	q.Rows = make([][]Entry, len(p.Rows))
	for r, row := range p.Rows {
		for _, e := range row {
			switch e.Kind {
			case F, B, I, W:
				q.Rows[r] = append(q.Rows[r], e)
			}
		}
	}
	return &q
}

// Merge returns the program with every I that its own W follows at once written as one B.
func (p *Program) Merge() *Program {
	q := *p
	q.Rows = make([][]Entry, len(p.Rows))
	for r, row := range p.Rows {
		for i := 0; i < len(row); i++ {
			e := row[i]
			if i+1 < len(row) && e.Kind == I && e.With.Kind == None && row[i+1] == (Entry{Action: with(e.Action, W)}) {
				e.Kind = B
				i++
			}
			q.Rows[r] = append(q.Rows[r], e)
		}
	}
	return &q
}

func with(a Action, k Kind) Action { a.Kind = k; return a }
