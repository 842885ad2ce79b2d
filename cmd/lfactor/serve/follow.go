package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/serve"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/trained"
)

// followEach is how often a run's folder is looked at for a newer checkpoint.
const followEach = time.Second

// follower has a run's newer checkpoints take the place of the one that is served.
type follower struct {
	from source
	at   string // the checkpoint whose weights answer
}

// followed is nil where nothing is followed.
func followed(from source, o serve.Options) (*follower, error) {
	if !from.follow {
		return nil, nil
	}
	if o.Train != nil {
		return nil, exit.Usagef("serve: --follow goes without --train: adapters are trained on the weights that they began with")
	}
	at, err := checkpoint.Latest(from.path)
	if err != nil {
		return nil, exit.Usagef("serve: --follow wants the checkpoints of a run: %v", err)
	}
	return &follower{from, at}, nil
}

// follow begins to look; what it gives ends it.
func (f *follower) follow(c *cobra.Command, s *serve.Server, options []trained.Option) (end func()) {
	if f == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(c.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			select {
			case <-time.After(followEach):
				f.look(c, s, options)
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-done }
}

// look takes a newer checkpoint if there is one. One that cannot be read is told of once.
func (f *follower) look(c *cobra.Command, s *serve.Server, options []trained.Option) {
	at, err := checkpoint.Latest(f.from.path)
	if err != nil || at == f.at { // a run that saves may be replacing the name just now
		return
	}
	f.at = at
	m, err := trained.Open(at, f.from.tokenizer, options...)
	if err == nil {
		defer m.Close() // the engine has copies of its weights
		err = s.Replace(m)
	}
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "warning: answers stay with the weights that they have: %s: %v\n", at, err)
		return
	}
	fmt.Fprintf(c.ErrOrStderr(), "answers begin with %s\n", at)
}
