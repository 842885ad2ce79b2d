package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	spec Spec
	*program
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
	Reward  *float64        `json:"reward"`
	Done    *bool           `json:"done"`
	Success *bool           `json:"success"`
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

// Start runs a command as a world; deadline bounds each of its answers, the first one to hello as well.
// What it writes beside the protocol to its output is an error.
func Start(ctx context.Context, words []string, deadline time.Duration) (*Command, error) {
	if len(words) == 0 {
		return nil, errors.New("a world wants a command")
	}
	x, err := begin(words, deadline)
	if err != nil {
		return nil, fmt.Errorf("the world %s does not start: %w", words[0], err)
	}
	w := &Command{program: x}
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
	err := needs(part{"reward", r.Reward != nil}, part{"done", r.Done != nil}, part{"success", r.Success != nil})
	if err != nil {
		return Scene{}, err
	}
	s := Scene{Task: r.Task, State: r.State, Reward: *r.Reward, Done: *r.Done, Success: *r.Success, Expert: r.Expert}
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
