package machine

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// AnswerWithin is how long whoever asks at a socket may take to read the answer, and may wait for it.
const AnswerWithin = 5 * time.Second

// Answer gives whoever connects to the socket of a name of process proc in dir what reply says, as one JSON
// value, until the returned function is called. The sockets are called name-PROC.sock; process 0 removes those
// of all processes at its end, for some may have been ended.
func Answer(dir, name string, proc int, reply func() any) (stop func(), err error) {
	path := AnswerSocket(dir, name, proc)
	_ = os.Remove(path) // of a run that was killed
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	_ = os.Chmod(path, 0o600) // the folder is private as well
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(AnswerWithin)) // a connection that takes none fails below
			_ = json.NewEncoder(c).Encode(reply())          // who asks may have gone
			c.Close()
		}
	}()
	return func() {
		ln.Close()
		if proc > 0 {
			return
		}
		left, _ := filepath.Glob(filepath.Join(dir, name+"-*.sock")) // the pattern is a right one
		for _, path := range left {
			_ = os.Remove(path) // it may be gone already
		}
	}, nil
}

// AnswerSocket is the path of the socket of a name of process proc in dir.
func AnswerSocket(dir, name string, proc int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d.sock", name, proc))
}
