// Package rounds decides which answers are drawn with which weights, and who draws them. It does no I/O: a
// run (actors/run) and a simulation (sim/rollouts) tell a Desk what happens and carry out what it orders.
//
// A round is the answers of one batch of prompts, and round r is trained on in the steps First(r) to
// First(r+1)-1. A publication is a set of weights: number w has those behind round w-1, number 0 those that
// the run begins with. A Schedule says which publication draws which tokens of which round, by their numbers
// alone, so that a run has the same answers whatever takes how long. What a Desk promises:
//
//	R-1  No token is older than Schedule.Staleness publications where it is trained on.
//	R-2  Every answer of every round is trained on, in order of rounds, whoever draws it and whoever dies: a
//	     slow answer is waited for, and a lost one is drawn again in its place, with its own seed and by the
//	     weights that it was to be drawn with. So what is trained on has the distribution of what is drawn.
//	R-3  Every token of an answer is drawn once, by the publication that the schedule names.
//	R-4  No more than Staleness+1 rounds are begun and not trained on, and as many publications are kept.
//
// hold by credits: a round is begun by a publication, and publications are made between rounds.
package rounds
