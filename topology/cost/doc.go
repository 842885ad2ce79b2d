// Package cost gives durations of work, messages and collectives on a described machine. Nothing in it runs anything.
//
// # What it is
//
// A [Machine] is a cluster of equal hosts with equal devices, read from a file (configs/clusters, or what
// lfactor calibrate has written). [Machine.Segment] prices a kernel call by its operations and bytes,
// [Machine.Collective] an exchange by the sends of topology/collective over the links between its members.
// predict.go is a second model with fitted constants, for tables of measured runs that name a plan but no
// kernels; [CrossValidate] holds it to rows that it was not fitted to.
//
// # What always holds
//
//   - Prices are pure functions: the simulator gets equal times for equal questions.
//   - More work, more bytes or a slower link never take less time.
//
// # Where to begin
//
// machine.go; docs/simulation.md has the tables of predicted and measured runs.
package cost
