package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"

	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/topology/machine"
)

// errSlow says that a client took too long over a message of its own, or over one of the server's.
var errSlow = errors.New("the client took too long over a message")

// talk is a connection: one observation is under way at a time.
type talk struct {
	s     *Server
	c     *websocket.Conn
	last  *policies.Chunk // that the robot was given
	total time.Duration   // of the last answer, until it was sent
}

// serve answers observations until the client leaves, does what ends the connection, or the context ends.
func (t *talk) serve(ctx context.Context) error {
	if err := t.write(ctx, websocket.MessageBinary, t.s.greeted); err != nil {
		return err
	}
	for {
		b, err := t.read(ctx)
		if ctx.Err() != nil {
			_ = t.c.Close(websocket.StatusGoingAway, errClosed.Error()) // it may have gone
			return errClosed
		}
		if err != nil {
			return err
		}
		began := t.s.now()
		v, err := Unpack(b)
		if err != nil { // who speaks no msgpack will not begin to
			err = fmt.Errorf("the message is not understood: %w", err)
			t.refuse(ctx, err, websocket.StatusInvalidFramePayloadData)
			return err
		}
		if err = t.answer(ctx, v, began); err != nil {
			return err
		}
	}
}

// read takes a message: it may be long in coming, but not once it has begun.
func (t *talk) read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(t.s.o.Idle, cancel)
	defer timer.Stop()
	kind, r, err := t.c.Reader(ctx)
	if err != nil {
		return nil, err
	}
	timer.Reset(t.s.o.Slow)
	if kind != websocket.MessageBinary {
		err := errors.New("observations are binary messages, and this is text")
		t.refuse(ctx, err, websocket.StatusUnsupportedData)
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err != nil && ctx.Err() != nil {
		return nil, errSlow
	}
	return b, err
}

// write sends a message to a client, which has not long to read it.
func (t *talk) write(ctx context.Context, kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, t.s.o.Slow)
	defer cancel()
	err := t.c.Write(ctx, kind, b)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errSlow
	}
	return err
}

// say sends a text, which openpi's client raises as an error.
func (t *talk) say(ctx context.Context, err error) error {
	return t.write(ctx, websocket.MessageText, []byte(err.Error()))
}

// refuse says why a connection is ended, and ends it after the pause that whoever was refused has to make.
func (t *talk) refuse(ctx context.Context, err error, code websocket.StatusCode) {
	t.s.seen.refused.Add(1)
	if t.say(ctx, err) == nil {
		_ = machine.Pause(ctx, t.s.o.Pause) // it bounds how often a connection can have messages refused
	}
	_ = t.c.Close(code, "see the text before") // it may have gone
}

// answer gives the actions for an observation, or says why there are none: the connection then goes on.
func (t *talk) answer(ctx context.Context, v any, began time.Time) error {
	o, out, err := t.decide(ctx, v, began)
	if err != nil {
		if ctx.Err() != nil {
			return errClosed
		}
		if errors.Is(err, ErrLate) || errors.Is(err, ErrFull) {
			return t.say(ctx, err)
		}
		t.s.seen.refused.Add(1) // a failure of the policy's as well: whoever asks again at once is told so again
		if err = t.say(ctx, err); err == nil {
			_ = machine.Pause(ctx, t.s.o.Pause) // as above
		}
		return err
	}
	t.last = &out.chunk
	timing := []Pair{{"infer_ms", milli(out.infer)}, {"wait_ms", milli(out.wait)}, {"batch", out.batch}}
	if t.total > 0 {
		timing = append(timing, Pair{"prev_total_ms", milli(t.total)})
	}
	reply := []Pair{{"actions", actions(out.chunk.Actions)}, {"server_timing", timing},
		{"policy_timing", []Pair{{"infer_ms", milli(out.infer)}}}, {"seed", int(o.seen.Seed)}}
	if err := t.write(ctx, websocket.MessageBinary, Pack(nil, reply)); err != nil {
		return err
	}
	t.total = t.s.now().Sub(began)
	t.s.seen.add(t.total)
	return nil
}

// decide reads an observation and has a replica act on it.
func (t *talk) decide(ctx context.Context, v any, began time.Time) (*observation, outcome, error) {
	o, err := t.s.keys.observe(v, t.s.o.Prompt)
	if err != nil {
		return nil, outcome{}, err
	}
	if !o.seeded {
		o.seen.Seed = t.s.seeds.Add(1) - 1
	}
	ask, err := t.s.p.Ask(o.seen)
	if err != nil {
		return nil, outcome{}, err
	}
	if ask.Join, err = t.join(o.join); err != nil {
		return nil, outcome{}, err
	}
	deadline := began.Add(t.s.o.Deadline)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	out, err := t.s.r.ask(ctx, &job{ask: ask, came: began, deadline: deadline})
	if errors.Is(err, context.DeadlineExceeded) {
		err = ErrLate
	}
	if errors.Is(err, ErrLate) {
		t.s.seen.late.Add(1)
	}
	return o, out, err
}

// join is what a chunk goes on from, nil where the robot does not say.
func (t *talk) join(j *joining) (*policies.Join, error) {
	if j == nil {
		return nil, nil
	}
	if !t.s.can.Joins {
		return nil, fmt.Errorf("%s: the policy gives its actions otherwise than by flow matching; leave it out", joinKey)
	}
	if t.last == nil {
		return nil, fmt.Errorf("%s: the connection was given no chunk before", joinKey)
	}
	if n := len(t.last.Actions); j.executed+j.delay > n {
		return nil, fmt.Errorf("%s: %d actions carried out and %d to come are more than the %d of the chunk "+
			"before", joinKey, j.executed, j.delay, n)
	}
	return &policies.Join{Before: *t.last, Executed: j.executed, Delay: j.delay, Horizon: t.s.o.Horizon,
		Most: t.s.o.Strong}, nil
}

// actions are a chunk as an array, [chunk numbers].
func actions(v [][]float64) Array {
	var out []float32
	for _, a := range v {
		for _, x := range a {
			out = append(out, float32(x))
		}
	}
	return FloatsOf(out, len(v), len(out)/max(1, len(v)))
}
