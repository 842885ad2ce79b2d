package plan

import (
	"fmt"
	"strings"
)

// Lower writes out the messages between ranks: a SEND right behind the action that makes a value, and the
// matching RECV on the consumer's row at the moment of sending. Ranks take turns, one action a round; a rank
// is passed over while its next action lacks an input. So no rank chooses the order of its own RECVs, and a
// pair of ranks sends and receives in one order. The rule is that of torch.distributed.pipelining.
// Neighbouring stages of one rank exchange nothing. It fails at a deadlock.
func (p *Program) Lower() (*Program, error) {
	w := newWalk(p)
	q := *p
	q.Rows = make([][]Entry, len(p.Rows))
	for moved := true; moved; {
		moved = false
		for r, row := range p.Rows {
			if w.pc[r] == len(row) {
				continue
			}
			e := row[w.pc[r]]
			if _, waits := w.missing(e); waits {
				continue
			}
			q.Rows[r] = append(q.Rows[r], e)
			for _, a := range [2]Action{e.Action, e.With} {
				w.end(a, func(int) {})
				q.messages(w.t, r, a)
			}
			w.pc[r]++
			moved = true
		}
	}
	return &q, w.stuck()
}

// messages appends a's sends, and each peer's receive.
func (q *Program) messages(t *table, r int, a Action) {
	var peers []int
	send, recv := SendF, RecvF
	switch a.Kind {
	case F:
		peers = t.after[a.Stage]
	case I, B:
		peers, send, recv = t.before[a.Stage], SendB, RecvB
	}
	for _, s := range peers {
		if to := q.StageRank[s]; to != r {
			q.Rows[r] = append(q.Rows[r], Entry{Action: with(a, send)})
			got := with(a, recv)
			got.Stage = int16(s)
			q.Rows[to] = append(q.Rows[to], Entry{Action: got})
		}
	}
}

// CheckRendezvous proves that a lowered program ends even if a SEND returns only when its RECV is reached
// (ungrouped sends of NCCL). The error names the cycle of ranks that wait for each other.
func (p *Program) CheckRendezvous() error {
	pc := make([]int, len(p.Rows))
	for moved := true; moved; {
		moved = false
		for r, row := range p.Rows {
			for pc[r] < len(row) {
				peer, match, comm := p.partner(row[pc[r]].Action)
				if comm {
					if pc[peer] == len(p.Rows[peer]) || p.Rows[peer][pc[peer]].Action != match {
						break
					}
					pc[peer]++
				}
				pc[r]++
				moved = true
			}
		}
	}
	for r, row := range p.Rows {
		if pc[r] < len(row) {
			return &CheckError{r, pc[r], row[pc[r]].Action, "waits for ever under blocking sends: " + p.blocked(r, pc)}
		}
	}
	return nil
}

// partner is the rank and the action that a message's side meets.
func (p *Program) partner(a Action) (rank int, match Action, comm bool) {
	match = a
	var stages []int
	switch a.Kind {
	case SendF:
		match.Kind, stages = RecvF, p.After(int(a.Stage))
	case RecvF:
		match.Kind, stages = SendF, p.Before(int(a.Stage))
	case SendB:
		match.Kind, stages = RecvB, p.Before(int(a.Stage))
	case RecvB:
		match.Kind, stages = SendB, p.After(int(a.Stage))
	default:
		return
	}
	if len(stages) == 0 {
		return
	}
	match.Stage = int16(stages[0])
	return p.StageRank[stages[0]], match, true
}

// blocked explains a deadlock of messages from row r on: each row at its current action and the
// partner that it waits for, until a row comes again.
func (p *Program) blocked(r int, pc []int) string {
	var path []string
	seen := map[int]int{}
	for pc[r] < len(p.Rows[r]) {
		if first, again := seen[r]; again {
			path = path[first:]
			break
		}
		seen[r] = len(path)
		a := p.Rows[r][pc[r]].Action
		peer, match, _ := p.partner(a)
		path = append(path, fmt.Sprintf("rank %d at %v waits for %v of rank %d", r, a, match, peer))
		r = peer
	}
	return strings.Join(path, "; ")
}
