package etcd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lfactor/lfactor/actors/cluster/store"
)

// keyLead is the key whose revision is the term.
const keyLead = "lead"

// term is the time in which one head decides.
type term struct {
	c      *clientv3.Client
	number int64
	ctx    context.Context
	end    context.CancelFunc
	over   chan struct{}
	once   sync.Once
}

// Lead begins a term by writing the leader's name. The revision of that write numbers the term, so
// each term has a higher number than those before.
func (s *member) Lead(name string) (store.Term, error) {
	t := &term{c: s.c, over: make(chan struct{})}
	t.ctx, t.end = context.WithCancel(context.Background())
	ctx, cancel := t.limited()
	defer cancel()
	r, err := s.c.Put(ctx, keyLead, name)
	if err != nil {
		t.End()
		return nil, fmt.Errorf("beginning to lead: %w", err)
	}
	t.number = r.Header.Revision
	last := []byte(strconv.FormatInt(t.number, 10))
	if err := os.WriteFile(filepath.Join(s.dir, store.TermFile), last, 0o600); err != nil && s.e.Server.Logger() != nil {
		s.e.Server.Logger().Warn("the term is not written down: " + err.Error()) // a full disk ends no head
	}
	return t, nil
}

func (t *term) Number() int64 { return t.number }

func (t *term) Over() <-chan struct{} { return t.over }

func (t *term) End() { t.end() }

func (t *term) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, opLimit)
}

// Commit carries the operations out if this term is the newest.
func (t *term) Commit(ops []store.Op) (int64, error) {
	if err := t.ctx.Err(); err != nil { // etcd would carry it out, and then say that nobody waits for it
		return 0, err
	}
	ctx, cancel := t.limited()
	defer cancel()
	all := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		if op.Value == nil {
			all[i] = clientv3.OpDelete(op.Key)
		} else {
			all[i] = clientv3.OpPut(op.Key, string(op.Value))
		}
	}
	mine := clientv3.Compare(clientv3.ModRevision(keyLead), "=", t.number)
	r, err := t.c.Txn(ctx).If(mine).Then(all...).Commit()
	if err != nil {
		return 0, fmt.Errorf("writing %d changes: %w", len(ops), err)
	}
	if !r.Succeeded {
		t.once.Do(func() { close(t.over) })
		return 0, store.ErrOver
	}
	return r.Header.Revision, nil
}

// List shows the values below prefix in the order of their keys, read at one revision.
func (t *term) List(prefix string, see func(key string, value []byte) error) error {
	ctx, cancel := t.limited()
	defer cancel()
	r, err := t.c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if err != nil {
		return err
	}
	for _, kv := range r.Kvs {
		if err := see(strings.TrimPrefix(string(kv.Key), prefix), kv.Value); err != nil {
			return fmt.Errorf("%s: %w", kv.Key, err)
		}
	}
	return nil
}

// Backup writes a snapshot of the state, which Restore reads.
func (t *term) Backup(w io.Writer) error {
	ctx, cancel := context.WithTimeout(t.ctx, startLimit)
	defer cancel()
	r, err := t.c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}
