package control

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// LeaderHeader names the address of the head that leads, in an answer of one that does not.
const LeaderHeader = "Lfactor-Head"

// Upgrade is the protocol that an agent's connection changes to.
const Upgrade = "lfactor-agent/1"

const dialLimit = 5 * time.Second

// Dial opens a connection of messages with a path of the head at addr.
func Dial(ctx context.Context, addr string, id *trust.Identity, path string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, err := dial(ctx, addr, id.Client(trust.HeadName, trust.Head), path)
	if trust.HasEnded(err) { // the head may give another
		c, err = dial(ctx, addr, id.Ended(trust.HeadName, trust.Head), path)
	}
	return c, err
}

func dial(ctx context.Context, addr string, how *tls.Config, path string) (*Conn, error) {
	d := tls.Dialer{Config: how}
	c, err := machine.WithSpare(func() (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) })
	if err != nil {
		return nil, err
	}
	machine.TryOften(c.(*tls.Conn).NetConn())
	if err := c.SetDeadline(time.Now().Add(dialLimit)); err != nil {
		return nil, err
	}
	req := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", path,
		trust.HeadName, Upgrade)
	if _, err := io.WriteString(c, req); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the head at %s: %w", addr, err), c.Close())
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 512)) // what came of it is enough
		return nil, errors.Join(fmt.Errorf("the head at %s: %s", addr, strings.TrimSpace(string(text))), c.Close())
	}
	return NewConn(c, r), c.SetDeadline(time.Time{})
}

// Accept turns a request of an agent into a connection of messages.
func Accept(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	if r.Header.Get("Upgrade") != Upgrade {
		return nil, fmt.Errorf("want the protocol %s: put one binary on all hosts", Upgrade)
	}
	h, ok := w.(http.Hijacker)
	if !ok {
		return nil, errors.New("the connection cannot change its protocol")
	}
	c, rw, err := h.Hijack()
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Upgrade + "\r\n\r\n"
	if _, err := io.WriteString(c, switching); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return NewConn(c, rw.Reader), nil
}

// Client asks the head.
type Client struct {
	mu       sync.Mutex
	addrs    []string // the one that answered last is the first
	http     *http.Client
	patience time.Duration // with a head that starts again
}

// NewClient asks the head at one of addrs as id; the first that answers is used.
func NewClient(addrs []string, id *trust.Identity) *Client {
	c := newClient(addrs, id.Client(trust.HeadName, trust.Head))
	c.patience = 2 * time.Second
	if len(addrs) > 1 {
		c.patience = 8 * time.Second // most heads may be lost for a moment, and one that is silent takes its time
	}
	return c
}

// NewJoiner asks the head of a token, which may be asked to join and no more.
func NewJoiner(t trust.Token) *Client { return newClient([]string{t.Addr}, t.Joiner()) }

// newClient makes a client that tries the addresses of all heads. The empty map of protocols turns HTTP/2 off.
func newClient(addrs []string, conf *tls.Config) *Client {
	limit := dialLimit
	if len(addrs) > 1 {
		limit = 2 * time.Second // one on a lost host never answers
	}
	// The same limit holds for reaching a host and for the handshake.
	d := &net.Dialer{Timeout: limit}
	return &Client{addrs: slices.Clone(addrs), http: &http.Client{Transport: &http.Transport{TLSClientConfig: conf,
		DialContext:         d.DialContext,
		TLSHandshakeTimeout: limit, TLSNextProto: map[string]func(string,
			*tls.Conn) http.RoundTripper{}}}}
}

// Refused is an answer of the head that is no success.
type Refused struct {
	Status int
	Text   string
}

// Error implements error.
func (r *Refused) Error() string { return r.Text }

// ExitCode is what a command ends with that the head has refused.
func (r *Refused) ExitCode() int {
	switch r.Status {
	case http.StatusUnprocessableEntity:
		return exit.Fit
	case http.StatusBadRequest, http.StatusNotFound:
		return exit.Usage
	}
	return exit.Unreachable
}

// Open sends a request and returns the body of the answer, which the caller closes.
func (c *Client) Open(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	for until := time.Now().Add(c.patience); ; {
		r, err := c.try(ctx, method, path, body)
		again := errors.Is(err, errNoLeader) || errors.Is(err, syscall.ECONNREFUSED)
		if !again || time.Now().After(until) {
			return r, err
		}
		if machine.Pause(ctx, 50*time.Millisecond) != nil { // a head that was killed is back within a second
			return nil, ctx.Err()
		}
	}
}

