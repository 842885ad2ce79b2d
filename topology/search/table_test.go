package search

import (
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/cost"
)

// TestTables lists all plans of made-up models on shipped machines: the best of them with their figures, how
// many there are, and a hash over the figures of all. What the figures mean is held to the simulator by
// sim/planner; this finds that one of them has changed. -rewrite writes testdata/tables anew.
func TestTables(t *testing.T) {
	datadriven.RunTest(t, "testdata/tables", func(t *testing.T, d *datadriven.TestData) string {
		s := spaceOf(t, d)
		all, err := s.Enumerate()
		if err != nil {
			return err.Error() + "\n"
		}
		sum := fnv.New64a()
		for i := range all {
			c := &all[i]
			require.NoError(t, s.Estimate(c))
			require.Positive(t, c.Step)
			require.GreaterOrEqual(t, c.Bubble, 0.0)
			require.Equal(t, c.Memory > s.Limit, c.Why == "memory", "%s", c)
			st, err := s.StagesOf(c)
			require.NoError(t, err)
			for _, b := range st.Blocks {
				fmt.Fprintf(sum, "%.9g %.9g %.9g %d %d %d %d %v %d %d\n", b.F, b.I, b.W, b.Held, b.HeldW,
					b.PeakF,
					b.PeakB, b.Weights, b.Port, b.TiedToFirstBlock)
			}
			ranks := s.place(c.Schedule, c.PP, c.Loops).rank
			tied := []bool{}
			for r := range c.PP {
				tied = append(tied, st.TiedRank(ranks, r))
			}
			fmt.Fprintf(sum, "%s %.9g %.9g %d %s %v %.9g\n", c, c.Step, c.Bubble, c.Memory, c.Why, tied,
				s.Tied(c, st, ranks))
		}
		Rank(all)
		var out strings.Builder
		fits := 0
		for i := range all {
			if all[i].Why == "" {
				fits++
			}
		}
		for i := range min(5, len(all)) {
			c := &all[i]
			fmt.Fprintf(&out, "%s: %.4g s, bubble %.3f, %.3f GiB %s\n", c, c.Step, c.Bubble,
				float64(c.Memory)/(1<<30), c.Why)
		}
		fmt.Fprintf(&out, "%d plans, %d fit; all figures %016x\n", len(all), fits, sum.Sum64())
		return out.String()
	})
}

// spaceOf is the space of a line of the script: layers of equal blocks between an embedding and a head that
// may share weights, with experts or a tower before them where the line says so.
func spaceOf(t *testing.T, d *datadriven.TestData) *Space {
	n := map[string]int{"devices": 4, "batch": 8, "layers": 4, "rows": 0, "limit": 8, "tied": 0, "tower": 0,
		"experts": 0, "zero": 0}
	for name := range n { //lfvet:order each key by itself
		v := n[name]
		d.MaybeScanArgs(t, name, &v)
		n[name] = v
	}
	machine := "h100"
	d.MaybeScanArgs(t, "machine", &machine)
	text, err := os.ReadFile("../../configs/clusters/" + machine + ".yaml")
	require.NoError(t, err)
	m, err := cost.Read(machine, text)
	require.NoError(t, err)
	s := &Space{Machine: m, Devices: n["devices"], Batch: n["batch"], Layers: n["layers"], Param: 2,
		State:   12,
		Traffic: 32, Limit: int64(n["limit"]) << 30, Schedules: []string{"gpipe", "1f1b", "interleaved",
			"zb-h1",
			"zb-v", "dualpipev"}, TP: []int{1, 2, 4}, Rows: n["rows"]}
	if d.HasArg("schedules") {
		d.ScanArgs(t, "schedules", &s.Schedules)
	}
	blocks := n["tower"] + n["layers"] + 2
	s.Profile = func(v Variant) ([]BlockCost, error) {
		out := make([]BlockCost, 0, blocks)
		for i := range blocks {
			out = append(out, block(m, v, i-n["tower"], n))
		}
		return out, nil
	}
	s.Cut = func(stages int) ([]int, error) { return cut(0, blocks, n["tower"]+1, n["layers"], stages), nil }
	if n["experts"] > 0 {
		s.Shares = func(ranks, tp int) (out [][2]int) {
			for ep := 1; ep <= min(ranks, n["experts"]); ep *= 2 {
				if out = append(out, [2]int{ep, 1}); ep*2 <= ranks {
					out = append(out, [2]int{ep, 2})
				}
			}
			return out
		}
	}
	if n["tower"] > 0 {
		s.Tower = &Tower{Blocks: n["tower"], TP: []int{1, 2},
			Cut: func(stages int) ([]int, error) {
				return cut(n["tower"], blocks, n["tower"]+1, n["layers"],
					stages), nil
			}}
	}
	return s
}

