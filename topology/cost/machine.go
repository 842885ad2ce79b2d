package cost

import (
	"cmp"
	"math"

	"github.com/lfactor/lfactor/topology/collective"
)

// Machine is a cluster of equal hosts with equal devices. Times are seconds, sizes bytes.
// In the words of the field: roofline.
type Machine struct {
	Name string
	// Device.
	Flops      float64 // peak of dense bf16, a second
	Flops8     float64 // the same of operands of 8 bits; 0: they are multiplied as bf16
	Flops4     float64 // the same of operands of 4 bits; 0: they are multiplied as ones of 8
	PerExpert  float64 // seconds that a product of experts takes longer for each expert, for calls of its own
	Grouped    float64 // share of the rate of products that those of a mixture's experts reach; 0 is all
	Share8     float64 // of both that products reach; 0 is Efficiency
	Memory     float64
	Reserve    float64 // share of Memory that training does not get: see UsualReserve
	Bandwidth  float64 // of its memory, a second
	Efficiency float64 // share of Flops that matrix products reach whose tiles keep all Units busy
	Units      int     // multiprocessors that tiles of a product are dealt to; 0 if all products have one rate
	Prologue   float64 // depth of a product, in elements of its sum, that a tile's start and end cost
	Stream     float64 // share of Bandwidth that other kernels reach
	Overhead   float64 // of one kernel call
	// how often a forward of attention writes or reads all scores in memory; 0 where attention is one kernel
	Scores float64
	// share of the rate of products that attention in one kernel reaches in its forward, 7/8 of it in its
	// backward; 0 is attentionForward
	Attention float64
	FA2       float64 // the same of FlashAttention-2, which was written for A100; 0 is attentionForward
	// Host.
	Devices int
	Price   float64         // dollars an hour; 0: not known
	Power   float64         // kilowatts; 0: not known
	Local   collective.Link // between devices of one host, a device and direction
	Copy    float64         // bytes a second to host memory
	Near    float64         // host.once: the share of what an exchange of rows sends inside a host that travels; 0 follows from Dispatch
	// Network.
	Hosts  int
	Remote collective.Link // between devices of two hosts, a device and direction
	Once   float64         // network.once: the same of what it sends to other hosts
	// Dispatch says that of what an exchange of rows sends to a device or host each row travels once, by where a token's
	// experts lie (Routed), as with DeepEP and HybridEP
	Dispatch bool
	each     int      // experts of a token; 0: of no model that has some
	within   float64  // share of all places that they lie in at most
	Joined   [][2]int // pairs of hosts with a cable; nil is a switch for all
	Second   *Second  // devices of another kind; nil where all are alike
	Software Software
	dispatch string // as the software says: copies, once, or runs, where a token's experts lie side by side
	experts  int    // of a layer; 0: of no model that has some
	tp       int    // of the plan, whose collectives are parts times as fast as others
	parts    float64
	said     map[string]int // lines of the description's keys
}

// Second are devices of another kind, which have the highest numbers. Shares of their rates that are 0, how much faster
// products of few bits are, and links are those of the first kind.
type Second struct {
	From                               int // the number of the first, from 0
	Flops, Memory, Bandwidth, Overhead float64
	Efficiency                         float64
}

// Segment is the time of work: the arithmetic of some kernels, the memory traffic of others, which run one
// after the other, and their calls.
func (m *Machine) Segment(flops, bytes int64, calls int) float64 {
	return float64(flops)/(m.Flops*m.Efficiency) + float64(bytes)/(m.Bandwidth*m.Stream) +
		float64(calls)*m.Overhead*cmp.Or(m.Software.Launch, 1)
}

// SegmentOn is Segment on a device.
func (m *Machine) SegmentOn(device int, flops, bytes int64, calls int) float64 {
	return m.Kind(device).Segment(flops, bytes, calls)
}

// Kind is the machine as if all devices were of the kind of one.
func (m *Machine) Kind(device int) *Machine {
	s := m.Second
	if s == nil || device < s.From {
		return m
	}
	k := *m
	k.Flops, k.Memory, k.Bandwidth, k.Overhead, k.Second = s.Flops, s.Memory, s.Bandwidth, s.Overhead, nil
	k.Efficiency = cmp.Or(s.Efficiency, m.Efficiency)
	return &k
}

// Of 70 published steps of GPUs of 2023 and later eight in ten took P10 to P90 times what was predicted: 54 are where
// those of all other sources are. Of 78 pairs of them that are of one model, machine and program, the ratio of two steps
// is in four of five off by no more than Alike times (bench/published_modern.py, given both tables).
const P10, P90, Alike = 0.93, 1.22, 1.19

// UsualReserve is the share of a device's memory that a plan leaves alone where a description does not say:
// the driver's context and the libraries' workspaces (0.5 to 0.8 GiB of a GPU), buffers of collectives (0.3
// to 1 GiB) and what lies idle between tensors, which the sum of their sizes does not show.
const UsualReserve = 0.04

// Least is the memory that training gets on a device that has least, without the reserve.
func (m *Machine) Least() float64 {
	least := m.Memory
	if m.Second != nil {
		least = min(m.Memory, m.Second.Memory)
	}
	return least * (1 - m.Reserve)
}

