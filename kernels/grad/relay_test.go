package grad_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// deltaWidth and deltaTaps are the width of keys and the rows of a convolution of linear attention.
const deltaWidth, deltaTaps = 2, 3

// delta is linear attention: with states between members where heads do not divide, as layers have it.
func (c mini) delta(t *grad.Tape, l int, h, _, _, cu *grad.Value, p param) *grad.Value {
	relay, each := t.Relay(h.Shape[0], c.kv, deltaWidth, c.d, deltaTaps), c.heads/c.kv
	if t.Chunks > 1 {
		cu = t.Data("cu_k", tensor.I32, cu.Shape...)
	}
	sequence := func(x *grad.Value) *grad.Value {
		if relay != nil {
			return relay.Sequence(x)
		}
		return t.Sequence(x, c.kv)
	}
	mixed := func(name string, heads, width, unit int) *grad.Value {
		x := sequence(t.Linear(h, p("w"+name, 0, unit, heads*width, c.hidden), nil))
		w := p("conv"+name, 0, unit, heads*width, deltaTaps)
		if relay != nil {
			return t.Heads(relay.Conv(fmt.Sprint(l, name), x, w, cu), width)
		}
		return t.Heads(t.CausalConv(x, w, cu), width)
	}
	q, k := mixed("q", c.kv, deltaWidth, deltaWidth), mixed("k", c.kv, deltaWidth, deltaWidth)
	v := mixed("v", c.heads, c.d, each*c.d)
	g, beta := t.DeltaGates(t.Linear(h, p("wa", 0, each, c.heads, c.hidden), nil),
		t.Linear(h, p("wb", 0, each, c.heads, c.hidden), nil), p("decay", 0, each, c.heads),
		p("bias", 0, each, c.heads))
	if relay != nil {
		return relay.Residual(relay.Rule(fmt.Sprint(l), q, k, v, sequence(g), sequence(beta), cu, 1e-6))
	}
	return t.Residual(t.DeltaRule(q, k, v, sequence(g), sequence(beta), cu, 1e-6))
}

// relayMeshes are ways to share out tokens of which one axis keeps its rows of linear attention's two key heads.
func relayMeshes() [][]grad.MeshAxis {
	tp, sp := grad.MeshAxis{Name: "tp", Size: 2}, grad.MeshAxis{Name: "tp", Size: 2, Rows: true}
	dp := grad.MeshAxis{Name: "dp", Size: 2, Data: true, Zero: true}
	return [][]grad.MeshAxis{
		{cpAxis(3, false, false)}, {cpAxis(3, true, true)}, {cpAxis(4, false, true)}, {cpAxis(4, false,
			false)},
		{cpAxis(2, false, true), tp}, {cpAxis(4, true, true), sp}, {cpAxis(2, true, true), uAxis(2)},
		{dp, cpAxis(3, false, true)}, {uAxis(4)},
	}
}

// TestRelay holds linear attention whose members send each other states, of one sequence and of packed ones
// with a border among the rows that a convolution joins, to one device: loss and every gradient, under every
// policy, and the same bits with overlap.
func TestRelay(t *testing.T) {
	for _, one := range []bool{false, true} {
		c := small
		c.tokens, c.one, c.linear = 48, one, true
		base := newWorld(t, c, c.stage(grad.Options{}, 0, 2))
		loss, want := base.step([]int{0, 2}, grad.Options{})
		for i, mesh := range relayMeshes() {
			o := []grad.Options{{}, {Recompute: grad.RecomputeFull}, {ShardGrads: true},
				{ShardGrads: true, ShardParams: true, Recompute: grad.RecomputeSelective}}[i%4]
			o.Mesh = mesh
			name := fmt.Sprintf("%+v one=%v", mesh, one)
			tr := c.stage(o, 0, 2)
			require.Len(t, reads(tr), 2*map[bool]int{true: 2, false: 1}[zigzag(mesh)], name)
			w := newWorld(t, c, tr)
			w.split = i%2 == 1
			got, g := w.step([]int{0, 1, 2}, o)
			require.InDelta(t, loss, got, 2e-6, name)
			compare(t, name, g, want)
			o.Overlap = true
			w = newWorld(t, c, c.stage(o, 0, 2))
			w.split = i%2 == 1
			late, gl := w.step([]int{0, 1, 2}, o)
			require.Equal(t, got, late, name)
			require.Equal(t, g, gl, "%s: overlap changes no bit", name)
		}
	}
}

func zigzag(mesh []grad.MeshAxis) bool {
	for _, a := range mesh {
		if a.Zigzag {
			return true
		}
	}
	return false
}

// reads lists the rows of a rank that read the state before them, a call each.
func reads(tr *grad.Trace) (rows []int) {
	for _, s := range tr.Segments(grad.F) {
		for _, n := range s.Ops {
			if n.Op.Name == "read_state" && n.In[0].Local[0] > deltaWidth {
				rows = append(rows, n.In[0].Local[0])
			}
		}
	}
	return rows
}

// TestRelayInChunks holds the same in chunks, each of which goes on from the one before, to one device.
func TestRelayInChunks(t *testing.T) {
	for _, one := range []bool{false, true} {
		c := small
		c.tokens, c.one, c.linear = 96, one, true
		base := newWorld(t, c, c.stage(grad.Options{}, 0, 2))
		loss, want := base.step([]int{0, 2}, grad.Options{})
		for i, chunks := range []int{2, 4, 8} {
			o := grad.Options{Chunks: chunks, Recompute: grad.Recompute(i),
				Mesh: []grad.MeshAxis{cpAxis(3, true, i == 0)}}
			tr := c.stage(o, 0, 2)
			require.NotEmpty(t, reads(tr))
			got, g := newWorld(t, c, tr).step([]int{0, 1, 2}, o)
			require.InDelta(t, loss, got, 2e-6, "%d chunks", chunks)
			compare(t, fmt.Sprint(chunks, " chunks"), g, want)
		}
	}
}

// TestRelayShares: states are sent where that is less work than the whole rule on every rank, and only where
// heads cannot be exchanged.
func TestRelayShares(t *testing.T) {
	for _, x := range []struct {
		tokens, members, kv int
		rows                []int
	}{
		{48, 3, 2, []int{8, 8}}, {48, 2, 2, nil}, {12, 3, 2, nil}, {18, 3, 2, nil},
		{120, 5, 4, []int{12, 12}}, {120, 4, 4, nil},
	} {
		c := small
		c.layers, c.linear, c.one, c.tokens, c.kv = 1, true, true, x.tokens, x.kv
		tr := c.stage(grad.Options{Mesh: []grad.MeshAxis{cpAxis(x.members, false, true)}}, 0, 1)
		require.Equal(t, x.rows, reads(tr), "%+v", x)
	}
}