// cut shares layers out evenly over stages; blocks before the first layer and behind the last go with them.
func cut(from, to, first, layers, stages int) []int {
	out := []int{from}
	for s := 1; s < stages; s++ {
		out = append(out, first+layers*s/stages)
	}
	return append(out, to)
}

// block is what a block costs: of the tower (i < 0), the embedding (0), a layer or the head.
func block(m *cost.Machine, v Variant, i int, n map[string]int) (b BlockCost) {
	const width, vocab = 2048, 32000
	rows := int64(v.Batch * 1024)
	tp := int64(v.TP)
	work := int64(24) * rows * width * width / tp
	b.Port = rows * width * 2
	b.Params, b.Tensors = 12*width*width/tp, 9
	switch {
	case i < 0:
		work, b.Params = work/3, b.Params/4
	case i == 0:
		work, b.Params, b.Tensors = 0, vocab*width/tp, 1
	case i == n["layers"]+1:
		work, b.Params, b.Tensors = 2*rows*width*vocab/tp, vocab*width/tp, 1
		b.TiedToFirstBlock = int64(n["tied"]) * b.Params
	case v.EP > 0:
		b.Experts = int64(n["experts"]) * 2 * width * width / int64(v.EP*v.ETP)
		b.Params += b.Experts
	}
	bytes := rows * width * 20 / tp
	b.Held = map[string]int64{"none": 34, "selective": 24, "full": 2}[v.Recompute] * rows * width / tp
	if v.SP {
		bytes, b.Held = bytes*4/5, b.Held*3/4
	}
	b.PeakF, b.PeakB, b.HeldW = b.Held+rows*width*4, b.Held+rows*width*8, b.Held/2
	comms := 0.0
	if v.TP > 1 {
		comms = m.Collective(0, []int{0, 1}, rows*width*2)
	}
	if v.Zero >= 2 {
		comms += m.Collective(1, []int{0, v.TP}, b.Params*2) * float64(v.DP)
	}
	pass := func(k int, share int64) {
		p := &b.Passes[k]
		p.Append(m, true, Piece{work * share / 2, bytes * share, 6}, comms)
		p.Append(m, false, Piece{work * share / 2, bytes * share, 5}, comms/2)
	}
	pass(0, 1)
	pass(1, 1)
	if v.Split {
		pass(2, 1)
	} else {
		b.Passes[1] = b.Passes[1].then(m, b.Passes[1])
	}
	if v.Recompute == "full" {
		b.Passes[1] = b.Passes[1].then(m, b.Passes[0])
	}
	if v.Single {
		b.Passes[0].First.Calls--
	}
	return b
}

