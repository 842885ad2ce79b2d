// Package etcd keeps a cluster's state (package store) in an etcd server inside the head's process. There is
// no second way to the data: etcd opens no port for clients, and one for the other heads only where there
// are several. Only the process that serves as a head imports it.
package etcd

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/lfactor/lfactor/actors/cluster/store"
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

// member is a member of what keeps the state of a cluster.
type member struct {
	e      *embed.Etcd
	c      *clientv3.Client
	served <-chan struct{}
	dir    string // where its term is written down
}

// The one member. It advertises a peer address that nobody has, since there are no peers: an address of
// its own would end with the directory that it lies in.
const (
	alone   = "head"
	peerURL = "http://localhost:0"
	token   = "lfactor"
)

// members are the name and the address of this member, and the list of all as etcd has it.
func members(o store.Options) (name, own, initial string) {
	if len(o.Peers) == 0 {
		return alone, peerURL, alone + "=" + peerURL
	}
	var all []string
	for _, p := range o.Peers {
		at := "https://" + p.Addr
		if p.Name == o.Name {
			own = at
		}
		all = append(all, p.Name+"="+at)
	}
	return o.Name, own, strings.Join(all, ",")
}

// config is etcd's for these options.
func config(o store.Options) (*embed.Config, error) {
	name, own, initial := members(o)
	peer, err := url.Parse(own)
	if err != nil {
		return nil, err
	}
	nowhere, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Name, c.Dir = name, filepath.Join(o.Dir, "etcd")
	c.TickMs, c.ElectionMs = heartbeatMS, electionMS
	c.SnapshotCount, c.QuotaBackendBytes = snapshots, quota
	c.MaxRequestBytes, c.MaxTxnOps = store.MostBytes+1<<20, store.MostOps+1
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	c.LogLevel, c.LogOutputs = "warn", []string{o.Log}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{*peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = nil, []url.URL{*nowhere}
	c.InitialCluster, c.InitialClusterToken = initial, token
	if o.Joins {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	if len(o.Peers) > 0 {
		c.ListenPeerUrls = []url.URL{*peer}
		c.TlsMinVersion = "TLS1.3"
		// agents have certificates of this authority too: the name tells heads from them
		c.PeerTLSInfo = transport.TLSInfo{CertFile: filepath.Join(o.Identity, "cert.pem"),
			KeyFile:       filepath.Join(o.Identity, "key.pem"),
			TrustedCAFile: filepath.Join(o.Identity, "ca.pem"), ClientCertAuth: true,
			AllowedCNs: []string{o.Owner}, SkipClientSANVerify: true}
	}
	return c, nil
}

// Open starts this member. Where there are several, it waits until most of them are there.
func Open(o store.Options) (store.Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := adopt(o.Dir); err != nil {
		return nil, fmt.Errorf("the restored state: %w", err)
	}
	if err := lost(o); err != nil {
		return nil, err
	}
	c, err := config(o)
	if err != nil {
		return nil, err
	}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("the cluster's state in %s: %w", o.Dir, err)
	}
	limit := time.After(startLimit)
	if len(o.Peers) > 0 {
		limit = nil // it depends on other hosts when most of the members are there
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-o.Ended:
		e.Close()
		return nil, errors.New("the cluster's state was not opened: nobody waits for it any more")
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("the cluster's state in %s: %w", o.Dir, err)
	case <-limit:
		e.Close()
		return nil, fmt.Errorf("the cluster's state in %s does not open within %v: is the disk full or "+
			"stalled? %s has etcd's own words", o.Dir, startLimit, o.Log)
	}
	return &member{dir: o.Dir, e: e, c: v3client.New(e.Server), served: e.Server.StopNotify()}, mark(o)
}

// begun is a file beside etcd's data that says that this member has had some.
const begun = "begun"

// mark notes that this member has data.
func mark(o store.Options) error {
	if len(o.Peers) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(o.Dir, begun), nil, 0o600)
}

// lost refuses to start a member again whose data are gone: it has voted for what it does not know any more,
// so that a majority with it may forget what was committed.
func lost(o store.Options) error {
	_, marked := os.Stat(filepath.Join(o.Dir, begun))
	_, data := os.Stat(filepath.Join(o.Dir, "etcd"))
	if marked == nil && errors.Is(data, os.ErrNotExist) {
		return fmt.Errorf("%s has lost what this head knew, and a head that has forgotten may not vote: put its "+
			"directory back, or another head in its place with `lfactor cluster replace`", o.Dir)
	}
	return nil
}

// CloseAll ends the member without handing its leadership over, since all others end too.
func (s *member) CloseAll() {
	s.e.Server.HardStop()
	s.Close()
}

// Close closes the client before the server that it speaks to.
func (s *member) Close() {
	s.c.Close()
	s.e.Close()
}

func (s *member) Failed() <-chan struct{} { return s.served }

func (s *member) Leads() bool { return s.e.Server.Leader() == s.e.Server.MemberID() }

// Leader is the name of the member that leads, or nothing while there is none.
func (s *member) Leader() string {
	if m := s.e.Server.Cluster().Member(s.e.Server.Leader()); m != nil {
		return m.Name
	}
	return ""
}
