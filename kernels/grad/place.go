// Package grad is the tape: a stage's forward is recorded once per shape on symbolic values; differentiation, placement,
// recompute, offload, liveness and cuts are passes over the node list, done before anything runs. The result, a Trace, is
// a plain value that is the same on every rank of a group. A Frame is one microbatch's record over a Trace.
package grad

import (
	"fmt"
	"strings"
)

// Kind says how the members of one mesh axis hold one logical tensor.
type Kind uint8

// The placements on one mesh axis: replicated, sharded along a tensor axis, or partial (a sum over the members is due).
const (
	Replicated Kind = iota
	Sharded
	Partial
)

// Part is the placement on one mesh axis; Axis is the tensor axis of Sharded.
type Part struct {
	Kind Kind
	Axis int8
}

// MaxAxes bounds the mesh axes that one tape may see.
const MaxAxes = 3

// Place is a placement on every mesh axis of the tape; it is comparable.
type Place [MaxAxes]Part

// dual is the placement a cotangent must have to be used with a value placed p: a partial value takes a replicated one.
func (p Place) dual() Place {
	for i := range p {
		if p[i].Kind == Partial {
			p[i] = Part{}
		}
	}
	return p
}

func (p Place) partial() bool {
	for _, x := range p {
		if x.Kind == Partial {
			return true
		}
	}
	return false
}

// String prints R, S(axis) or P for each mesh axis.
func (p Place) String() string {
	var s []string
	for _, x := range p {
		switch x.Kind {
		case Replicated:
			s = append(s, "R")
		case Sharded:
			s = append(s, fmt.Sprintf("S%d", x.Axis))
		case Partial:
			s = append(s, "P")
		}
	}
	return strings.Join(s, ",")
}

// MeshAxis is one axis of the mesh as the tape sees it.
type MeshAxis struct {
	Name string // "tp"
	Size int    // ranks along it
}

func shardOn(mesh, axis int) Place {
	var p Place
	p[mesh] = Part{Sharded, int8(axis)}
	return p
}

// local is the shape on one rank of a value of the given global shape and placement. Rows of a table that do not divide are shared
// out in equal numbers rounded up, so that the last ranks have rows of padding, which belong to no token.
func local(mesh []MeshAxis, shape []int, p Place) []int {
	out := append([]int(nil), shape...)
	for m, ax := range mesh {
		if p[m].Kind == Sharded {
			n := &out[p[m].Axis]
			*n = (*n + ax.Size - 1) / ax.Size
		}
	}
	return out
}
