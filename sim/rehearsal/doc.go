// Package rehearsal runs a configuration's training in virtual time.
//
// # What it is
//
// It hands a layout (actors/layout) to the simulator with the segments, memory and prices that training would have
// ([Layout], [Lowered], [Prices]), draws faults, looks for the smallest run that fails ([Shrink]), and draws drawings
// of steps ([Timeline]). lfactor sim is [Simulate] with flags; the planner and sim/fidelity call the same functions.
//
// # What always holds
//
//   - Nothing is priced here that training derives: segments and memory are the layout's own.
//   - A failing run is shrunk by its settings, and the smallest that still fails is printed as a command
//     that repeats it.
//
// # Where to begin
//
// run.go; layout.go is the translation; routed.go reads recorded routing of experts.
package rehearsal
