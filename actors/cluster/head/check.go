package head

import (
	"net/http"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// checkLimit is what the measurements of one agent may take.
const checkLimit = 60 * time.Second

// check lets every connected agent measure its ways to all others, one agent after the other, so that
// they do not measure each other.
func (h *Head) check(w http.ResponseWriter, r *http.Request) {
	h.checking.Lock()
	defer h.checking.Unlock()
	links := []control.Link{}
	h.mu.Lock()
	hosts := h.inOrder()
	h.mu.Unlock()
	for _, a := range hosts {
		links = append(links, h.checkFrom(a, hosts, r.Context().Done())...)
	}
	h.keepLinks(links)
	answer(w, links)
}

// checkFrom measures the ways from one host.
func (h *Head) checkFrom(a *agent, hosts []*agent, gone <-chan struct{}) []control.Link {
	h.mu.Lock()
	h.round++
	m := control.Message{Kind: control.Probe, Code: h.round, Peers: map[int]control.Peer{}}
	var out []control.Link
	for i, b := range hosts {
		switch {
		case b == a:
		case a.conn == nil || b.conn == nil:
			out = append(out, control.Link{From: a.Name, To: b.Name, Fault: "not connected with the head"})
		default:
			m.Peers[i] = control.Peer{Node: b.Name, Addr: b.info.Probe}
		}
	}
	wait := make(chan []control.Link, 1)
	h.probed = wait
	sent := len(m.Peers) > 0 && a.order(m)
	h.mu.Unlock()
	if !sent {
		return out
	}
	look := time.NewTicker(control.Beats)
	defer look.Stop()
	fault := ""
	for until := time.Now().Add(checkLimit); fault == ""; {
		select {
		case l := <-wait:
			slices.SortFunc(l, func(x, y control.Link) int { return byName(x.To, y.To) })
			return append(out, l...)
		case <-gone:
			fault = "not measured: nobody waits for it"
		case <-look.C:
			h.mu.Lock()
			if a.conn == nil {
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

// measured takes the answer of an agent.
func (h *Head) measured(m control.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Code == h.round && h.probed != nil {
		h.probed <- m.Links
		h.probed = nil
	}
}
