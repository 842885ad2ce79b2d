package plan_test

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
)

// TestPrograms: what the package says of every schedule's programs: times under unequal costs, what is held,
// messages, and text that reads back as the same program. -rewrite writes testdata/programs/all anew.
func TestPrograms(t *testing.T) {
	datadriven.RunTest(t, "testdata/programs/all", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		var shape schedule.Shape
		for name, at := range map[string]*int{"ranks": &shape.Ranks, "micro": &shape.Micro,
			"loops": &shape.Loops} {
			d.MaybeScanArgs(t, name, at)
		}
		if d.HasArg("chunks") {
			for m := range shape.Micro {
				shape.Split = append(shape.Split, 1+(m+1)%3)
			}
		}
		for _, name := range schedule.Names() {
			p, err := schedule.Build(name, shape)
			if err != nil {
				continue
			}
			fmt.Fprintf(&out, "%s: %s\n", name, figures(t, p))
		}
		return out.String()
	})
}

// figures evaluates a program under costs that differ by stage, and follows its messages.
func figures(t *testing.T, p *plan.Program) string {
	require.NoError(t, p.Check())
	c := plan.Costs{Comm: 0.25, Pair: 0.75, Chunk: []float64{1, 0.5, 2}}
	for s := range p.StageRank {
		c.F, c.I, c.W = append(c.F, 1+float64(s%3)/4), append(c.I, 2-float64(s%2)/2),
			append(c.W, 1+float64(s%4)/8)
	}
	timing, err := p.Evaluate(c)
	require.NoError(t, err)
	sum := fnv.New64a()
	fmt.Fprintln(sum, timing.Start, timing.End, timing.Busy, timing.Span)
	for r, row := range timing.Start {
		for i := range row {
			require.Greater(t, timing.End[r][i], row[i])
			if i > 0 {
				require.GreaterOrEqual(t, row[i], timing.End[r][i-1], "a rank does one thing at a time")
			}
		}
	}
	for _, row := range p.Rows {
		for _, e := range row {
			fmt.Fprintln(sum, p.Deps(e.Action), p.Deps(e.With))
		}
	}
	low, err := p.Lower()
	require.NoError(t, err)
	fmt.Fprintln(sum, low.String(), p.Merge().String())
	require.Equal(t, p.Merge().String(), low.Work().Merge().String(),
		"without its messages it is the program again")
	if whole := maxOf(p.Chunks); whole <= 1 {
		again, err := plan.ParseCSV(strings.NewReader(p.String()))
		require.NoError(t, err)
		require.Equal(t, p.Rows, again.Rows)
	}
	return fmt.Sprintf("longest %.4g, makespan %.4g, bubble %.4f and %.4f, peak %v, all %016x",
		timing.Longest,
		timing.Makespan, timing.BubbleLongest(), timing.BubbleMakespan(), p.Peak(), sum.Sum64())
}

func maxOf(xs []int) (most int) {
	for _, x := range xs {
		most = max(most, x)
	}
	return most
}

// twoHomes is a part that two groups of rows run in turn before a pipeline of two stages.
func twoHomes(t *testing.T, frozen bool) *plan.Program {
	p, err := schedule.Build("1f1b", schedule.Shape{Ranks: 2, Micro: 4})
	require.NoError(t, err)
	part := schedule.Part{Groups: [][]int{{0}, {1}}, Frozen: frozen, Ahead: 2, Fill: true}
	out, err := schedule.Compose(p, schedule.Parts{Width: 1, List: []schedule.Part{part},
		Edges: []plan.Edge{{From: 0, To: 1}, {From: 1, To: 2}}})
	require.NoError(t, err)
	return out
}

