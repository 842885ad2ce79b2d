// Package decide is what an agent of a cluster decides, as a state machine: which head it speaks with and when it dials
// again, what it does of what a head says, what it tells of its processes, and which of them it ends. It does no I/O,
// reads no clock and starts nothing. [Agent.Step] takes an [Input] and returns [Effect]s, which a driver carries out in
// their order: package agent with connections, processes and timers, and the simulator (sim/heads) in virtual time.
//
// # What always holds
//
// The numbers are those of the simulator's checks and of its planted faults.
//
//   - Nothing is done that a head says whose term is older than the newest that has welcomed this
//     agent. A head cannot welcome anybody once its term is over (H-1, H-2), so this guards twice.
//   - An order starts one process, and not before the process that had its number has ended.
//   - A head that an agent connects with hears of every process that runs, and of every one that has
//     ended and whose job has not, until it has a successor. None is being started then.
//   - A process that has said that it lives, and says nothing for its lease, is killed.
//
// # Where to begin
//
// agent.go, then way.go for the connection with the head and procs.go for processes.
package decide
