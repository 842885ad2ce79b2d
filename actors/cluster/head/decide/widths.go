package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// A job that has several replicas can go on with fewer where a host is lost and no other has room. Its leading process
// says with how many, and how much memory each process needs then; widths are these ways, the widest first.

// procs is how many processes a job has, with the replicas that it runs with.
func (j *Job) procs() int {
	if j.Width < len(j.Widths) {
		return j.Widths[j.Width].Procs
	}
	return j.Spec.Procs
}

// spec is what a job's processes are started with.
func (j *Job) spec() control.Spec {
	s := j.Spec
	if j.Width > 0 && j.Width < len(j.Widths) {
		w := j.Widths[j.Width]
		s.Procs = w.Procs
		s.Args = append(slices.Clone(s.Args), w.Args...)
	}
	return s
}

// Narrow says that a job runs with fewer replicas than it was given, "" where it does not.
func (j *Job) Narrow() string {
	if j.Width == 0 || j.Width >= len(j.Widths) {
		return ""
	}
	return fmt.Sprintf(" with %s instead of %d", replicas(j.replicas()), j.Widths[0].Replicas)
}

// replicas is how many a job runs with.
func (j *Job) replicas() int { return j.Widths[j.Width].Replicas }

// holds reports whether hosts have the memory for a width's processes, placed as begin does.
func (h *Head) holds(w control.Width, hosts []string) bool {
	need := map[string]int64{}
	for n := range w.Procs {
		need[hosts[n*len(hosts)/w.Procs]] += w.Need(n)
	}
	for name, bytes := range need { //lfvet:order each for itself
		if bytes > h.roomOf(name) {
			return false
		}
	}
	return true
}

// roomOf is the memory of a host that processes may fill; a host that does not say how much it has, has enough.
func (h *Head) roomOf(name string) int64 {
	a := h.agents[name]
	if a == nil || a.info.Memory == 0 {
		return 1 << 62
	}
	return h.o.Fill(a.info.Memory)
}

// hasRoom reports whether a host can take process n of a job beside those of the job that it has.
func (h *Head) hasRoom(j *Job, n int, host string) bool {
	if j.Width >= len(j.Widths) {
		return true // nobody has said what it needs
	}
	w := j.Widths[j.Width]
	need := w.Need(n)
	for i := range j.Procs {
		if p := &j.Procs[i]; i != n && p.Host == host && p.alive() {
			need += w.Need(i)
		}
	}
	return need <= h.roomOf(host)
}

// pick chooses how many replicas a queued job gets, and on which of the free hosts; why says what it waits
// for where it gets none.
func (h *Head) pick(j *Job, free []string) (width int, hosts []string, why string) {
	if h.there(j) == 0 {
		j.Avoid, j.Short = nil, nil // better there than nowhere: it ends if it cannot run there either
	}
	free = slices.DeleteFunc(free, func(n string) bool { return h.avoids(j, n) })
	if len(j.Widths) == 0 {
		want := j.Spec.Hosts
		if want == 0 {
			want = min(j.Spec.Procs, h.there(j))
		}
		if want = max(1, want); len(free) < want {
			return 0, nil, fmt.Sprintf("waits for %d hosts; %d are free", want, len(free))
		}
		return 0, h.arranged(j, free, min(want, j.Spec.Procs), j.Spec.Procs), ""
	}
	for k, w := range j.Widths {
		n := min(w.Procs, len(free))
		if j.Spec.Hosts > 0 {
			n = min(n, j.Spec.Hosts)
		}
		if n == 0 {
			continue
		}
		if hosts := h.arranged(j, free, n, w.Procs); h.holds(w, hosts) {
			return k, hosts, ""
		}
		if h.holds(w, free[:n]) { // memory is scarcer than speed
			return k, free[:n], ""
		}
	}
	least := j.Widths[len(j.Widths)-1]
	return 0, nil, fmt.Sprintf("waits for room: with %s a process needs %s, and %d hosts are free",
		replicas(least.Replicas), gib(least.Need(0)), len(free))
}

