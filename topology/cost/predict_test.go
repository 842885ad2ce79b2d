package cost

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func equalStages(p, m int) (float64, error) { return float64(m + p - 1), nil }

// made are steps of a machine with known constants, with an error of a few percent that repeats.
func made(k Constants) (rows []Measured) {
	i := 0
	for _, h := range []int{2048, 4096, 8192} {
		for _, tp := range []int{1, 2, 8, 16} {
			for _, pp := range []int{1, 4} {
				for _, dp := range []int{1, 4} {
					for _, mb := range []int{1, 4} {
						r := Measured{tp * pp * dp, 32 * dp, mb, h, 32, 24, 2048, tp, dp, pp, 1}
						i++
						r.Seconds = k.Predict(&r, float64(r.Microbatches()+pp-1)).Sum() * (1 +
							0.02*math.Sin(float64(7*i)))
						rows = append(rows, r)
					}
				}
			}
		}
	}
	return
}

// TestCalibrate recovers what a machine does from its step times: rows that were left out are predicted as
// well as their noise allows, and a machine that is not like the model is not.
func TestCalibrate(t *testing.T) {
	var truth Constants
	for j, c := range ConstantTable {
		truth[j] = max(c.Least, min(c.Most, c.Start*(1+0.5*math.Sin(float64(3*j+1)))))
	}
	rows := made(truth)
	held, err := CrossValidate(rows, nil, Splits(5)[0], equalStages)
	require.NoError(t, err)
	mean, median, _ := Quantiles(Errors(held.Rows, held.Seconds))
	require.Less(t, mean, 0.04)
	require.Less(t, median, 0.03)
	for i := range rows {
		rows[i].Seconds = 1 + float64(i%7)
	}
	held, err = CrossValidate(rows, nil, Splits(5)[0], equalStages)
	require.NoError(t, err)
	mean, _, _ = Quantiles(Errors(held.Rows, held.Seconds))
	require.Greater(t, mean, 0.3)
}

// TestSplits: no row of a fold has a say in its own prediction, the folds of a kind have nothing of that kind in
// common with what they are fitted to, and a table of one fold is not predicted from itself.
func TestSplits(t *testing.T) {
	var truth Constants
	for j, c := range ConstantTable {
		truth[j] = c.Start
	}
	rows := made(truth)
	split := Splits(5)[2]
	before, err := CrossValidate(rows, nil, split, equalStages)
	require.NoError(t, err)
	require.Equal(t, []string{"tp  1", "tp  2", "tp  8", "tp 16"}, before.Folds)
	require.Len(t, before.Rows, len(rows))
	for i := range rows {
		if rows[i].TP == 8 {
			rows[i].Seconds *= 3
		}
	}
	after, err := CrossValidate(rows, nil, split, equalStages)
	require.NoError(t, err)
	_, was := before.Fold(2)
	of, is := after.Fold(2)
	require.Len(t, of, len(rows)/4)
	require.Equal(t, was, is, "measured times of a fold changed what it was predicted as")
	most, err := CrossValidate(rows, nil, Splits(5)[5], equalStages)
	require.NoError(t, err)
	for _, r := range most.Rows {
		require.Equal(t, 16*4*4, r.GPUs)
	}
	none, err := CrossValidate(rows[:2], nil, Split{Name: "all", Of: func(*Measured) string { return "" }}, equalStages)
	require.NoError(t, err)
	require.Empty(t, none.Rows)
}

// TestBeside: rows of the same devices elsewhere serve to fit, those of a fold among them do not, and none of
// them is predicted.
func TestBeside(t *testing.T) {
	var truth Constants
	for j, c := range ConstantTable {
		truth[j] = c.Start
	}
	rows, split := made(truth), Splits(5)[2]
	beside := slices.Clone(rows)
	seconds := func(changed int) []float64 {
		l := slices.Clone(beside)
		for i := range l {
			if l[i].TP == changed {
				l[i].Seconds *= 3
			}
		}
		h, err := CrossValidate(rows, l, split, equalStages)
		require.NoError(t, err)
		require.Len(t, h.Rows, len(rows))
		require.Equal(t, []string{"tp  1", "tp  2", "tp  8", "tp 16"}, h.Folds)
		_, s := h.Fold(2)
		return s
	}
	before := seconds(0)
	require.Equal(t, before, seconds(8), "rows beside had a say in the prediction of their own fold")
	require.NotEqual(t, before, seconds(2), "rows beside did not serve to fit")
	for i := range beside {
		beside[i].GPUs = 1 << 20
	}
	h, err := CrossValidate(rows, beside, Splits(5)[5], equalStages)
	require.NoError(t, err)
	require.Empty(t, h.Rows, "the largest are beside")
}

func TestReadMeasured(t *testing.T) {
	head := "\ufeff# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence " +
		"length,tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
	rows, err := ReadMeasured("f.csv", head+"4,8,1,1024,16,16,1024,1,1,4,185.7\n", true)
	require.NoError(t, err)
	require.InDelta(t, 0.1857, rows[0].Seconds, 1e-12)
	rows[0].Seconds = 0
	require.Equal(t, []Measured{{4, 8, 1, 1024, 16, 16, 1024, 1, 1, 4, 0}}, rows)
	for line, want := range map[string]string{
		"4,8,1,1024,16,16,1024,1,1,4,-3":  `f.csv:2: iteration time (ms): "-3" is no such number`,
		"4,8,1,1024,16,16,1024,1,1,4,NaN": `"NaN" is no such number`,
		"5,8,1,1024,16,16,1024,1,1,4,1":   "f.csv:2: # GPUs: 5, but tp 1 · dp 1 · pp 4 = 4",
		"4,9,2,1024,16,16,1024,1,1,4,1":   "is not a multiple of micro batch 2",
		"4,8,1,1024,16,2,1024,1,1,4,1":    "4 stages for 2 layers",
		"4,8,1,1024.5,16,16,1024,1,1,4,1": `"1024.5" is no such number`,
		"4,8,1,1024,16,16,1024,1,1,4":     "wrong number of fields",
		"":                                "has no rows",
	} {
		_, err := ReadMeasured("f.csv", head+line+"\n", true)
		require.ErrorContains(t, err, want)
	}
	_, err = ReadMeasured("f.csv", strings.Replace(head, "micro", "macro", 1), true)
	require.ErrorContains(t, err, "f.csv:1: micro batch: the column is missing")
}

func FuzzReadMeasured(f *testing.F) {
	f.Add("# GPUs,global batch\n1,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := ReadMeasured("f.csv", text, false)
		if err == nil && len(rows) == 0 {
			t.Fatal(fmt.Sprint("no rows and no error: ", text))
		}
	})
}

// Fold takes one fold's rows out.
func (h *Held) Fold(i int) (rows []Measured, seconds []float64) {
	for j, f := range h.Of {
		if f == i {
			rows, seconds = append(rows, h.Rows[j]), append(seconds, h.Seconds[j])
		}
	}
	return
}
