package core

import "github.com/lfactor/lfactor/actors"

// RunLayout is what the coordinator knows of a run.
type RunLayout struct {
	Ranks      []actors.Ref
	Observer   actors.Ref
	First      int64 // the first step to run; steps are counted from 1
	Last       int64
	SaveEvery  int64 // 0 for only at the end
	SaveAtEnd  bool
	EvalEvery  int64 // 0 for never
	EvalSteps  int64 // batches of each set
	EvalSets   int64 // validation sets, evaluated one after the other; 0 is one
	EvalBy     int64 // 1 + the set whose loss is the evaluation's, 0 for the mean of all
	LossScale  LossScale
	LR         func(step int64) float64 // of the group with multiplier 1
	EvalOnly   bool                     // one evaluation and no step
	OptimSteps int64                    // updates applied before First: skipped steps do not count
	Clip       float64                  // largest global gradient norm, 0 for none
	// Clips are the largest norms of groups of parameters that are clipped by a norm of their own, ClipsMost at
	// most, and ClipOf is by parameter, in the model's order, 1 + its group in Clips; 0 or none is of all others,
	// whose norm is held to Clip
	Clips  []float64
	ClipOf []uint8
	// by rank: the parameters, in the model's order, whose squared norms it reports; nil for none
	Norms [][]int32
	// a rank that ends will come back: the run goes on from the newest saved state
	Recover  bool
	Window   actors.Duration // for which an end counts, though steps were taken since
	Restarts int             // how often one may end without a new step in between; 0 is no limit
	// from the loss of messages until all connections are made anew, if no process has ended; 0 is usual
	Grace   actors.Duration
	SlowFor actors.Duration // a rank that is slow for less is not named
	// steps between copies of the state in memory; 0 for none, KeepAuto for what costs a hundredth
	Keep int64
	// by rank: the ranks that keep second copies of its state; nil for none at all
	Buddies [][]int
	// Hosts are the hosts of ranks, "" for an unknown one. A rank may come back on another: Spread gives the Buddies
	// of new hosts, nil for the same ones
	Hosts  []string
	Spread func(hosts []string) [][]int
	Same   [][]int // by rank: the others that hold the same state; nil for none at all
	// a rank carries out an update that is committed without hearing from others
	Alone bool
	// where the data stands after a step, for those that read it again; nil for nothing
	Place func(step int64) string
	// which steps are taken again with other samples, and where the data stands behind the state of a step if
	// from step first on it goes on behind what step behind has read; nil for Place
	Spikes Spikes
	Aside  func(step, first, behind int64) string
	// Enough reports whether the run ends behind an evaluation, with a durable state; nil is never
	Enough func(step int64, loss float64) bool
	// for a coordinator that takes over from one that has ended: the newest durable step, which OptimSteps
	// and LossScale are of
	Durable int64
	// Unread says why the state of step Durable cannot be read, nil if it can: nobody goes back there
	Unread error
	// MoveEvery is the number of steps from one move of experts to the next, 0 for none. Move says where
	// experts go behind a step, by the rows that they had since the last move, and where they lie; layers
	// that stay as they are are left out.
	MoveEvery int64
	Laid      Laid // of the state that the run begins with, or of that of Durable
	Move      func(step int64, loads []Load, now []Placed) []Placed
}
