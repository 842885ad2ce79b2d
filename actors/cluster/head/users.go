package head

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// UserRequest asks for a certificate. Its key stays with who asks.
type UserRequest struct {
	Name string     `json:"name"`
	Role trust.Role `json:"role"`
	Key  string     `json:"key"` // the public one, PKIX in PEM
	// Dirs are the directories that jobs of a user with the role submit may read and write.
	Dirs []string `json:"dirs,omitempty"`
}

// UserAnswer is what a user needs.
type UserAnswer struct {
	Cert string `json:"cert"`
	CA   string `json:"ca"`
}

// User is somebody whom `cluster user add` has made.
type User = decide.User

// newUser issues a certificate for a new user's key. The private key never leaves the user's machine.
func (h *Head) newUser(w http.ResponseWriter, r *http.Request) {
	var q UserRequest
	if !read(w, r, &q) {
		return
	}
	key, err := publicKey(q.Key)
	if err == nil && q.Role != trust.Admin && q.Role != trust.Submit && q.Role != trust.View {
		err = fmt.Errorf("%.32q is no role of users: admin, submit or view", q.Role)
	}
	if err != nil {
		refuse(w, &decide.Refusal{Cause: decide.Bad, Text: err.Error()})
		return
	}
	h.issue(w, r, decide.AddUser{Name: q.Name, Role: string(q.Role), Dirs: q.Dirs}, key)
}

// renewUser gives who asks a certificate that begins now, for the key that the present one has. The user
// that has brought the cluster up is known by its certificate alone.
func (h *Head) renewUser(w http.ResponseWriter, r *http.Request) {
	leaf := r.TLS.PeerCertificates[0]
	who, err := trust.Owner(leaf)
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if err != nil || !ok {
		refuse(w, &decide.Refusal{Cause: decide.Bad, Text: "no certificate of this cluster"})
		return
	}
	h.issue(w, r, decide.AddUser{Name: who.Name, Role: string(who.Role), Renews: true}, key)
}

// issue signs a certificate and enters it. It is answered only once its serial number is stored,
// because a certificate that nobody knows of could not be revoked.
func (h *Head) issue(w http.ResponseWriter, r *http.Request, u decide.AddUser, key *ecdsa.PublicKey) {
	now, role := time.Now(), trust.Role(u.Role)
	cert, err := h.ca.Issue(trust.Subject{Name: u.Name, Role: role}, key, now, trust.UserLife)
	if err != nil {
		refuse(w, &decide.Refusal{Cause: decide.Bad, Text: err.Error()})
		return
	}
	founds := false
	// The first administrator was made when the cluster was, and is entered nowhere.
	if u.Renews {
		err = h.look(r.Context(), func(m *decide.Head) { founds = role == trust.Admin && !m.Knows(u.Name) })
	}
	if err == nil && !founds {
		u.Serial, u.Until = trust.Serial(cert), cert.NotAfter.UTC()
		_, err = h.ask(r.Context(), func(n int64) decide.Input {
			u.Ask = n
			return u
		})
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, UserAnswer{Cert: trust.EncodeCert(cert), CA: trust.EncodeCert(h.ca.Cert)})
}

// listUsers serves the users; without any it is an empty list and not null.
func (h *Head) listUsers(w http.ResponseWriter, r *http.Request) {
	users := []User{}
	if err := h.look(r.Context(), func(m *decide.Head) { users = append(users, m.Users()...) }); err != nil {
		refuse(w, err)
		return
	}
	answer(w, users)
}

// dropUser removes a user and revokes its certificates.
func (h *Head) dropUser(w http.ResponseWriter, r *http.Request) {
	_, err := h.ask(r.Context(), func(n int64) decide.Input {
		return decide.DropUser{Ask: n, Name: r.PathValue("name")}
	})
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, struct{}{})
}

// renewEvery is how often a head looks whether its own certificate is to be renewed.
const renewEvery = time.Second // its host may have been suspended for long

// renewSelf keeps the head's own certificate young until ctx ends.
func renewSelf(ctx context.Context, id *trust.Identity, ca *trust.CA, now func() time.Time, every time.Duration,
	log func(string, ...any)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if id.Stale(trust.HeadLife) {
			if err := id.Renew(ca, now(), trust.HeadLife); err != nil {
				log("! a new certificate for this head: %v", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