// TestHomes: programs whose stages run on groups of rows are proved and timed like others.
func TestHomes(t *testing.T) {
	p := twoHomes(t, false)
	require.NoError(t, p.Check())
	timing, err := p.Evaluate(plan.Costs{Comm: 0.5})
	require.NoError(t, err)
	require.Equal(t, []float64{12 + 6, 12 + 6}, timing.Busy,
		"the decoder's, and two microbatches of the part on each row")
	require.LessOrEqual(t, timing.Longest, timing.Makespan)
	for r, row := range timing.Start {
		for i := 1; i < len(row); i++ {
			require.GreaterOrEqual(t, row[i], timing.End[r][i-1])
		}
	}
	frozen := twoHomes(t, true)
	require.NoError(t, frozen.Check())
	require.True(t, frozen.NoBack[0])
	less, err := frozen.Evaluate(plan.Costs{})
	require.NoError(t, err)
	require.Equal(t, []float64{12 + 2, 12 + 2}, less.Busy,
		"two forwards of the part on each row, and no backward")

	for _, c := range []struct {
		name   string
		change func(p *plan.Program)
		want   string
	}{
		{"left out", func(p *plan.Program) { p.Rows[0] = p.Rows[0][1:] }, "runs on 0 rows, want 1"},
		{"twice", func(p *plan.Program) { p.Rows[0] = append(p.Rows[0], p.Rows[0][0]) },
			"runs on 2 rows, want 1"},
		{"on another row", func(p *plan.Program) { p.Rows[0], p.Rows[1] = p.Rows[1], p.Rows[0] },
			"belongs to rows"},
		{"of no stage", func(p *plan.Program) { p.Rows[0][0].Stage = 3 }, "is of no stage: there are 3"},
		{"of a stage below", func(p *plan.Program) { p.Rows[0][0].Stage = -1 },
			"is of no stage: there are 3"},
		{"of no microbatch", func(p *plan.Program) { p.Rows[0][0].Micro = 4 },
			"is of no microbatch: there are 4"},
		{"of a microbatch below", func(p *plan.Program) { p.Rows[0][0].Micro = -1 },
			"is of no microbatch: there are 4"},
		{"backward first", func(p *plan.Program) {
			row := p.Rows[1]
			last := row[len(row)-1]
			copy(row[1:], row)
			row[0] = last
		}, "waits for ever"},
	} {
		p := twoHomes(t, false)
		c.change(p)
		require.ErrorContains(t, p.Check(), c.want, c.name)
		if c.name == "backward first" {
			_, err := p.Evaluate(plan.Costs{})
			require.ErrorContains(t, err, "waits for ever")
		}
	}
	frozen.Rows[0] = append(frozen.Rows[0], plan.Entry{Action: plan.Action{Kind: plan.B, Stage: 0}})
	require.ErrorContains(t, frozen.Check(), "want 0", "what is frozen has no backward")
}

// TestGang: a stage of several rows runs when all of them have come to it, for as long as its one copy.
func TestGang(t *testing.T) {
	f := func(micro int32) plan.Entry {
		return plan.Entry{Action: plan.Action{Kind: plan.F, Stage: 0, Micro: micro}}
	}
	b := func(micro int32) plan.Entry {
		return plan.Entry{Action: plan.Action{Kind: plan.B, Stage: 0, Micro: micro}}
	}
	row := []plan.Entry{f(0), b(0), f(1), b(1)}
	p := &plan.Program{Rows: [][]plan.Entry{row, row}, StageRank: []int{0}, Micro: 2,
		Homes: [][][]int{{{0, 1}}}}
	require.NoError(t, p.Check())
	timing, err := p.Evaluate(plan.Costs{F: []float64{2}})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 2, 4, 6}, {0, 2, 4, 6}}, timing.Start)
	require.Equal(t, []int{2, 2}, timing.Peak)
	require.Equal(t, 8.0, timing.Makespan)
	p.Rows[1] = []plan.Entry{f(1), b(1), f(0), b(0)}
	require.ErrorContains(t, p.Check(),
		"rank 0 at 0F0 waits for 0F0 of rank 1; rank 1 at 0F1 waits for 0F1 of rank 0")
}

// TestDeadlock: an error shows the cycle and nothing else, also where the first rank that is stuck only waits for it.
func TestDeadlock(t *testing.T) {
	p, err := plan.ParseCSV(strings.NewReader("0F0,0B0\n1F0,1B0\n2B0,2F0\n"))
	require.NoError(t, err)
	require.EqualError(t, p.Check(),
		"rank 0 action 1: 0B0 waits for ever: rank 2 at 2B0 waits for 2F0 of rank 2")
}

