package decide

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// A backup is older than what was revoked and removed since. A head keeps both beside its store as well, and
// what a restored state has brought back goes again.

// keyRemoved is before the keys of users and hosts that were removed.
const keyRemoved = "removed/"

// isRemoved notes that a user or a host is no more, by its key.
func (h *Head) isRemoved(key string) {
	h.removed[key] = h.now
	h.put(keyRemoved+key, h.now)
}

// isThere notes that a user or a host is there, again or for the first time.
func (h *Head) isThere(key string) {
	if _, was := h.removed[key]; was {
		delete(h.removed, key)
		h.write(keyRemoved+key, nil)
		h.say(h.revocations())
	}
}

// revocations is what is known beside the store.
func (h *Head) revocations() Revoked { return Revoked{slices.Clone(h.revoked), maps.Clone(h.removed)} }

// remember adds what a head knew to what its store has.
func (h *Head) remember(known Revoked) {
	for _, serial := range known.Serials {
		if !slices.Contains(h.revoked, serial) {
			h.revoked = append(h.revoked, serial)
			h.late = append(h.late, keyRevoked+serial)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(known.Removed)) {
		if at := known.Removed[key]; h.removed[key].Before(at) {
			h.removed[key] = at
			h.late = append(h.late, keyRemoved+key)
		}
	}
}

// settleRemoved writes down what the store had forgotten, and removes what it has brought back.
func (h *Head) settleRemoved() {
	for _, key := range h.late {
		if of, removed := strings.CutPrefix(key, keyRemoved); removed {
			h.put(key, h.removed[of])
		} else {
			h.put(key, "known before a restore")
		}
	}
	h.late = nil
	back := func(key string, made time.Time) bool {
		at, was := h.removed[key]
		if !was || made.After(at) {
			return false
		}
		h.write(key, nil)
		h.event(Event{Kind: "remove", Text: key + " was removed after the backup that the cluster has the state of, and " +
			"stays removed"})
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(h.users)) {
		if back(keyUsers+name, h.users[name].Made) {
			delete(h.users, name)
		}
	}
	for _, a := range h.inOrder() {
		if back(keyMembers+a.Name, a.Joined) {
			delete(h.agents, a.Name)
		}
	}
}
