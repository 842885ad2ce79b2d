package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// OpenEnv is an environment that is served by the protocol of OpenEnv (github.com/meta-pytorch/OpenEnv,
// src/openenv/core/env_server): a session is a connection to /ws.
type OpenEnv struct {
	URL string // of the server: http, https, ws or wss
	// Action is the key of an action that has what the model says, and Texts are the keys of an observation that are
	// said to it, one a line; dots lead into objects, and without any the whole observation is said as JSON.
	Action string
	Texts  []string
}

// sessions are where sessions of the server begin.
func (o *OpenEnv) sessions() (string, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return "", err
	}
	if u.Host == "" {
		return "", fmt.Errorf("%q names no server", o.URL)
	}
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	return u.JoinPath("ws").String(), nil
}

// Talks has at most so many sessions at once, and so much time for each answer.
func (o OpenEnv) Talks(sessions int, deadline time.Duration) *Talks {
	name := o.URL
	if u, err := url.Parse(name); err == nil {
		name = u.Redacted() // faults of answers have it
	}
	return newTalks(name, sessions, deadline, func(ctx context.Context) (party, error) {
		at, err := o.sessions()
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		c, _, err := websocket.Dial(ctx, at, nil)
		if err != nil {
			return nil, fmt.Errorf("no session begins: %w", err)
		}
		c.SetReadLimit(messageMost)
		s := &session{OpenEnv: o, conn: c, deadline: deadline, heard: make(chan []byte, 1), gone: make(chan struct{})}
		go s.hear()
		return s, nil
	})
}

// session is a connection, whose environment is nobody else's.
type session struct {
	OpenEnv
	conn     *websocket.Conn
	deadline time.Duration
	heard    chan []byte   // what has come, closed with the connection
	gone     chan struct{} // closed before heard
	err      error         // why it was closed, then
}

// dead implements party.
func (s *session) dead() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// hear takes what comes.
func (s *session) hear() {
	defer close(s.heard)
	for {
		_, text, err := s.conn.Read(context.Background())
		if err != nil {
			s.err = err
			close(s.gone)
			return
		}
		s.heard <- text // while nobody takes it nothing more is read
	}
}

// sessionMessage is what is said, both ways.
type sessionMessage struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// seedMost bounds seeds: environments give them to generators that take 32 bits, and some take 31.
const seedMost = 1 << 31

// turn implements party.
func (s *session) turn(ctx context.Context, q talkRequest) (x Turn, err error) {
	if len(s.heard) > 0 {
		return x, s.unasked(<-s.heard)
	}
	ask, err := s.asked(q)
	if err != nil {
		return x, err
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return x, err
	}
	late, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	for _, text := range [][]byte{text, mark} {
		if err := s.conn.Write(late, websocket.MessageText, text); err != nil {
			select {
			case text, there := <-s.heard: // which may say why
				if there {
					return x, s.unasked(text)
				}
			case <-late.Done():
			}
			return x, err
		}
	}
	answer, err := s.next(ctx, late)
	if err == nil {
		x, err = s.read(answer, q.Reset != nil)
	}
	if err == nil {
		err = s.marked(ctx, late)
	}
	return x, err
}

// mark is asked behind each request, as requests have no numbers: a server answers in order, so that what
// it says before the answer to this is all that it says to the request. An answer that is one too many,
// or late, is another session's from then on: this one ends.
var mark = []byte(`{"type": "state"}`)

// marked reads the answer to a mark, which an environment without a state may answer with an error.
func (s *session) marked(ctx, late context.Context) error {
	text, err := s.next(ctx, late)
	if err != nil {
		return fmt.Errorf("asked for its state behind its answer: %w", err)
	}
	var m struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := strict(text, &m); err != nil {
		return err
	}
	if m.Type != "state" && m.Type != "error" {
		return fmt.Errorf("it answers a request twice, or late: a message of the type %.40q comes before that of "+
			"its state", m.Type)
	}
	return nil
}