// TestCosts: costs that are no durations are refused, and say which.
func TestCosts(t *testing.T) {
	for want, c := range map[string]plan.Costs{
		"costs of F: 1 stages, the program has 2":                      {F: []float64{1}},
		"costs of I: stage 1 takes -1":                                 {I: []float64{1, -1}},
		"costs of W: stage 0 takes +Inf":                               {W: []float64{inf(), 1}},
		"costs of communication, pairs and chunks: entry 1 is NaN":     {Pair: inf() - inf()},
		"costs of communication, pairs and chunks: entry 3 is -1":      {Chunk: []float64{1, -1}},
		"costs of communication, pairs and chunks: entry 0 is +Inf":    {Comm: inf()},
		"costs of communication, pairs and chunks: entry 1 is -0.0001": {Pair: -0.0001},
	} {
		require.EqualError(t, c.Check(2), want)
	}
	free := plan.Costs{F: []float64{0, 0}, I: []float64{0, 0}, W: []float64{0, 0}, Chunk: []float64{0}}
	require.NoError(t, free.Check(2), "what takes no time may be")
	c := plan.Costs{F: []float64{3}, I: []float64{5}, W: []float64{7}, Chunk: []float64{1, 2}}
	for text, want := range map[string]float64{"0F0": 3, "0I0": 5, "0W0": 7, "0B0": 12, "0F0.1": 6,
		"0SEND_F0": 0} {
		a, err := plan.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, c.Of(a), text)
	}
}

func inf() float64 { x := 1e308; return x * 10 }

// TestLedger: a frame counts at its worst while its action runs and with what is left after it; storage that
// was handed over is the giver's until all holders have let it go.
func TestLedger(t *testing.T) {
	l := plan.NewLedger(2)
	f, b := plan.Action{Kind: plan.F, Micro: 1}, plan.Action{Kind: plan.B, Micro: 1}
	require.EqualValues(t, 10, l.Begin(0, f, 10))
	l.End(0, f, 4)
	require.Equal(t, []int64{4, 0}, l.Now)
	k := plan.Loan{Of: f, Port: 2, Row: 0}
	l.Lend(0, k, 3, 2)
	require.EqualValues(t, 7, l.Now[0])
	l.Lend(0, plan.Loan{Of: b}, 3, 0)
	l.Lend(0, plan.Loan{Of: b}, 0, 2)
	require.EqualValues(t, 7, l.Now[0], "nobody holds it, or it is nothing")
	l.Drop(k)
	require.EqualValues(t, 7, l.Now[0], "one still holds it")
	require.EqualValues(t, 12, l.Begin(0, b, 9), "the frame's 4 become 9, beside the 3 that were handed over")
	l.End(0, b, 0)
	l.Drop(k)
	l.Drop(k)
	require.Equal(t, []int64{0, 0}, l.Now)
	l.Keep(1, 5)
	require.Equal(t, []int64{0, 5}, l.Now)
	require.Equal(t, []int64{12, 0}, l.Peak)
	l.Lend(1, k, 6, 1)
	require.Equal(t, []int64{12, 11}, l.Peak)
}

// TestTables: what a table of PyTorch's cannot say is refused with its place.
func TestTables(t *testing.T) {
	for text, want := range map[string]string{
		"0F0\n2F0\n":     "schedule: no rank has stage 1",
		"0F0,0F0.1\n":    "rank 0 cell 1: 0F0.1: PyTorch's tables have no chunks",
		"0F0,99999F0\n":  "rank 0 cell 1",
		"0F0,0F0 0B0\n":  "rank 0 cell 1",
		"0F0,16384F0\n":  "rank 0 cell 1: 16384F0: more than 16384 stages",
		"0F0,0F4194304,": "rank 0 cell 1: 0F4194304: more than",
	} {
		_, err := plan.ParseCSV(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
	p, err := plan.ParseCSV(strings.NewReader("0F0, ,0B0,0W0\n"))
	require.NoError(t, err)
	require.Equal(t, "0F0,0I0,0W0\n", p.String(),
		"in the older spelling B is the input gradient where there is a W")
}
