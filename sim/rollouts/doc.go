// Package rollouts runs the desk of a run that learns from answers (actors/rounds) in virtual time: samplers
// that are slow, die, hang and say things twice, a trainer, and what weights take to travel. Run gives what a
// step takes, and holds every step to the promises of package rounds.
//
// The same seed gives the same history.
package rollouts
