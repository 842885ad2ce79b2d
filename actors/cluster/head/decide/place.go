package decide

import (
	"slices"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology"
)

const (
	arrangeMost   = 512 // hosts are arranged by their links; of more the order of their names is taken
	arrangeSweeps = 32
	arrangeStarts = 32  // hosts from which an arrangement is begun
	brokenRate    = 1e3 // bytes a second that a way counts for which could not be measured
)

// rates are bytes a second between two hosts in the slower direction, by their names in order.
func rates(links []control.Link) map[[2]string]float64 {
	out := map[[2]string]float64{}
	for _, l := range links {
		k := [2]string{min(l.From, l.To), max(l.From, l.To)}
		rate := max(l.Rate, brokenRate)
		if had, ok := out[k]; !ok || rate < had {
			out[k] = rate
		}
	}
	return out
}

// arrange chooses n of the hosts for processes that talk to each other, and their order: process p goes to
// the host p·n/procs of the result. Those that talk most get the fastest ways: beginning with one host, each
// place takes the one that is best beside those before; then swaps of two hosts, used or not, are made while
// they shorten the time that all talks take together. The best of some beginnings is taken. Ways that were
// not measured count as the middle one of the others. Without measurements, or talks, the first n are taken.
func arrange(hosts []string, n, procs int, talks []topology.Talk, links []control.Link) []string {
	rate := rates(links)
	if len(rate) == 0 || len(talks) == 0 || len(hosts) < 2 || len(hosts) > arrangeMost {
		return hosts[:n]
	}
	known := make([]float64, 0, len(rate))
	for _, r := range rate { //lfvet:order sorted below
		known = append(known, r)
	}
	slices.Sort(known)
	usual := known[len(known)/2]
	x := arrangement{hosts: slices.Clone(hosts), by: make([][]near, len(hosts)), slow: func(a, b string) float64 {
		if r, ok := rate[[2]string{min(a, b), max(a, b)}]; ok {
			return usual / r
		}
		return 1
	}}
	for _, t := range talks {
		a, b := t.A*n/procs, t.B*n/procs
		if a == b {
			continue
		}
		x.by[a] = append(x.by[a], near{b, t.Weight})
		x.by[b] = append(x.by[b], near{a, t.Weight})
	}
	best, least := x.hosts, x.settle(n)
	for first := range min(arrangeStarts, len(hosts)) {
		x.hosts = slices.Clone(hosts)
		x.grow(n, first)
		if time := x.settle(n); time < least*(1-1e-9) {
			best, least = x.hosts, time
		}
	}
	return best[:n]
}

// arrangement is hosts by place, of which the first are used, and how much each place talks to others.
type arrangement struct {
	hosts []string
	by    [][]near
	slow  func(a, b string) float64 // time that a talk takes between two hosts
}

// near is a place that another one talks to.
type near struct {
	to     int
	weight float64
}

// cost is the time of all talks of a place, but those with another one.
func (x *arrangement) cost(at, but int) (sum float64) {
	for _, t := range x.by[at] {
		if t.to != but {
			sum += t.weight * x.slow(x.hosts[at], x.hosts[t.to])
		}
	}
	return sum
}

// grow gives the first place a host, and each further one that which is best beside the places before.
func (x *arrangement) grow(n, first int) {
	x.hosts[0], x.hosts[first] = x.hosts[first], x.hosts[0]
	for at := 1; at < n; at++ {
		best, least := at, 0.0
		for k := at; k < len(x.hosts); k++ {
			time := 0.0
			for _, t := range x.by[at] {
				if t.to < at {
					time += t.weight * x.slow(x.hosts[k], x.hosts[t.to])
				}
			}
			if k == at || time < least {
				best, least = k, time
			}
		}
		x.hosts[at], x.hosts[best] = x.hosts[best], x.hosts[at]
	}
}

// settle makes swaps while they save time, and returns the time of all talks, each counted at both ends.
func (x *arrangement) settle(n int) (time float64) {
	for range arrangeSweeps {
		if !x.sweep(n) {
			break
		}
	}
	for at := range n {
		time += x.cost(at, -1)
	}
	return time
}

// sweep makes every swap that saves time, and reports whether there was one.
func (x *arrangement) sweep(n int) (better bool) {
	for i := range n {
		for k := i + 1; k < len(x.hosts); k++ {
			was := x.cost(i, k) + x.cost(k, i)
			x.hosts[i], x.hosts[k] = x.hosts[k], x.hosts[i]
			if now := x.cost(i, k) + x.cost(k, i); now < was*(1-1e-9) {
				better = true
				continue
			}
			x.hosts[i], x.hosts[k] = x.hosts[k], x.hosts[i]
		}
	}
	return better
}
