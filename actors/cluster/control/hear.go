package control

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// Quiet is for how long nothing was heard of a peer.
type Quiet struct {
	// For is the time in which it said nothing. Time in which this process did not run is left out.
	For time.Duration
	// Dead is the part of For since the peer's system last acknowledged something. A process that is
	// stopped, or waits for a processor, is silent on a system that still acknowledges; a host that is lost
	// or cut off does not. Where the system does not tell, Dead is For.
	Dead time.Duration
}

// Hear waits for a message. It asks judge after each further Beats without one, and ends with its error.
func (c *Conn) Hear(judge func(Quiet) error) (Message, error) {
	var q Quiet
	acked, told := c.acked()
	for {
		began := time.Now()
		err := c.await(Beats)
		if err == nil {
			return c.Receive(Stopped) // something of it is there
		}
		if !expired(err) {
			return Message{}, err
		}
		n := counted(time.Since(began))
		q.For, q.Dead = q.For+n, q.Dead+n
		if now, ok := c.acked(); ok && told && now > acked {
			acked, q.Dead = now, 0
		} else if !ok {
			told = false
		}
		if n < Beats {
			continue // what came meanwhile has not been looked for
		}
		if err := judge(q); err != nil {
			return Message{}, err
		}
	}
}

// Silent is the end of a peer that has said nothing for so long.
type Silent time.Duration

// Error implements error.
func (s Silent) Error() string {
	return fmt.Sprintf("silent for %v", time.Duration(s).Round(10*time.Millisecond))
}

// Listen is Hear with one limit for everything that may be the matter with a peer.
func (c *Conn) Listen(limit time.Duration) (Message, error) {
	return c.Hear(func(q Quiet) error {
		if q.For >= limit {
			return Silent(q.For)
		}
		return nil
	})
}

// counted is what of a wait of Beats that took so long is silence of the peer: half, where this process was
// late itself and may not have read what is there.
func counted(took time.Duration) time.Duration {
	if took >= Beats+Beats/2 {
		return Beats / 2
	}
	return Beats
}

// await returns when the beginning of a message is there, and takes nothing of it.
func (c *Conn) await(limit time.Duration) error {
	if err := c.c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := c.r.Peek(4)
	return err
}

// acked is how many bytes the peer's system has acknowledged, where that is known.
func (c *Conn) acked() (int64, bool) {
	inner := c.c
	if t, ok := inner.(*tls.Conn); ok {
		inner = t.NetConn()
	}
	t, ok := machine.Carried(inner)
	return t.Acked, ok
}

// expired reports whether a limit of time has passed.
func expired(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