// try sends a request to each address until one answers.
func (c *Client) try(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	var faults []error
	addrs := c.order()
	for i := 0; i < len(addrs); i++ {
		addr := addrs[i]
		// a head that has taken the request and does not answer is not waited for without end
		one, cancel := context.WithCancelCause(ctx)
		late := time.AfterFunc(limitOf(path), func() {
			cancel(fmt.Errorf("the head at %s has taken the request and not answered for %v", addr, limitOf(path)))
		})
		req, err := http.NewRequestWithContext(one, method, "https://"+addr+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Host = trust.HeadName
		r, err := c.http.Do(req)
		late.Stop()
		if err != nil {
			if ctx.Err() == nil && one.Err() != nil {
				err = context.Cause(one)
			}
			if cancel(nil); ctx.Err() != nil {
				return nil, ctx.Err()
			}
			faults = append(faults, err)
			continue
		}
		if r.StatusCode != http.StatusMisdirectedRequest {
			c.prefer(addr)
		}
		if r.StatusCode/100 == 2 {
			return canceled{r.Body, cancel}, nil
		}
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16)) // what came of it is enough
		r.Body.Close()
		cancel(nil)
		if r.StatusCode == http.StatusMisdirectedRequest {
			// it knows who leads, which a token of three heads may not
			if lead := r.Header.Get(LeaderHeader); lead != "" && !slices.Contains(addrs[:i+1], lead) {
				addrs = slices.DeleteFunc(addrs, func(a string) bool { return a == lead })
				addrs = slices.Insert(addrs, i+1, lead)
			}
			faults = append(faults, fmt.Errorf("%w: %s says: %s", errNoLeader, addr, strings.TrimSpace(string(text))))
			continue
		}
		return nil, &Refused{r.StatusCode, strings.TrimSpace(string(text))}
	}
	return nil, exit.With(fmt.Errorf("the cluster's head does not answer: %w", unwrapURL(faults)), exit.Unreachable)
}

// How long a head may take until it begins to answer.
const (
	answerLimit = 45 * time.Second // more than the head itself waits for its store
	checkLimit  = 10 * time.Minute // the ways between all hosts are measured meanwhile
)

func limitOf(path string) time.Duration {
	if path == "/v1/check" {
		return checkLimit
	}
	return answerLimit
}

// canceled is an answer's body that lets go of its request when it is closed.
type canceled struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (c canceled) Close() error {
	defer c.cancel(nil)
	return c.ReadCloser.Close()
}

// order is the addresses in the order in which they are tried.
func (c *Client) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.addrs)
}

// prefer makes an address the first that is tried.
func (c *Client) prefer(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.addrs, addr); i > 0 {
		c.addrs[0], c.addrs[i] = c.addrs[i], c.addrs[0]
	}
}

// errNoLeader is the answer of a head that follows another, or waits for most of the others.
var errNoLeader = errors.New("no head leads")

// unwrapURL takes off the method and the address that net/http puts before what happened.
func unwrapURL(faults []error) error {
	for i, err := range faults {
		var op *net.OpError
		if errors.As(err, &op) {
			faults[i] = op
		}
		if trust.HasEnded(err) {
			faults[i] = fmt.Errorf("%w: by its clock your certificate has ended or not begun, by this machine's it is good: set the clocks right", faults[i])
		}
	}
	return oneLine(faults)
}

// oneLine is several errors in one line.
type oneLine []error

// Error implements error.
func (o oneLine) Error() string {
	var out []string
	for _, err := range o {
		out = append(out, err.Error())
	}
	return strings.Join(out, "; ")
}

// Unwrap lets errors.Is find each.
func (o oneLine) Unwrap() []error { return o }

// Do sends a request and reads the answer into out, nil for none.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	ctx, end := context.WithTimeout(ctx, 2*limitOf(path))
	defer end()
	body, err := c.Open(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return exit.With(fmt.Errorf("the head's answer to %s: %w", path, err), exit.Unreachable)
	}
	return nil
}

// Lines reads an answer of many values, each into what next returns.
func (c *Client) Lines(ctx context.Context, path string, next func() any) error {
	body, err := c.Open(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); dec.More(); {
		if err := dec.Decode(next()); err != nil {
			return exit.With(fmt.Errorf("the head's answer to %s: %w", path, err), exit.Unreachable)
		}
	}
	return nil
}
