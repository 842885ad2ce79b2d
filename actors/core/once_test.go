package core_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// counting notes what it is told of, by kind and step.
type counting struct{ heard map[said]int }

type said struct {
	from actors.Ref
	step int64
}

func (c counting) Receive(_ actors.Context, m *actors.Message) {
	c.heard[said{m.From, m.Step}]++
}

func (c counting) Waits() actors.Wait { return actors.Wait{} }

// TestOnce: of messages that two senders number, one of them in two lives, and that come in any order up to
// three times each, an actor takes each once.
func TestOnce(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var all []actors.Message
		for life := range uint64(2) {
			for from := range actors.Ref(2) {
				for n := range uint64(1 + rng.IntN(40)) {
					for range 1 + rng.IntN(3) {
						all = append(all, actors.Message{Kind: actors.Load, From: from, Number: life<<32 | (n + 1),
							Step: int64(life<<32 | n)})
					}
				}
			}
		}
		rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		c := counting{map[said]int{}}
		o := core.NewOnce(c)
		want := map[said]int{}
		for _, m := range all {
			want[said{m.From, m.Step}] = 1
			o.Receive(nil, &m)
		}
		require.Equal(t, want, c.heard, "seed %d", seed)
	}
}