// next is what the server says next.
func (s *session) next(ctx, late context.Context) ([]byte, error) {
	select {
	case text, there := <-s.heard:
		if !there {
			return nil, fmt.Errorf("it ended the session: %w", s.err)
		}
		return text, nil
	case <-late.Done():
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("no answer within %v", s.deadline)
	}
}

// unasked is the error of a server that speaks before it is asked: what it says where that is an error.
func (s *session) unasked(text []byte) error {
	if _, err := s.read(text, true); err != nil {
		return err
	}
	return errors.New("it has said something that it was not asked for")
}

// asked is a request as the server reads it. A record's object reset goes along with the seed, whose own it may give.
func (s *session) asked(q talkRequest) (sessionMessage, error) {
	if q.Reset == nil {
		return sessionMessage{"step", map[string]string{s.Action: q.Step.Text}}, nil
	}
	data := map[string]json.RawMessage{"seed": fmt.Append(nil, q.Reset.Seed%seedMost)}
	if more, there := q.Reset.Record["reset"]; there {
		var own map[string]json.RawMessage // numbers as they are written
		if err := json.Unmarshal(more, &own); err != nil {
			return sessionMessage{},
				errors.New("the record's reset is no object, whose keys an environment is reset with")
		}
		maps.Copy(data, own)
	}
	return sessionMessage{"reset", data}, nil
}

// read makes a turn of what the server has said. What it says to a reset is the prompt, which is that of the data.
func (s *session) read(text []byte, reset bool) (x Turn, err error) {
	var m struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := strict(text, &m); err != nil {
		return x, err
	}
	if m.Type != "observation" {
		var why struct{ Message, Code string }
		if m.Type != "error" || json.Unmarshal(m.Data, &why) != nil {
			return x, fmt.Errorf("it says a message of the type %.40q, and no observation", m.Type)
		}
		said := &Refusal{fmt.Sprintf("%.500s (%.40s)", why.Message, why.Code)}
		if why.Code == "CAPACITY_REACHED" {
			return x, &full{said.Error() + "; it is to take rollout.processes sessions for each sampler"}
		}
		return x, said
	}
	var o struct {
		Observation map[string]json.RawMessage `json:"observation"`
		Reward      json.RawMessage            `json:"reward"`
		Done        *bool                      `json:"done"`
	}
	if err := strict(m.Data, &o); err != nil {
		return x, err
	}
	// a reward may be null
	if err := needs(part{"reward", o.Reward != nil}, part{"done", o.Done != nil}); err != nil {
		return x, err
	}
	x.Done = *o.Done
	if x.Reward, err = rewardOf(o.Reward); err != nil || reset {
		return x, err
	}
	if x.Text, err = s.said(o.Observation); err == nil && len(x.Text) > talkMost {
		err = fmt.Errorf("a text of %d bytes, more than %d", len(x.Text), talkMost)
	}
	return x, err
}

// rewardOf is a number, true or false, or nothing, which is 0.
func rewardOf(raw json.RawMessage) (float64, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case nil:
		return 0, nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			break
		}
		return v, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	}
	return 0, fmt.Errorf("the reward is %.80s", raw)
}

// said is what the model is told of an observation.
func (s *session) said(o map[string]json.RawMessage) (string, error) {
	if len(s.Texts) == 0 {
		b, err := json.Marshal(o) // in the order of its keys
		return string(b), err
	}
	var all []string
	for _, path := range s.Texts {
		at, raw := o, json.RawMessage(nil)
		for _, key := range strings.Split(path, ".") {
			var there bool
			if raw, there = at[key]; !there {
				return "", fmt.Errorf("its observation has no %s, which rollout.observation names", path)
			}
			at = nil
			_ = json.Unmarshal(raw, &at) // else it leads no further
		}
		var text *string
		if json.Unmarshal(raw, &text) != nil {
			all = append(all, string(raw))
		} else if text != nil {
			all = append(all, *text)
		}
	}
	return strings.Join(all, "\n"), nil
}

// kill implements party.
func (s *session) kill() {
	_ = s.conn.CloseNow() // it may have ended
	for range s.heard {   // so that whoever reads ends
	}
}

// because implements party.
func (s *session) because(err error) error { return err }
