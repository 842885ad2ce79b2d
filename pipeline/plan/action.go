package plan

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Kind is the verb of an Action.
type Kind uint8

// The verbs. B is the whole backward; I and W are its input and weight halves. Step is the optimizer step of
// a rank. Unshard, Reshard and Reduce stand in PyTorch's tables only: ranks gather and reduce by themselves,
// so that Program.Work is without them.
const (
	None Kind = iota
	F
	B
	I
	W
	Unshard
	Reshard
	SendF
	RecvF
	SendB
	RecvB
	Reduce
	Step
)

var kindNames = [...]string{"", "F", "B", "I", "W", "UNSHARD", "RESHARD", "SEND_F", "RECV_F", "SEND_B",
	"RECV_B", "REDUCE_GRAD", "STEP"}

// String is the verb in PyTorch's notation.
func (k Kind) String() string { return kindNames[k] }

// Micro reports whether actions of this kind belong to a microbatch.
func (k Kind) Micro() bool {
	return k != None && k != Unshard && k != Reshard && k != Reduce && k != Step
}

// Action is one step of one stage; its text form "2F0" is stage 2, forward, microbatch 0, and "2F0.3" its chunk 3.
type Action struct {
	Kind  Kind
	Stage int16
	Chunk int16
	Micro int32
}

// String is the text form; Parse reads it back.
func (a Action) String() string {
	if !a.Kind.Micro() {
		return fmt.Sprintf("%d%v", a.Stage, a.Kind)
	}
	if a.Chunk > 0 {
		return fmt.Sprintf("%d%v%d.%d", a.Stage, a.Kind, a.Micro, a.Chunk)
	}
	return fmt.Sprintf("%d%v%d", a.Stage, a.Kind, a.Micro)
}

var actionForm = regexp.MustCompile(`^(\d+)(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD|STEP|F|B|I|W)(?:(\d+)(?:\.(\d+))?)?$`)

// Parse reads the text form of one action.
func Parse(s string) (Action, error) {
	m := actionForm.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Action{}, fmt.Errorf("action %q: want [stage][verb][microbatch], as in 2F0 or 1UNSHARD", s)
	}
	var a Action
	for k, name := range kindNames {
		if name == m[2] {
			a.Kind = Kind(k)
		}
	}
	if a.Kind.Micro() != (m[3] != "") {
		return Action{}, fmt.Errorf("action %q: %v takes a microbatch iff it works on one", s, a.Kind)
	}
	n := [3]int{}
	for i, t := range []string{m[1], m[3], m[4]} {
		if t == "" {
			continue
		}
		v, err := strconv.Atoi(t)
		if err != nil || v > 1<<15-1 && i != 1 || v > 1<<31-1 {
			return Action{}, fmt.Errorf("action %q: number %s is out of range", s, t)
		}
		n[i] = v
	}
	a.Stage, a.Micro, a.Chunk = int16(n[0]), int32(n[1]), int16(n[2])
	return a, nil
}

// Entry is one action of a rank's program, or two whose segments alternate.
type Entry struct {
	Action
	With Action // With.Kind is None for an action alone
}

// String is "2F0", or "(0F7;7B3)OVERLAP_F_B" for a pair.
func (e Entry) String() string {
	if e.With.Kind == None {
		return e.Action.String()
	}
	return fmt.Sprintf("(%v;%v)OVERLAP_F_B", e.Action, e.With)
}

// ParseEntry reads an action or an overlapped pair.
func ParseEntry(s string) (Entry, error) {
	s = strings.TrimSpace(s)
	inner, ok := strings.CutSuffix(s, ")OVERLAP_F_B")
	if !ok {
		a, err := Parse(s)
		return Entry{Action: a}, err
	}
	one, two, ok := strings.Cut(strings.TrimPrefix(inner, "("), ";")
	if !ok || !strings.HasPrefix(inner, "(") {
		return Entry{}, fmt.Errorf("action %q: want (A;B)OVERLAP_F_B", s)
	}
	a, err := Parse(one)
	if err != nil {
		return Entry{}, err
	}
	b, err := Parse(two)
	return Entry{a, b}, err
}
