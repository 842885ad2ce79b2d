package run

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// turnedSet writes a data set in which a hand moves and turns about one axis: the state is a place and a
// rotation, an action the next place, the next rotation and 1, rotations as an angle or as six numbers.
func turnedSet(t *testing.T, dir, name string, six bool, picture []byte) string {
	t.Helper()
	turn := func(angle float64) []float32 {
		if !six {
			return []float32{0, 0, float32(angle)}
		}
		s, c := math.Sincos(float64(float32(angle)))
		return []float32{float32(c), float32(s), 0, float32(-s), float32(c), 0}
	}
	var all []recordings.RobotEpisode
	for i := range 6 {
		e := recordings.RobotEpisode{Task: "red disc"}
		for k := range 5 {
			at, next := 0.3*float64(i)+0.1*float64(k*k), 0.3*float64(i)+0.1*float64((k+1)*(k+1))
			state := append([]float32{float32(k)}, turn(at)...)
			action := append(append([]float32{float32(k*k - i)}, turn(next)...), 1)
			e.Frames = append(e.Frames, recordings.RobotStep{Images: [][]byte{picture}, State: state,
				Action: action})
		}
		all = append(all, e)
	}
	path := filepath.Join(dir, name)
	require.NoError(t, recordings.WriteRobot(path, recordings.RobotTop(10, 8), all))
	return path
}

// TestPolicyMotion: rotations that become six numbers when they are learnt train as a data set that has six numbers;
// relative actions train alike under other plans, and the policy acts in the numbers of the recordings,
// from the state that it is told; and what lerobot's files cannot say is refused before a run begins.
func TestPolicyMotion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 8, 8))))
	angles, six := turnedSet(t, dir, "angles", false, b.Bytes()), turnedSet(t, dir, "six", true, b.Bytes())
	model := filepath.Join(dir, "wide.yaml")
	require.NoError(t, os.WriteFile(model, []byte(strings.Replace(piOf8, "in_channels: 4", "in_channels: 8",
		1)), 0o644))
	load := func(set string, more ...string) (*configs.Config, string, error) {
		out := t.TempDir()
		saved := filepath.Join(out, "saved")
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: fmt.Appendf(nil,
			"model: {file: %q}\ndata: {paths: [%q], "+
				"tokenizer: %q, seq_len: 4, split: [1, 0, 0]}\ntrain: {steps: 2, global_batch: 4}\noptimizer: {lr: 1.0e-3}\n"+
				"policy: {normalize: min_max}\n", model, set, filepath.Join(dir, "words")),
			Args: append([]string{"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + saved},
				more...)})
		return cfg, saved, err
	}
	train := func(set string, more ...string) (losses []float64, saved string) {
		cfg, saved, err := load(set, more...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		require.Len(t, losses, 2)
		return losses, saved
	}
	turns := "policy.rotations=[state 1 axis_angle 6d, action 1 euler 6d]"
	want, _ := train(six)
	got, _ := train(angles, turns)
	require.InEpsilonSlice(t, want, got, 1e-5)
	plain, _ := train(angles)
	require.NotEqual(t, want, plain)

	relative := []string{turns, "policy.actions=relative", "policy.absolute=[4]"}
	one, saved := train(angles, relative...)
	two, _ := train(angles, append(relative, "plan.dp=2")...)
	require.InEpsilonSlice(t, one, two, 1e-5)
	m, err := trained.Open(saved, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	can := actor.Abilities()
	require.Equal(t, []any{4, 5, false}, []any{can.Numbers, can.Width, can.Joins})
	acts, err := actor.Act([]policies.Seen{{Task: "red disc", State: []float64{2, 0, 0, 0.4},
		Views: []*media.Image{view}}})
	require.NoError(t, err)
	require.Len(t, acts[0], 4)
	require.Len(t, acts[0][0], 5)
	_, err = actor.Act([]policies.Seen{{Task: "red disc", State: []float64{2, 0}}})
	require.ErrorContains(t, err, "observation.state: 2 numbers, and a rotation ends at 4")

	_, _, err = load(angles, turns, "checkpoint.save_hf=true")
	require.ErrorContains(t, err, "lerobot's files have no word for policy.actions and policy.rotations")
	cfg, _, err := load(angles, "policy.actions=relative")
	require.NoError(t, err)
	err = Train(context.Background(), cfg, Options{})
	require.ErrorContains(t, err, "number 4 of an action is told relative to that of the state, which has 4")
}
