package run

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRobotsInHalf: models with layers of which each robot has its own learn in numbers of 16 bits as they do in 32,
// with their gradients shared out or not.
func TestRobotsInHalf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shown(t, dir)
	words := filepath.Join(dir, "sight")
	seerWords(t, words, "<|image_pad|>", qwenSight)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "seven.yaml"), []byte(sevenOf16), 0o600))
	for _, model := range []string{"qwen2.5-vl", "seven.yaml"} {
		want, _, err := guideRun(t, dir, model, words, t.TempDir(), "train.steps=2")
		require.NoError(t, err, model)
		for _, more := range [][]string{{"train.precision=bf16"}, {"train.precision=fp16", "plan.dp=2",
			"plan.zero=3"}} {
			got, _, err := guideRun(t, dir, model, words, t.TempDir(), append(more, "train.steps=2")...)
			require.NoError(t, err, "%s %v", model, more)
			require.InEpsilonSlice(t, want, got, 1e-3, "%s %v", model, more)
		}
	}
	for name, m := range map[string]string{"groot": grootOf8, "xvla": xvlaOf16} {
		p := newRobotPolicy(t, m)
		cfg, err := p.load(p.model, t.TempDir(), "train.precision=bf16", "train.steps=1",
			"schedule.decay_steps=1")
		require.NoError(t, err, name)
		require.NoError(t, Train(context.Background(), cfg, Options{}), name)
	}
}
