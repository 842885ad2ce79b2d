package head

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// lostSeat finds the head of a request that is not there.
func (h *Head) lostSeat(w http.ResponseWriter, r *http.Request) (x Seat, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.states() {
		switch {
		case s.Name != r.PathValue("name"):
		case s.State != "away":
			http.Error(w, fmt.Sprintf("head %s is there and %s: only one that is lost is replaced", s.Name,
				s.State), http.StatusConflict)
			return x, false
		default:
			return s.Seat, true
		}
	}
	http.Error(w, fmt.Sprintf("the cluster has no head %q; `lfactor cluster status` lists them",
		r.PathValue("name")), http.StatusNotFound)
	return x, false
}

// Replacement is what a head starts with that takes the place of a lost one: the files of its directory.
type Replacement struct {
	Files map[string][]byte `json:"files"`
}

// replace makes room for a head in the place of a lost one, and gives out what it starts with.
func (h *Head) replace(w http.ResponseWriter, r *http.Request) {
	x, ok := h.lostSeat(w, r)
	if !ok {
		return
	}
	files, err := h.filesOf(x)
	if err == nil {
		err = h.term.Replace(store.Peer{Name: x.Name, Addr: x.Peer})
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("head %s is not replaced: %v", x.Name, err), http.StatusServiceUnavailable)
		return
	}
	h.event(Event{Kind: "head", Text: fmt.Sprintf("%s was lost; another takes its place at %s", x.Name, x.Addr)})
	answer(w, Replacement{files})
}

// filesOf makes the directory of a head in another's place: a certificate of its own, the authority, and the
// list of heads.
func (h *Head) filesOf(x Seat) (files map[string][]byte, err error) {
	dir, err := os.MkdirTemp(h.o.Dir, "replace-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(x.Addr)
	if err != nil {
		return nil, err
	}
	cert, err := h.ca.Issue(trust.Subject{Name: trust.HeadName, Role: trust.Head, Hosts: []string{host}},
		&key.PublicKey, time.Now(), trust.HeadLife)
	if err != nil {
		return nil, err
	}
	err = errors.Join(trust.SaveIdentity(dir, h.ca.Cert, cert, key), h.ca.Save(dir),
		Seats{Self: x.Name, Heads: h.seats, Joins: true}.Save(dir))
	if err == nil && h.local != nil {
		err = h.local.Save(dir)
	}
	if err != nil {
		return nil, err
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files = map[string][]byte{}
	for _, f := range all {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		files[f.Name()] = text
	}
	return files, nil
}

// promote lets a head vote that takes another's place.
func (h *Head) promote(w http.ResponseWriter, r *http.Request) {
	for _, x := range h.seats {
		if x.Name != r.PathValue("name") {
			continue
		}
		if err := h.term.Promote(store.Peer{Name: x.Name, Addr: x.Peer}); err != nil {
			http.Error(w, fmt.Sprintf("head %s does not vote yet: %v", x.Name, err), http.StatusServiceUnavailable)
			return
		}
		h.event(Event{Kind: "head", Text: x.Name + " has what the other heads have, and votes"})
		answer(w, x)
		return
	}
	http.Error(w, fmt.Sprintf("the cluster has no head %q", r.PathValue("name")), http.StatusNotFound)
}
