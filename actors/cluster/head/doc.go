// Package head is the one process of a cluster that decides.
//
// # What it is
//
// A [Head] decides who belongs to the cluster, which job runs on which hosts, and in which order things
// have happened. All of that lies in its store (etcd, package store), so that a head that was killed comes
// back as it was; agents and their processes go on meanwhile. [Run] serves it on one port with mutual TLS.
//
// # How a job goes
//
//	api.go       a user's request comes in: submit, stop, logs, drain, tokens
//	jobs.go      a queued job gets hosts when they have room, or a line that says why it waits
//	procs.go     its processes are started by the agents of those hosts, and again when they end
//	agents.go    what agents say; an agent that is silent is suspected, and its processes are fenced by the epoch
//	log.go       every event, one line with its cause
//
// # What always holds
//
//   - What is answered has been committed to the store before.
//   - A placement is numbered; messages of a process of an older one are refused, whatever leases or
//     clocks say.
//   - A head that is gone stops no training: only starts and restarts wait for it.
//
// # Where to begin
//
// head.go, then jobs.go. docs/cluster.md is the user's side, actors/cluster/rig the hosts of the tests.
package head
