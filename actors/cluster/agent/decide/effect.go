package decide

import (
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// Input is something that has happened.
type Input interface{ apply(a *Agent) }

// Begin is an agent's first input.
type Begin struct{}

// Dialed says that a head has taken the connection that a Dial asked for.
type Dialed struct{ Conn int64 }

// Heard is a message of the head on a connection.
type Heard struct {
	Conn int64
	M    control.Message
}

// Gone says that a connection did not come to be, or has ended, or is silent.
type Gone struct {
	Conn   int64
	Why    string
	Barred bool // the head takes this agent's certificate for revoked
}

// Unsent is a message that a connection did not take.
type Unsent struct {
	Conn int64
	M    control.Message
}

// Elapsed says that the time of a Wake has passed.
type Elapsed struct{ Timer int64 }

// Revived says that the heads of this machine have been looked after.
type Revived struct{}

// Started says what came of a Launch: a process runs, or Err says why none does, and whether that may be over soon.
type Started struct {
	Life    int64
	Pid     int
	Err     string
	Passing bool
}

// Said is a message of a process.
type Said struct {
	Life int64
	M    control.Message
}

// Ready says that a process has its actors.
type Ready struct{ Life int64 }

// Wrote is output of a process.
type Wrote struct {
	Life   int64
	Stream string
	Data   []byte
}

// Silent says for how long a process has said nothing, and in which state the system has it.
type Silent struct {
	Life    int64
	For     time.Duration
	Running bool   // or its state is not known
	State   string // in words
}

// Exited says that a process has ended, and how.
type Exited struct {
	Life int64
	Text string
	Code int
}

// Found is what the head has asked this host for, a measurement or an answer.
type Found struct{ M control.Message }

// Leave asks the agent to end, within a time that is not the usual one, or 0, for a reason or "".
type Leave struct {
	Within time.Duration
	Why    string
}

// Effect is something that a driver is to do. Those of one step are in the order in which they are to happen.
type Effect interface{ effect() }

func (Dial) effect()    {}
func (Send) effect()    {}
func (Close) effect()   {}
func (Wake) effect()    {}
func (Revive) effect()  {}
func (Launch) effect()  {}
func (Pass) effect()    {}
func (Kill) effect()    {}
func (Signal) effect()  {}
func (Finish) effect()  {}
func (Ask) effect()     {}
func (Measure) effect() {}
func (Revoke) effect()  {}
func (Renewed) effect() {}
func (Dirs) effect()    {}
func (Clear) effect()   {}
func (Quit) effect()    {}
func (Note) effect()    {}

// Dial asks for a connection with a head, by its place in the list of them: Dialed or Gone answers.
type Dial struct {
	Conn int64
	Head int
}

// Send sends a message on a connection. One of kind Hello lacks what the host is, which the driver adds.
type Send struct {
	Conn int64
	M    control.Message
}

// Close ends a connection. Nothing more is wanted of it.
type Close struct{ Conn int64 }

// Wake asks for Elapsed with this number when so much time has passed.
type Wake struct {
	Timer int64
	After time.Duration
}

// Revive asks that those heads of this machine that have ended are started again: Revived answers.
type Revive struct{}

// Launch asks for a process as ordered, with the hosts that are connected: Started answers.
type Launch struct {
	Life  int64
	Order control.Message
	Hosts map[string]string
}

// Pass hands a message to a process.
type Pass struct {
	Life int64
	M    control.Message
}

// Kill ends a process at once.
type Kill struct{ Life int64 }

// Signal sends a process a signal by its number.
type Signal struct {
	Life int64
	Code int
}

// Finish asks a process to end when its step is done.
type Finish struct{ Life int64 }

// Ask asks a process what its actors wait for, or wants of the folder of its run: Found answers the head's message M.
// Life is 0 where the process is no more.
type Ask struct {
	Life int64
	M    control.Message
}

// Measure asks for the ways to other hosts: Found answers the head's message M.
type Measure struct{ M control.Message }

// Revoke is the list of certificates that count no more, by their serial numbers.
type Revoke struct{ Serials []string }

// Renewed is a fresh certificate of this agent.
type Renewed struct{ Cert string }

// Dirs are the directories that jobs of the cluster keep files in, and the submitter of each, "" for an administrator.
type Dirs struct{ Dirs, Users []string }

// Clear says that a job is over: its files may go.
type Clear struct{ Job string }

// Quit ends the agent and all of its processes.
type Quit struct{ Remove bool } // its directory goes too

// Note is a line for the agent's log.
type Note struct{ Text string }
