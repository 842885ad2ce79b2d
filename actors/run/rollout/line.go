package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/wire"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// line is what two processes tell each other, over pipes or an edge: messages as ranks send them.
type line struct {
	mu   sync.Mutex
	out  io.WriteCloser
	enc  *wire.Encoder
	said *wire.Decoder
}

func newLine(in io.Reader, out io.WriteCloser) *line {
	return &line{out: out, enc: wire.NewEncoder(), said: wire.NewDecoder(in, tensor.NewPool("line", 0))}
}

// say sends a message, and releases what it carries.
func (l *line) say(m actors.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer links.Release(m)
	r, done := links.RecordOf(&m, 0, 0)
	defer done()
	b, _, _ := l.enc.Encode(r)
	_, err := b.WriteTo(l.out)
	if f, ok := l.out.(links.Flusher); ok && err == nil {
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
				_ = l.out.Close() // it may have ended
				return
			}
			l.says(m) // who does not hear it has ended, which its reader sees
		case <-ctx.Done():
			return
		}
	}
}

// packed are drafts as a message carries them: their numbers as tensors, and the rest as its text.
func packed(m actors.Message, all []draft) actors.Message {
	var ids []int32
	var numbers []float32
	for i := range all {
		d := &all[i]
		d.Sizes = [4]int{len(d.Prompt), len(d.Answer), len(d.LogProbs), len(d.Values)}
		ids, numbers = append(append(ids, d.Prompt...), d.Answer...), append(append(numbers, d.LogProbs...), d.Values...)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("rollout: drafts that are no JSON: %v", err))
	}
	m.Text, m.Payload = string(text), links.NewPack([]string{"tokens", "numbers"},
		tensor.Of(tensor.I32, ids, len(ids)), tensor.Of(tensor.F32, numbers, len(numbers)))
	return m
}

// unpacked is the inverse; it releases what the message carries.
func unpacked(m actors.Message) (all []draft, err error) {
	defer links.Release(m)
	p, ok := m.Payload.(*links.Pack)
	if !ok || len(p.Tensors) != 2 || p.Tensors[0].DType != tensor.I32 || p.Tensors[1].DType != tensor.F32 {
		return nil, errors.New("drafts without their numbers")
	}
	if err := json.Unmarshal([]byte(m.Text), &all); err != nil {
		return nil, err
	}
	ids, numbers := slices.Clone(p.Tensors[0].I32()), slices.Clone(p.Tensors[1].F32())
	for i := range all {
		d := &all[i]
		cut(&d.Prompt, &ids, d.Sizes[0], &err)
		cut(&d.Answer, &ids, d.Sizes[1], &err)
		cut(&d.LogProbs, &numbers, d.Sizes[2], &err)
		cut(&d.Values, &numbers, d.Sizes[3], &err)
	}
	return all, err
}

// cut takes the first n of what is left.
func cut[T any](to, left *[]T, n int, err *error) {
	if n < 0 || n > len(*left) {
		*err = fmt.Errorf("drafts of %d numbers, of which %d are left", n, len(*left))
		return
	}
	if n > 0 {
		*to = (*left)[:n:n]
	}
	*left = (*left)[n:]
}
