package head

import (
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// attend is the connection of an agent: it says hello, hears what it is to do, and tells what happens
// on its host.
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
	a, why := h.admit(who.Name, trust.Serial(leaf), hello, c)
	if why != "" {
		h.event(Event{Kind: "refused", Host: who.Name, Text: fmt.Sprintf("agent %s at %s refused: %s",
			who.Name, c.Remote(), why)})
		_ = c.Send(control.Message{Kind: control.Welcome, Text: why}) // it may have gone
		return
	}
	done := make(chan struct{})
	go a.write(c, a.send, done)
	err = h.listen(a, c, leaf)
	close(done)
	h.away(a, c, err)
}

const dialLimit = 10 * time.Second

// admit takes an agent in, or says why not.
func (h *Head) admit(name, serial string, m control.Message, c *control.Conn) (*agent, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.agents[name]
	switch {
	case a == nil:
		return nil, "this host is not a member any more: `lfactor cluster join` takes it in again"
	case m.Info.Binary != h.o.Binary:
		return nil, fmt.Sprintf("host %s runs another binary (lfactor %s, %.12s; the head has lfactor %s, "+
			"%.12s): `lfactor cluster up` pushes one to all", name,
			m.Info.Version, m.Info.Binary, h.o.Version, h.o.Binary)
	case a.conn != nil && m.Info.Pid != a.info.Pid:
		return nil, fmt.Sprintf("an agent of host %s is connected already, pid %d", name, a.info.Pid)
	}
	if a.conn != nil { // the same one, whose old connection has ended unseen
		a.conn.Close()
	}
	if a.lost != nil {
		a.lost.Stop()
	}
	a.quiet = false
	back := a.info.Pid == m.Info.Pid && a.info.Pid != 0
	a.info, a.conn, a.since, a.Serial = *m.Info, c, time.Now(), serial
	a.skew = time.Since(time.Unix(0, m.Info.Clock))
	if a.leaving && !back {
		a.leaving, a.Drained = false, false // it comes back to take part
	}
	a.send = make(chan control.Message, 1<<12)
	a.send <- control.Message{Kind: control.Welcome, Revoked: h.revoked, Epoch: h.st.Number(),
		Procs: h.written(m.Procs)}
	text := fmt.Sprintf("host %s joined from %s, agent pid %d", name, c.Remote(), m.Info.Pid)
	if back {
		text = fmt.Sprintf("host %s is connected again", name)
	}
	h.eventLocked(Event{Kind: "join", Host: name, Text: text})
	h.tellHosts()
	h.match(a, m.Procs)
	go h.schedule()
	return a, ""
}

// write sends an agent what is for it, and a beat when there is nothing.
func (a *agent) write(c *control.Conn, send chan control.Message, done chan struct{}) {
	beat := time.NewTicker(control.Beats)
	defer beat.Stop()
	for {
		m := control.Message{Kind: control.Beat}
		select {
		case <-done:
			return
		case m = <-send:
		case <-beat.C:
		}
		if c.Send(m) != nil {
			c.Close()
			return
		}
	}
}

// listen hears an agent until it is silent or gone.
func (h *Head) listen(a *agent, c *control.Conn, leaf *x509.Certificate) error {
	var hush hush
	for last := time.Now(); ; {
		m, err := c.Hear(func(q control.Quiet) error {
			suspect, err := hush.judge(q)
			if suspect {
				h.suspect(a, c, q.For)
			}
			return err
		})
		if err != nil {
			return err
		}
		now := time.Now()
		hush.gap, last = max(hush.gap, now.Sub(last)), now
		h.heardAgain(a, c, hush.gap)
		switch m.Kind {
		case control.Beat:
			if m.Info != nil {
				h.mu.Lock()
				a.info, a.skew = *m.Info, time.Since(time.Unix(0, m.Info.Clock))
				h.mu.Unlock()
			}
		case control.Output:
			h.output(m)
		case control.Leaving:
			h.mu.Lock()
			a.leaving, a.Drained = true, true
			h.eventLocked(Event{Kind: "drain", Host: a.Name, Text: "host " + a.Name +
				" leaves: its agent was asked to end"})
			h.clear(a)
			h.mu.Unlock()
		case control.Because:
			h.because(m)
		case control.Probed:
			h.measured(m)
		case control.Renew:
			h.renew(a, leaf)
		default:
			h.fromProc(a, m)
		}
	}
}

// hush judges an agent that says nothing: on a machine with more work than processors, by how long it was
// silent before and came back.
type hush struct{ gap time.Duration }

