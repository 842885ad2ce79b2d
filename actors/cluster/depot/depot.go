// Package depot lets processes of a job use the storage of checkpoints of other hosts: each agent serves
// that of its host, over edges of the cluster.
package depot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Run is what an edge that carries requests names as its run: no job has this name's hash.
var Run = [16]byte{'l', 'f', 'a', 'c', 't', 'o', 'r', ' ', 'd', 'e', 'p', 'o', 't'}

// Server answers requests for one host's storage.
type Server struct {
	storage checkpoint.Depot
	allowed func(dir string) bool
	as      func(dir string, do func())
	http    *http.Server
	conns   chan net.Conn
	done    chan struct{}
	addr    net.Addr

	mu    sync.Mutex
	terms map[string]int64 // by root: the newest that has begun a save there
}

// NewServer serves a host's storage to whoever is admitted as an agent's process; allowed says which
// directories belong to jobs of the cluster, and as does something with the rights of whose they are.
func NewServer(storage checkpoint.Depot, addr net.Addr, allowed func(dir string) bool,
	as func(dir string, do func())) *Server {
	s := &Server{storage: storage, allowed: allowed, as: as, conns: make(chan net.Conn), done: make(chan struct{}),
		addr: addr, terms: map[string]int64{}}
	mux := http.NewServeMux()
	s.routes(mux)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		IdleTimeout: time.Minute}
	go func() { _ = s.http.Serve(listener{s}) }() // ends with Close
	return s
}

// Take serves an edge that was accepted.
func (s *Server) Take(c *edge.Conn) {
	select {
	case s.conns <- flushing{c}:
	case <-s.done:
		c.Close()
	}
}

// Close ends all requests.
func (s *Server) Close() {
	close(s.done)
	_ = s.http.Close() // the process ends, or serves no more
}

// listener gives net/http the edges that were taken.
type listener struct{ s *Server }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.s.conns:
		return c, nil
	case <-l.s.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l listener) Close() error { return nil }

// Addr implements net.Listener.
func (l listener) Addr() net.Addr { return l.s.addr }

// flushing is an edge whose writes leave at once: net/http has buffers of its own.
type flushing struct{ *edge.Conn }

// Write implements net.Conn.
func (f flushing) Write(b []byte) (int, error) {
	n, err := f.Conn.Write(b)
	if err == nil {
		err = f.Flush()
	}
	return n, err
}

// ask is a request: what it is about, and the numbers of it.
type ask struct {
	dir, name      string
	step, at, keep int64
	shard          checkpoint.Shard
	body           io.Reader
	w              http.ResponseWriter
}

// manifestMost bounds a manifest that is sent: what a reader of checkpoints takes.
const manifestMost = 256 << 20

// routes serves the operations of the storage over HTTP, one path for each.
func (s *Server) routes(mux *http.ServeMux) {
	d := s.storage
	s.route(mux, "GET /sees", func(a *ask) error {
		sees, err := d.Sees(a.dir, a.name)
		if err == nil {
			err = json.NewEncoder(a.w).Encode(sees)
		}
		return err
	})
	s.route(mux, "GET /holdings", func(a *ask) error {
		h, err := d.Holdings(a.dir)
		if err == nil {
			err = json.NewEncoder(a.w).Encode(h)
		}
		return err
	})
	s.route(mux, "GET /fetch", func(a *ask) error { return send(a.w)(d.Fetch(a.dir, a.step, a.name)) })
	s.route(mux, "GET /record", func(a *ask) error { return send(a.w)(d.Record(a.dir, a.name)) })
	s.route(mux, "POST /begin", func(a *ask) error { return d.Begin(a.dir, a.step) })
	s.route(mux, "POST /store", func(a *ask) error { return d.Store(a.dir, a.step, a.shard, a.body) })
	s.route(mux, "POST /settle", func(a *ask) error {
		text, err := io.ReadAll(io.LimitReader(a.body, manifestMost))
		if err == nil {
			err = d.Settle(a.dir, a.step, text)
		}
		return err
	})
	s.route(mux, "POST /publish", func(a *ask) error { return d.Publish(a.dir, a.step, int(a.keep)) })
	s.route(mux, "POST /append", func(a *ask) error { return d.Append(a.dir, a.name, a.at, a.body) })
}

// send answers with a file.
func send(w http.ResponseWriter) func(f io.ReadCloser, err error) error {
	return func(f io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err = io.Copy(w, f); err != nil {
			panic(http.ErrAbortHandler) // whoever reads must not take what came for all
		}
		return nil
	}
}

// errNotOurs is the refusal of a directory. It may be a job's that this host has not heard of yet.
var errNotOurs = errors.New("is not a directory of a job of this cluster")

