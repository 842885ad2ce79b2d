package head

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

func pid() int { return os.Getpid() }

// inOrder lists the hosts in the order of their names.
func (h *Head) inOrder() (out []*agent) {
	for _, a := range h.agents {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *agent) int { return byName(a.Name, b.Name) })
	return out
}

// JoinRequest is what a host says that has a token and no certificate yet. Its key stays with it.
type JoinRequest struct {
	Secret string `json:"secret"`
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Key    string `json:"key"` // public, PEM
	Binary string `json:"binary"`
}

// JoinAnswer makes a host a member.
type JoinAnswer struct {
	Cert  string   `json:"cert"`
	CA    string   `json:"ca"`
	Heads []string `json:"heads"` // their addresses
}

// Ticket is what the store keeps of a join token, under the hash of its secret.
type Ticket struct {
	Until time.Time `json:"until"`
	Made  time.Time `json:"made"`
}

// good says why a token is good no more.
func (t Ticket) good(now time.Time) error {
	if now.After(t.Until) {
		return fmt.Errorf("the token was good for %v and ended at %s: make another", TokenLife,
			t.Until.Format(time.RFC3339))
	}
	return nil
}

// TokenLife is how long a token may wait for its host.
const TokenLife = 10 * time.Minute

var goodName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func (h *Head) newToken(w http.ResponseWriter, r *http.Request) {
	t := trust.NewToken(h.ca.Hash(), h.self.Addr)
	now := time.Now().UTC()
	if _, err := h.st.Create(keyTokens+t.Key(), Ticket{now.Add(TokenLife), now}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, map[string]any{"token": t.String(), "until": now.Add(TokenLife)})
}

// join takes a host in that has a token. The token is spent with the first try that names it, whatever
// comes of it.
func (h *Head) join(w http.ResponseWriter, r *http.Request) {
	var q JoinRequest
	if !read(w, r, &q) {
		return
	}
	cert, err := h.admitHost(q)
	if err != nil {
		h.event(Event{Kind: "refused", Host: q.Name, Text: fmt.Sprintf("%s may not join as %.64q: %v",
			r.RemoteAddr, q.Name, err)})
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	answer(w, JoinAnswer{Cert: trust.EncodeCert(cert), CA: trust.EncodeCert(h.ca.Cert), Heads: h.addrs()})
}

func (h *Head) admitHost(q JoinRequest) (*x509.Certificate, error) {
	var t Ticket
	ok, err := h.st.Take(keyTokens+trust.SecretKey(q.Secret), &t)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errors.New("the token is unknown, or was used: `lfactor cluster token` on the head's " +
			"host makes another, for one host")
	case t.good(time.Now()) != nil:
		return nil, t.good(time.Now())
	case !goodName.MatchString(q.Name) || q.Name == trust.HeadName:
		return nil, fmt.Errorf("%.64q is not a name for a host: letters, digits, dots and dashes, and not %q",
			q.Name, trust.HeadName)
	case q.Binary != h.o.Binary:
		return nil, fmt.Errorf("host %s has another binary (%.12s; the head has %.12s): copy the head's to "+
			"it", q.Name, q.Binary, h.o.Binary)
	}
	b, _ := pem.Decode([]byte(q.Key))
	if b == nil {
		return nil, errors.New("the key is not in PEM form")
	}
	k, err := x509.ParsePKIXPublicKey(b.Bytes)
	key, isEC := k.(*ecdsa.PublicKey)
	if err != nil || !isEC {
		return nil, errors.New("the key is no ECDSA key")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.agents[q.Name]; old != nil && old.conn != nil {
		return nil, fmt.Errorf("the cluster has a host %s already, and it is connected: give this one "+
			"another name with --name", q.Name)
	}
	cert, err := h.ca.Issue(trust.Subject{Name: q.Name, Role: trust.Agent, Hosts: []string{q.Addr}}, key,
		time.Now(), trust.NodeLife)
	if err != nil {
		return nil, err
	}
	return cert, h.enter(q.Name, trust.Serial(cert))
}

// enter writes a host into the list of members.
func (h *Head) enter(name, serial string) error {
	a := &agent{Member: Member{Name: name, Joined: time.Now().UTC(), Serial: serial}, since: time.Now()}
	if _, err := h.st.Put(keyMembers+name, a.Member); err != nil {
		return err
	}
	h.agents[name] = a
	return nil
}

const enrolFile = "members.json"

// Enroll lets a head begin with members: those that `cluster up` has made certificates for, by their
// names, with the serial numbers of these.
func Enroll(dir string, serials map[string]string) error {
	text, err := json.Marshal(serials)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, enrolFile), text, 0o600)
}

