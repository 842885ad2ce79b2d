package etcd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// member finds the member at a peer's address: 0 if there is none.
func (t *term) member(ctx context.Context, p store.Peer) (id uint64, learns bool, err error) {
	list, err := t.c.MemberList(ctx)
	if err != nil {
		return 0, false, err
	}
	for _, m := range list.Members {
		if slices.Contains(m.PeerURLs, "https://"+p.Addr) {
			return m.ID, m.IsLearner, nil
		}
	}
	return 0, false, nil
}

// Replace removes the member at an address, if there is one, and adds a new one there. It begins as
// a learner without a vote, so that an empty member cannot cost the majority.
func (t *term) Replace(p store.Peer) error {
	ctx, cancel := t.limited()
	defer cancel()
	old, _, err := t.member(ctx, p)
	if err != nil {
		return err
	}
	if old != 0 {
		if _, err := t.c.MemberRemove(ctx, old); err != nil {
			return fmt.Errorf("removing the member at %s: %w", p.Addr, err)
		}
	}
	return t.again(ctx, func() error {
		_, err := t.c.MemberAddAsLearner(ctx, []string{"https://" + p.Addr})
		return err
	})
}

// Promote gives the learner at an address its vote; one that has it already is left alone.
func (t *term) Promote(p store.Peer) error {
	ctx, cancel := t.limited()
	defer cancel()
	return t.again(ctx, func() error {
		id, learns, err := t.member(ctx, p)
		switch {
		case err != nil:
			return err
		case id == 0:
			return fmt.Errorf("there is no member at %s", p.Addr)
		case !learns:
			return nil
		}
		_, err = t.c.MemberPromote(ctx, id)
		return err
	})
}

// again repeats what etcd refuses for a moment: it changes members only where most have been connected for
// some seconds, and lets a member vote only when it is hardly behind.
func (t *term) again(ctx context.Context, f func() error) (err error) {
	for {
		if err = f(); err == nil {
			return nil
		}
		if machine.Pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}
