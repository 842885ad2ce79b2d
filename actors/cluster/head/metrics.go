package head

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// metrics is the cluster for Prometheus, in its text format.
func (h *Head) metrics(w http.ResponseWriter, r *http.Request) {
	s, err := h.now(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	h.mu.Lock()
	events := map[string]int{}
	for _, e := range h.m.Events(0) {
		events[e.Kind]++
	}
	links := h.m.Links()
	h.mu.Unlock()
	jobs := map[State]int{}
	for _, j := range s.Jobs {
		jobs[j.State]++
	}
	var m samples
	m.family("lfactor_head_start_seconds", "Unix time at which this head has started.")
	m.add("", s.Up.Unix())
	m.family("lfactor_head", "1 for the state that a head is in, where there are several.")
	for _, x := range s.Heads {
		m.add(fmt.Sprintf("head=%q,state=%q", x.Name, x.State), 1)
	}
	m.family("lfactor_host", "1 for the state that a host is in.")
	for _, x := range s.Hosts {
		m.add(fmt.Sprintf("host=%q,state=%q", x.Name, x.State), 1)
	}
	m.perHost(s.Hosts, "lfactor_host_memory_bytes", "Memory of a host.", func(x Host) any { return x.Memory })
	m.perHost(s.Hosts, "lfactor_host_disk_free_bytes", "Free space where an agent writes.",
		func(x Host) any { return x.Disk })
	m.perHost(s.Hosts, "lfactor_host_clock_skew_seconds", "How far a host's clock is behind the head's.",
		func(x Host) any { return x.Skew.Seconds() })
	m.family("lfactor_jobs", "Jobs by their state.")
	for _, k := range []State{Queued, Running, Ended} {
		m.add(fmt.Sprintf("state=%q", k), jobs[k])
	}
	m.perJob(s.Jobs, "lfactor_job_epoch", "Epoch of a running job's placement.", func(j Job) any { return j.Epoch })
	m.perJob(s.Jobs, "lfactor_job_restarts", "How often a running job has started again.",
		func(j Job) any { return j.Restarts })
	m.family("lfactor_events", "Events in the log, by their kind.")
	for _, k := range slices.Sorted(maps.Keys(events)) {
		m.add(fmt.Sprintf("kind=%q", k), events[k])
	}
	m.family("lfactor_link_rtt_seconds", "Round trip between two hosts, as it was measured last.")
	for _, l := range links {
		m.add(fmt.Sprintf("from=%q,to=%q", l.From, l.To), l.RTT.Seconds())
	}
	m.family("lfactor_link_bytes_per_second", "Rate from one host to another, as it was measured last; 0 "+
		"for a closed way.")
	for _, l := range links {
		m.add(fmt.Sprintf("from=%q,to=%q", l.From, l.To), l.Rate)
	}
	h.halfOpen.metrics(&m)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write([]byte(m.String())) // whoever asked may have gone
}

// samples are metrics as Prometheus reads them: all of a family together, behind its name.
type samples struct {
	strings.Builder
	name string
}

// family begins a metric in the text form of Prometheus.
func (m *samples) family(name, help string) {
	m.name = name
	fmt.Fprintf(m, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
}

// add writes one value of the metric, with labels or without.
func (m *samples) add(labels string, v any) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(m, "%s%s %v\n", m.name, labels, v)
}

// perHost writes one metric with a value for each host.
func (m *samples) perHost(hosts []Host, name, help string, value func(Host) any) {
	m.family(name, help)
	for _, x := range hosts {
		m.add(fmt.Sprintf("host=%q", x.Name), value(x))
	}
}

// perJob writes one metric with a value for each job that runs.
func (m *samples) perJob(jobs []Job, name, help string, value func(Job) any) {
	m.family(name, help)
	for _, j := range jobs {
		if j.State == Running {
			m.add(fmt.Sprintf("job=%q", j.ID), value(j))
		}
	}
}