// arranged are n hosts for a job, by measured links where there are some. With fewer replicas than were
// asked for the processes are others than the job has told of.
func (h *Head) arranged(j *Job, free []string, n, procs int) []string {
	if procs != j.Spec.Procs {
		return free[:n]
	}
	return arrange(free, n, procs, j.Spec.Talks, h.links)
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// replicas is the number with its noun, for events.
func replicas(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// noRoom is for a job of which process n has no host any more. The process that leads is told to make
// durable what the others hold, which may be more than what is: the job goes on when that has ended. Where
// the process is the one that leads, it goes on at once.
func (h *Head) noRoom(j *Job, n int, lost string) {
	why := fmt.Sprintf("no room for process %d, which was on %s and needs %s", n, lost,
		gib(j.Widths[j.Width].Need(n)))
	if n == 0 || !j.Procs[0].alive() {
		h.requeue(j, lost, fmt.Sprintf("job %s has %s: ", j.ID, why))
		return
	}
	j.Procs[n].NoRoom = why
	h.save(j)
	h.event(Event{Kind: "replan", Job: j.ID, Host: lost, Text: fmt.Sprintf("job %s has %s: it makes durable "+
		"what its other processes hold", j.ID, why)})
	h.tellPeers(j, "") // its host is none of the run's any more
	h.tellState(j, n)
}

// narrows reports whether a job is to end because a process has no host any more.
func (j *Job) narrows() bool {
	return slices.ContainsFunc(j.Procs, func(p Proc) bool { return p.NoRoom != "" })
}

// requeue queues a job again that goes on from what is durable, with as many replicas as there is room for;
// text says why.
func (h *Head) requeue(j *Job, lost, text string) {
	h.killAll(j)
	was := j.Width
	j.State, j.Move, j.Hosts, j.Leaders = Queued, false, nil, 0
	k, hosts, why := h.pick(j, h.free())
	switch {
	case hosts == nil:
		text += "it " + why
	case k == was:
		text += "it starts again on " + strings.Join(hosts, ", ")
	default:
		text += fmt.Sprintf("it goes on with %s instead of %d, from what is durable",
			replicas(j.Widths[k].Replicas), j.Widths[was].Replicas)
	}
	j.Why = why
	h.save(j)
	h.event(Event{Kind: "replan", Job: j.ID, Host: lost, Text: text})
	h.due = true
}

// noLead queues a job again whose leading process has no host any more: it goes on from what is durable when
// there is one.
func (h *Head) noLead(j *Job, lost string) {
	h.killAll(j)
	j.State, j.Move, j.Hosts, j.Leaders = Queued, false, nil, 0
	_, _, j.Why = h.pick(j, h.free())
	h.save(j)
	h.event(Event{Kind: "replan", Job: j.ID, Host: lost, Text: fmt.Sprintf("job %s has no host for the process "+
		"that leads it, which was on %s: it waits, and goes on from what is durable", j.ID, lost)})
	h.due = true
}

// takeWidths takes in what a job's leading process says of its replicas. One that runs with fewer knows less
// than the first.
func (h *Head) takeWidths(j *Job, all []control.Width) {
	if len(j.Widths) > 0 || len(all) == 0 || all[0].Procs != len(j.Procs) {
		return
	}
	size := 0
	for _, w := range all {
		if size += 16*len(w.Bytes) + sizeOf(w.Args); w.Procs < 1 || w.Replicas < 1 || len(w.Bytes) != w.Procs ||
			size > mostSaid {
			return // no leader of ours says so
		}
	}
	j.Widths, j.Width = all, 0
	h.save(j)
}

// widen lets jobs that run with fewer replicas than they could go on with more, if hosts have come that have
// room for them: such a job makes its step durable and starts again.
func (h *Head) widen() {
	for _, j := range h.sorted() {
		if j.State != Running || j.Width == 0 || j.Move || j.Stop || j.Width >= len(j.Widths) {
			continue
		}
		h.touch(keyJobs + j.ID)
		var mine []string
		for _, n := range j.Hosts {
			if a := h.agents[n]; a != nil && a.heard() && !a.Drained {
				mine = append(mine, n)
			}
		}
		hosts := append(mine, h.free()...)
		slices.SortFunc(hosts, ByName)
		k, _, why := h.pick(j, hosts)
		if why != "" || k >= j.Width {
			continue
		}
		h.event(Event{Kind: "replan", Job: j.ID, Text: fmt.Sprintf("job %s makes its step durable and goes "+
			"on with %s instead of %d: there is room for them", j.ID, replicas(j.Widths[k].Replicas),
			j.replicas())})
		h.move(j, 0)
	}
}
