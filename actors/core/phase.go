package core

import "github.com/lfactor/lfactor/actors"

// phase is what the coordinator is about:
//
//	   ┌─── all Closed ─────────── applying ◀── all Ready: Commit ──┐
//	   ▼                                                            │
//	between ──Open─────────────────────────────────────────────▶ stepping
//	│  ▲ ▲ └──Open of a batch──▶ evaluating ──┐
//	│  │ └────────── all Closed ──────────────┘
//	│  └──────────── all Rewound ─────────────────────────────── returning ◀──┐
//	│                                                             │           │ all are back: Rewind
//	│  any of these, and ending ── Down, Broken ──▶ recovering ◀──┘ Down …    │
//	│                                               ▲    └────────────────────┘
//	│  Started after an end ──▶ claiming ── all Holding ┘
//	▼
//	ending ──the last save is durable──▶ over
//
// Whatever goes wrong for good ends in over from anywhere. In recovering and returning no step is open; what
// was open is decided already, or void (see recovery).
type phase uint8

const (
	between    phase = iota // no step is open: the next one is, as soon as no state is being copied
	stepping                // a step is open, and not all ranks are ready for its commit
	applying                // its commit is sent, and not all ranks have closed it
	evaluating              // a batch of an evaluation is open
	ending                  // no step will be opened any more, and the last save is under way
	claiming                // it takes over from a coordinator that has ended, and asks what ranks hold
	recovering              // it waits for ranks that have ended, or for the commit of a checkpoint
	returning               // all are on their way back to one state
	over                    // all are told to end
)

// lost reports whether some rank may not hold the state that the run is at.
func (p phase) lost() bool { return p == claiming || p == recovering || p == returning }

// request is what a user wants of the run.
type request uint8

const (
	goesOn   request = iota
	stops            // after the step under way
	abandons         // without the step that was under way, which is not going to be committed
)

// takes reports whether a message concerns the coordinator as it is: an end that was ordered is the last
// thing that happens, and what ranks said in an epoch before means nothing any more.
func (c *Coordinator) takes(m *actors.Message) bool {
	switch m.Kind {
	case actors.Closed, actors.Ready, actors.Queued, actors.Durable, actors.Rewound, actors.Kept,
		actors.Broken, actors.Failed, actors.Holding:
		if m.Epoch < c.epoch {
			return false
		}
	}
	return c.phase != over && !(c.asked == abandons && c.ofAbandoned(m))
}

// ofAbandoned reports whether a message belongs to what was abandoned.
func (c *Coordinator) ofAbandoned(m *actors.Message) bool {
	_, rank := c.place[m.From]
	return m.Kind == actors.Ready || m.Kind == actors.Closed || m.Kind == actors.Failed && !rank
}

// rankPhase is what a rank is about:
//
//	   Started ──▶ resting ──Open──▶ working ──its row is done: Closed──▶ resting
//	                 │                  │
//	                 └── Rewind, Claim ─┴──▶ behind ──the state that is wanted is restored: Rewound──▶ resting
//	                                           ▲ │ Rewind, Claim
//	Started after an end: Join ────────────────┤ │
//	                                           └─┘
//
// An error of a job, and Halt, lead to gone from anywhere.
type rankPhase uint8

const (
	resting rankPhase = iota // it holds a state of the epoch and waits for the next step
	working                  // a step is open
	behind                   // it holds no state of the epoch
	gone                     // it does nothing any more
)

// takes reports whether a message concerns the rank as it is.
func (r *Rank) takes(m *actors.Message) bool {
	switch {
	case r.phase == gone:
		return m.Kind == actors.Halt && m.Epoch >= r.epoch
	case m.Kind == actors.Done: // of its own device; see discardStale
		return true
	case m.Epoch < r.epoch:
		return false
	case r.phase == behind:
		return m.Kind == actors.Rewind || m.Kind == actors.Halt || m.Kind == actors.State || m.Kind == actors.Claim
	}
	return true
}

// progress is how far a rank is with the update of the step that is open, or was when the epoch ended.
type progress uint8

const (
	undecided progress = iota
	owed               // it is decided, and the rank left the epoch before it had applied it
	applied
)