// TestWords: plans, places of encoders and degrees as they stand in tables.
func TestWords(t *testing.T) {
	c := Candidate{TP: 2, PP: 4, DP: 3, EP: 2, ETP: 2, Zero: 1, Schedule: "interleaved", Loops: 2, Batch: 5,
		Micro:     6,
		Recompute: "full"}
	require.Equal(t, "tp2 pp4 dp3 ep2 etp2 zero1 interleaved×2, 6×5 sequences, recompute full", c.String())
	c.SP, c.EP, c.ETP, c.Loops = true, 0, 1, 1
	c.Encoder = Encoder{Over: OverOwn, TP: 2, Ranks: 6, Ahead: 3}
	require.Equal(t, "tp2+sp pp4 dp3 zero1 interleaved, 6×5 sequences, recompute full, encoder own tp2 "+
		"of 6, 3 ahead",
		c.String())
	require.Equal(t, 3, c.Encoder.Replicas(&c))
	require.Equal(t, 4, Encoder{Over: OverAll, TP: 2}.Replicas(&c), "all ranks of a replica encode")
	require.Equal(t, 1, Encoder{Over: OverFirst, TP: 2}.Replicas(&c))
	require.Equal(t, "none", Encoder{Over: OverNone, TP: 2}.Short())
	require.False(t, Encoder{Over: OverNone}.apart() || Encoder{}.apart())
}

// TestBorders: a plan that needs a device's whole memory fits, and one byte less does not do.
func TestBorders(t *testing.T) {
	for over, why := range map[int64]string{0: "", 1: "memory"} {
		s := &Space{Machine: &cost.Machine{Flops: 1, Efficiency: 1, Bandwidth: 1, Stream: 1, Devices: 1},
			Devices: 1,
			Batch:   1, Layers: 1, Param: 2, TP: []int{1}, Schedules: []string{"1f1b"},
			Profile: func(Variant) ([]BlockCost,
				error) {
				return []BlockCost{{Weights: Weights{Params: 10}}}, nil
			},
			Cut: func(int) ([]int, error) { return []int{0, 1}, nil }}
		all, err := s.Enumerate()
		require.NoError(t, err)
		s.Limit = 2*10 + 4*10 - over
		require.NoError(t, s.Estimate(&all[0]))
		require.EqualValues(t, 60, all[0].Memory)
		require.Equal(t, why, all[0].Why)
	}
	require.Equal(t, []int{1, 2, 3, 4, 6, 12}, divisors(12))
}

// TestPass: pieces and collectives run one after the other, also over the border of two passes.
func TestPass(t *testing.T) {
	m := &cost.Machine{Flops: 1, Efficiency: 1, Bandwidth: 1, Stream: 1}
	piece := func(flops, bytes int64) Piece { return Piece{Flops: flops, Bytes: bytes} }
	var p Pass
	p.Append(m, true, piece(4, 1), 10)
	p.Append(m, false, piece(1, 6), 0)
	require.Equal(t, 5+10+7.0, p.Seconds(m))
	p.Append(m, false, piece(3, 0), 5)
	require.Equal(t, 5+10+7+3+5.0, p.Seconds(m))
	var q Pass
	q.Append(m, true, piece(7, 2), 0)
	require.Equal(t, 9.0, q.Seconds(m))
	require.Equal(t, 30+9.0, p.then(m, q).Seconds(m))
	require.Equal(t, 9+30.0, q.then(m, p).Seconds(m))
	require.Equal(t, 18.0, q.then(m, q).Seconds(m))
}

// TestRank: what cannot be used comes last; a simulated time counts before the closed form's; of equally
// fast plans the smaller comes first.
func TestRank(t *testing.T) {
	all := []Candidate{{Batch: 1, Step: 1, Why: "memory"}, {Batch: 2, Step: 3, Memory: 9},
		{Batch: 3, Step: 2, Simulated: 4},
		{Batch: 4, Step: 3, Memory: 8}, {Batch: 5, Step: 9, Simulated: 1},
		{Batch: 6, Step: 0.5, Why: "memory"}}
	Rank(all)
	var order []int
	for _, c := range all {
		order = append(order, c.Batch)
	}
	require.Equal(t, []int{5, 4, 2, 3, 6, 1}, order)
}