// route answers one kind of request. A request that writes carries the term of the process that leads the
// job: one whose place another has taken is refused, whatever it believes.
func (s *Server) route(mux *http.ServeMux, pattern string, do func(a *ask) error) {
	writes := strings.HasPrefix(pattern, "POST")
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n := func(key string) int64 {
			v, err := strconv.ParseInt(q.Get(key), 10, 64)
			if err != nil {
				return -1
			}
			return v
		}
		a := &ask{dir: q.Get("dir"), name: q.Get("name"), step: n("step"), at: n("at"), keep: n("keep"),
			shard: checkpoint.Shard{File: q.Get("name"), Bytes: n("bytes"), SHA256: q.Get("sha256")},
			body:  r.Body, w: w}
		status, err := http.StatusConflict, error(nil)
		switch {
		case !filepath.IsAbs(a.dir) || filepath.Clean(a.dir) != a.dir || !s.allowed(a.dir):
			status, err = http.StatusForbidden, fmt.Errorf("%q %w", a.dir, errNotOurs)
		case writes && !s.current(a.dir, n("term")):
			err = errors.New("a newer job, or a newer process that leads this one, writes there by now")
		default:
			err = errNotOurs
			s.as(a.dir, func() { err = do(a) })
		}
		if errors.Is(err, fs.ErrNotExist) {
			status = http.StatusNotFound
		}
		if err != nil {
			http.Error(w, err.Error(), status)
		}
	})
}

// current reports whether no newer term has written to a directory.
func (s *Server) current(dir string, term int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term < s.terms[dir] {
		return false
	}
	s.terms[dir] = term
	return true
}

// Client is a host's storage, asked for over the network. Its methods may be called from several goroutines.
type Client struct {
	host string
	term int64
	http *http.Client
}

var _ checkpoint.Depot = (*Client)(nil)

// NewClient asks the agent of a host, which takes edges at addr; term counts the processes that have led the job.
func NewClient(host, addr string, id *trust.Identity, term int64) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := edge.Dial(ctx, addr, host, id, edge.Greeting{Run: Run})
		if err != nil {
			return nil, err
		}
		return flushing{c}, nil
	}
	return &Client{host: host, term: term, http: &http.Client{Transport: &http.Transport{DialContext: dial,
		DisableCompression: true, IdleConnTimeout: 10 * time.Second, WriteBufferSize: 128 << 10}}}
}

// Close ends the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// patience is how long a host may take until a byte goes on: it may have to make a large file durable.
const patience = 60 * time.Second

// watched is a body that ends its request when it does not get on.
type watched struct {
	io.Reader
	stalled *time.Timer
	close   func() error
}

// Read implements io.Reader.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	w.stalled.Reset(patience)
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error { return w.close() }

// do asks once; the answer's body is the caller's to close.
func (c *Client) do(method, op string, q url.Values, body io.Reader) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(context.Background())
	stalled := time.AfterFunc(patience, cancel)
	end := func() error {
		stalled.Stop()
		cancel()
		return nil
	}
	q.Set("term", strconv.FormatInt(c.term, 10))
	if body != nil {
		body = &watched{body, stalled, func() error { return nil }}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.host+"/"+op+"?"+q.Encode(), body)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	r, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it has not got on for %v", patience)
		}
		_ = end() // the request has failed: its own error counts
		return nil, fmt.Errorf("host %s: %w", c.host, bare(err))
	}
	if r.StatusCode == http.StatusOK {
		return &watched{r.Body, stalled, func() error { return errors.Join(r.Body.Close(), end()) }}, nil
	}
	text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<12)) // what came of it is enough
	_ = errors.Join(r.Body.Close(), end())               // the answer is what counts
	err = fmt.Errorf("host %s: %s", c.host, strings.TrimSpace(string(text)))
	switch r.StatusCode {
	case http.StatusNotFound:
		err = fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	case http.StatusForbidden:
		err = errUnheard{err}
	}
	return nil, err
}

// errUnheard is the refusal of a directory by a host that may not have heard of the job yet.
type errUnheard struct{ error }

// bare takes off the method and the address that net/http puts before what happened.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// unheard is how long a host may take to hear of a job that has begun.
const unheard = 3 * time.Second

// get asks, also again a host that has not heard of the job yet.
func (c *Client) get(op string, q url.Values) (r io.ReadCloser, err error) {
	for until := time.Now().Add(unheard); ; {
		r, err = c.do("GET", op, q, nil)
		var early errUnheard
		if !errors.As(err, &early) || time.Now().After(until) {
			return r, err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// value asks for a value.
func (c *Client) value(op string, q url.Values, out any) error {
	r, err := c.get(op, q)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := json.NewDecoder(r).Decode(out); err != nil {
		return fmt.Errorf("host %s: its answer: %w", c.host, err)
	}
	return nil
}

// order asks for something to be done.
func (c *Client) order(op string, q url.Values, body io.Reader) error {
	r, err := c.do("POST", op, q, body)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}
