// Package topology says which rank owns what: ranks, hosts, devices, links and named mesh axes as plain values.
package topology

import "fmt"

// Mesh is the grid of ranks of a run. Tensor parallelism varies fastest, then data parallelism, then the pipeline:
// Megatron's order, so that the ranks of one tensor-parallel group are neighbours.
type Mesh struct{ PP, DP, TP int }

// Coord is a rank's place on a mesh.
type Coord struct{ PP, DP, TP int }

// Size is the number of ranks.
func (m Mesh) Size() int { return m.PP * m.DP * m.TP }

// Rank is the rank at c.
func (m Mesh) Rank(c Coord) int { return (c.PP*m.DP+c.DP)*m.TP + c.TP }

// Coord is the place of a rank.
func (m Mesh) Coord(rank int) Coord {
	return Coord{rank / (m.DP * m.TP), rank / m.TP % m.DP, rank % m.TP}
}

// TPGroup lists the ranks that share rank's layers' tensors, in order.
func (m Mesh) TPGroup(rank int) (out []int) {
	c := m.Coord(rank)
	for c.TP = 0; c.TP < m.TP; c.TP++ {
		out = append(out, m.Rank(c))
	}
	return
}

// DPGroup lists the replicas of rank, in order.
func (m Mesh) DPGroup(rank int) (out []int) {
	c := m.Coord(rank)
	for c.DP = 0; c.DP < m.DP; c.DP++ {
		out = append(out, m.Rank(c))
	}
	return
}

// Name is how messages name a rank.
func (m Mesh) Name(rank int) string {
	c := m.Coord(rank)
	return fmt.Sprintf("rank %d (pp %d dp %d tp %d)", rank, c.PP, c.DP, c.TP)
}
