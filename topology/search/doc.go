// Package search chooses schedules and plans by closed forms. It runs nothing itself.
//
// # What it is
//
// A [Space] is all plans of a model on a machine (pp × dp × tp × ep × etp, sequence parallelism, recompute, ZeRO,
// schedule); [Space.Enumerate] lists those that can run, [Space.Estimate] prices one from the costs of the model's
// blocks and says whether it fits, [Space.Recut] cuts its stages by time, [Rank] orders them.
//
// # How it is used
//
// sim/planner fills a space from a run file and a machine, and simulates the best candidates; what is
// printed are simulated times, so the closed form decides only which plans are looked at more closely.
//
// # What always holds
//
//   - A candidate that needs more memory than a device has says so (Candidate.Why), and is ranked behind all
//     that fit.
//
// # Where to begin
//
// plans.go for the space, stages.go and weights.go for what a plan costs.
package search
