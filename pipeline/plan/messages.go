package plan

import (
	"slices"
	"strings"
)

// CheckMessages proves the messages that a table writes out beside its actions; a table without any is proved by Check
// alone. Every value that goes to another rank is sent once and received once, behind the action that makes it and
// ahead of the one that needs it, and the ranks come to an end even where a SEND returns only when its RECV is reached.
func (p *Program) CheckMessages() error {
	if !p.messaged() {
		return nil
	}
	low, err := p.Work().Lower()
	if err != nil {
		return err
	}
	for r, row := range p.Rows {
		if err := sameMessages(r, row, low.Rows[r]); err != nil {
			return err
		}
		if err := inOrder(r, row); err != nil {
			return err
		}
	}
	return p.CheckRendezvous()
}

func (k Kind) message() bool { return k == SendF || k == RecvF || k == SendB || k == RecvB }

// messaged tells whether sends and receives have been put into the program already.
func (p *Program) messaged() bool {
	for _, row := range p.Rows {
		for _, e := range row {
			if e.Kind.message() || e.With.Kind.message() {
				return true
			}
		}
	}
	return false
}

// Left lists the verbs of a table that its work p is without, "" for none.
func (p *Program) Left(whole *Program) string {
	var names []string
	for k := range Kind(len(kindNames)) {
		in := func(q *Program) bool {
			return slices.ContainsFunc(q.Rows, func(row []Entry) bool {
				return slices.ContainsFunc(row, func(e Entry) bool { return e.Kind == k || e.With.Kind == k })
			})
		}
		if k != None && in(whole) && !in(p) {
			names = append(names, k.String())
		}
	}
	return strings.Join(names, ", ")
}

// sameMessages compares a rank's messages with those that its work asks for.
func sameMessages(r int, row, want []Entry) error {
	left := map[Action]bool{}
	for _, e := range want {
		if e.Kind.message() {
			left[e.Action] = true
		}
	}
	for i, e := range row {
		switch {
		case e.With.Kind != None && (e.Kind.message() || e.With.Kind.message()):
			return &CheckError{r, i, e.Action, "is a message inside an overlapped pair"}
		case e.Kind.message() && !left[e.Action]:
			return &CheckError{r, i, e.Action, "is a message that the rank's actions do not ask for, or a second one"}
		}
		delete(left, e.Action)
	}
	for _, e := range want { // in order, so that the error is always the same
		if left[e.Action] {
			return &CheckError{r, len(row), e.Action, "is missing"}
		}
	}
	return nil
}

// inOrder checks that a rank sends what it has made and receives what it is going to need.
func inOrder(r int, row []Entry) error {
	ran := map[Action]bool{}
	for i, e := range row {
		a := e.Action
		switch {
		case a.Kind == SendF && !ran[with(a, F)], a.Kind == SendB && !ran[with(a, B)]:
			return &CheckError{r, i, a, "sends what the rank has not made yet"}
		case a.Kind == RecvF && ran[with(a, F)], a.Kind == RecvB && ran[with(a, B)]:
			return &CheckError{r, i, a, "comes after the action that needs it"}
		}
		for _, x := range [2]Action{e.Action, e.With} {
			if x.Kind == I {
				x.Kind = B
			}
			ran[x] = true
		}
	}
	return nil
}
