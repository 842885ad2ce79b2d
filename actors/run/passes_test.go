package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
)

// blended is a run of pairs over two or three files with weights, in dir.
func blended(t *testing.T, dir string, sizes []int, weights []float64, more ...string) *configs.Config {
	t.Helper()
	one := filepath.Join(dir, "one")
	require.NoError(t, os.MkdirAll(one, 0o755))
	text, err := os.ReadFile(writePairs(t, one, false))
	require.NoError(t, err)
	all := strings.SplitAfter(string(text), "\n")
	var paths []string
	for i, n := range sizes {
		p := filepath.Join(dir, fmt.Sprintf("%c.jsonl", 'a'+i))
		require.NoError(t, os.WriteFile(p, []byte(strings.Join(all[:n], "")), 0o644))
		paths = append(paths, fmt.Sprintf("{path: %q, weight: %g}", p, weights[i]))
	}
	cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(one, "model.yaml"),
		"data.paths=[" + strings.Join(paths, ", ") + "]", "data.tokenizer=" + one, "data.seq_len=48", "data.split=[1,0,0]",
		"data.packing=false", "objective.kind=dpo", "train.global_batch=4", "train.micro_batch=2", "optimizer.lr=1e-7",
		"schedule.kind=cosine", "checkpoint.dir=" + filepath.Join(dir, "saved"), "log.dir=" + filepath.Join(dir, "log")}, more...)})
	require.NoError(t, err)
	return cfg
}

// passed carries a run out, up to a step for one that is stopped, and returns its rates and losses and what it said.
func passed(t *testing.T, cfg *configs.Config, stop int64) (rates, losses []float64, said string) {
	t.Helper()
	var say strings.Builder
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := Train(ctx, cfg, Options{Progress: &say, Step: func(m Metrics) {
		if rates, losses = append(rates, m.LR), append(losses, m.Loss); m.Step == stop {
			cancel()
		}
	}})
	if stop == 0 || !errors.Is(err, ErrStopped) {
		require.NoError(t, err)
	}
	return rates, losses, say.String()
}

// TestEpochs: a run of passes meets every document of every source of a blend exactly so often, whatever the weights
// and sizes; its rate falls over the steps that these are; what is left over is learnt too, or left out.
func TestEpochs(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(60, 6))
	for i := range 10 {
		sizes, weights, sum := []int{}, []float64{}, 0
		for range 2 + rng.IntN(2) {
			sizes, weights = append(sizes, 1+rng.IntN(23)), append(weights, 0.1+rng.Float64())
			sum += sizes[len(sizes)-1]
		}
		passes, drop := 1+rng.IntN(3), i%2 == 1 && sum >= 4
		dir := t.TempDir()
		cfg := blended(t, dir, sizes, weights, fmt.Sprintf("train.epochs=%d", passes), fmt.Sprintf("data.drop_last=%v", drop))
		rates, losses, said := passed(t, cfg, 0)
		want := (passes*sum + 3) / 4
		if drop {
			want = passes * sum / 4
		}
		require.Len(t, rates, want, "%v of %v: %s", passes, sizes, said)
		require.Contains(t, said, fmt.Sprintf("train.epochs = %d: %d steps, and ", passes, want))
		require.True(t, want < 3 || rates[want-1] < 0.5e-7, "the schedule is that of the counted steps: %v", rates)

		for _, loss := range losses { // the rate is too small to learn
			require.InDelta(t, math.Ln2, loss, 1e-3, "what fills a step up is no part of its mean: %v", losses)
		}

		d, conf, err := openAgain(filepath.Join(dir, "log", "run.yaml"), nil)
		require.NoError(t, err)
		require.NoError(t, d.openTrain(conf))
		met := map[string]int{}
		for step := int64(0); ; step++ {
			batches, err := d.train.Step(step)
			if errors.Is(err, io.EOF) {
				require.EqualValues(t, want, step)
				break
			}
			require.NoError(t, err)
			for _, b := range batches {
				for _, o := range b.Origins {
					met[fmt.Sprint(o.Source, " ", o.Document)]++
				}
			}
		}
		d.close()
		if drop {
			continue
		}
		require.Len(t, met, sum)
		for doc, n := range met {
			require.Equal(t, passes, n, doc)
		}
	}
}

