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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/dataset/media"
)

// Protocol is the number of the protocol that commands speak.
const Protocol = 1

// messageMost bounds a line that a world writes.
const messageMost = 64 << 20

// Command is a world that is a program: it reads a JSON object a line from its input and answers each with
// one on its output. What it writes to its error output is shown when it fails.
type Command struct {
	spec     Spec
	cmd      *exec.Cmd
	in, out  *os.File
	lines    *bufio.Reader
	errs     *tail
	deadline time.Duration
	ended    bool
}

// request is what a world is told: one of these.
type request struct {
	Hello int            `json:"hello,omitempty"`
	Reset *resetRequest  `json:"reset,omitempty"`
	Step  *stepRequest   `json:"step,omitempty"`
	Close map[string]any `json:"close,omitempty"`
}

type resetRequest struct {
	Seed uint64 `json:"seed"`
}

type stepRequest struct {
	Action []float64 `json:"action"`
}

// reply is a scene as a command writes it.
type reply struct {
	Task    string          `json:"task"`
	State   []float64       `json:"state"`
	Images  map[string]*pic `json:"images"`
	Reward  float64         `json:"reward"`
	Done    bool            `json:"done"`
	Success bool            `json:"success"`
	Expert  []float64       `json:"expert"`
	Error   string          `json:"error"`
}

// pic is a view: an encoded picture, or pixels [height width 3] as bytes.
type pic struct {
	Height int    `json:"height"`
	Width  int    `json:"width"`
	Pixels []byte `json:"pixels"`
	File   []byte `json:"file"`
}

// Start runs a command as a world; deadline bounds each of its answers, the first one to hello as well. What it
// writes beside the protocol to its output is an error.
func Start(ctx context.Context, words []string, deadline time.Duration) (*Command, error) {
	if len(words) == 0 {
		return nil, errors.New("a world wants a command")
	}
	w := &Command{deadline: deadline, errs: &tail{}}
	w.cmd = exec.Command(words[0], words[1:]...)
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
	err = w.cmd.Start()
	_, _ = childIn.Close(), childOut.Close() // ends of pipes that the command has
	if err != nil {
		_, _ = in.Close(), out.Close() // the start's error says more
		return nil, fmt.Errorf("the world %s does not start: %w", words[0], err)
	}
	if err := w.hello(ctx); err != nil {
		w.kill()
		return nil, fmt.Errorf("the world %s: hello: %w", words[0], w.because(err))
	}
	return w, nil
}

// hello asks what the world has.
func (w *Command) hello(ctx context.Context) error {
	line, err := w.ask(ctx, request{Hello: Protocol})
	if err != nil {
		return err
	}
	if err := strict(line, &w.spec); err != nil {
		return err
	}
	if w.spec.FPS == 0 {
		w.spec.FPS = 10
	}
	return w.spec.check()
}

// Spec implements World.
func (w *Command) Spec() Spec { return w.spec }

// Reset implements World.
func (w *Command) Reset(ctx context.Context, seed uint64) (Scene, error) {
	return w.scene(ctx, request{Reset: &resetRequest{seed}})
}

// Step implements World.
func (w *Command) Step(ctx context.Context, action []float64) (Scene, error) {
	return w.scene(ctx, request{Step: &stepRequest{action}})
}

// Close implements World: the command is told, and has a second to end.
func (w *Command) Close() error {
	if w.ended {
		return nil
	}
	_ = w.in.SetWriteDeadline(time.Now().Add(time.Second)) // a world that hears nothing is ended below
	_, _ = w.in.WriteString("{\"close\": {}}\n")           // the same
	_ = w.in.Close()                                       // the same
	ends := time.AfterFunc(time.Second, w.signal)
	err := w.cmd.Wait()
	ends.Stop()
	w.signal() // children that it left
	w.ended = true
	_ = w.out.Close() // it was only read
	if err != nil {
		return fmt.Errorf("the world ends with %w", w.because(err))
	}
	return nil
}

// signal ends the command and those that it began.
func (w *Command) signal() {
	_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // none may be left
}

// kill ends a world that is of no more use.
func (w *Command) kill() {
	if w.ended {
		return
	}
	w.ended = true
	w.signal()
	_, _ = w.in.Close(), w.out.Close() // the error that ends the world says more
	_ = w.cmd.Wait()                   // it was ended by a signal
}

// because adds what the command said last to an error.
func (w *Command) because(err error) error {
	if said := strings.TrimSpace(w.errs.String()); said != "" {
		return fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

// scene asks and reads a scene. A world that errs is ended.
func (w *Command) scene(ctx context.Context, q request) (Scene, error) {
	if w.ended {
		return Scene{}, errClosed
	}
	line, err := w.ask(ctx, q)
	var s Scene
	if err == nil {
		s, err = w.read(line)
	}
	if err != nil {
		w.kill()
		return Scene{}, w.because(err)
	}
	return s, nil
}

// ask writes a request and reads the line of its answer, within the deadline.
func (w *Command) ask(ctx context.Context, q request) ([]byte, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	at := time.Now().Add(w.deadline)
	if err := errors.Join(w.in.SetWriteDeadline(at), w.out.SetReadDeadline(at)); err != nil {
		return nil, err
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

// read makes a scene of an answer.
func (w *Command) read(line []byte) (Scene, error) { return readScene(line, w.spec) }

func readScene(line []byte, spec Spec) (Scene, error) {
	var r reply
	if err := strict(line, &r); err != nil {
		return Scene{}, err
	}
	if r.Error != "" {
		return Scene{}, fmt.Errorf("it says: %.500s", r.Error)
	}
	s := Scene{Task: r.Task, State: r.State, Reward: r.Reward, Done: r.Done, Success: r.Success,
		Expert: r.Expert}
	for name := range r.Images {
		if !slices.Contains(spec.Cameras, name) {
			return s, fmt.Errorf("images has %q, and the world's cameras are %q", name, spec.Cameras)
		}
	}
	for _, c := range spec.Cameras {
		p, ok := r.Images[c]
		if !ok {
			return s, fmt.Errorf("images lacks %q; a camera that sees nothing is null", c)
		}
		v, err := p.view()
		if err != nil {
			return s, fmt.Errorf("%s: %w", c, err)
		}
		s.Views = append(s.Views, v)
	}
	return s, s.check(spec)
}

// view is a picture's pixels, nil for none.
func (p *pic) view() (*media.Image, error) {
	switch {
	case p == nil:
		return nil, nil
	case p.File != nil && p.Pixels == nil && p.Height == 0 && p.Width == 0:
		return media.Decode(p.File, media.Options{})
	case p.File != nil:
		return nil, errors.New("a picture has a file, or height, width and pixels")
	case p.Height < 1 || p.Width < 1 || p.Height > sideMost || p.Width > sideMost:
		return nil, fmt.Errorf("a picture of %d by %d pixels", p.Width, p.Height)
	case len(p.Pixels) != 3*p.Height*p.Width:
		return nil, fmt.Errorf("%d bytes for %d by %d pixels of 3", len(p.Pixels), p.Width, p.Height)
	}
	m := media.NewImage(p.Width, p.Height)
	copy(m.Pix, p.Pixels)
	return m, nil
}
