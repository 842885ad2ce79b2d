package run

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestFolderHoldsOneRun: whatever runs begin and go on in one log.dir, it has the steps and evaluations of the newest
// alone, from their beginning, and says how that run ended; what others have written lies beside it, whole.
func TestFolderHoldsOneRun(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	writePairs(t, data, false)
	rng := rand.New(rand.NewPCG(60, 2))
	for i := range 10 {
		dir := t.TempDir()
		log := filepath.Join(dir, []string{"log", "latest"}[i%2])
		numbers := []string{"metrics.jsonl", "numbers.jsonl"}[i/2%2]
		steps, losses := make([]int, 3), make([][]float64, 3)
		for range 6 {
			who := rng.IntN(3)
			args := []string{"model.file=" + filepath.Join(data, "model.yaml"),
				"data.paths=[" + filepath.Join(data, "pairs.jsonl") + "]", "data.tokenizer=" + data, "data.seq_len=48",
				"data.split=[70,30,0]", "objective.kind=dpo", "train.global_batch=4", "train.micro_batch=2",
				fmt.Sprintf("train.seed=%d", who), "schedule.kind=constant", "train.eval_interval=1", "train.eval_steps=1",
				"log.dir=" + log, fmt.Sprintf("log.name=who-%d", who), "log.jsonl=" + numbers}
			if who < 2 { // the third has no checkpoints and begins again each time
				args = append(args, "checkpoint.dir="+filepath.Join(dir, fmt.Sprint("saved", who)))
			} else {
				steps[who], losses[who] = 0, nil
			}
			steps[who] += 1 + rng.IntN(3)
			cfg, err := configs.Load(configs.Request{Args: append(args, fmt.Sprintf("train.steps=%d", steps[who]))})
			require.NoError(t, err)
			require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
				losses[who] = append(losses[who], m.Loss)
			}}))
			have := recordsIn(t, log, numbers)
			require.Equal(t, losses[who], have.losses)
			require.Equal(t, steps[who], have.evals)
			r := ReadRecord(log)
			require.Equal(t, []string{Finished, fmt.Sprint("who-", who)}, []string{r.Status, r.Name})
		}
		others, err := os.ReadDir(kept(log))
		require.NoError(t, err)
		for _, o := range others {
			from := filepath.Join(kept(log), o.Name())
			r := ReadRecord(from)
			if o.IsDir() && r.Name != "" && r.Name != "who-2" && from != log {
				have := recordsIn(t, from, numbers)
				require.Equal(t, losses[r.Name[4]-'0'], have.losses, "%s", from)
			}
		}
	}
}

// what is recorded in a run directory.
type recorded struct {
	losses []float64
	evals  int
}

func recordsIn(t *testing.T, dir, numbers string) (r recorded) {
	t.Helper()
	each := func(name string, f func(line []byte)) {
		file, err := os.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		defer file.Close()
		for s := bufio.NewScanner(file); s.Scan(); {
			f(s.Bytes())
		}
	}
	each(numbers, func(line []byte) {
		var m Metrics
		require.NoError(t, json.Unmarshal(line, &m))
		r.losses = append(r.losses, m.Loss)
	})
	each("log.jsonl", func(line []byte) {
		if strings.Contains(string(line), `"msg":"eval"`) {
			r.evals++
		}
	})
	return r
}

// TestFolderOfTwo: a run in the folder of one that is under way changes nothing there, and one that fails says why.
func TestFolderOfTwo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	load := func(more ...string) *configs.Config {
		cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir, "model.yaml"),
			"data.paths=[" + filepath.Join(dir, "pairs.jsonl") + "]", "data.tokenizer=" + dir, "data.seq_len=48",
			"objective.kind=dpo", "train.global_batch=4", "train.micro_batch=2", "train.steps=4",
			"log.dir=" + filepath.Join(dir, "log")}, more...)})
		require.NoError(t, err)
		return cfg
	}
	var twice error
	ledger := func() []byte {
		b, err := os.ReadFile(filepath.Join(dir, "log", LedgerName))
		require.NoError(t, err)
		return b
	}
	require.NoError(t, Train(context.Background(), load(), Options{Step: func(m Metrics) {
		if m.Step == 4 {
			before := ledger()
			twice = Train(context.Background(), load(), Options{})
			require.True(t, bytes.HasPrefix(ledger(), before), "the first run's ledger was cut")
		}
	}}))
	require.ErrorContains(t, twice, "is in use by another run")
	require.Equal(t, Finished, ReadRecord(filepath.Join(dir, "log")).Status)
	none := filepath.Join(dir, "none.jsonl")
	require.NoError(t, os.WriteFile(none, []byte(`{"prompt": "red", "chosen": "", "rejected": "blue"}`+"\n"), 0o644))
	err := Train(context.Background(), load("data.paths=["+none+"]", "data.kind=pairs"), Options{})
	require.Error(t, err)
	r := ReadRecord(filepath.Join(dir, "log"))
	require.Equal(t, Failed, r.Status)
	require.NotEmpty(t, r.Reason)
	ctx, cancel := context.WithCancel(context.Background())
	err = Train(ctx, load(), Options{Step: func(Metrics) { cancel() }})
	require.True(t, errors.Is(err, ErrStopped))
	require.Equal(t, Stopped, ReadRecord(filepath.Join(dir, "log")).Status)
}

// TestRecordOfPanic: a run whose program panics has failed, and does not say that it finished.
func TestRecordOfPanic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	cfg, err := configs.Load(configs.Request{Args: []string{"model.file=" + filepath.Join(dir, "model.yaml"),
		"data.paths=[" + filepath.Join(dir, "pairs.jsonl") + "]", "data.tokenizer=" + dir, "data.seq_len=48",
		"objective.kind=dpo", "train.global_batch=4", "train.steps=1", "log.dir=" + filepath.Join(dir, "log")}})
	require.NoError(t, err)
	require.PanicsWithValue(t, "our own fault", func() {
		_ = Train(context.Background(), cfg, Options{Progress: faulty{}}) // it panics
	})
	got := ReadRecord(cfg.Run.Log.Dir)
	require.Equal(t, []string{Failed, "panic: our own fault"}, []string{got.Status, got.Reason})
	require.NoError(t, Train(context.Background(), cfg, Options{}), "the folder is free again")
}

// faulty panics when a run tells of its model.
type faulty struct{}

func (faulty) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "model ") {
		panic("our own fault")
	}
	return len(b), nil
}
