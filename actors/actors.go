// Package actors is what a behaviour sees: references, messages, jobs and the Context through which alone it acts.
// Two drivers implement Context: actors/host (wall clock, real devices) and sim (virtual clock, modelled durations).
package actors

import (
	"math/rand/v2"

	"github.com/lfactor/lfactor/pipeline/plan"
)

// Ref names an actor of the run; references are dense and the same in every process.
type Ref int32

// None is not an actor.
const None Ref = -1

// AnyEpoch is the epoch of messages that are never out of date: an error of our own ends the run in any.
const AnyEpoch uint32 = 1<<32 - 1

// Time is nanoseconds since the run began; Duration is a difference of two.
type (
	Time     int64
	Duration int64
)

// Second is 1e9 nanoseconds.
const Second Duration = 1e9

// Payload is counted data that behaviours pass on and never look into: a tensor, or its size in a
// simulation. A message owns one reference; its receiver releases it or forwards it.
type Payload interface {
	Bytes() int64
	Retain()
	Release()
}

// Kind is the type of a message.
type Kind uint8

// The messages of the protocols in actors/core. Fields that a kind uses are listed behind it.
const (
	Started Kind = iota // from the driver, first; Step is how often the actor has ended before, Text its host, if known
	// from the driver: a watched actor From has ended for the Step-th time; Text says why; Member is 1 when
	// it is known that no other takes its place
	Down
	Done // from the driver: a job ended; Job, Out, Values, Err
	Tick // a timer; Step is its tag
	Open // coordinator → rank: begin Step; Values carry the step's scalars
	// loader → rank: the data of one microbatch; Action.Micro, Payload, Port is its class of shape
	Batch
	// rank → rank: a member's part of a collective; Action, Segment, Comm, Member, Payload
	Part
	Activation // rank → rank: an output port; Action is the consumer's, Port, Payload
	// rank → rank: the gradient of an input port; Action is the producer's, Port, Payload
	Cotangent
	Credit // rank → rank: Values: so many more messages may come on the edge Comm
	Closed // rank → coordinator: Step ended; Values
	Load   // rank → loader: send the batches of Step
	// coordinator → rank: write the part that Member has of Step's state, which is the rank's own, or that
	// of one that is gone for good: what the rank holds itself (Segment FromMember), or its copy of Port's (FromCopy)
	Save
	Queued // rank → coordinator: the state is copied, training may go on
	// rank → coordinator: Member's part of the state is on disk; Text is what the manifest says of it
	Durable
	Halt   // coordinator → everyone: end
	Failed // anyone → coordinator: an error that ends the run; Err
	Report // coordinator → observer: something a user sees; Text is the topic
	// rank → coordinator: gradients of Step are reduced and kept; Values: as Closed, and squared norms by parameter
	Ready
	Commit // coordinator → rank: apply the update of Step; Values carry its scalars
	Join   // rank → coordinator: it is back after it had ended Step times, on host Text, if known
	// coordinator → rank: a new Epoch begins from the state of Step; Segment is its source, Port how often the rank has
	// ended, Member 1 for a rank that has none, Values the commit of Step if there was one, Text the place in the data
	Rewind
	Rewound // rank → coordinator: it has the state of Step
	// coordinator → rank: copy the state after Step in memory, for yourself and for others; Values: the newest step
	// that all have copied; how many others, and who; then the coordinator's own state
	Keep
	// rank → rank: the state after Step, to keep; Values are the coordinator's state then
	Buddy
	// rank → coordinator: it has the copy of Member's state after Step; Values: nanoseconds that it took
	Kept
	// coordinator → rank: send Member the state of Step, Segment is its source, Port whose copy that is
	Give
	State // rank → rank: the state of Step, to take; Values as those of Buddy, if it is a copy
	// from the driver to the coordinator: messages of Epoch were lost between processes that live; Text says how
	Broken
	// coordinator → rank: the coordinator before this one has ended, and Epoch begins: say what you hold
	Claim
	// rank → coordinator: the state that it holds is that of Step, -1 for none; Port is how often it has
	// ended, Values are the rest
	Holding
)

