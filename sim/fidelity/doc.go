// Package fidelity holds the simulator to real runs and to measured tables.
//
// # What it is
//
// One half trains small models for real under every schedule and compares each with its rehearsal: time of
// a step and peak memory (lfactor sim fidelity). The other half predicts the rows of published tables,
// fitted on some and held out on others (lfactor sim predict).
//
// # What always holds
//
//   - Prices of the first half are durations of the same kernels on the same machine, measured in the same
//     run.
//   - A fitted row is never counted as a prediction.
//
// # Where to begin
//
// fidelity.go for real runs, predict.go for tables; docs/simulation.md has what both print.
package fidelity
