// Package grad is the tape: a stage's forward is recorded once per shape and becomes a list of segments to run.
//
// # What it is
//
// Model code (stages/block) calls methods of a [Tape] on symbolic values. [Tape.Finish] differentiates what was
// recorded, places communications, applies the policies for memory, and lowers all of it to a [Trace]: for each of the
// phases F, B, I and W a list of [Segment], cut at every communication. A trace is a plain value, the same on every
// rank of a group; a [Frame] is one microbatch's record over it, and a [Runner] runs a frame's segments on a backend.
//
// # How a recording becomes a trace
//
//	recording   each operation states how placements combine (ops*.go); where an operand's placement
//	            must change, the tape records a communication, whose dual serves the cotangent
//	            (tape.go, place.go, comm.go)
//	backward    the adjoint of each operation, input gradients as phase I and weight gradients as
//	            phase W (backward.go); sums over replicas inside a backward, for ZeRO 2 and 3
//	policy      recompute, offload, and gathering of sharded parameters again: the backward uses
//	            clones of what the forward made (policy.go)
//	fuse        the loss moves into its backward; elementwise operations become epilogues of products
//	cut         segments; a communication is issued at the end of one and awaited by a later one
//	frees       the node after which each slot dies
//
// # What always holds
//
//   - A trace depends on shapes, placements and options, never on data; what data decides is a number of
//     rows that the runner takes from its operands.
//   - A cotangent has the dual placement of its value; a change of placement is the identity on the
//     logical tensor.
//   - A frame holds no tensor after its last phase: tests run on a pool that says what was leaked.
//   - Weight gradients are added in float32, in the order of the program.
//
// # Where to begin
//
// tape.go and one short operation (ops_latent.go); place.go for placements; then [Tape.Finish], which
// calls the passes in their order; runner.go for what happens at run time. Every operation is held to
// finite differences by grad_test.go, and models to the counts of Megatron's collectives by the same file.
//
//lfvet:files an operation's rule a file, as methods of Tape
package grad
