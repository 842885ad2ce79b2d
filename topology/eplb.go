package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Replicas says where copies of a layer's experts lie, so that devices get like numbers of tokens.
type Replicas struct {
	// by place: the expert that lies there; places of one device are neighbours, and devices of one node
	Expert []int
	Copy   []int // by place: which of the expert's copies
	Count  []int // by expert: how many copies it has
}

// SpreadExperts places copies of a layer's experts, of the given loads, on devices of a few nodes, so many places in
// all (DeepSeek's EPLB). Where groups of neighbouring experts can be shared out evenly over the nodes, a group stays on
// one node, since a token goes to few groups; else nodes play no part. An expert's copies share its load.
func SpreadExperts(load []float64, places, groups, nodes, devices int) (Replicas, error) {
	n := len(load)
	switch {
	case n == 0 || groups < 1 || n%groups != 0:
		return Replicas{}, fmt.Errorf("%d experts in %d groups", n, groups)
	case nodes < 1 || devices < 1 || devices%nodes != 0:
		return Replicas{}, fmt.Errorf("%d devices on %d nodes", devices, nodes)
	case places < n || places%devices != 0:
		return Replicas{}, fmt.Errorf("%d places on %d devices for %d experts", places, devices, n)
	}
	if groups%nodes != 0 {
		groups, nodes = 1, 1
	}
	size := n / groups
	weights := make([]float64, groups)
	for e, x := range load {
		weights[e/size] += x
	}
	out := Replicas{Count: make([]int, n)}
	for _, pack := range pack(weights, nodes) { // a node's groups
		var experts []int
		for _, g := range pack {
			for e := range size {
				experts = append(experts, g*size+e)
			}
		}
		out.node(load, experts, places/nodes, devices/nodes)
	}
	return out, nil
}

// node places copies of some experts on the devices of one node.
func (r *Replicas) node(load []float64, experts []int, places, devices int) {
	var expert, copies []int
	for _, e := range experts {
		expert, copies = append(expert, e), append(copies, 0)
		r.Count[e] = 1
	}
	for len(expert) < places { // one more of the expert whose copies have the most each
		most := experts[0]
		for _, e := range experts {
			if load[e]/float64(r.Count[e]) > load[most]/float64(r.Count[most]) {
				most = e
			}
		}
		expert, copies = append(expert, most), append(copies, r.Count[most])
		r.Count[most]++
	}
	weights := make([]float64, places)
	for i, e := range expert {
		weights[i] = load[e] / float64(r.Count[e])
	}
	for _, device := range pack(weights, devices) {
		for _, i := range device {
			r.Expert, r.Copy = append(r.Expert, expert[i]), append(r.Copy, copies[i])
		}
	}
}

// pack puts objects into packs of equally many, the heaviest first, each into the lightest pack that is not full.
func pack(weights []float64, packs int) [][]int {
	each := len(weights) / packs
	out, sums := make([][]int, packs), make([]float64, packs)
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	if each > 1 { // else every object has a pack of its own
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	}
	for _, i := range order {
		at := -1
		for p := range packs {
			if len(out[p]) < each && (at < 0 || each > 1 && sums[p] < sums[at]) {
				at = p
			}
		}
		out[at], sums[at] = append(out[at], i), sums[at]+weights[i]
	}
	return out
}

// Most is the load of the device that has the most.
func (r Replicas) Most(load []float64, devices int) float64 {
	sums := make([]float64, devices)
	for i, e := range r.Expert {
		sums[i*devices/len(r.Expert)] += load[e] / float64(r.Count[e])
	}
	return slices.Max(sums)
}
