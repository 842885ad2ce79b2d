package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func hashOf(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

func parse(t *testing.T, text string) *Program {
	p, err := ParseCSV(strings.NewReader(text))
	require.NoError(t, err)
	return p
}

// TestLowerGolden lowers PyTorch's table of an interleaved zero-bubble schedule and compares with the hash
// of the table that torch.distributed.pipelining makes (zb1p_2rank_2stagep_comms.csv).
func TestLowerGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/zb1p_2rank_compute.csv")
	require.NoError(t, err)
	p := parse(t, string(text))
	require.NoError(t, p.Check())
	require.Equal(t, []int{0, 1, 0, 1}, p.StageRank)
	require.Equal(t, 8, p.Micro)
	low, err := p.Merge().Lower()
	require.NoError(t, err)
	require.Len(t, low.Rows[0], 80)
	require.Len(t, low.Rows[1], 96)
	require.Equal(t, "99b371864a190caafd98bd49e0cd01d0c192e38a253e708041242ed221873d1e", hashOf(low.String()))
	require.NoError(t, low.CheckRendezvous())
	again := parse(t, low.String())
	require.Equal(t, low.Rows, again.Rows)
}

// TestRendezvous: two ranks that send to each other first and receive then end only with buffered sends.
func TestRendezvous(t *testing.T) {
	p := parse(t, "0F0,0SEND_F0,2RECV_F0,2F0\n1F0,1SEND_F0,1RECV_F0\n")
	err := p.CheckRendezvous()
	require.ErrorContains(t, err,
		"rank 0 at 0SEND_F0 waits for 1RECV_F0 of rank 1; rank 1 at 1SEND_F0 waits for 2RECV_F0 of rank 0")
}

func TestCheckFaults(t *testing.T) {
	for text, want := range map[string]string{
		"0F0,0B0\n1F0\n":         "rank 1 action 1: 1I0 is missing",
		"0F0,0F0,0B0\n1F0,1B0\n": "rank 0 action 1: 0F0 runs twice",
		"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n": "rank 0 at 0B0 waits for 1I0 of rank 1; rank 1 at 1F1 " +
			"waits for 0F1 of rank 0",
		"0F0,0B0,0W0\n1F0,1I0\n": "rank 1 action 2: 1W0 is missing",
	} {
		require.ErrorContains(t, parse(t, text).Check(), want, text)
	}
	_, err := ParseCSV(strings.NewReader("0F0\n0F1\n"))
	require.ErrorContains(t, err, "rank 1 cell 0: 0F1: stage 0 belongs to rank 0")
	_, err = ParseCSV(strings.NewReader("0F0,0Q1\n"))
	require.ErrorContains(t, err, "rank 0 cell 1")
	p := parse(t, "0F0,0B0\n")
	for _, c := range []Costs{{F: []float64{math.NaN()}}, {Comm: -1}, {W: []float64{1, 2}}} {
		_, err := p.Evaluate(c)
		require.ErrorContains(t, err, "costs of")
	}
	require.ErrorContains(t, (&Program{Rows: make([][]Entry, 1), StageRank: []int{2}, Micro: 1}).Check(),
		"stage 0 belongs to rank 2 of 1")
}

// TestEvaluate checks a pipeline small enough for paper: two ranks, two microbatches, communication of 1.
func TestEvaluate(t *testing.T) {
	p := parse(t, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
	got, err := p.Evaluate(Costs{F: []float64{2, 3}, I: []float64{2, 3}, W: []float64{1, 1}, Comm: 1})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 2, 11, 18}, {3, 6, 10, 13}}, got.Start)
	require.Equal(t, 21.0, got.Makespan)
	require.Equal(t, 21.0, got.Longest)
	require.Equal(t, []int{4, 2}, got.Peak)
	require.InDelta(t, 1-14.0/21, got.BubbleLongest(), 1e-12)
}

func FuzzParseCSV(f *testing.F) {
	for _, s := range []string{"0F0,,0B0\n1F0,1I0,1W0\n", "(0F7;7B3)OVERLAP_F_B\n", "0F0.3\n",
		"1UNSHARD,1STEP\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 {
			return
		}
		p, err := ParseCSV(strings.NewReader(text))
		if err != nil || p.Micro > 1000 || len(p.StageRank) > 1000 {
			return
		}
		_ = p.Check()
		again, err := ParseCSV(strings.NewReader(p.String()))
		require.NoError(t, err)
		require.Equal(t, p.String(), again.String())
	})
}
