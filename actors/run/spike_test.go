package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// poisoned are texts of two words by turns, and twelve of words at random among them.
func poisoned() (docs []string, bad map[int]bool) {
	words := []string{"red", "blue", "square", "disc"}
	r := rand.New(rand.NewPCG(1, 2))
	bad = map[int]bool{}
	for len(bad) < 12 {
		bad[160+r.IntN(60)] = true
	}
	for i := range 400 {
		var text []string
		for k := range 15 {
			w := words[(k+i)%2]
			if bad[i] {
				w = words[2+r.IntN(2)]
			}
			text = append(text, w)
		}
		docs = append(docs, strings.Join(text, " "))
	}
	return docs, bad
}

// spikeRun trains a small model on texts in their order, four a step, and returns its losses by step, its
// folder and what it said.
func spikeRun(t *testing.T, docs []string, more ...string) (losses map[int64]float64, dir, said string,
	err error) {
	t.Helper()
	dir = t.TempDir()
	losses, said, err = spikeIn(t, dir, docs, more...)
	return losses, dir, said, err
}

// spikeIn goes on in a folder where there is a run.
func spikeIn(t *testing.T, dir string, docs []string, more ...string) (losses map[int64]float64, said string,
	err error) {
	t.Helper()
	cfg, err := spikeConfig(t, dir, docs, more...)
	require.NoError(t, err)
	var say bytes.Buffer
	losses = map[int64]float64{}
	err = Train(context.Background(), cfg, Options{Warnings: &say, Progress: &say, Step: func(m Metrics) {
		losses[m.Step] = m.Loss
	}})
	return losses, say.String(), err
}

// spikeConfig is the configuration of such a run.
func spikeConfig(t *testing.T, dir string, docs []string, more ...string) (*configs.Config, error) {
	t.Helper()
	wordTokenizer(t, dir, 1)
	var lines bytes.Buffer
	for _, d := range docs {
		text, err := json.Marshal(map[string]string{"text": d})
		require.NoError(t, err)
		lines.Write(append(text, '\n'))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "texts.jsonl"), lines.Bytes(), 0o644))
	text := fmt.Sprintf("model: {name: llama/3.2-1b, init: random, overrides: {hidden_size: 16, num_hidden_layers: 2, "+
		"num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, intermediate_size: 32, vocab_size: 8, "+
		"max_position_embeddings: 32, rope_scaling: none}}\ndata: {paths: [%q], tokenizer: %q, seq_len: 16, packing: "+
		"true, shuffle: false, split: [1, 0, 0]}\ntrain: {steps: 45, global_batch: 4, micro_batch: 2}\n"+
		"optimizer: {lr: 1.0e-2}\nschedule: {kind: constant}\ncheckpoint: {dir: %q, interval: 10}\nlog: {dir: %q}\n",
		filepath.Join(dir, "texts.jsonl"), dir, filepath.Join(dir, "saved"), filepath.Join(dir, "log"))
	return configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: more})
}

// TestPoisonedTexts: steps that see texts which are out of the ordinary are taken again with what comes behind them,
// by loss and by gradient norm, alone and together with the steps before them, in one stage and under a plan,
// and the run has the bits of one of which those steps' texts are no part; what it has read is in its ledger.
func TestPoisonedTexts(t *testing.T) {
	t.Parallel()
	const after = "train.spike_after=30"
	docs, bad := poisoned()
	for _, rule := range [][]string{{"train.spike_loss=1.1", after}, {"train.spike_norm=2", after},
		{"train.spike_loss=1.1", after, "train.spike_back=3"}, {"train.spike_loss=1.1", after,
			"train.spike_back=8", "plan.pp=2",
			"plan.dp=2", "plan.zero=2"}} {
		losses, dir, said, err := spikeRun(t, docs, rule...)
		require.NoError(t, err, said)
		l, err := dataset.ReadLedger(filepath.Join(dir, "log", LedgerName))
		require.NoError(t, err)
		var read []string
		for step := range int64(45) {
			samples, _, err := l.Blame(step + 1)
			require.NoError(t, err)
			for _, s := range samples {
				if strings.Contains(rule[0], "loss") {
					require.False(t, bad[int(s)], "%v: text %d was learnt in step %d", rule, s, step+1)
				}
				read = append(read, docs[s])
			}
		}
		require.NoError(t, l.Close())
		require.Contains(t, said, "is out of the ordinary")
		plain, other, _, err := spikeRun(t, read, rule[min(len(rule), 3):]...)
		require.NoError(t, err)
		require.Equal(t, plain, losses, "%v", rule)
		of := func(dir string) map[string][]float32 {
			return values(t, filepath.Join(dir, "saved"), 45, checkpoint.Param, "exp_avg", "exp_avg_sq")
		}
		require.Equal(t, of(other), of(dir), "%v", rule)

		begun, halves, _, err := spikeRun(t, docs, append(rule, "train.steps=42")...)
		require.NoError(t, err)
		rest, _, err := spikeIn(t, halves, docs, rule...)
		require.NoError(t, err)
		maps.Copy(begun, rest)
		require.Equal(t, losses, begun, "%v: a run that goes on knows what steps were like", rule)
		require.Equal(t, of(dir), of(halves), "%v", rule)
	}
	_, _, _, err := spikeRun(t, docs, "train.spike_loss=0.5", after, "train.spike_most=2")
	require.ErrorContains(t, err, "with other samples too, 3 times in a row")
}
