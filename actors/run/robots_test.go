package run

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestRobotsTogether: a policy learns of robots of two kinds, whose actions and states have unequally many
// numbers, each scaled by the statistics of its own recordings, in a ratio that weights say; it acts as either.
func TestRobotsTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	img := image.NewRGBA(image.Rect(0, 0, 8, 8))
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	other := recordings.RobotEpisode{Task: "red disc"}
	for k := range 20 {
		other.Frames = append(other.Frames, recordings.RobotStep{Images: [][]byte{b.Bytes()},
			State:  []float32{float32(100 * k)},
			Action: []float32{float32(1000 * k)}})
	}
	require.NoError(t, recordings.WriteRobot(filepath.Join(dir, "other"), recordings.RobotTop(10, 8),
		[]recordings.RobotEpisode{other}))
	train := func(paths string, more ...string) (losses []float64, saved string) {
		out := t.TempDir()
		saved = filepath.Join(out, "saved")
		text := fmt.Sprintf("model: {file: %q}\ndata: {paths: %s, tokenizer: %q, seq_len: 4, split: [1, 0, 0]}\n"+
			"train: {steps: 3, global_batch: 8}\noptimizer: {lr: 1.0e-3}\n", filepath.Join(dir,
			"model.yaml"), paths,
			filepath.Join(dir, "words"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + saved}, more...)})
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses, saved
	}
	one, two := filepath.Join(dir, "set"), filepath.Join(dir, "other")
	alone, _ := train(fmt.Sprintf("[%q]", one))
	both, saved := train(fmt.Sprintf("[{path: %q, weight: 3}, {path: %q, weight: 1}]", one, two))
	require.NotEqual(t, alone, both)
	for _, loss := range both {
		require.Less(t, loss, 10.0) // numbers of the other robot are a thousand times as large
	}
	split, _ := train(fmt.Sprintf("[{path: %q, weight: 3}, {path: %q, weight: 1}]", one, two), "plan.dp=2",
		"plan.pp=2")
	require.InEpsilonSlice(t, both, split, 1e-5)

	m, err := trained.Open(saved, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	act := func(state ...float64) [][]float64 {
		chunks, err := actor.Act([]policies.Seen{{Task: "red disc", State: state,
			Views: []*media.Image{view}}})
		require.NoError(t, err)
		return chunks[0]
	}
	require.Len(t, act(1, 2)[0], 3)
	require.NoError(t, actor.As("other"))
	got := act(100)
	require.Len(t, got[0], 1)
	require.Greater(t, max(got[0][0], -got[0][0]), 100.0)
	require.ErrorContains(t, actor.As("third"), "learnt of [set other]")
	require.NoError(t, actor.As("set"))
	require.Len(t, act(1, 2)[0], 3)
}
