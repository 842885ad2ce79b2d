package world

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// program is a process that answers each JSON object on a line of its input with one on a line of its output.
type program struct {
	cmd      *exec.Cmd
	in, out  *os.File
	lines    *bufio.Reader
	errs     *tail
	deadline time.Duration
	ended    bool
	release  func() // of its group, which ends with this process
}

// begin starts a program; deadline bounds each of its answers.
func begin(words []string, deadline time.Duration) (*program, error) {
	w := &program{deadline: deadline, errs: &tail{}}
	w.cmd = exec.Command(words[0], words[1:]...)
	w.cmd.Stderr, w.cmd.WaitDelay = w.errs, time.Second
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), childIn.Close())
	}
	w.cmd.Stdin, w.cmd.Stdout, w.in, w.out = childIn, childOut, in, out
	w.lines = bufio.NewReaderSize(out, 1<<16)
	w.release, err = machine.StartGuarded(w.cmd)
	_, _ = childIn.Close(), childOut.Close() // ends of pipes that the command has
	if err != nil {
		_, _ = in.Close(), out.Close() // the start's error says more
		return nil, err
	}
	return w, nil
}

// Close ends the program, which is told and has a second to end.
func (w *program) Close() error {
	if w.ended {
		return nil
	}
	_ = w.in.SetWriteDeadline(time.Now().Add(time.Second)) // a world that hears nothing is ended below
	_, _ = w.in.WriteString("{\"close\": {}}\n")           // the same
	_ = w.in.Close()                                       // the same
	ends := time.AfterFunc(time.Second, w.signal)
	err := w.cmd.Wait()
	ends.Stop()
	w.release()
	w.ended = true
	_ = w.out.Close() // it was only read
	if err != nil {
		return fmt.Errorf("it ends with %w", w.because(err))
	}
	return nil
}

// signal ends the command and those that it began.
func (w *program) signal() {
	_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // none may be left
}

// kill ends a program that is of no more use.
func (w *program) kill() {
	if w.ended {
		return
	}
	w.ended = true
	w.signal()
	_, _ = w.in.Close(), w.out.Close() // the error that ends the world says more
	_ = w.cmd.Wait()                   // it was ended by a signal
	w.release()
}

// because adds what the command said last to an error.
func (w *program) because(err error) error {
	if said := strings.TrimSpace(w.errs.String()); said != "" {
		return fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

// ask writes a request and reads the line of its answer, within the deadline.
func (w *program) ask(ctx context.Context, q any) ([]byte, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	at := time.Now().Add(w.deadline)
	if err := errors.Join(w.in.SetWriteDeadline(at), w.out.SetReadDeadline(at)); err != nil {
		return nil, err
	}
	if w.unread() {
		return nil, errors.New("it has said something that it was not asked for: it answers a request twice, or late")
	}
	stop := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_, _ = w.in.SetWriteDeadline(past), w.out.SetReadDeadline(past) // pipes took deadlines above
	})
	defer stop()
	_, err = w.in.Write(append(b, '\n'))
	var line []byte
	if err == nil {
		line, err = readLine(w.lines)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("no answer within %v", w.deadline)
	case err != nil:
		w.kill() // so that its last words are there
		return nil, fmt.Errorf("it ended: %w", err)
	}
	return line, nil
}

// unread reports whether the program has said something that nobody asked for, which would be read as the
// answer to the next request, and all later answers as those before them.
func (w *program) unread() bool {
	if w.lines.Buffered() > 0 {
		return true
	}
	raw, err := w.out.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Read(func(fd uintptr) bool { // a pipe that has ended says so when it is read
		n, _ = syscall.Read(int(fd), make([]byte, 1)) // the same, and one with nothing does not block
		return true
	})
	return n > 0
}

// part is a key of an answer, and whether the answer has it.
type part struct {
	key   string
	there bool
}

// needs is the error of an answer that leaves a key out, which is not taken as 0.
func needs(parts ...part) error {
	for _, p := range parts {
		if !p.there {
			return fmt.Errorf("its answer has no %s, or null", p.key)
		}
	}
	return nil
}

// readLine reads a line of bounded length.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(line) > messageMost {
			return nil, fmt.Errorf("a line of more than %d bytes", messageMost)
		}
	}
}

// strict decodes a JSON object whose keys are all known.
func strict(line []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("%.80q is no answer: %w", bytes.TrimSpace(line), err)
	}
	if d.More() {
		return fmt.Errorf("%.80q has more than one answer", bytes.TrimSpace(line))
	}
	return nil
}
