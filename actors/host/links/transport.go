package links

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// Transport makes the connections between the processes of a run. It knows processes by their numbers, and
// no actors: Links opens one connection an edge, writes a hello on it and then Arrow streams, so that
// whoever a connection comes from must be known by the transport to belong to the run.
type Transport interface {
	// Dial opens a connection to process proc. It waits a while for one that does not listen yet.
	Dial(proc int) (net.Conn, error)
	// Accept returns the next connection that another process has opened, and an error once Close was called.
	Accept() (net.Conn, error)
	// Close ends Accept and leaves the connections that were made as they are.
	Close() error
}

// Flusher is a connection that gathers what is written to it until it is told that a message is whole.
type Flusher interface{ Flush() error }

// flush sends what was written, where the connection gathers.
func flush(c net.Conn) error {
	if f, ok := c.(Flusher); ok {
		return f.Flush()
	}
	return nil
}

// unixSockets joins the processes of one host: each has a socket in a directory that only their owner may enter.
type unixSockets struct {
	dir string
	net.Listener
}

// Unix opens the socket of process proc in dir.
func Unix(dir string, proc int) (Transport, error) {
	path := unixSocket(dir, proc)
	_ = os.Remove(path) // of the process's life before
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket of process %d: %w", proc, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return &unixSockets{dir: dir, Listener: ln}, nil
}

func unixSocket(dir string, proc int) string {
	return filepath.Join(dir, fmt.Sprintf("p%d.sock", proc))
}

// Way names the kind of connection for people.
func (u *unixSockets) Way() string { return "unix socket" }

// Dial implements Transport.
func (u *unixSockets) Dial(proc int) (c net.Conn, err error) {
	for range 200 {
		c, err = machine.WithSpare(func() (net.Conn, error) { return net.Dial("unix", unixSocket(u.dir, proc)) })
		if err == nil {
			return c, nil
		}
		<-time.After(25 * time.Millisecond)
	}
	return nil, err
}

// Accept implements Transport. Where no file may be opened it waits until one may.
func (u *unixSockets) Accept() (net.Conn, error) {
	for {
		c, err := machine.WithSpare(u.Listener.Accept)
		if !errors.Is(err, syscall.EMFILE) {
			return c, err
		}
		<-time.After(25 * time.Millisecond)
	}
}
