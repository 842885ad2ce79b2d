// Package run is a training run from a checked configuration to its end.
//
// # What it is
//
// [Open] opens everything that a run needs: the model's layout, data, tokenizer, checkpoint, metrics,
// backends. [Train] does so and runs it: alone in this process, as one process of several on this host, or
// as a process of a cluster's job (the [Fleet] starts them). [Evaluate] runs the evaluation of a trained
// run, [Inspect] looks through its data, [Describe] says what will be trained.
//
// # How a run goes
//
//	start.go     what stands in the run's directory: begin, resume, or refuse
//	procs.go     worker processes, their start and end
//	data.go      batches for the loaders; datastages.go what the stages of the data's pipeline took
//	rollouts.go  what package rollout, which draws and judges answers, has of the run
//	report.go    what is printed and logged of each step; experts.go the same for routers
//	watch.go     signals, stalls, budgets of bad samples
//	again.go     restart of a lost process, and the run's own going back
//
// # What always holds
//
//   - The same configuration and directory resume; settings that may not change on resume are refused by
//     name.
//   - A run ends with one error, which has an exit code.
//   - metrics.jsonl and the ledger have each step once, also when steps were taken again.
//
// # Where to begin
//
// [Train] in run.go. actors/host runs the actors of a process; this package decides what they are given.
package run