// limit is how long an agent may be silent and is not suspect.
func (u hush) limit() time.Duration {
	return min(control.HeadSilence, max(control.Silence, 3*u.gap))
}

// judge says whether an agent is suspect, and whether it is lost. A host that acknowledges nothing is lost
// when the grace has passed too. One that does is there, and its agent is stopped or waits for a processor:
// it may take until control.Stopped, since its processes go on and their leader hears them by itself.
func (u hush) judge(q control.Quiet) (suspect bool, err error) {
	if q.Dead >= u.limit()+grace || q.For >= control.Stopped {
		err = control.Silent(q.For)
	}
	return q.For >= u.limit(), err
}

// suspect notes that an agent is silent. Nothing new is given to it, and what it has stays where it is.
func (h *Head) suspect(a *agent, c *control.Conn, quiet time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.conn != c || a.quiet || h.ending {
		return
	}
	a.quiet = true
	h.eventLocked(Event{Kind: "suspect", Host: a.Name, Text: fmt.Sprintf("host %s: %v", a.Name,
		control.Silent(quiet))})
	h.tellHosts()
	go h.revive(a.Name)
}

// heardAgain notes that a suspect agent says something.
func (h *Head) heardAgain(a *agent, c *control.Conn, gap time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.conn != c || !a.quiet {
		return
	}
	a.quiet = false
	h.eventLocked(Event{Kind: "join", Host: a.Name, Text: fmt.Sprintf(
		"host %s is heard again: its agent was silent for %v", a.Name, gap.Round(10*time.Millisecond))})
	h.tellHosts()
	go h.schedule()
}

// away notes that an agent's connection has ended. Its processes are lost when it is not back within
// the grace, or was given that already.
func (h *Head) away(a *agent, c *control.Conn, err error) {
	wait, why := grace, control.Why(err)
	if _, ok := err.(control.Silent); ok {
		wait = 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.conn != c {
		return // it has a newer one
	}
	known := a.quiet
	a.conn, a.since, a.quiet = nil, time.Now(), false
	if h.ending || h.agents[a.Name] != a {
		return
	}
	if !known {
		h.eventLocked(Event{Kind: "suspect", Host: a.Name, Text: fmt.Sprintf("host %s: %s", a.Name, why)})
		h.tellHosts()
	}
	a.lost = time.AfterFunc(wait, func() { h.gone(a, why) })
	go h.revive(a.Name)
}

// gone declares a host lost, and with it its processes.
func (h *Head) gone(a *agent, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.conn != nil || h.ending {
		return
	}
	h.eventLocked(Event{Kind: "lost", Host: a.Name, Text: fmt.Sprintf("host %s is lost: %s", a.Name, why)})
	go h.revive(a.Name)
	for _, j := range h.jobs {
		for n := range j.Procs {
			if p := &j.Procs[n]; p.Host == a.Name && p.alive() {
				h.procEnded(j, n, fmt.Sprintf("was lost with its host %s (%s)", a.Name, why), -1)
			}
		}
	}
	go h.schedule()
}

// heard reports whether an agent is connected and says something.
func (a *agent) heard() bool { return a.conn != nil && !a.quiet }

// order sends a message to an agent's host, if it is connected.
func (a *agent) order(m control.Message) bool {
	if a == nil || a.conn == nil {
		return false
	}
	select {
	case a.send <- m:
		return true
	default: // thousands wait: it does not read, and its silence ends it
		a.conn.Close()
		return false
	}
}

// tellHosts tells all agents which hosts are connected, and the directories of jobs that are not over.
func (h *Head) tellHosts() {
	m := control.Message{Kind: control.Hosts, Hosts: map[string]string{}}
	for n, a := range h.agents {
		if a.heard() {
			m.Hosts[n] = a.info.Probe
		}
	}
	for _, j := range h.sorted() {
		if j.State != Ended {
			m.Dirs = append(m.Dirs, j.Spec.Keep...)
		}
	}
	for _, a := range h.inOrder() {
		a.order(m)
	}
}

// renew gives an agent a certificate that begins now, for the key it has.
func (h *Head) renew(a *agent, leaf *x509.Certificate) {
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return // no certificate of ours has another kind
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	cert, err := h.ca.Issue(trust.Subject{Name: a.Name, Role: trust.Agent, Hosts: hostsOf(leaf)}, key,
		time.Now(), trust.NodeLife)
	if err != nil {
		h.logf("! a new certificate for %s: %v", a.Name, err)
		return
	}
	a.order(control.Message{Kind: control.Renewed, Text: trust.EncodeCert(cert)})
}

// hostsOf lists the names and addresses in a certificate.
func hostsOf(c *x509.Certificate) []string {
	out := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}
