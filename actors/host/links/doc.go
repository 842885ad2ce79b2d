// Package links carries messages between the processes of a run.
//
// # What it is
//
// [Links] joins the processes over a [Transport]: one connection for each edge (from actor, to
// actor) and epoch, so that a bulky edge never delays another. Each is an Arrow stream with sequence
// numbers. Who the actors are, and what their messages mean, it does not know: what comes goes to [Actors].
//
// # How data flows
//
//	payload.go    a [Pack] is a counted set of tensors: by reference inside a process, one Arrow row between two
//	links.go      one reader for each connection that comes, and the refusal of what is stale (fence)
//	stream.go     one writer for each edge, with a connection of its own for each epoch
//	channels.go   tensors that go from device to device, beside the stream that describes them
//	transport.go  how connections are made; unix sockets between processes of one host
//	beat.go       a byte to process 0 every 100 ms, and what each process tells it
//	ask.go        what the actors of another process wait for
//	clock.go      how the clocks of two processes stand to each other, from the beats
//	ways.go       which way between two hosts has become slow
//
// # What always holds
//
//   - Messages of one edge arrive in order, once, or the edge's epoch ends ([Links.Lost]).
//   - Nothing of an epoch that is over, or of an earlier life of a process, is delivered.
//   - Every payload that is sent is released once.
package links
