package actors

import (
	"cmp"
	"fmt"
)

// PoolFirst is the first kind of actors/pool: each kind of a run has one number, below 64, as a set of them is a word.
const PoolFirst Kind = 40

// ServingFirst is the first kind of sim/serving.
const ServingFirst Kind = 56

// kindNames are the kinds of training's messages in words, in their order.
var kindNames = [...]string{"started", "down", "done", "tick", "open", "batch", "part", "activation", "cotangent",
	"credit", "closed", "load", "save", "queued", "durable", "halt", "failed", "report", "ready", "commit", "join",
	"rewind", "rewound", "keep", "buddy", "kept", "give", "state", "broken", "claim", "holding"}

// Kinds is how many kinds training has.
const Kinds = len(kindNames)

// otherNames are those of other protocols.
var otherNames = map[Kind]string{}

// Protocol names the kinds of a protocol from the first one on, which a package does when it is initialised.
func Protocol(first Kind, names ...string) (kinds int) {
	for i, name := range names {
		otherNames[first+Kind(i)] = name
	}
	return len(names)
}

// Name is the kind in a word.
func (k Kind) Name() string {
	if int(k) < Kinds {
		return kindNames[k]
	}
	return cmp.Or(otherNames[k], fmt.Sprintf("kind %d", k))
}
