package head

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// checkLimit is what the measurements of one agent may take.
const checkLimit = 60 * time.Second

// Of so many hosts every way is measured, one host after the other; of more a sample.
const (
	checkAll   = 9
	checkTurns = 8 // ways from each host, and to each, in a sample
)

// strides are the turns of a sample of n hosts: in each, every host measures the way to the one so many
// places behind it in the order of names, all at once. So no two measure the way to one host, or from one,
// and a check takes as long of a thousand hosts as of ten.
func strides(n int) (out []int) {
	turns := min(n-1, checkTurns)
	for k := range max(0, turns) {
		out = append(out, 1+k*(n-1)/turns)
	}
	return out
}

// check lets every connected agent measure its ways to all others, one agent after the other, so that
// they do not measure each other; of many hosts it takes a sample.
func (h *Head) check(w http.ResponseWriter, r *http.Request) {
	h.checking.Lock()
	defer h.checking.Unlock()
	links := []control.Link{}
	h.mu.Lock()
	hosts := h.m.Hosts()
	h.mu.Unlock()
	if len(hosts) <= checkAll {
		for _, a := range hosts {
			links = append(links, h.checkFrom(a, hosts, r.Context().Done())...)
		}
	} else {
		for _, by := range strides(len(hosts)) {
			links = append(links, h.checkTurn(hosts, by, r.Context().Done())...)
		}
	}
	h.keepLinks(links)
	answer(w, links)
}

// checkTurn measures one way from each host, all at once.
func (h *Head) checkTurn(hosts []Host, by int, gone <-chan struct{}) []control.Link {
	out := make([][]control.Link, len(hosts))
	var all sync.WaitGroup
	for i, a := range hosts {
		all.Go(func() { out[i] = h.checkFrom(a, []Host{hosts[(i+by)%len(hosts)]}, gone) })
	}
	all.Wait()
	return slices.Concat(out...)
}

// checkFrom measures the ways from one host.
func (h *Head) checkFrom(a Host, hosts []Host, gone <-chan struct{}) []control.Link {
	h.mu.Lock()
	h.round++
	m := control.Message{Kind: control.Probe, Code: h.round, Peers: map[int]control.Peer{}}
	var out []control.Link
	from := h.linkOf(a.Name)
	for i, b := range hosts {
		switch {
		case b.Name == a.Name:
		case from == nil || h.linkOf(b.Name) == nil:
			out = append(out, control.Link{From: a.Name, To: b.Name, Fault: "not connected with the head"})
		default:
			m.Peers[i] = control.Peer{Node: b.Name, Addr: b.Probe}
		}
	}
	wait := make(chan []control.Link, 1)
	h.probed[m.Code] = wait
	defer func() {
		h.mu.Lock()
		delete(h.probed, m.Code)
		h.mu.Unlock()
	}()
	if len(m.Peers) > 0 {
		from.order(m)
	}
	h.mu.Unlock()
	if len(m.Peers) == 0 {
		return out
	}
	look := time.NewTicker(control.Beats)
	defer look.Stop()
	fault := ""
	for until := time.Now().Add(checkLimit); fault == ""; {
		select {
		case l := <-wait:
			slices.SortFunc(l, func(x, y control.Link) int { return decide.ByName(x.To, y.To) })
			return append(out, l...)
		case <-gone:
			fault = "not measured: nobody waits for it"
		case <-look.C:
			h.mu.Lock()
			if h.linkOf(a.Name) == nil {
				fault = "the head has lost " + a.Name + " meanwhile"
			} else if time.Now().After(until) {
				fault = "not measured within " + checkLimit.String()
			}
			h.mu.Unlock()
		}
	}
	for _, p := range m.Peers {
		out = append(out, control.Link{From: a.Name, To: p.Node, Fault: fault})
	}
	return out
}

// linkOf is the connection of a host, nil where it has none.
func (h *Head) linkOf(host string) *link {
	conn, _ := h.m.Conn(host)
	return h.links[conn]
}

// measured takes the answer of an agent.
func (h *Head) measured(m control.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if wait := h.probed[m.Code]; wait != nil {
		wait <- m.Links
		delete(h.probed, m.Code)
	}
}

// linksName is the file in a head's directory that keeps what `lfactor cluster check` has measured last.
const linksName = "links.json"

// keepLinks remembers what was measured, also for a head that is started again.
func (h *Head) keepLinks(links []control.Link) {
	h.step(decide.Measured{Links: links})
	text, err := json.Marshal(links)
	if err == nil {
		err = os.WriteFile(filepath.Join(h.o.Dir, linksName), text, 0o600)
	}
	if err != nil {
		h.o.logf("what was measured of the links is kept until this head ends: %v", err)
	}
}

// knownLinks are those that an earlier head has kept; none where they cannot be read.
func knownLinks(dir string) (links []control.Link) {
	text, err := os.ReadFile(filepath.Join(dir, linksName))
	if err != nil || json.Unmarshal(text, &links) != nil {
		return nil
	}
	return links
}
