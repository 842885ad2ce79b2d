// Package decide is what a cluster's head decides, as a state machine: who belongs to the cluster, which job runs on
// which hosts, and in which order things have happened. It does no I/O, reads no clock and starts nothing. [Head.Step]
// takes an [Input] with the time and returns [Effect]s, which a driver carries out: the server of package head with
// connections, timers and a store, and the simulator (sim/heads) in virtual time.
//
// # What always holds
//
// The numbers are those of the simulator's checks and of its planted faults.
//
//   - H-1: What is said, to agents and to users, has been stored before. Effects wait in the gate (gate.go)
//     for the commit of their own turn and of all turns before it. What a store refuses for good is never
//     said.
//   - H-2: A commit names the term of its head; a head whose term is over says nothing more.
//   - H-3: A host is lost once for each time that it went away: a timer that was overtaken does nothing.
//   - H-4: A host has processes of one job at a time, and a process of a job one live generation, on one
//     host.
//   - H-5: A token lets one host in.
//   - H-6: Events have numbers without gaps, and what a user has seen of them stays, whichever head leads.
//   - H-7: Nobody who is no member writes anything into the store.
//   - H-8: A job that nobody has stopped ends as done when its work is, and not because a process has no room.
//
// # Where to begin
//
// head.go, then gate.go and jobs.go.
package decide
