package topology

import "slices"

// Talk is how much two processes of a run send each other, beside what other pairs do.
type Talk struct {
	A      int     `json:"a"` // processes, A < B
	B      int     `json:"b"`
	Weight float64 `json:"weight"`
}

// weights say how much ranks send each other along an axis, by orders of magnitude: tensor parallelism
// exchanges activations in every layer, context and expert parallelism in some parts of it, a pipeline once
// for each stage and microbatch, replicas once a step and behind the backward.
var weights = map[string]float64{TP: 64, ETP: 64, CP: 16, Ulysses: 16, EP: 16, PP: 4}

// Talks lists which of so many processes send each other something, each of which has consecutive ranks of
// the mesh: neighbours along its axes, the last and the first of an axis of more than two as well.
func (m Mesh) Talks(procs int) []Talk {
	size := m.Size()
	sums := map[[2]int]float64{}
	for _, a := range m.axes {
		weight := weights[a.Name]
		if weight == 0 {
			weight = 1
		}
		for r := range size {
			at := r / a.Stride % a.Size
			if a.Size < 2 || at == a.Size-1 && a.Size == 2 {
				continue
			}
			next := r + ((at+1)%a.Size-at)*a.Stride
			p, q := r*procs/size, next*procs/size
			if p != q {
				sums[[2]int{min(p, q), max(p, q)}] += weight
			}
		}
	}
	out := make([]Talk, 0, len(sums))
	for k, w := range sums {
		out = append(out, Talk{k[0], k[1], w})
	}
	slices.SortFunc(out, func(x, y Talk) int {
		if x.A != y.A {
			return x.A - y.A
		}
		return x.B - y.B
	})
	return out
}
