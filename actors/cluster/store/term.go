package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keyLead is the key whose revision is the term.
const keyLead = "lead"

// Term is the time in which one head decides. Its methods are safe for concurrent use.
type Term struct {
	c      *clientv3.Client
	number int64
	ctx    context.Context
	end    context.CancelFunc
	over   chan struct{}
	once   sync.Once
}

// Lead begins a term, which ends all terms before it. Name is who leads.
func (s *Store) Lead(name string) (*Term, error) {
	t := &Term{c: s.c, over: make(chan struct{})}
	t.ctx, t.end = context.WithCancel(context.Background())
	ctx, cancel := t.limited()
	defer cancel()
	r, err := s.c.Put(ctx, keyLead, name)
	if err != nil {
		t.End()
		return nil, fmt.Errorf("beginning to lead: %w", err)
	}
	t.number = r.Header.Revision
	return t, nil
}

// Number is the term's: it is larger than that of any term before it.
func (t *Term) Number() int64 { return t.number }

// Over is closed when a write was refused because another term has begun.
func (t *Term) Over() <-chan struct{} { return t.over }

// End lets go of the term: what still waits for the store fails.
func (t *Term) End() { t.end() }

func (t *Term) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, opLimit)
}

// ErrConflict is returned where a value has changed since it was read.
var ErrConflict = errors.New("the value has changed meanwhile")

// ErrOver is returned where another head leads by now.
var ErrOver = errors.New("another head leads the cluster by now")

// write carries an operation out if this term is the newest and if holds.
func (t *Term) write(op clientv3.Op, more ...clientv3.Cmp) (*clientv3.TxnResponse, error) {
	ctx, cancel := t.limited()
	defer cancel()
	mine := clientv3.Compare(clientv3.ModRevision(keyLead), "=", t.number)
	r, err := t.c.Txn(ctx).If(append(more, mine)...).Then(op).Else(clientv3.OpGet(keyLead)).Commit()
	if err != nil || r.Succeeded {
		return r, err
	}
	if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 && kvs[0].ModRevision == t.number {
		return nil, ErrConflict
	}
	t.once.Do(func() { close(t.over) })
	return nil, ErrOver
}

// Put sets a key to v as JSON and returns the revision of the change, which no other change has.
func (t *Term) Put(key string, v any) (int64, error) { return t.put(key, v) }

// Create sets a key that does not exist; ErrConflict if it does.
func (t *Term) Create(key string, v any) (int64, error) {
	return t.put(key, v, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
}

func (t *Term) put(key string, v any, more ...clientv3.Cmp) (int64, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	r, err := t.write(clientv3.OpPut(key, string(text)), more...)
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", key, err)
	}
	return r.Header.Revision, nil
}

// Get reads a key into v; false if it does not exist.
func (t *Term) Get(key string, v any) (bool, error) {
	ctx, cancel := t.limited()
	defer cancel()
	r, err := t.c.Get(ctx, key)
	if err != nil || len(r.Kvs) == 0 {
		return false, err
	}
	return true, json.Unmarshal(r.Kvs[0].Value, v)
}

// Take removes a key and reads what it was into v; of several that take one key at once, one gets it.
func (t *Term) Take(key string, v any) (bool, error) {
	r, err := t.write(clientv3.OpDelete(key, clientv3.WithPrevKV()))
	if err != nil {
		return false, err
	}
	old := r.Responses[0].GetResponseDeleteRange().PrevKvs
	if len(old) == 0 {
		return false, nil
	}
	return true, json.Unmarshal(old[0].Value, v)
}

// Delete removes a key.
func (t *Term) Delete(key string) error {
	_, err := t.write(clientv3.OpDelete(key))
	return err
}

// List calls see with each key below a prefix, in order, and its value.
func (t *Term) List(prefix string, see func(key string, value []byte) error) error {
	ctx, cancel := t.limited()
	defer cancel()
	r, err := t.c.Get(ctx, prefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
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
func (t *Term) Backup(w io.Writer) error {
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