// enrolled takes the members that Enroll has left, once.
func (h *Head) enrolled() error {
	name := filepath.Join(h.o.Dir, enrolFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var serials map[string]string
	if err := json.Unmarshal(text, &serials); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var done bool
	if _, err := h.st.Get(keyEnrolled, &done); err != nil {
		return err
	}
	if !done { // of several heads with the list the first takes it
		for n, serial := range serials {
			if err := h.enter(n, serial); err != nil {
				return err
			}
		}
		if _, err := h.st.Put(keyEnrolled, true); err != nil {
			return err
		}
	}
	return os.Remove(name)
}

// host finds the host of a request, with the lock held where ok.
func (h *Head) host(w http.ResponseWriter, r *http.Request) (a *agent, ok bool) {
	h.mu.Lock()
	if a = h.agents[r.PathValue("name")]; a == nil {
		h.mu.Unlock()
		http.Error(w, fmt.Sprintf("the cluster has no host %s; `lfactor cluster status` lists them",
			r.PathValue("name")), http.StatusNotFound)
		return nil, false
	}
	return a, true
}

// drain takes no new process to a host, or with back=1 does again. Jobs that have it are asked to make
// their step durable and to end; they start again elsewhere.
func (h *Head) drain(w http.ResponseWriter, r *http.Request) {
	a, ok := h.host(w, r)
	if !ok {
		return
	}
	defer h.mu.Unlock()
	a.Drained = r.URL.Query().Get("back") != "1"
	if _, err := h.st.Put(keyMembers+a.Name, a.Member); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text := "host " + a.Name + " takes processes again"
	if a.Drained {
		text = "host " + a.Name + " is drained: it takes no new process"
	}
	h.eventLocked(Event{Kind: "drain", Host: a.Name, Text: text})
	if a.Drained {
		h.clear(a)
	}
	go h.schedule()
	answer(w, a.Member)
}

// removeHost ends a host's membership: its certificate is revoked everywhere and its agent ends.
func (h *Head) removeHost(w http.ResponseWriter, r *http.Request) {
	a, ok := h.host(w, r)
	if !ok {
		return
	}
	defer h.mu.Unlock()
	if _, err := h.st.Put(keyRevoked+a.Serial, a.Name); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := h.st.Delete(keyMembers + a.Name); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	a.order(control.Message{Kind: control.Quit, Code: 1})
	delete(h.agents, a.Name)
	h.tellHosts()
	h.revoked = append(h.revoked, a.Serial)
	if err := h.id.Revoke(h.revoked); err != nil {
		h.logf("! the list of revoked certificates: %v", err)
	}
	for _, other := range h.agents {
		other.order(control.Message{Kind: control.Revoke, Revoked: h.revoked})
	}
	for _, j := range h.jobs {
		for n := range j.Procs {
			if p := &j.Procs[n]; j.State == Running && p.Host == a.Name && p.alive() {
				h.procEnded(j, n, "was lost with its host "+a.Name+", which was removed", -1)
			}
		}
	}
	h.eventLocked(Event{Kind: "remove", Host: a.Name, Text: "host " + a.Name +
		" is removed and its certificate revoked"})
	answer(w, a.Member)
}

func (h *Head) backup(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := h.st.Backup(w); err != nil {
		h.logf("! backup: %v", err)
	}
}
