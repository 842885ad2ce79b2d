// Package layout turns a job, a model with a plan, into everything that follows before anything is allocated.
//
// # What it is
//
// A [Layout] holds the programs of a step and of an evaluation, the traces of every stage by phase and
// class of shape, what each rank owns, sends and receives, the segments of its optimizer step with their
// costs, and the memory it takes. [New] makes it; [FromConfig] makes its [Design] of a checked
// configuration. It allocates no tensor and starts nothing.
//
// # How it is used
//
// actors/host carries a layout out, sim prices it (through sim/rehearsal), lfactor plan prints it; none
// of them derives any of it a second time, so that a simulated step is the step that will run.
//
// # How it is made
//
// The model's list of blocks is cut into stages (traces.go records each); parts with a mesh of their own,
// such as a vision encoder, become sides (sides.go); each parameter's placement says which axes cut it and
// over which its gradient is still a sum (params.go); from that follow the groups and segments of the
// optimizer step (update.go: partial sums over tp, reduction over replicas, tied parameters, norms,
// commit, update, gather); memory.go replays the program with the frees that the runner will carry out.
//
// # What always holds
//
//   - All ranks derive the same layout from the same job, and its hash travels with every connection.
//   - Refs of actors are a function of the layout, so that no directory of names is needed.
//   - Predicted memory is what the pool of a real run reaches, within 5 % (go test ./actors/host -run
//     MemoryPredicted).
//
// # Where to begin
//
// layout.go, then job.go, then update.go beside section 1 of docs/architecture.md.
package layout
