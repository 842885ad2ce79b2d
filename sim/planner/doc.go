// Package planner is the search for the fastest plan of a run file on a described machine.
//
// # What it is
//
// A [Search] profiles the model's blocks as a rehearsal would price them, hands them to topology/search,
// simulates the best [Reranked] candidates, lays the best of these out in full as training would, and orders
// them by what the simulator says. [Search.Longest] asks the other way round: the longest sequence that
// can be trained, and with which plan.
//
// # What always holds
//
//   - A plan that is offered as one that fits has been laid out as training will, up to 256 ranks; those that
//     do not fit, or cannot run, come behind all others and say why.
//   - Found plans are written as settings ([Search.Settings], [Search.PlanFile]) that lfactor train takes
//     as they are.
//   - Planned and simulated times are of one price list; TestPlannedStep holds the closed form to the
//     simulator.
//
// # Where to begin
//
// hosts.go ([Search.Find] has the steps in their order), then prices.go and simulate.go for what blocks and
// plans cost. chunks.go, context.go and partly.go add kinds of plans, kinds.go machines with two kinds of
// devices; length.go and composed.go are the two special questions.
package planner
