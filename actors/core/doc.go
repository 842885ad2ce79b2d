// Package core holds the protocols of a training run as state machines without I/O.
//
// # What it is
//
// Three behaviours: the [Coordinator], one of a run; a [Rank], one for each place of the plan's mesh; and a
// [Loader], one for each replica of the model in a process. A behaviour is told of a message, and acts only
// through [actors.Context]: it sends messages and starts jobs, which are plain values that say what a device
// is to do. Two drivers run the same behaviours: actors/host on a wall clock and real devices, sim in
// virtual time. This package reads no clock, no global randomness and no map order; cmd/lfvet checks that.
//
// # How a step flows
//
// The coordinator opens a step on every rank. A rank works through its row of the program (pipeline/plan):
// an action is a list of segments, each of which begins when the communications that it awaits have come,
// and issues its own at its end. Activations and cotangents go from rank to rank under credits; parts of
// collectives need none. After the row comes the optimizer step: a rank reduces its gradients and says
// Ready, the coordinator decides the update from what all have said, and Commit carries it back. A step
// counts when all have closed it. Saves, copies in memory and evaluations happen between steps.
//
// When a rank is lost, or messages are, the coordinator begins a new epoch: everybody goes to one committed
// step, whose state comes from what ranks hold, from copies in memory or from the newest checkpoint.
//
// # What always holds
//
// The heads of the files state it, each invariant with a number: C of commits, S of steps, D of checkpoints
// (durable), K of credits, I of inputs, L of loaders, E of epochs, R of recovery, M of copies in memory, H of
// coordinators that take over from others. A line names the sequence in testdata that shows the invariant, the
// method of the simulator's monitor (sim.Monitor) that watches it in every simulated run, and a fault of
// sim/mutants_list_test.go that breaks it and that tests must find. A test of sim holds these names together.
//
// # Where to begin
//
// Read testdata in the order of its numbers: each file tells a protocol as the sequence of its messages, and
// TestSequences runs it. Then [Coordinator.Receive] and [Rank.Receive], and by subject:
//
//	commit.go, lossscale.go   the two-round commit: Ready from all ranks, then Commit to all
//	phase.go                  the phases of both, drawn, and which messages concern them in each
//	values.go, lists.go       what the numbers of messages and jobs mean: the one codec
//	cursor.go, inbox.go       what an action waits for; where parts of collectives lie, by member
//	edge.go                   the sender's side of an edge, with its credits
//	recover.go, epoch.go      the coordinator's and the rank's side of a recovery; messages of an old epoch
//	                          end in takes (phase.go), ends of its jobs in discardStale
//	narrow.go                 ranks that are gone for good: what the others hold is saved, and the run ends
//	once.go                   messages that come twice, in worlds that bring some
//	keep.go, heir.go          copies in memory; a coordinator that takes over from one that was lost
//	slow.go                   which ranks are slow, with the evidence, from what they say in Closed
//	loads.go, moves.go        how experts were used in a step; experts that move between ranks
//	abandon.go                an end that does not wait for the step under way
//	layout.go, runlayout.go   what a rank, and what the coordinator, is given of a plan
package core
