package links

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lfactor/lfactor/actors"
)

// asking is the place of an actor in the hello of a connection that asks what the actors of a process wait for.
const asking actors.Ref = -3

// answerMost bounds an answer, in bytes.
const answerMost = 64 << 20

// ErrSilent says that a process did not answer in time.
var ErrSilent = errors.New("does not answer")

// Ask is what Explain says in another process, ErrSilent if nothing comes within a time.
func (l *Links) Ask(proc int, within time.Duration) ([]byte, error) {
	type answer struct {
		text []byte
		err  error
	}
	come := make(chan answer, 1)
	go func() { // to dial may take longer
		text, err := l.ask(proc, within)
		come <- answer{text, err}
	}()
	select {
	case a := <-come:
		return a.text, a.err
	case <-time.After(within):
		return nil, ErrSilent
	}
}

// ask puts the standing question to a process and returns its answer, which that process writes
// before it closes the connection. An empty answer is ErrSilent.
func (l *Links) ask(proc int, within time.Duration) ([]byte, error) {
	c, err := l.t.Dial(proc)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within)) // a connection that takes none is given up by Ask
	if _, err := c.Write(l.hello(asking, asking, 0)); err != nil {
		return nil, err
	}
	if err := flush(c); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(c, answerMost))
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("process %d: %w", proc, ErrSilent)
	}
	return text, err
}

// explain answers such a connection.
func (l *Links) explain(c net.Conn) {
	if l.Explain == nil {
		return
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // a connection that takes none fails below
	if _, err := c.Write(l.Explain()); err == nil {
		_ = flush(c) // who asks may have gone
	}
}
