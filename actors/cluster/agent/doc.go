// Package agent looks after one host of a cluster.
//
// # What it is
//
// It starts processes of jobs when the head orders it, carries what they and the head say to each other
// over a socket pair, keeps their output, and tells how they end. It answers the head's questions about
// the host: memory, cores, instruction level, links to other hosts (probe.go).
//
// # What always holds
//
//   - It outlives the head's absence: processes go on, and it connects again by itself.
//   - A process that it started does not outlive it, so that nothing is left behind on a host.
//   - An agent takes orders only from the head of its own cluster, whose certificate it checks.
//
// # Where to begin
//
// Package decide has all that an agent decides; step.go carries that out, proc.go has processes.
package agent
