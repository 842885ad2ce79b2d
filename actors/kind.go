package actors

import "fmt"

// Other protocols number their kinds from here on, so that each kind of a run has one number.
const (
	PoolFirst Kind = 40 // actors/pool
	kindsMost      = 64 // a set of kinds is a word (actors/host)
)

// kindNames are the kinds of training's messages in words, in their order.
var kindNames = [...]string{"started", "down", "done", "tick", "open", "batch", "part", "activation", "cotangent",
	"credit", "closed", "load", "save", "queued", "durable", "halt", "failed", "report", "ready", "commit", "join",
	"rewind", "rewound", "keep", "buddy", "kept", "give", "state", "broken", "claim", "holding"}

// otherNames are those of other protocols.
var otherNames [kindsMost]string

// Kinds is how many kinds training has.
const Kinds = len(kindNames)

// Protocol names the kinds of a protocol from the first one on. A kind that another protocol has is our bug.
func Protocol(first Kind, names ...string) bool {
	for i, name := range names {
		if k := int(first) + i; k < Kinds || otherNames[k] != "" {
			panic(fmt.Sprintf("actors: two protocols have the kind %d", k))
		}
		otherNames[int(first)+i] = name
	}
	return true
}

// Name is the kind in a word.
func (k Kind) Name() string {
	switch {
	case int(k) < Kinds:
		return kindNames[k]
	case k < kindsMost && otherNames[k] != "":
		return otherNames[k]
	}
	return fmt.Sprintf("kind %d", k)
}
