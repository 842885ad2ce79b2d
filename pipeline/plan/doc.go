// Package plan describes a pipeline schedule as data.
//
// # What it is
//
// A [Program] is the order of actions of every rank of one pipeline for one step; an [Action] is a pass of a
// stage over a microbatch (F the forward, B the whole backward, I and W its halves for inputs and weights),
// a message, or the optimizer step. The text form is PyTorch's pipelining notation: 2F0, 0W3, (0F7;7B3)OVERLAP_F_B;
// chunk 3 of a long sequence is 2F0.3. The package performs no I/O and knows neither models nor time.
//
// # How it is used
//
// A builder of pipeline/schedule makes a program, [Program.Check] proves it, [Program.Lower] makes the messages
// between stages actions of their own, and the behaviours of actors/core carry it out, on devices (actors/host) or in
// virtual time (sim). [Program.Evaluate] gives the times of a program under costs in closed form, for searches that ask
// thousands of times; [Ledger] replays which activations are alive, for memory.
//
// # What always holds of a checked program
//
//   - Every stage does F and its backward once for every microbatch and chunk, on a rank that owns the
//     stage.
//   - No cycle of waits exists; an error ([CheckError]) shows the cycle. [Program.CheckRendezvous] proves
//     the same without buffers between ranks.
//   - Ranks that share a stage take its actions in one order, so that their collectives meet.
//   - A program is equal to another exactly if [Program.Hash] is.
//
// # Where to begin
//
// action.go for the notation, program.go for the value, check.go for the proof; testdata has the programs
// of PyTorch's own tables, which the tests read.
package plan
