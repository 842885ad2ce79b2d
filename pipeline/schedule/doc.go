// Package schedule builds programs of pipeline/plan: one file a schedule.
//
// # What it is
//
// A [Schedule] has a name, the paper that it comes from, and what the paper claims (bubbles, activations
// in memory) as functions that a test holds every built program to. It registers itself, so that adding
// one edits no existing file. [Build] makes the program of a [Shape]: ranks, stages a rank, microbatches,
// chunks, and costs for those schedules that depend on them.
//
// # How it is used
//
// actors/layout asks for the program that plan.schedule names; topology/search builds all of them under a
// model's costs and compares. [Compose] puts the actions of a vision encoder, or of any part with ranks of
// its own, into a decoder's program.
//
// # What always holds
//
//   - What Build returns has passed plan.Program.Check.
//   - A program depends on its shape alone: the same shape gives the same program, on every machine.
//
// # Where to begin
//
// schedule.go has the types, onefoneb.go is the shortest real schedule, greedy ones such as zbauto.go decide by costs.
package schedule
