package decide

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// User is somebody who may ask the cluster, beside the one that has brought it up. Serials are those of the
// certificates that were issued to the user and have not ended, the newest last.
type User struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`
	Serials []string  `json:"serials"`
	Made    time.Time `json:"made"`
	Until   time.Time `json:"until"` // of the newest certificate
	// Dirs are the directories that the jobs of a submitter may read and write.
	Dirs []string `json:"dirs,omitempty" most:"64" each:"1024"`
	// Renewals are the certificates that the user has asked for since Day.
	Day      time.Time `json:"day,omitzero"`
	Renewals int       `json:"renewals,omitempty"`
}

// mostRenewals is how many certificates a user may ask for within a day: each revokes another, and lists of
// the revoked go to everybody.
const mostRenewals = 64

// keepSerials bounds how many certificates of a user count: one is renewed at half of its life.
const keepSerials = 4

// AddUser makes a user known who gets a certificate; one that is known already, with the same role, gets another.
type AddUser struct {
	Ask        int64
	Name, Role string
	Serial     string
	Until      time.Time
	Renews     bool     // the user must be known, and asks for itself
	Dirs       []string // that its jobs may use
}

func (in AddUser) ask() int64 { return in.Ask }

// apply enters a user or the renewal of its certificate. Only so many serials are kept; the oldest
// is revoked when it falls out, so that none stays valid unknown.
func (in AddUser) apply(h *Head) {
	u, known := h.users[in.Name]
	why := ""
	switch {
	case !goodName.MatchString(in.Name):
		why = fmt.Sprintf("%.64q is not a name for a user: letters, digits, dots and dashes, 63 at most", in.Name)
	case in.Renews && !known:
		why = fmt.Sprintf("the cluster knows no user %s", in.Name)
	case known && !in.Renews:
		why = fmt.Sprintf("there is a user %s already, with the role %s: revoke it first", in.Name, u.Role)
	case in.Renews && u.Role != in.Role:
		why = fmt.Sprintf("user %s has the role %s, not %s", in.Name, u.Role, in.Role)
	}
	for _, d := range in.Dirs {
		if !path.IsAbs(d) || path.Clean(d) == "/" {
			why = fmt.Sprintf("%.64q is no directory for jobs: want absolute paths below /", d)
		}
	}
	if in.Renews && why == "" {
		if h.now.Sub(u.Day) > 24*time.Hour {
			u.Day, u.Renewals = h.now, 0
		}
		if u.Renewals++; u.Renewals > mostRenewals {
			why = fmt.Sprintf("user %s has got %d certificates within a day: the next is due tomorrow", in.Name, mostRenewals)
		}
	}
	if why != "" {
		h.say(Answer{Ask: in.Ask, Err: &Refusal{Bad, why}})
		return
	}
	if !known {
		u = User{Name: in.Name, Role: in.Role, Made: h.now, Dirs: in.Dirs}
		h.event(Event{Kind: "user", Text: fmt.Sprintf("user %s may %s", in.Name, in.Role)})
	}
	u.Serials = append(slices.Clone(u.Serials), in.Serial)
	u.Until = in.Until
	for len(u.Serials) > keepSerials { // none counts that a later revocation would not know of
		h.put(keyRevoked+u.Serials[0], in.Name)
		h.revoke(u.Serials[0])
		u.Serials = u.Serials[1:]
	}
	h.users[in.Name] = u
	h.put(keyUsers+in.Name, u)
	h.isThere(keyUsers + in.Name)
	h.say(Answer{Ask: in.Ask})
}

// DropUser revokes a user's certificates everywhere.
type DropUser struct {
	Ask  int64
	Name string
}

func (in DropUser) ask() int64 { return in.Ask }

// apply removes a user and revokes all certificates that it has got.
func (in DropUser) apply(h *Head) {
	u, known := h.users[in.Name]
	if !known {
		h.say(Answer{Ask: in.Ask, Err: &Refusal{Missing,
			fmt.Sprintf("the cluster has no user %s; `lfactor cluster user list` lists them", in.Name)}})
		return
	}
	delete(h.users, in.Name)
	h.write(keyUsers+in.Name, nil)
	h.isRemoved(keyUsers + in.Name)
	for _, serial := range u.Serials {
		h.put(keyRevoked+serial, in.Name)
	}
	h.revoke(u.Serials...)
	h.event(Event{Kind: "user", Text: "user " + in.Name + " is removed and its certificates revoked"})
	h.say(Answer{Ask: in.Ask})
}

// revoke tells everybody of certificates that count no more.
func (h *Head) revoke(serials ...string) {
	h.revoked = append(h.revoked, serials...)
	h.say(h.revocations())
	for _, other := range h.inOrder() {
		h.order(other, control.Message{Kind: control.Revoke, Revoked: slices.Clone(h.revoked)})
	}
}

// Knows reports whether a user was made here: the one that has brought the cluster up was not.
func (h *Head) Knows(name string) bool {
	_, known := h.users[name]
	return known
}

// Users lists those that are known, by name.
func (h *Head) Users() (out []User) {
	for _, name := range slices.Sorted(maps.Keys(h.users)) {
		out = append(out, h.users[name])
	}
	return out
}