// Host is the host of a device.
func (m *Machine) Host(device int) int { return device / m.Devices }

// Link is the connection of two devices.
func (m *Machine) Link(a, b int) collective.Link {
	switch {
	case a == b:
		return collective.Link{}
	case m.Host(a) == m.Host(b):
		return m.Local
	}
	return m.Remote
}

// Collective is the time of a collective among devices (ascending), by the fastest of the algorithms that
// fit: a ring, a tree, and for all-reduces over several hosts with equally many members each a hierarchy.
func (m *Machine) Collective(k collective.Kind, devices []int, bytes int64) float64 {
	t, _, _ := m.fastest(k, devices, bytes)
	return t / m.faster(devices)
}

// Exchange is the time in which each device (ascending) sends the others bytes, to each an equal part of its
// own, which nobody adds up or passes on. What stays in a host and what leaves it travel beside each other,
// and parts follow each other without waiting.
func (m *Machine) Exchange(devices []int, bytes int64) (t float64) {
	n := len(devices)
	if n < 2 {
		return 0
	}
	hosts := 1
	for i := 1; i < n; i++ {
		if m.Host(devices[i]) != m.Host(devices[i-1]) {
			hosts++
		}
	}
	inside, outside := m.share(n), m.share(hosts)
	if m.dispatch == "runs" && m.each > 0 { // on as few devices as they can
		on := max(1, float64(m.each*n)/float64(m.experts))
		inside, outside = on/float64(m.each), max(1, on/float64(min(n, m.Devices)))/float64(m.each)
	}
	inside, outside = cmp.Or(m.Near, inside), cmp.Or(m.Once, outside)
	each := float64(bytes) / float64(n-1)
	for from := 0; from < n; {
		to := from + 1
		for to < n && m.Host(devices[to]) == m.Host(devices[from]) {
			to++
		}
		near, far := to-from-1, n-(to-from)
		if near > 0 {
			t = max(t, m.Local.Latency+m.Local.PerByte*each*float64(near)*inside)
		}
		if far > 0 {
			t = max(t, m.Remote.Latency+m.Remote.PerByte*each*float64(far)*outside)
		}
		from = to
	}
	return t
}

// Routed is the machine for a model whose tokens go to so many experts each, which lie in at most a share of all
// places (groups that a router is limited to), as Dispatch has it.
func (m *Machine) Routed(each, experts int, within float64) *Machine {
	if !m.Dispatch || each == 0 {
		return m
	}
	k := *m
	k.each, k.experts, k.within = each, experts, within
	return &k
}

// share is, of a token's copies, those that go to different ones of so many places, which are equally likely: the mean
// number of places that are reached, divided by the copies; 1 where copies travel by themselves.
func (m *Machine) share(places int) float64 {
	if m.each == 0 {
		return 1
	}
	n := float64(places)
	return min(n*(1-math.Pow(1-1/n, float64(m.each))), max(1, n*m.within)) / float64(m.each)
}

// The algorithms.
const (
	ring = iota
	tree
	hierarchy
)

// fastest is the time of a collective, by which algorithm, and how many of the devices share a host.
func (m *Machine) fastest(k collective.Kind, devices []int, bytes int64) (t float64, by, local int) {
	n := len(devices)
	if n < 2 {
		return
	}
	slowest := m.Local
	if m.Host(devices[0]) != m.Host(devices[n-1]) {
		slowest = m.Remote
	}
	t = collective.RingTime(k, n, bytes, slowest)
	if k != collective.AllReduce {
		return
	}
	if x := treeTime(n, bytes, slowest); x < t {
		t, by = x, tree
	}
	if local = m.perHost(devices); local > 1 && n > local && n%local == 0 {
		if x := collective.HierarchicalTime(n, local, bytes, m.Local, m.Remote); x < t {
			t, by = x, hierarchy
		}
	}
	return
}

// treeTime is the time of a tree. If n is not a power of two, short branches start early, which the closed
// form does not see: small ones are played.
func treeTime(n int, bytes int64, l collective.Link) float64 {
	const small = 64
	if n&(n-1) == 0 || n > small {
		return collective.TreeTime(n, bytes, l)
	}
	return collective.Play(n, collective.Tree(n, bytes), func(int, int) collective.Link { return l })
}

// Sends lists the messages of the algorithm whose time Collective gives.
func (m *Machine) Sends(k collective.Kind, devices []int, bytes int64) []collective.Send {
	n := len(devices)
	if n < 2 {
		return nil
	}
	switch _, by, local := m.fastest(k, devices, bytes); by {
	case tree:
		return collective.Tree(n, bytes)
	case hierarchy:
		return collective.Hierarchical(n, local, bytes)
	}
	return collective.Ring(k, n, bytes)
}

// perHost is how many of the devices share each host, 0 if not equally many do.
func (m *Machine) perHost(devices []int) int {
	local := 0
	for local < len(devices) && m.Host(devices[local]) == m.Host(devices[0]) {
		local++
	}
	for i, d := range devices {
		if m.Host(d) != m.Host(devices[i/local*local]) {
			return 0
		}
	}
	return local
}

// Nanoseconds rounds a time up to whole nanoseconds.
func Nanoseconds(seconds float64) int64 { return int64(math.Ceil(seconds * 1e9)) }
