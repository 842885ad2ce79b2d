package serve

import (
	"context"
	"errors"
	"reflect"

	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// loop is that of the weights that answers begin with.
func (s *Server) loop() *loop { return s.at.Load() }

// Replace has answers begin with another model's weights; those under way end with the weights that they began with. The
// model is one of the same shape and tokens. Old weights are given back when their last answer has ended, and until
// then both take memory.
func (s *Server) Replace(m *trained.Trained) error {
	switch {
	case s.tenants != nil:
		return errors.New("adapters are trained on the weights that they began with")
	case !reflect.DeepEqual(s.m.Model.Spec, m.Model.Spec):
		return errors.New("the model has another shape")
	}
	if err := s.m.SpeaksAs(m.Tokenizer, "the other weights"); err != nil {
		return err
	}
	e, free, err := s.open(m)
	if err != nil {
		return err
	}
	old := s.at.Swap(newLoop(e, free, s.o, nil))
	s.replaced.Add(1)
	s.ending.Go(func() {
		_ = old.do(context.Background(), func() { old.Retired = true }) // or it has ended
		select {
		case <-old.done:
		case <-s.over:
			old.close()
		}
	})
	return nil
}

// submit queues requests with the weights of the time, and gives the loop that has them.
func (s *Server) submit(ctx context.Context, rs []*sample.Request) (*loop, error) {
	for {
		l := s.loop()
		err := l.submit(ctx, rs)
		if !errors.Is(err, queue.ErrClosed) || l == s.loop() {
			return l, err
		}
	}
}

// do has the loop of the time carry out f.
func (s *Server) do(ctx context.Context, f func(e *sample.Engine)) error {
	for {
		l := s.loop()
		err := l.do(ctx, func() { f(l.Engine) })
		if !errors.Is(err, queue.ErrClosed) || l == s.loop() {
			return err
		}
	}
}
