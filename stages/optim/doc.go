// Package optim holds optimizers and learning-rate schedules, one file each.
//
// # What it is
//
// An [Optimizer] names the kernel of its update, its state tensors in the order of the kernel's operands,
// and how its hyper-parameters follow from the configuration, the learning rate and the number of the
// update. One without a kernel of its own makes the update of other operations. A [Rate] gives the
// learning rate of a step. Both register themselves.
//
// # What always holds
//
//   - An update is elementwise, or a function of one tensor's rows, so that any shard of rows can be
//     updated by itself (ZeRO).
//   - State is float32 unless a configuration asks for fewer bits ([Config.Moments]); the update number counts applied updates, from 1, and not steps that were given
//     up.
//   - The learning rate of a step depends on its number alone: a resumed run has the same.
//
// # Where to begin
//
// sgd.go and optim.go; actors/layout decides which rank updates which rows,
// actors/host/update.go calls [Optimizer.Apply].
package optim
