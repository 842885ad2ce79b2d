// Package heads runs the decisions of a cluster's heads (actors/cluster/head/decide) in virtual time: one to
// three heads over a store with terms, agents with processes, users who ask for this and that, and
// strangers. Heads are killed, stopped and cut off, two lead at once, their clocks jump, the store is slow
// or takes something without saying so, agents and hosts end, and come back.
//
// [Run] runs one seed. The same seed gives the same history. Behind every event the promises H-1 to H-8 of
// package decide are checked, at what the store has, at what agents start, and at what users have been told
// (seat_test.go), and at the end that all jobs have ended: faults stop some time before.
//
// Agents decide here as they do on a host (actors/cluster/agent/decide), whose promises are checked too. The
// processes of jobs are models, with the protocol of package fleet: what is lost with a connection is not said again,
// but for the list of processes that a head gets when an agent connects, and what a job's leading process repeats.
//
// Only the tests beside it run it, so its files are test files too; cmd/lfvet holds them to the rules of protocols.
package heads
