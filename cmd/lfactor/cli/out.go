package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/lfactor/lfactor/configs/exit"
)

// Out is where commands write their data: this process's stdout. It remembers the first error, so that a command whose
// data did not arrive, as on a disk that is full, does not end as if it had.
var Out io.Writer = &out

var out checked

type checked struct {
	mu  sync.Mutex
	err error
}

// Write implements io.Writer.
func (c *checked) Write(b []byte) (int, error) {
	n, err := os.Stdout.Write(b)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil {
			c.err = err
		}
	}
	return n, err
}

// written is the first error of Out, as one of the command. A reader that has gone, as head goes when it has enough,
// has what it wanted.
func written() error {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.err == nil || unread(out.err) {
		return nil
	}
	return fmt.Errorf("what was to be printed is not whole: %w", out.err)
}

// unread tells of the error of a write to stdout whose reader has gone.
func unread(err error) bool {
	var path *fs.PathError
	return errors.Is(err, syscall.EPIPE) && errors.As(err, &path) && path.Path == os.Stdout.Name()
}

// Listen opens an address of this host, which flag names; one that is taken is a wrong command line.
func Listen(address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	var of *net.OpError
	if errors.As(err, &of) {
		why := of.Err
		var number syscall.Errno // without the names of the calls that met it
		if errors.As(why, &number) {
			why = number
		}
		return nil, exit.Usagef("%s: %v; name another with %s", address, why, flag)
	}
	return l, err
}
