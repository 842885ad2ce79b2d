package decide

import (
	"maps"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// few is how many hosts all hear of each other: of more, those do that have a process.
const few = 100

// tellSoon is tellHosts; of many agents that come one after the other it tells all at once, after a time that grows with
// those that are to hear it: what it takes then grows with their number and not with its square.
func (h *Head) tellSoon() {
	switch n := h.Connected(); {
	case n < few:
		h.tellHosts()
	case h.telling == 0:
		h.telling = h.timer()
		h.say(Wake{h.telling, time.Duration(n) * time.Millisecond / 10})
	}
}

// tellHosts tells all agents which hosts are connected, and the directories of jobs that are not over: one
// that was told before hears what has changed. Of many hosts, those without a process hear of the directories only: what
// is told grows with the hosts and not with their square.
func (h *Head) tellHosts() {
	all := h.inOrder()
	now, change := map[string]string{}, control.Message{Kind: control.Change, Hosts: map[string]string{}}
	for _, a := range all {
		if !a.heard() {
			continue
		}
		now[a.Name] = a.info.Probe
		if was, ok := h.told[a.Name]; !ok || was != a.info.Probe {
			change.Hosts[a.Name] = a.info.Probe
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.told)) {
		if _, ok := now[name]; !ok {
			change.Gone = append(change.Gone, name)
		}
	}
	for _, j := range h.sorted() {
		for _, d := range j.Spec.Keep {
			if j.State == Ended {
				break
			}
			if change.Dirs = append(change.Dirs, d); j.Spec.Governed() {
				change.Users = append(append(change.Users, make([]string, len(change.Dirs)-1-len(change.Users))...), j.Spec.User)
			}
		}
	}
	lone := control.Message{Kind: control.Change, Dirs: change.Dirs, Users: change.Users}
	moved := !slices.Equal(change.Dirs, h.dirs) || !slices.Equal(change.Users, h.owners)
	same := !moved && len(change.Hosts)+len(change.Gone) == 0
	h.told, h.dirs, h.owners = now, change.Dirs, change.Users
	busy := h.busy()
	for _, a := range all {
		switch {
		case !a.told && len(all) >= few && !busy[a.Name]:
			if moved || !a.kept {
				a.kept = h.order(a, lone)
			}
		case !a.told:
			a.told = h.order(a, control.Message{Kind: control.Hosts, Hosts: now, Dirs: change.Dirs, Users: change.Users})
		case !same:
			h.order(a, change)
		}
	}
}

// busy are the hosts that have a process, or are about to.
func (h *Head) busy() map[string]bool {
	out := map[string]bool{}
	for _, j := range h.jobs { //lfvet:order a set
		for _, p := range j.Procs {
			if j.State == Running {
				out[p.Host] = true
			}
		}
	}
	return out
}

// tellHost tells an agent which hosts there are, if it has not heard.
func (h *Head) tellHost(a *agent) {
	if a != nil && a.heard() && !a.told {
		a.told = h.order(a, control.Message{Kind: control.Hosts, Hosts: h.told, Dirs: h.dirs, Users: h.owners})
	}
}
