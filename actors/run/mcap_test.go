package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestMCAPRun: a policy learns of bags of ROS 2, with the same losses under other plans, and its frames a
// second have their effect; recordings that have frames of their own have no rate.
func TestMCAPRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	model := strings.Replace(actOf8, "state_size: 2", "state_size: 10", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "act.yaml"), []byte(model), 0o644))
	train := func(more ...string) (losses []float64, err error) {
		out := t.TempDir()
		text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [../../dataset/format/recordings/testdata/mcap], seq_len: 4, "+
			"split: [1, 0, 0]}\npolicy: {normalize: mean_std, action_key: arm.command, state_key: "+
			"joint_states+tf.hand+gripper, cameras: [observation.images.wrist.compressed]}\ntrain: {steps: 3, "+
			"global_batch: 4}\noptimizer: {lr: 1.0e-3}\n", filepath.Join(dir, "act.yaml"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved")},
			more...)})
		require.NoError(t, err)
		err = Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses,
				m.Loss)
		}})
		return losses, err
	}
	one, err := train()
	require.NoError(t, err)
	require.Len(t, one, 3)
	two, err := train("plan.pp=2", "plan.dp=2")
	require.NoError(t, err)
	require.InEpsilonSlice(t, one, two, 1e-5)
	other, err := train("policy.fps=17")
	require.NoError(t, err)
	require.NotEqual(t, one, other)
	_, err = train("policy.fps=17", "data.paths=[../../dataset/hdf5/testdata/robomimic.hdf5]")
	require.ErrorContains(t, err, "policy.fps")
	require.ErrorContains(t, err, "have frames of their own")
	_, err = train("policy.fps=17", "data.paths=[../../dataset/format/recordings/testdata/mcap, "+
		"../../dataset/hdf5/testdata/robomimic.hdf5]") // one of them has messages
	require.ErrorContains(t, err, "policy.state_key")
}

// TestPolicyKept: a policy acts and is exported by what its recordings said when it learnt of them, whatever
// became of them.
func TestPolicyKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	model := strings.Replace(actOf8, "state_size: 2", "state_size: 10", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "act.yaml"), []byte(model), 0o644))
	bags, saved := filepath.Join(dir, "bags"), filepath.Join(dir, "saved")
	require.NoError(t, os.Mkdir(bags, 0o755))
	b, err := os.ReadFile("../../dataset/format/recordings/testdata/mcap/zstd.mcap")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bags, "a.mcap"), b, 0o644))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: fmt.Appendf(nil,
		"model: {file: %q}\ndata: {paths: "+
			"[%q], seq_len: 4, split: [1, 0, 0]}\npolicy: {normalize: mean_std, action_key: arm.command, state_key: "+
			"joint_states+tf.hand+gripper, cameras: [observation.images.wrist.compressed]}\ntrain: {steps: 1, "+
			"global_batch: 4}\ncheckpoint: {dir: %q}\nlog: {dir: %q}\n", filepath.Join(dir, "act.yaml"),
		bags,
		saved,
		filepath.Join(dir, "log"))})
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{}))
	require.NoError(t, os.RemoveAll(bags))
	m, err := trained.Open(saved, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	require.NoError(t, actor.As("bags"))
	require.Equal(t, []string{"observation.images.wrist.compressed"}, actor.Abilities().Cameras)
	e := trained.Exporter{Cfg: m.Cfg, Model: m.Model, Saved: m.Saved}
	require.NoError(t, e.Write(filepath.Join(dir, "out")))
}
