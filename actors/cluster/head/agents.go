package head

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// agentPath is where agents connect, those too whose certificates have ended.
const agentPath = "/v1/agent"

// attend is the connection of an agent: it says hello, hears what it is to do, and tells what happens on its host.
func (h *Head) attend(w http.ResponseWriter, r *http.Request) {
	leaf := r.TLS.PeerCertificates[0]
	who, err := trust.Owner(leaf)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	c, err := control.Accept(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUpgradeRequired)
		return
	}
	defer c.Close()
	hello, err := c.Receive(dialLimit)
	if err != nil || hello.Kind != control.Hello || hello.Info == nil {
		return
	}
	l := newLink(c)
	conn := h.open(l)
	defer h.shut(conn)
	_, err = h.ask(r.Context(), func(n int64) decide.Input {
		return decide.Connect{Ask: n, Conn: conn, Name: who.Name, Serial: trust.Serial(leaf), Until: leaf.NotAfter,
			Remote: c.Remote(), Hello: hello, Wrote: h.taken(hello.Procs)}
	})
	if err != nil {
		_ = c.Send(control.Message{Kind: control.Welcome, Text: err.Error()}) // it may have gone
		return
	}
	if now := time.Now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) { // or this clock was put back
		h.renew(who.Name, l, leaf)
	}
	done := make(chan struct{})
	go l.write(done)
	l.more = control.More(h.members())
	err = h.listen(who.Name, conn, l, leaf)
	close(done)
	_, silent := err.(control.Silent)
	h.step(decide.Gone{Host: who.Name, Conn: conn, Why: control.Why(err), Silent: silent})
}

// open gives a connection its number.
func (h *Head) open(l *link) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.numbers++
	h.links[h.numbers] = l
	return h.numbers
}

// shut forgets a connection that has ended.
func (h *Head) shut(conn int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.links, conn)
}

const dialLimit = 10 * time.Second

// write sends an agent what is for it, and a beat when there is nothing.
func (l *link) write(done chan struct{}) {
	beat := time.NewTicker(control.Beats)
	defer beat.Stop()
	for {
		all := l.take()
		if len(all) == 0 {
			select {
			case <-done:
				return
			case <-l.wake:
				continue
			case <-beat.C:
				all = []control.Message{{Kind: control.Beat}}
			}
		}
		for _, m := range all {
			if m.Kind == control.Welcome {
				beat.Reset(control.Beats + time.Duration(m.At))
			}
			if l.c.Send(m) != nil {
				l.c.Close()
				return
			}
		}
	}
}

// mostWaiting is how many messages may wait for an agent that does not read.
const mostWaiting = 1 << 12

// order queues a message. One that is out of its bounds would end the connection at the agent's end: whoever
// asked for it gets no answer.
func (l *link) order(m control.Message) {
	if m.Check() != nil {
		return
	}
	l.mu.Lock()
	full := len(l.queue) == mostWaiting
	if !full {
		l.queue = append(l.queue, m)
	}
	l.mu.Unlock()
	if full { // thousands wait: it does not read, and its silence ends it
		l.c.Close()
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// take empties the queue.
func (l *link) take() []control.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.queue
	l.queue = nil
	return all
}

// listen hears an agent until it is silent or gone.
func (h *Head) listen(host string, conn int64, l *link, leaf *x509.Certificate) error {
	hush := decide.Hush{More: l.more}
	quiet, told := false, false
	for last := time.Now(); ; {
		m, err := l.c.Hear(func(q control.Quiet) error {
			suspect, err := hush.Judge(q)
			if suspect && !quiet {
				quiet = true
				h.step(decide.Quiet{Host: host, Conn: conn, For: q.For})
			}
			return err
		})
		var u *control.Unbounded
		if errors.As(err, &u) {
			if !told { // it may be flooded with them
				told = true
				h.event(Event{Kind: "refused", Host: host, Text: fmt.Sprintf("host %s says what is left out: %v",
					host, u)})
			}
			continue
		}
		if err != nil {
			return err
		}
		now := time.Now()
		hush.Gap, last = max(hush.Gap, now.Sub(last)), now
		if quiet {
			quiet = false
			h.step(decide.Heard{Host: host, Conn: conn, Gap: hush.Gap})
		}
		switch m.Kind {
		case control.Beat:
			if m.Info != nil { // else it has nothing to say
				h.step(decide.Said{Host: host, Conn: conn, M: m})
			}
		case control.Output:
			h.output(host, m)
		case control.Because:
			h.because(m)
		case control.Probed:
			h.measured(m)
		case control.Renew:
			h.renew(host, l, leaf)
		default:
			h.step(decide.Said{Host: host, Conn: conn, M: m})
		}
	}
}

// renew gives an agent a certificate that begins now, for the key it has.
func (h *Head) renew(host string, l *link, leaf *x509.Certificate) {
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return // no certificate of ours has another kind
	}
	cert, err := h.ca.Issue(trust.Subject{Name: host, Role: trust.Agent, Hosts: hostsOf(leaf)}, key,
		time.Now(), trust.NodeLife)
	if err != nil {
		h.logf("! a new certificate for %s: %v", host, err)
		return
	}
	l.order(control.Message{Kind: control.Renewed, Text: trust.EncodeCert(cert)})
}

// hostsOf lists the names and addresses in a certificate.
func hostsOf(c *x509.Certificate) []string {
	out := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}
