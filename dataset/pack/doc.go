// Package pack lays samples of different lengths into rows of one length, and shares samples out to ranks
// so that all have the same work. It knows samples by number only, and reads and writes nothing.
//
// # What it is
//
// An [Algorithm] lays [Item]s into rows within [Limits]; each is registered with one sentence for people
// (online.go packs what has come, offline.go a whole set). [Assign] shares [Load]s out to ranks,
// [AssignPairs] does so for two works at once, a vision encoder's and a decoder's. [Cost] is the work of a
// sequence as a function of its length, given by a model's size or fitted to measured steps ([Fit]).
//
// # What always holds
//
//   - Every item is in exactly one row or among those left over; no row exceeds its limits.
//   - A result depends on the items and their order alone.
//
// # Where to begin
//
// pack.go, then balance.go. docs/data.md shows both from the user's side.
package pack
