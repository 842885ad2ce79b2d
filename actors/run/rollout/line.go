package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/wire"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// line is what two processes tell each other over an edge: messages as ranks send them.
type line struct {
	net.Conn
	mu    sync.Mutex
	enc   *wire.Encoder
	said  *wire.Decoder
	level string // of the other end's instructions
}

func newLine(c net.Conn) *line {
	return &line{Conn: c, enc: wire.NewEncoder(), said: wire.NewDecoder(c, tensor.NewPool("line", 0))}
}

// say sends a message, and releases what it carries.
func (l *line) say(m actors.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer links.Release(m)
	r, done := links.RecordOf(&m, 0, 0)
	defer done()
	b, _, _ := l.enc.Encode(r)
	_, err := b.WriteTo(l.Conn)
	if f, ok := l.Conn.(links.Flusher); ok && err == nil {
		err = f.Flush()
	}
	return err
}

// says is for who ends as well where nobody listens any more.
func (l *line) says(m actors.Message) { _ = l.say(m) }

// hear waits for a message.
func (l *line) hear() (m actors.Message, err error) {
	r, err := l.said.Decode()
	if err != nil {
		return m, err
	}
	if m = r.Message; r.Payload {
		m.Payload = links.NewPack(r.Names, r.Tensors...)
	}
	if r.Fault != "" {
		m.Err = errors.New(r.Fault)
	}
	return m, nil
}

// tell passes messages on, and asks the other end to end when no more come.
func (l *line) tell(ctx context.Context, in <-chan actors.Message) {
	for {
		select {
		case m, more := <-in:
			if !more {
				_ = l.Close() // it may have ended
				return
			}
			l.says(m) // who does not hear it has ended, which its reader sees
		case <-ctx.Done():
			return
		}
	}
}

// packed are drafts as a message carries them: four tensors of numbers each, and the rest as its text.
func packed(m actors.Message, all []draft) actors.Message {
	text, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("rollout: drafts that are no JSON: %v", err))
	}
	p := links.NewPack(nil)
	for i := range all {
		for _, v := range [][]int32{all[i].Prompt, all[i].Answer} {
			p.Tensors = append(p.Tensors, tensor.Of(tensor.I32, v, len(v)))
		}
		for _, v := range [][]float32{all[i].LogProbs, all[i].Values} {
			p.Tensors = append(p.Tensors, tensor.Of(tensor.F32, v, len(v)))
		}
	}
	m.Text, m.Payload = string(text), p
	return m
}

// unpacked is the inverse; it releases what the message carries.
func unpacked(m actors.Message) (all []draft, err error) {
	defer links.Release(m)
	if err = json.Unmarshal([]byte(m.Text), &all); err != nil {
		return nil, err
	}
	p, ok := m.Payload.(*links.Pack)
	if !ok || len(p.Tensors) != 4*len(all) {
		return nil, errors.New("drafts without their numbers")
	}
	for i := range all {
		t, d := p.Tensors[4*i:], &all[i]
		if t[0].DType != tensor.I32 || t[1].DType != tensor.I32 || t[2].DType != tensor.F32 || t[3].DType != tensor.F32 {
			return nil, errors.New("drafts whose numbers are others")
		}
		d.Prompt, d.Answer = append(d.Prompt, t[0].I32()...), append(d.Answer, t[1].I32()...) // nil where there are none
		d.LogProbs, d.Values = append(d.LogProbs, t[2].F32()...), append(d.Values, t[3].F32()...)
	}
	return all, nil
}