// TestEpochsGoOn: a run that is stopped in a pass goes on in it without counting again, and learns at the same rates;
// train.steps ends it earlier, and half a pass is half of its steps. Prompts have passes too.
func TestEpochsGoOn(t *testing.T) {
	t.Parallel()
	sizes, weights := []int{9, 14}, []float64{1, 3}
	whole, _, _ := passed(t, blended(t, t.TempDir(), sizes, weights, "train.epochs=2"), 0)
	require.Len(t, whole, 12)
	dir := t.TempDir()
	begun, _, said := passed(t, blended(t, dir, sizes, weights, "train.epochs=2", "checkpoint.interval=1"), 7)
	require.Contains(t, said, "the data is read once")
	rest, _, said := passed(t, blended(t, dir, sizes, weights, "train.epochs=2", "checkpoint.interval=1"), 0)
	require.NotContains(t, said, "the data is read once")
	require.NotContains(t, said, "learning rate of", "the run goes on at its own rates")
	require.NotContains(t, said, "train.steps")
	require.Equal(t, whole, append(begun, rest...))
	l, err := dataset.ReadLedger(filepath.Join(dir, "log", LedgerName))
	require.NoError(t, err)
	last, _ := l.Last()
	require.EqualValues(t, 12, last)
	require.NoError(t, l.Close())

	short, _, said := passed(t, blended(t, t.TempDir(), sizes, weights, "train.epochs=2", "train.steps=5"), 0)
	require.Len(t, short, 5)
	require.Contains(t, said, "train.steps = 5 ends the run before that")
	half, _, _ := passed(t, blended(t, t.TempDir(), sizes, weights, "train.epochs=0.5"), 0)
	require.Len(t, half, 3)
	drawn, _ := policyRun(t, t.TempDir(), "train.epochs=1.5", "train.steps=99", "rollout.updates=2")
	require.Len(t, drawn, int(math.Ceil(1.5*16/4*2)))
	var fault *configs.Error
	none := blended(t, t.TempDir(), []int{1, 1}, weights, "train.epochs=1", "data.drop_last=true")
	require.ErrorAs(t, Train(context.Background(), none, Options{}), &fault)
	require.Equal(t, "train.epochs", fault.Key)
}

// TestEpochsOfTasks: runs of pictures, actions, and texts that belong together have passes whose last step is filled up
// too, with a loss like the others.
func TestEpochsOfTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	captionWords(t, filepath.Join(dir, "text"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	like := func(losses []float64, steps int) {
		t.Helper()
		require.Len(t, losses, steps)
		for _, l := range losses {
			require.InEpsilon(t, losses[0], l, 0.7)
		}
	}
	still := []string{"train.epochs=1", "train.steps=99", "train.global_batch=10", "optimizer.lr=1e-9"}
	drawn, _ := encodersRun(t, fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml")), dir, filepath.Join(dir, "text"),
		append(still, "diffusion.encoders=live")...)
	like(drawn, 3) // of 24 pictures

	robots := t.TempDir()
	shown(t, robots)
	words := filepath.Join(t.TempDir(), "words")
	seerWords(t, words, seers[0].mark, seers[0].processor)
	written, _, err := scribeRun(t, robots, seers[0].folder, words, append(still, "train.global_batch=2", "data.packing=false")...)
	require.NoError(t, err)
	like(written, len(written))
	require.Greater(t, len(written), 1)

	similar := filepath.Join(t.TempDir(), "similar.jsonl")
	var lines []string
	for i := range 23 {
		lines = append(lines, fmt.Sprintf(`{"query": %q, "positive": %q}`, colours[i%4], colours[(i+1)%4]))
	}
	require.NoError(t, os.WriteFile(similar, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	writePairs(t, dir, false)
	found, _ := pairsRun(t, dir, append(still, "objective.kind=infonce", "data.paths=["+similar+"]", "train.micro_batch=5",
		"data.packing=false")...)
	like(found, 3)
}
