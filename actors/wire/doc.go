// Package wire turns messages between processes into Arrow record batches and back.
//
// # What it is
//
// Every message is one row of a standard Arrow IPC stream. The first columns are the same for all messages
// ([Version] names them): kind, sender, receiver, epoch, sequence number, step, action, values, text. Each
// tensor is a list column behind them, whose values are the tensor's own memory, 64-byte aligned, and
// never a copy. A stock Arrow reader (pyarrow, polars, DuckDB) reads what it writes.
//
// # How data flows
//
// An [Encoder] gives the pieces of a message in the order in which they are to be written: metadata from a buffer that
// is used again, tensors as they lie. Messages with the same names, element types and ranks of tensors share a stream;
// the streams of one connection are told apart by a number before each message. A [Decoder] reads the columns it knows
// into memory of a pool, so that a received tensor counts against a budget like any other.
//
// # What always holds
//
//   - Lengths are checked before anything is allocated; what is malformed is [ErrMalformed] and never a
//     panic (FuzzDecode).
//   - What is decoded is what was encoded, bit for bit, NaNs included.
//
// # Where to begin
//
// schema.go for the columns; encode.go and decode.go build and read the flatbuffers themselves, so that no
// tensor is copied, and sizes are checked before memory is taken.
package wire