// Message is everything that travels between actors. One flat type: no allocation in a simulation, one codec
// on the wire.
type Message struct {
	Kind    Kind
	From    Ref
	Epoch   uint32 // of membership; messages of an older epoch are dropped, those of AnyEpoch never
	Step    int64
	Action  plan.Action
	Segment int32
	Comm    int32
	Member  int32
	Port    int32
	Job     JobID
	Number  uint64 // where a message may come twice (core.Once): its sender's life and which one to its receiver
	Payload Payload
	Out     []Output
	Values  []float64
	Text    string
	Err     error // crosses a process as its text and exit code
}

// Engine is the part of a device that runs a job. Jobs of one engine run in order.
type Engine uint8

// The engines of a device.
const (
	Compute Engine = iota
	Comm
	Copy
	IO
)

// JobID is unique within an actor.
type JobID uint64

// JobKind says what a job does.
type JobKind uint8

// The jobs of the behaviours in actors/core.
const (
	RunSegment  JobKind = iota // one segment of an action
	UpdatePhase                // one phase of the optimizer step: Segment
	LoadBatch                  // read and tokenise the data of Step: IO
	SnapshotJob                // copy the rank's state: Copy
	WriteJob                   // write the copied state, or In, that of another rank: IO
	BeginJob                   // make room for a checkpoint: IO
	CommitJob                  // write the manifest and move the pointer: IO
	// give up all frames and take the state of Step: Segment is the source, In what another rank gave: IO
	RestoreJob
	KeepJob  // copy the rank's state in memory: Copy; Out is the copy
	StateJob // the same, for another rank
)

// Job is a plain value: what to run, on which operands, on which engine, after which jobs. It is never a
// function, so the simulator can price it.
type Job struct {
	ID      JobID
	Kind    JobKind
	Engine  Engine
	Step    int64
	Action  plan.Action
	Segment int32
	Class   int32 // of the microbatch's shape
	In      []Input
	After   []JobID
	Values  []float64
	Text    string
}

// Input is an operand that came in a message; the job takes over the reference.
type Input struct {
	Comm, Member int32 // a part of a collective, by its place among those that the segment awaits, or
	Port         int32 // an activation or cotangent port, when Comm < 0
	Payload      Payload
}

// Output is a result that must be sent: a part for a member of a collective, or a port's value.
type Output struct {
	Comm, Member int32
	Early        bool // Comm is one of the optimizer step's, which the job issues ahead of it
	Port         int32
	Payload      Payload
}

// Timer identifies a pending Tick.
type Timer uint64

// Context is all that a behaviour may touch. Its methods return at once; effects happen after Receive has
// returned, in the order of the calls.
type Context interface {
	Self() Ref
	Now() Time
	Rand() *rand.Rand // seeded by the run's seed and the actor
	Send(to Ref, m Message)
	After(d Duration, m Message) Timer
	Cancel(t Timer)
	Spawn(name string, b Behaviour) Ref
	Watch(r Ref)
	Stop(r Ref)
	Do(j Job)
}

// Behaviour is an actor's protocol as a state machine. Receive never blocks, sleeps, locks or opens; m is
// its own during the call, and what it keeps it copies.
type Behaviour interface {
	Receive(ctx Context, m *Message)
	// Waits says what the actor waits for, for `lfactor why`; the zero Wait is nothing.
	Waits() Wait
}

// Wait describes why an actor does not move.
type Wait struct {
	For   Ref    // the actor that must act, None for a device or nothing
	What  string // "activation 2F3", "credit on edge 1→2 (0 of 2)", "part 4 of 0F1.2"
	Since Time   // when the wait began
	Busy  bool   // it is not waiting but runs What on its device
	Held  []Held // messages that it cannot send for want of credit
}

// Held is an edge on which an actor holds messages back.
type Held struct {
	To      Ref
	Edge    string // "activation 0→1"
	Count   int    // messages, or tasks of a place of a pool
	Credits int    // of the edge, all of them spent
	Since   Time   // a place of a pool has last said something
}
