package source

import (
	"fmt"
	"slices"
)

// Lists of values that packages above this one offer for keys of run files.
const (
	Optimizers = "optimizers" // optimizer.kind
	Rates      = "rates"      // schedule.kind
	Tails      = "tails"      // schedule.wsd_decay
	Formats    = "formats"    // data.kind, of texts and tokens
	Chats      = "chats"      // data.messages
	Schedules  = "schedules"  // plan.schedule
	Draws      = "draws"      // diffusion.times
	Weights    = "weights"    // diffusion.weight
	Losses     = "losses"     // objective.kind
	Rewards    = "rewards"    // reward.kind
	Trackers   = "trackers"   // log.trackers
)

var offers = map[string][]string{}

// Offer adds a value to a list. What registers an optimizer, a learning-rate schedule or a data format calls
// it when its package is loaded, before the first configuration is read: configurations lie below all of
// those, and have no list of them.
func Offer(list, name string) {
	if slices.Contains(offers[list], name) {
		panic(fmt.Sprintf("configs: %s has two values %q", list, name))
	}
	offers[list] = append(offers[list], name)
	slices.Sort(offers[list])
}

// Offered lists what has been offered, in order.
func Offered(list string) []string { return slices.Clone(offers[list]) }
