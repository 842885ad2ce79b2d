// Package host runs the behaviours of actors/core for real.
//
// # What it is
//
// protoactor-go schedules the actors of a process ([System]); jobs run on devices, one goroutine an engine;
// edges to other processes are package links's. It decides nothing: what happens next is core's business,
// and what a rank owns is actors/layout's. No other package knows protoactor.
//
// # How data flows
//
//	loader.go     a [Loader] turns batches of the dataset into payloads of tensors
//	device.go     a payload that comes from another device is copied behind the event of its sender's last call
//	rank.go       a [Rank] is a device: frames, parameters, gradients, optimizer state; its jobs are segments of traces
//	update.go     jobs of the optimizer step; restore.go copies, snapshots and states that come back
//	links/        messages between processes, and the tensors that they carry
//	saver.go      a rank's shard of a checkpoint, snapshot first and written behind the next steps
//	why.go        who waits for whom, from the actors' own answers ([Diagnose])
//
// # What always holds
//
//   - A job never waits for another rank. Only loss, norms, messages to other processes and saves wait for
//     a device.
//   - Every payload is released once; the pool of a finished run is empty.
//   - Messages of one edge arrive in order, once, or the edge's epoch ends.
//   - A panic of a behaviour or job ends the run with one error ([InternalError]) and no other actor
//     hangs.
//
// # Where to begin
//
// [Run] puts a process together. Then system.go for actors and engines, [Rank.Run] for jobs, package links
// for other processes. grid_test.go trains every plan of its grid to the losses of one device.
package host
