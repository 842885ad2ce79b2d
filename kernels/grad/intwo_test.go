package grad

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// summedOver is the trace of a matrix [rows 8] f32 that is partial over some members and that all of them need.
func summedOver(members, rows int, o Options) *Trace {
	o.Mesh = []MeshAxis{{Name: "tp", Size: members}}
	o.NoGrad = true
	tape := NewTape(o)
	x := tape.one(opData, kernels.Attr{}, tensor.F32, []int{rows, 8}, Place{{Kind: Partial}})
	x.Node.Attr.Name = "x"
	tape.outs = append(tape.outs, &Port{Name: "y", Value: tape.full(x)})
	return tape.Finish()
}

// TestSumsInTwo: a sum that all members need is made in two communications where the members are more than
// two, their number divides the rows, and the tensor is not small; the bytes are then those of a ring.
func TestSumsInTwo(t *testing.T) {
	for name, x := range map[string]struct {
		members, rows, whole int
		two                  bool
	}{
		"of four":               {4, 16, 0, true},
		"of three":              {3, 6, 0, true},
		"of two":                {2, 16, 0, false},
		"rows do not divide":    {3, 16, 0, false},
		"just large enough":     {4, 16, 16 * 8 * 4, true},
		"one byte too small":    {4, 16, 16*8*4 + 1, false},
		"as many rows as ranks": {4, 4, 0, true},
	} {
		tr := summedOver(x.members, x.rows, Options{SumWhole: x.whole})
		var comms []*Node
		var sent int64
		for _, s := range tr.F {
			comms = append(comms, s.Comm...)
			sent += s.Cost.Comm
		}
		all := int64(x.rows * 8 * 4)
		n := int64(x.members)
		if !x.two {
			require.Len(t, comms, 1, name)
			require.Equal(t, all*(n-1), sent, name)
			continue
		}
		require.Len(t, comms, 2, name)
		require.Equal(t, 2*all*(n-1)/n, sent, name)
		require.Equal(t, Part{Sharded, 0}, comms[0].Out[0].Place[0], name)
		require.Equal(t, []int{x.rows / x.members, 8}, comms[0].Out[0].Local, name)
		require.Same(t, comms[0].Out[0], comms[1].In[0], name)
		require.Less(t, comms[0].Out[0].ID, tr.Values, name)
		require.NotEqual(t, comms[0].Out[0].ID, comms[1].Out[0].ID, name)
	}
}

// TestSumsInTwoHide: of weight gradients that are due before a sum in two communications, each of these has
// a part to hide behind.
func TestSumsInTwoHide(t *testing.T) {
	tape := NewTape(Options{Overlap: true})
	node := func(op *Op, ph Phase, in ...*Value) *Node {
		n := &Node{Op: op, Phase: ph, In: in}
		n.Out = []*Value{{Node: n}}
		return n
	}
	var weights, want []*Node
	for range 5 {
		weights = append(weights, node(&Op{Role: compute}, W))
	}
	first := node(opConv, I, weights[0].Out[0])
	second := node(opConv, I, first.Out[0])
	other := node(opConv, I, weights[0].Out[0])
	want = append(append(append(want, first), weights[:2]...), second)
	want = append(append(want, weights[2:]...), other)
	require.Equal(t, want, tape.delayWeights(append(append([]*Node{}, weights...), first, second, other)))
}
