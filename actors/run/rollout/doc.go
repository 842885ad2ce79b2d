// Package rollout draws the answers that a run of a policy's loss learns from, and judges them. [Source] is what a run
// sees of it: microbatches of steps ([Source.Batches]), which wait for weights, for samplers and for judges.
//
// Which round of answers is drawn with which weights, and which sampler draws what, decides package rounds, without I/O.
// Here are its drivers: the model that draws ([Drawer]), in the process that trains or in processes of their own, on this
// host or on a fleet's ([Serve]); judges, in the same ways; environments that answer in turns; the log of answers, which
// is drawn and judged again from ([Source.Again], [Judge]); and the answers that a checkpoint keeps in flight.
package rollout
