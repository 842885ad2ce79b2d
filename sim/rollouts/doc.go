// Package rollouts gives the times of a run that learns from answers: a trainer, samplers and the pool that hands
// tasks to them (actors/pool, actors/rounds) in virtual time. What samplers do wrong is for sim/pools.
//
// The same seed gives the same history.
package rollouts
