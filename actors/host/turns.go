package host

// turns runs the turns of actors that have got messages, on goroutines that it keeps: on a new one each time,
// the stack of a behaviour would grow again from its smallest size, which took longer than most messages do.
type turns struct {
	idle chan func()   // to a goroutine that waits for a turn
	over chan struct{} // closed when the system has stopped
}

// turnMessages is how many messages an actor handles before others get a turn: protoactor's own number.
const turnMessages = 300

func newTurns() turns { return turns{make(chan func()), make(chan struct{})} }

// Schedule implements actor.Dispatcher. There are as many goroutines as actors had turns at one time.
func (t turns) Schedule(turn func()) {
	select {
	case t.idle <- turn:
	default:
		go t.keep(turn)
	}
}

// Throughput implements actor.Dispatcher.
func (turns) Throughput() int { return turnMessages }

// keep runs turn and then whatever turns come while it waits idle, so that a goroutine and its
// grown stack serve many turns. It returns when the system is over.
func (t turns) keep(turn func()) {
	for {
		turn()
		select {
		case turn = <-t.idle:
		case <-t.over:
			return
		}
	}
}
