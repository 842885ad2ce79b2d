// Package store keeps a cluster's state: membership, jobs, placements and the log of events, in an etcd
// server inside the head's process. There is no second way to the data: etcd opens no port for clients, and
// one for the other heads only where there are several.
//
// A head writes in a [Term], which begins with a revision of its own. Every write names the term and is
// refused when another has begun since, so that of two heads that both believe to lead one changes nothing.
package store

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

// Store is a member of what keeps the state of a cluster. Its methods are safe for concurrent use.
type Store struct {
	e      *embed.Etcd
	c      *clientv3.Client
	served <-chan struct{}
}

// Peer is a member of a store that has several.
type Peer struct {
	Name string
	Addr string // host:port at which the other members reach it
}

// Options are those of Open.
type Options struct {
	Dir string // of etcd's data; made if missing
	Log string // file that etcd's own warnings go to
	// Peers are all members, of which this one is called Name; none for a store of one member.
	Peers []Peer
	Name  string
	Joins bool // it takes the place of a member that has lost its data: see Term.Replace
	// Identity is the directory with the certificate of this head, by which members know each other.
	Identity string
	Owner    string          // the name in the certificates of all members
	Ended    <-chan struct{} // closed when nobody waits for the store any more; may be nil
}

// The one member. It advertises a peer address that nobody has, since there are no peers: an address of
// its own would end with the directory that it lies in.
const (
	member  = "head"
	peerURL = "http://localhost:0"
	token   = "lfactor"
)

// name is this member's, and initial is the list of members as etcd has it.
func (o *Options) members() (name, own, initial string) {
	if len(o.Peers) == 0 {
		return member, peerURL, member + "=" + peerURL
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
func (o *Options) config() (*embed.Config, error) {
	name, own, initial := o.members()
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
func Open(o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := adopt(o.Dir); err != nil {
		return nil, fmt.Errorf("the restored state: %w", err)
	}
	if err := o.lost(); err != nil {
		return nil, err
	}
	c, err := o.config()
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
	return &Store{e: e, c: v3client.New(e.Server), served: e.Server.StopNotify()}, o.mark()
}

// begun is a file beside etcd's data that says that this member has had some.
const begun = "begun"

// mark notes that this member has data.
func (o *Options) mark() error {
	if len(o.Peers) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(o.Dir, begun), nil, 0o600)
}

// lost refuses to start a member again whose data are gone: it has voted for what it does not know any more,
// so that a majority with it may forget what was committed.
func (o *Options) lost() error {
	_, marked := os.Stat(filepath.Join(o.Dir, begun))
	_, data := os.Stat(filepath.Join(o.Dir, "etcd"))
	if marked == nil && errors.Is(data, os.ErrNotExist) {
		return fmt.Errorf("%s has lost what this head knew, and a head that has forgotten may not vote: "+
			"put its "+
			"directory back, or another head in its place with `lfactor cluster replace`", o.Dir)
	}
	return nil
}

// CloseAll ends the member where all others end too: none is left that could take the lead over.
func (s *Store) CloseAll() {
	s.e.Server.HardStop()
	s.Close()
}

// Close ends the member; its data stay. One that leads hands the lead over before.
func (s *Store) Close() {
	s.c.Close()
	s.e.Close()
}

// Failed is closed when the member has ended by itself, as after an error of its disk: the process has
// to end, and to start again from what is written.
func (s *Store) Failed() <-chan struct{} { return s.served }

// Leads reports whether this member leads the others; one alone always does.
func (s *Store) Leads() bool { return s.e.Server.Leader() == s.e.Server.MemberID() }

// Leader is the name of the member that leads, "" while none does.
func (s *Store) Leader() string {
	if m := s.e.Server.Cluster().Member(s.e.Server.Leader()); m != nil {
		return m.Name
	}
	return ""
}
