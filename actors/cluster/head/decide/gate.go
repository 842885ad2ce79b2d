package decide

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/store"
)

// gate holds back what a head says until the store has what it says (H-1). A turn is one input with all that
// follows from it: its writes happen at once or not at all. While one commit is under way, turns wait, and
// the next commit has as many of them as go into one.
type gate struct {
	ops    []store.Op // of the turn under way, no key twice
	said   []Effect   // of the turn under way
	turns  []turn     // that wait for a commit, or for one before them
	flying []Effect   // of the turns whose commit is under way
	commit *Commit    // that is under way
	number int64
	unsure bool // the commit under way has failed once, and may have been made
	over   bool
}

// turn is what one input has led to.
type turn struct {
	ops  []store.Op
	said []Effect
}

// bytes is about what the writes of a turn take in a commit.
func (t *turn) bytes() (n int) {
	for _, op := range t.ops {
		n += len(op.Key) + len(op.Value)
	}
	return n
}

// retryAfter is how long a head waits before it repeats a commit that has failed.
const retryAfter = 200 * time.Millisecond

// write sets a key in the turn under way; a nil value removes it.
func (g *gate) write(key string, value []byte) {
	for i := range g.ops {
		if g.ops[i].Key == key {
			g.ops[i].Value = value
			return
		}
	}
	g.ops = append(g.ops, store.Op{Key: key, Value: value})
}

// put sets a key to v as JSON.
func (g *gate) put(key string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("decide: %s does not become JSON: %v", key, err))
	}
	g.write(key, text)
}

// say does something when the turn is stored.
func (g *gate) say(e Effect) { g.said = append(g.said, e) }

// close ends a turn and returns what can be done now.
func (g *gate) close() []Effect {
	if len(g.ops) > 0 || len(g.said) > 0 {
		g.turns = append(g.turns, turn{g.ops, g.said})
		g.ops, g.said = nil, nil
	}
	return g.next(nil)
}

// next adds to out what waits for nothing any more, and the next commit.
func (g *gate) next(out []Effect) []Effect {
	if g.over {
		return append(out, g.withdraw(true)...)
	}
	if g.commit != nil {
		return out
	}
	for len(g.turns) > 0 && len(g.turns[0].ops) == 0 {
		out = append(out, g.turns[0].said...)
		g.turns = g.turns[1:]
	}
	if len(g.turns) == 0 {
		return out
	}
	g.number++
	g.commit = &Commit{N: g.number}
	at := map[string]int{}
	for size := 0; len(g.turns) > 0; g.turns = g.turns[1:] {
		t := &g.turns[0]
		size += t.bytes()
		if len(g.commit.Ops) > 0 && (len(g.commit.Ops)+len(t.ops) > store.MostOps || size > store.MostBytes) {
			break
		}
		for _, op := range t.ops {
			if i, ok := at[op.Key]; ok {
				g.commit.Ops[i] = op
				continue
			}
			at[op.Key] = len(g.commit.Ops)
			g.commit.Ops = append(g.commit.Ops, op)
		}
		g.flying = append(g.flying, t.said...)
	}
	return append(out, *g.commit)
}

// stored lets out what waited for a commit.
func (g *gate) stored(n int64) []Effect {
	if g.commit == nil || g.commit.N != n {
		return nil
	}
	out := g.flying
	g.commit, g.flying, g.unsure = nil, nil, false
	return g.next(out)
}

// withdraw drops what is not stored and will not be. Who waits for an answer hears that nothing was done,
// or, of the commit under way, that nobody knows, unless the store has refused it.
func (g *gate) withdraw(refused bool) (out []Effect) {
	drop := func(said []Effect, why Refusal) {
		for _, e := range said {
			if a, ok := e.(Answer); ok {
				out = append(out, Answer{Ask: a.Ask, Err: &why})
			}
		}
	}
	late := Refusal{Late, lateText}
	if refused && !g.unsure {
		drop(g.flying, late)
	} else {
		drop(g.flying, Refusal{Unsure, "this head has ended meanwhile: what was asked for was done or not; " +
			"`lfactor cluster status` shows which"})
	}
	for _, t := range g.turns {
		drop(t.said, late)
	}
	g.over, g.flying, g.turns, g.commit = true, nil, nil, nil
	return out
}
