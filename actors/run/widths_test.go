package run

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWidths is the coordinate check of arXiv:2203.03466: with the rules of optimizer.mup_base_width a few
// steps change what layers give by as much in wide models as in the narrow one whose rate it is, and
// without them by more the wider they are; a model of the base's width is trained as without.
func TestWidths(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	at := func(width int, rules bool) (moved float64, losses map[int64]float64) {
		args := []string{"train.steps=5", "optimizer.lr=3.0e-3", fmt.Sprint("model.overrides.hidden_size=",
			width),
			fmt.Sprint("model.overrides.num_attention_heads=", width/8),
			fmt.Sprint("model.overrides.num_key_value_heads=", width/8),
			fmt.Sprint("model.overrides.intermediate_size=", 2*width),
			"model.overrides.tie_word_embeddings=false",
			"log.tensors=['*.down_proj.output']", "log.tensor_steps=[1,5]"}
		if rules {
			args = append(args, "optimizer.mup_base_width=16")
		}
		losses, dir, said, err := spikeRun(t, docs, args...)
		require.NoError(t, err, said)
		tensors := filepath.Join(dir, "log", TensorsName)
		name := "model.layers.1.mlp.down_proj.output@0"
		for _, x := range seenIn(t, filepath.Join(tensors, "step-00000005"), "0")[name] {
			moved += float64(x) * float64(x)
		}
		return math.Sqrt(moved / float64(width)), losses
	}
	narrow, want := at(16, false)
	same, losses := at(16, true)
	require.Equal(t, narrow, same)
	require.Equal(t, want, losses)
	var by [2][]float64
	for i, rules := range []bool{false, true} {
		for _, width := range []int{64, 256} {
			moved, _ := at(width, rules)
			by[i] = append(by[i], moved/narrow)
		}
	}
	t.Logf("at 4 and 16 times the width: without %.2f, with the rules %.2f", by[0], by[1])
	require.Greater(t, by[0][1], 2*by[0][0])
	require.Less(t, by[1][1], 2*by[1][0])
	require.Greater(t, by[0][1], 4*by[1][1])
}

// TestWidthsFaults: what the rules are not for is refused.
func TestWidthsFaults(t *testing.T) {
	t.Parallel()
	for want, more := range map[string][]string{
		"one matrix":            nil,
		"steps of another size": {"model.overrides.tie_word_embeddings=false", "optimizer.kind=muon"},
		"have the sizes that they were trained to": {"model.overrides.tie_word_embeddings=false",
			"lora.rank=2"},
	} {
		_, err := spikeConfig(t, t.TempDir(), nil, append(more, "optimizer.mup_base_width=16")...)
		require.ErrorContains(t, err, want)
	}
	for want, more := range map[string][]string{
		"keeps its state in float32":      {"optimizer.kind=lion", "optimizer.moments=8bit"},
		"optimizer.moments is fp32":       {"optimizer.moments_block=64"},
		"keeps an average of weights":     {"optimizer.kind=schedule_free", "optimizer.ema=0.9"},
		"has a rate that does not fall":   {"optimizer.kind=schedule_free", "schedule.kind=cosine"},
		"the run keeps no average of its": {"checkpoint.save_hf_ema=true"},
	} {
		_, err := spikeConfig(t, t.TempDir(), nil, more...)
		require.ErrorContains(t, err, want)
	}
}
