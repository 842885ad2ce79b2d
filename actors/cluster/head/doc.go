// Package head is the one process of a cluster that decides.
//
// # What it is
//
// A [Head] decides who belongs to the cluster, which job runs on which hosts, and in which order things
// have happened. All of that lies in its store (package store), so that a head that was killed comes
// back as it was; agents and their processes go on meanwhile. [Run] serves it on one port with mutual TLS.
//
// # Who does what
//
//	decide       what the head decides: inputs in, effects out, nothing else
//	head.go      carries effects out, makes commits, and answers what was asked when it is stored
//	agents.go    connections of agents: what they say goes in, what is for them goes out
//	api.go       users' requests; members.go those about hosts; output.go what jobs write
//	seat.go      this head among the others: it leads, or follows
//
// # What always holds
//
//   - What is said has been committed to the store before (package decide, H-1).
//   - A placement is numbered; messages of a process of an older one are refused, whatever leases or
//     clocks say.
//   - A head that is gone stops no training: only starts and restarts wait for it.
//
// # Where to begin
//
// decide, then head.go. docs/cluster.md is the user's side, cmd/lfactor/cluster/rig_test.go the hosts of the tests.
package head
