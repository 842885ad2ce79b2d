package run

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
)

// TestAlarmsOnce: what goes wrong at every step is told once, and again when it was right in between.
func TestAlarmsOnce(t *testing.T) {
	var text strings.Builder
	r := newRun(&configs.Config{}, Options{Progress: &text})
	r.report = &reporter{r: r, log: zap.NewNop()}
	lost := actors.Message{Kind: actors.Report, Text: core.TopicSaveLost, Step: 1,
		Err: errors.New("disk full")}
	for range 3 {
		r.report.observe(lost)
	}
	require.Equal(t, 1, strings.Count(text.String(), "was not saved"), text.String())
	require.ErrorContains(t, r.report.lost, "disk full", "the run fails in the end all the same")
	r.report.observe(actors.Message{Kind: actors.Report, Text: core.TopicDurable, Step: 2})
	require.NoError(t, r.report.lost)
	require.Contains(t, text.String(), "saved step 2: durable, the first after 3 that failed\n")
	r.report.observe(lost)
	require.Equal(t, 2, strings.Count(text.String(), "was not saved"))

	ledger, err := dataset.OpenLedger(filepath.Join(t.TempDir(), "samples.ledger"))
	require.NoError(t, err)
	require.NoError(t, ledger.Close())
	d := &data{r: r, ledger: ledger, recent: map[int64]*made{1: {}, 2: {}, 3: {}}}
	for step := range int64(3) {
		d.commit(step + 1)
	}
	require.Equal(t, 1, strings.Count(text.String(), "ledger of samples"), text.String())
}

// TestTicks are round numbers inside the range, a handful of them.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   []float64
	}{
		{1, 40, []float64{5, 10, 15, 20, 25, 30, 35, 40}}, {5.31, 6.04, []float64{5.4, 5.6, 5.8, 6}},
		{0, 1e6, []float64{0, 200000, 400000, 600000, 800000, 1e6}},
		{1, 2, []float64{1, 1.2, 1.4, 1.6, 1.8, 2}}, {-0.3, 0.4, []float64{-0.2, 0, 0.2, 0.4}},
	} {
		got := ticks(c.lo, c.hi, map[bool]int{true: 8, false: 6}[c.hi == 40])
		require.InDeltaSlice(t, c.want, got, 1e-9, "%v to %v: %v", c.lo, c.hi, got)
	}
	nan := []point{{1, math.NaN()}, {2, math.Inf(1)}}
	require.NotContains(t, string(curve("loss", nan, nil)), "NaN")
}

// TestEarlierEvaluations: of a log that several runs wrote, the newest evaluation of each step before a
// resumed one counts.
func TestEarlierEvaluations(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log.jsonl")
	require.NoError(t, os.WriteFile(log, []byte(`{"msg":"eval","step":2,"loss":5}
{"msg":"saved step 2: durable"}
{"msg":"eval","step":4,"loss":4.5}
{"msg":"eval","step":4,"loss":4}
not json
{"msg":"eval","step":6,"loss":3}
`), 0o600))
	require.Equal(t, []point{{2, 5}, {4, 4}}, evaluations(log, 5))
	require.Nil(t, evaluations(log+"x", 5))
}

// FuzzEarlierSteps: no log and no metrics, however broken, crash a resumed run or bring steps that it takes
// again.
func FuzzEarlierSteps(f *testing.F) {
	f.Add([]byte("{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo"), int64(2))
	f.Add([]byte("{\"msg\":\"eval\",\"step\":1,\"loss\":null}\n{\"msg\":\"eval\",\"step\":-1,\"loss\":1e308}\n"), int64(5))
	f.Fuzz(func(t *testing.T, text []byte, first int64) {
		name := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(name, text, 0o600))
		for _, p := range evaluations(name, first) {
			require.Less(t, p.x, float64(first))
		}
		file, losses, err := openMetrics(name, first)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		for _, p := range losses {
			require.LessOrEqual(t, p.x, float64(first))
		}
	})
}
