package decide

import (
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
)

// Effect is something that a driver is to do. Those of one step are in the order in which they are to happen.
type Effect interface{ effect() }

func (Commit) effect()  {}
func (Send) effect()    {}
func (Close) effect()   {}
func (Answer) effect()  {}
func (Wake) effect()    {}
func (Revive) effect()  {}
func (Revoked) effect() {}
func (Tell) effect()    {}
func (Stuck) effect()   {}

// Commit asks the store for a commit, which the driver answers with Stored, Unstored or Over. There is never
// more than one that is not answered.
type Commit struct {
	N   int64
	Ops []store.Op
}

// Send sends a message on a connection of an agent.
type Send struct {
	Conn int64
	M    control.Message
}

// Close ends a connection of an agent.
type Close struct{ Conn int64 }

// Answer is what came of a request. Err is nil, or a *Refusal.
type Answer struct {
	Ask    int64
	Job    Job
	Member Member
	Hosts  []string
	Err    error
}

// Wake asks for Elapsed with this number when so much time has passed, whatever clocks are set to meanwhile.
type Wake struct {
	Timer int64
	After time.Duration
}

// Revive asks for a look whether the agent of a host runs, if it is the driver's to start again.
type Revive struct{ Host string }

// Revoked is the list of certificates that count no more, by their serial numbers, and of users and hosts that
// were removed, by their keys in the store, with the times.
type Revoked struct {
	Serials []string
	Removed map[string]time.Time
}

// Tell makes an event known: it is in the store.
type Tell struct{ Event Event }

// Stuck says that the store does not take what was decided, which waits.
type Stuck struct{ Err error }

// Cause says why a request is refused.
type Cause uint8

// The causes.
const (
	Bad     Cause = iota // the request is wrong
	Missing              // there is nothing of that name
	Unfit                // it is larger than the cluster
	Denied               // whoever asks may not
	Late                 // another head leads by now, and nothing was done
	Unsure               // this head leads no more, and what was asked for was done or not
)

// Refusal is the answer to a request that changes nothing.
type Refusal struct {
	Cause Cause
	Text  string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }
