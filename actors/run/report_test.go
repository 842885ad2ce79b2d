package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/run/record"
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
	require.Equal(t, []record.Point{{X: 2, Y: 5}, {X: 4, Y: 4}}, evaluations(log, 5))
	require.Nil(t, evaluations(log+"x", 5))
}

// FuzzEarlierSteps: no log and no metrics, however broken, crash a resumed run or bring steps that it takes again.
func FuzzEarlierSteps(f *testing.F) {
	f.Add([]byte("{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo"), int64(2))
	f.Add([]byte("{\"msg\":\"eval\",\"step\":1,\"loss\":null}\n{\"msg\":\"eval\",\"step\":-1,\"loss\":1e308}\n"), int64(5))
	f.Fuzz(func(t *testing.T, text []byte, first int64) {
		name := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(name, text, 0o600))
		for _, p := range evaluations(name, first) {
			require.Less(t, p.X, float64(first))
		}
		file, losses, err := openMetrics(name, first)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		for _, p := range losses {
			require.LessOrEqual(t, p.X, float64(first))
		}
	})
}
