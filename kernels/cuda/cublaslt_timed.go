//go:build cuda

package cuda

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// TimedVariable names, in the environment, how many of cublasLt's proposals for a shape are timed when it comes first;
// the fastest is kept. Without it the library's own judgement is taken, which is the same in every run.
const TimedVariable = "LFACTOR_CUBLASLT_TIMED"

// timedMost is how many proposals are timed at most, timedRuns how often each, behind one that warms up.
const timedMost, timedRuns = 8, 3

// timedProposals is what the environment says.
func timedProposals() (int, error) {
	text := os.Getenv(TimedVariable)
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > timedMost {
		return 0, fmt.Errorf("%s=%s: want a number of algorithms from 1, which times none, to %d", TimedVariable, text,
			timedMost)
	}
	return n, nil
}

// timedGain is by how much one has to be faster than the best of those before it, in hundredths: what differs
// by less may be first or second by chance.
const timedGain = 3

// fastest times the library's proposals for a shape on a call's own operands, and gives the number of the
// fastest. A call that somebody watches, or that has no room for a second result, is given the first.
func (x *issue) fastest(e *engine, m matrices, all []result, p product, s shape) (int, error) {
	if len(all) < 2 || x.q.Watched() {
		return 0, nil
	}
	at, err := x.locate(e, m, p, s)
	if err != nil {
		return 0, err
	}
	if p.add { // what is there already must stay
		var ok bool
		if at.to, ok = x.q.Spare(at.size); !ok {
			return 0, nil
		}
	}
	best, least := 0, time.Duration(0)
	for i := range all {
		took, err := x.takes(e, &chosenShape{m, all[i].algorithm[:]}, at)
		if err != nil {
			return 0, err
		}
		if took > 0 && (least == 0 || took*100 < least*(100-timedGain)) {
			best, least = i, took
		}
	}
	return best, nil
}

// takes is the median of what an algorithm takes by the device's events; 0 for one that the library then refuses.
func (x *issue) takes(e *engine, c *chosenShape, at located) (time.Duration, error) {
	if x.start(e, c, at, false) != nil {
		return 0, nil // a device that failed says so at the next stamp
	}
	var all []time.Duration
	for range timedRuns {
		from, err := x.d.Stamp()
		if err != nil {
			return 0, err
		}
		defer x.d.Drop(from)
		if err := x.start(e, c, at, false); err != nil {
			return 0, err
		}
		to, err := x.d.Stamp()
		if err != nil {
			return 0, err
		}
		defer x.d.Drop(to)
		if err := x.d.Wait(to); err != nil {
			return 0, err
		}
		took, err := x.d.Between(from, to)
		if err != nil {
			return 0, err
		}
		all = append(all, max(took, 1))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}
