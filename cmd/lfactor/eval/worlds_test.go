package eval

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/world"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
)

// worldEnv makes the test's program a world in which an episode has four steps and even seeds succeed.
const worldEnv = "LFACTOR_TEST_WORLD"

func TestMain(m *testing.M) {
	if os.Getenv(worldEnv) == "" {
		os.Exit(m.Run())
	}
	in, seed, step := bufio.NewScanner(os.Stdin), 0, 0
	for in.Scan() {
		var q struct {
			Hello int
			Reset *struct{ Seed int }
			Step  *struct{ Action []float64 }
		}
		if json.Unmarshal(in.Bytes(), &q) != nil || q.Hello == 0 && q.Reset == nil && q.Step == nil {
			return
		}
		switch {
		case q.Hello == 1:
			fmt.Println(`{"world": "four", "state": 2, "action": 3, "cameras": ["top"], "fps": 5}`)
			continue
		case q.Reset != nil:
			seed, step = q.Reset.Seed, 0
		default:
			step++
		}
		fmt.Printf(`{"task": "go", "state": [%d, %d], "expert": [1, 2, %d], "reward": 0, "done": %t, "success": %t, "images": `+
			`{"top": {"height": 1, "width": 1, "pixels": "AAAA"}}}`+"\n", seed, step, step, step == 4, step == 4 && seed%2 == 0)
	}
}

// small is a small ACT.
const small = `model_type: act
hidden_size: 16
num_hidden_layers: 1
num_attention_heads: 2
intermediate_size: 24
initializer_range: 0.1
in_channels: 3
state_size: 2
chunk_size: 4
views: 1
view_height: 8
view_width: 8
backbone_width: 4
decoder_layers: 1
vae_layers: 1
latent_size: 4
`

// trainedSmall trains it for a step, and returns where its checkpoints lie.
func trainedSmall(t *testing.T) string {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	e := recordings.RobotEpisode{Task: "go"}
	for i := range 6 {
		v := float32(i)
		e.Frames = append(e.Frames, recordings.RobotStep{Images: [][]byte{media.NewImage(8, 8).PNG()},
			State: []float32{v, 1 - v}, Action: []float32{v, 2 * v, 3 - v}})
	}
	require.NoError(t, recordings.WriteRobot(in("set"), recordings.RobotTop(5, 8), []recordings.RobotEpisode{e}))
	require.NoError(t, os.WriteFile(in("act.yaml"), []byte(small), 0o644))
	text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 4, split: [1, 0, 0]}\npolicy: {normalize: mean_std}\n"+
		"train: {steps: 1, global_batch: 2}\nlog: {dir: %q}\ncheckpoint: {dir: %q, interval: 1}\n",
		in("act.yaml"), in("set"),
		in("log"), in("saved"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text)})
	require.NoError(t, err)
	require.NoError(t, run.Train(context.Background(), cfg, run.Options{}))
	return in("saved")
}

// TestEvalWorlds: a policy acts in a command, and the verb says how it did, records what the expert would have done
// with the statistics of the policy's own data, and draws a page; what is missing or has no effect is refused.
func TestEvalWorlds(t *testing.T) {
	saved, dir := trainedSmall(t), t.TempDir()
	program, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(worldEnv, "1")
	ask := func(args ...string) (string, error) {
		var out bytes.Buffer
		before := cli.Out
		cli.Out = &out
		defer func() { cli.Out = before }()
		c := Command()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(args)
		c.SetErr(&out)
		err := c.ExecuteContext(context.Background())
		return out.String(), err
	}
	out, err := ask("--policy", saved, "--world", program, "--episodes", "5", "--worlds", "2", "--seed", "3",
		"--page",
		filepath.Join(dir, "page.html"), "--record", filepath.Join(dir, "corrections"))
	require.NoError(t, err)
	require.Contains(t, out, "four: success 40.0 % of 5 episodes (95 %: 11.8 to 76.9), reward 0 and 4.0 steps each")
	require.Contains(t, out, "5 episodes, of what the world's expert would have done")
	page, err := os.ReadFile(filepath.Join(dir, "page.html"))
	require.NoError(t, err)
	require.Equal(t, 25, bytes.Count(page, []byte("<img")))
	want, err := os.ReadFile(filepath.Join(filepath.Dir(saved), "set", "meta", "stats.json"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "corrections", "meta", "stats.json"))
	require.NoError(t, err)
	require.Equal(t, want, got)

	cut, cancel := context.WithCancel(context.Background())
	cancel()
	c := Command()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"--policy", saved, "--world", program})
	err = c.ExecuteContext(cut)
	var stopped exit.Error
	require.ErrorAs(t, err, &stopped)
	require.Equal(t, exit.Interrupted, stopped.ExitCode())
	out, err = ask("--policy", saved, "--world="+program, "--episodes=2", "-o", "json")
	require.NoError(t, err)
	var r world.Result
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, 0.5, r.Rate)
	require.Len(t, r.Episodes, 2)
	for why, args := range map[string][]string{"want --policy PATH and --world": {"--policy", saved},
		"--episodes 0":   {"--policy", saved, "--world", program, "--episodes", "0"},
		"--deadline x":   {"--policy", saved, "--world", program, "--deadline", "x"},
		"leave run.yaml": {"run.yaml", "--policy", saved, "--world", program},
		"is not empty": {"--policy", saved, "--world", program, "--record", filepath.Join(dir,
			"corrections")},
		"--seed -1": {"--policy", saved, "--world", program, "--seed", "-1"}} {
		_, err := ask(args...)
		require.ErrorContains(t, err, why)
		var e exit.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, exit.Usage, e.ExitCode())
	}
}
