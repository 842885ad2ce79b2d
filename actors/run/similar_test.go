package run

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/trained"
)

// similarGolden is what bench/golden/embeddings.py has of sentence-transformers.
type similarGolden struct {
	Queries, Positives, Negatives []string
	Cases                         map[string]struct {
		Loss      float64
		Gradients map[string][]float64
		Vectors   map[string][]float64
	}
}

// TestSimilarGolden: the loss of embeddings of a run file, its gradients and vectors are sentence-transformers',
// with either pooling. One step of plain descent with rate 1 moves every weight by its gradient.
func TestSimilarGolden(t *testing.T) {
	t.Parallel()
	var g similarGolden
	text, err := os.ReadFile("testdata/embeddings/golden.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	data := filepath.Join(t.TempDir(), "similar.jsonl")
	var lines []string
	for i, q := range g.Queries {
		lines = append(lines, fmt.Sprintf(`{"anchor": %q, "positive": %q, "negative": %q}`, q, g.Positives[i],
			g.Negatives[i]))
	}
	require.NoError(t, os.WriteFile(data, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	model := filepath.Join(preferences, "policy")
	for pooling, c := range g.Cases {
		train := func(rate string) (loss float64, out string) {
			dir := t.TempDir()
			out = filepath.Join(dir, "saved", "release_hf_weights")
			cfg, err := configs.Load(configs.Request{Args: []string{"model.path=" + model,
				"data.paths=" + data,
				"data.seq_len=40", "objective.kind=infonce", "objective.pooling=" + pooling, "train.steps=1",
				"train.global_batch=3", "train.micro_batch=3", "data.packing=false", "optimizer.kind=sgd",
				"optimizer.lr=" + rate, "optimizer.momentum=0", "optimizer.weight_decay=0",
				"optimizer.clip_grad=0",
				"schedule.warmup_steps=0", "schedule.kind=constant", "log.dir=" + filepath.Join(dir, "log"),
				"checkpoint.dir=" + filepath.Join(dir, "saved"), "checkpoint.save_hf=true"}})
			require.NoError(t, err)
			require.NoError(t, Train(context.Background(), cfg,
				Options{Step: func(m Metrics) { loss = m.Loss }}))
			return loss, out
		}
		loss, out := train("1")
		require.InDelta(t, c.Loss, loss, 1e-5*c.Loss, pooling)
		before, after := weightsOf(t, model), weightsOf(t, out)
		require.NotContains(t, after, "lm_head.weight")
		for param, want := range c.Gradients {
			got := make([]float64, len(want))
			for i := range got {
				got[i] = float64(before[param][i]) - float64(after[param][i])
			}
			require.InDeltaSlice(t, want, got, 1e-4, "%s: %s", pooling, param)
		}
		_, same := train("1e-30")
		m, err := trained.Open(same, "")
		require.NoError(t, err)
		e, err := m.NewEmbedder()
		require.NoError(t, err)
		for text, want := range c.Vectors {
			got, err := e.Embed(text)
			require.NoError(t, err)
			require.InDeltaSlice(t, want, got, 1e-6, "%s: %s", pooling, text)
		}
		e.Close()
		m.Close()
	}
}

// TestSimilar: embeddings begin near the logarithm of how many texts there are and learn; a pipeline gives the
// same bits, replicas the same microbatches and so the same losses, tensor parallelism the same but for
// rounding; held-out texts are found, from the run's checkpoints and from their export; bad records are set
// aside, and data of another kind, a query alone in its microbatch and what the loss does not read are refused.
func TestSimilar(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pairs := writePairs(t, dir, false)
	path := filepath.Join(dir, "similar.jsonl")
	var lines []string
	for i := range 24 {
		q, p := colours[i%4], colours[(i+1)%4]
		lines = append(lines, fmt.Sprintf(`{"query": %q, "positive": %q, "negatives": [%q]}`, q+strings.Repeat(" "+q, i%3),
			p+strings.Repeat(" "+p, i/4%3), colours[(i+2)%4]))
	}
	good := strings.Join(lines, "\n") + "\n"
	held := filepath.Join(dir, "held.jsonl")
	require.NoError(t, os.WriteFile(held, []byte(strings.Join(lines[:4], "\n")+"\n"), 0o644))
	bad := good + `{"query": "", "positive": "red"}
{"query": "red", "positive": " "}
{"query": "red", "positive": "blue", "negatives": "red"}
{"query": "red", "positive": "blue", "negatives": ["blue"]}
{"query": "red", "positive": "blue", "negative": "` + strings.Repeat("blue ", 60) + `"}
`
	require.NoError(t, os.WriteFile(path, []byte(bad), 0o644))
	args := []string{"objective.kind=infonce", "data.paths=[" + path + "]", "train.micro_batch=2"}
	saved := filepath.Join(dir, "saved")
	want, log := pairsRun(t, dir, append(args, "checkpoint.dir="+saved, "checkpoint.save_hf=true",
		"train.steps=40")...)
	require.Less(t, want[39], 0.7*want[0])
	quarantine, err := os.ReadFile(filepath.Join(log, "quarantine.jsonl"))
	require.NoError(t, err)
	for _, why := range []string{"its query is empty", "its positive is empty", "are no list of texts",
		"its positive is one of its negatives", "and none is cut"} {
		require.Contains(t, string(quarantine), why)
	}
	var means []float64
	for _, from := range []string{saved, filepath.Join(saved, "release_hf_weights")} {
		m, err := trained.Open(from, "")
		require.NoError(t, err)
		r, err := m.MeasureRecall(context.Background(), held, func(int, int) {})
		require.NoError(t, err)
		require.Equal(t, 4, r.Queries)
		require.Equal(t, 1.0, r.At[5])
		means = append(means, r.Mean)
		m.Close()
	}
	require.Equal(t, means[0], means[1])
	piped, _ := pairsRun(t, dir, append(args, "plan.pp=2")...)
	alone, _ := pairsRun(t, dir, args...)
	require.Equal(t, alone, piped)
	for _, more := range [][]string{{"plan.dp=2"}, {"plan.tp=2"}, {"plan.tp=2",
		"plan.sequence_parallel=true"}} {
		got, _ := pairsRun(t, dir, append(args, more...)...)
		require.InDeltaSlice(t, alone, got, 1e-3*math.Abs(alone[0]), "%v", more)
	}
	half, _ := pairsRun(t, dir, append(args, "train.precision=bf16", "objective.pooling=last")...)
	require.Less(t, half[11], half[0])
	lora, _ := pairsRun(t, dir, append(args, "lora.rank=4", `lora.targets=["*"]`)...)
	require.Less(t, lora[11], lora[0])
	require.ErrorContains(t, pairsFault(t, dir, "objective.kind=infonce", "data.paths=["+pairs+"]"),
		"the data holds pairs, and infonce learns from others")
	require.ErrorContains(t, pairsFault(t, dir, "data.paths=["+path+"]"), "set objective.kind to infonce")
	require.ErrorContains(t, pairsFault(t, dir, "objective.kind=infonce", "objective.beta=0.3",
		"data.paths=["+path+"]"), "is not read by objective.kind = infonce")
	require.ErrorContains(t, pairsFault(t, dir, "objective.kind=infonce", "objective.temperature=0",
		"data.paths=["+path+"]"), "nothing is divided by 0")
	require.NoError(t, os.WriteFile(path, []byte(`{"query": "red", "positive": "blue"}
{"query": "blue", "positive": "square"}
`), 0o644))
	require.ErrorContains(t, pairsFault(t, dir, "objective.kind=infonce", "data.paths=["+path+"]",
		"train.micro_batch=1", "train.global_batch=2", "data.packing=false"), "alone with its positive")
}
