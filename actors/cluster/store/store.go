// Package store keeps a cluster's state: membership, jobs, placements and the log of events, in an etcd
// server inside the head's process. There is no second way to the data: etcd opens no port for clients.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// Measured settings: heartbeats of 50 ms and elections after 250 ms bring a new leader in 0.3 s
// (defaults: 1.3 s); half a gigabyte holds the events of years, compacted hourly.
const (
	heartbeatMS = 50
	electionMS  = 250
	quota       = 512 << 20
	snapshots   = 10000
	startLimit  = 60 * time.Second
	opLimit     = 10 * time.Second
)

// Store is the state of a cluster. Its methods are safe for concurrent use.
type Store struct {
	e      *embed.Etcd
	c      *clientv3.Client
	served <-chan struct{}
}

// Options are those of Open.
type Options struct {
	Dir string // of etcd's data; made if missing
	Log string // file that etcd's own warnings go to
}

// The one member. It advertises a peer address that nobody has, since there are no peers: an address of
// its own would end with the directory that it lies in.
const (
	member  = "head"
	peerURL = "http://localhost:0"
)

// Open starts the one member of a cluster of one head.
func Open(o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := adopt(o.Dir); err != nil {
		return nil, fmt.Errorf("the restored state: %w", err)
	}
	peer, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Name, c.Dir = member, filepath.Join(o.Dir, "etcd")
	c.TickMs, c.ElectionMs = heartbeatMS, electionMS
	c.SnapshotCount, c.QuotaBackendBytes = snapshots, quota
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	c.LogLevel, c.LogOutputs = "warn", []string{o.Log}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{*peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = nil, []url.URL{*peer}
	c.InitialCluster, c.InitialClusterToken = member+"="+peerURL, "lfactor"
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("the cluster's state in %s: %w", o.Dir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("the cluster's state in %s: %w", o.Dir, err)
	case <-time.After(startLimit):
		e.Close()
		return nil, fmt.Errorf("the cluster's state in %s does not open within %v: is the disk full or "+
			"stalled? %s has etcd's own words", o.Dir, startLimit, o.Log)
	}
	return &Store{e: e, c: v3client.New(e.Server), served: e.Server.StopNotify()}, nil
}

// Close ends the member; its data stay.
func (s *Store) Close() {
	s.c.Close()
	s.e.Close()
}

// Failed is closed when the member has ended by itself, as after an error of its disk: the process has
// to end, and to start again from what is written.
func (s *Store) Failed() <-chan struct{} { return s.served }

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), opLimit)
}

// ErrConflict is returned where a value has changed since it was read.
var ErrConflict = errors.New("the value has changed meanwhile")

// Put sets a key to v as JSON and returns the revision of the change, which no other change has.
func (s *Store) Put(key string, v any) (int64, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	ctx, cancel := limited()
	defer cancel()
	r, err := s.c.Put(ctx, key, string(text))
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", key, err)
	}
	return r.Header.Revision, nil
}

// Create sets a key that does not exist; ErrConflict if it does.
func (s *Store) Create(key string, v any) (int64, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	ctx, cancel := limited()
	defer cancel()
	r, err := s.c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=",
		0)).Then(clientv3.OpPut(key, string(text))).Commit()
	switch {
	case err != nil:
		return 0, fmt.Errorf("writing %s: %w", key, err)
	case !r.Succeeded:
		return 0, ErrConflict
	}
	return r.Header.Revision, nil
}

// Get reads a key into v; false if it does not exist.
func (s *Store) Get(key string, v any) (bool, error) {
	ctx, cancel := limited()
	defer cancel()
	r, err := s.c.Get(ctx, key)
	if err != nil || len(r.Kvs) == 0 {
		return false, err
	}
	return true, json.Unmarshal(r.Kvs[0].Value, v)
}

// Take removes a key and reads what it was into v; of several that take one key at once, one gets it.
func (s *Store) Take(key string, v any) (bool, error) {
	ctx, cancel := limited()
	defer cancel()
	r, err := s.c.Delete(ctx, key, clientv3.WithPrevKV())
	if err != nil || len(r.PrevKvs) == 0 {
		return false, err
	}
	return true, json.Unmarshal(r.PrevKvs[0].Value, v)
}

// Delete removes a key.
func (s *Store) Delete(key string) error {
	ctx, cancel := limited()
	defer cancel()
	_, err := s.c.Delete(ctx, key)
	return err
}

// List calls see with each key below a prefix, in order, and its value.
func (s *Store) List(prefix string, see func(key string, value []byte) error) error {
	ctx, cancel := limited()
	defer cancel()
	r, err := s.c.Get(ctx, prefix, clientv3.WithPrefix(),
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
func (s *Store) Backup(w io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	r, err := s.c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}
