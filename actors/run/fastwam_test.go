package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// fastwamOf8 is a small FastWAM that sees 8 by 8 pixels.
const fastwamOf8 = `model_type: fastwam
hidden_size: 24
num_hidden_layers: 2
num_attention_heads: 4
head_dim: 6
intermediate_size: 24
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 3
state_size: 2
chunk_size: 4
views: 1
view_height: 8
view_width: 8
text_dim: 14
freq_dim: 8
text_rows: 5
expert_hidden_size: 12
expert_intermediate_size: 20
video_channels: 2
video_patch: [1, 1, 2]
video_scale: [4, 4, 4]
video_frames: 5
video_every: 1
`

// together are arguments by which samples are computed together that are computed by themselves without.
var together = []string{"train.micro_batch=2", "data.seq_len=8 train.global_batch=2"}

// wanEncoders are a small autoencoder of clips and a small encoder of captions as a pipeline of Wan's has them.
func wanEncoders(t *testing.T) (dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	for name, of := range map[string]string{"vae": "latent/testdata/wan",
		"text_encoder": "texts/testdata/umt5"} {
		require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS("../../stages/"+of)))
	}
	for _, rest := range []string{"vae", "text_encoder"} { // what the golden cases have beside
		require.NoError(t, os.Remove(filepath.Join(dir, rest, "golden.safetensors")))
	}
	wordTokenizer(t, filepath.Join(dir, "text_encoder"), 1)
	return dir, []string{"diffusion.autoencoder=" + filepath.Join(dir, "vae"),
		"diffusion.text_encoder=" + filepath.Join(dir, "text_encoder")}
}

// TestFastWAMRun: FastWAM learns from clips of recordings with the same losses under plans, goes on where it
// stopped, and acts the same after its export; its clips are read where the encoders are, and kept.
func TestFastWAMRun(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, fastwamOf8)
	var dir string
	dir, p.more = wanEncoders(t)
	one, exported := p.learns()
	out := t.TempDir()
	require.Equal(t, one, p.train(p.model, out, "diffusion.cache=off"))
	require.NoDirExists(t, filepath.Join(out, "log", "latents"))
	require.NotEqual(t, one, p.train(p.model, t.TempDir(), "policy.learn_padding=false"))
	for _, more := range together {
		require.InEpsilonSlice(t, one, p.train(p.model, t.TempDir(), strings.Fields(more)...), 1e-5, more)
	}

	p.more = nil
	acted := p.act(exported, "") // by the encoders that its config.json names
	require.NoError(t, os.Rename(dir, dir+".away"))
	m, err := trained.Open(exported, "")
	require.NoError(t, err)
	defer m.Close()
	_, err = policies.NewActor(m)
	require.ErrorContains(t, err, "serve it with --encoders, or set text_encoder_model_id to")
	require.NoError(t, policies.Encode(m, dir+".away"))
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	chunks, err := actor.Act([]policies.Seen{{Task: "red disc", State: []float64{1, 2},
		Views: []*media.Image{p.view}}})
	require.NoError(t, err)
	require.Equal(t, acted, chunks[0])
	for arg, want := range map[string]string{"policy.crop=0.9": "the model reads a clip",
		"diffusion.sizes=[8x8]": "policies of robots do not read it", "plan.dp=1": "diffusion.autoencoder"} {
		cfg, err := p.load(p.model, t.TempDir(), arg)
		if err == nil {
			_, err = Open(cfg)
		}
		require.ErrorContains(t, err, want)
	}
}

// twoCameras are recordings of two cameras, and the set that they replace as what lies at top.
func twoCameras(t *testing.T, p *robotPolicy, top, wrist string) {
	t.Helper()
	var all []recordings.RobotEpisode
	for i := range 3 {
		e := recordings.RobotEpisode{Task: "red disc"}
		for k := range 5 {
			e.Frames = append(e.Frames, recordings.RobotStep{Images: [][]byte{plainPNG(t, uint8(40*k), 200),
				plainPNG(t, 10, uint8(60*i))}, State: []float32{float32(k), float32(i)},
				Action: []float32{float32(i - k), float32(k), 1}})
		}
		all = append(all, e)
	}
	one := filepath.Join(p.dir, "set")
	require.NoError(t, os.Rename(one, filepath.Join(p.dir, "top")))
	require.NoError(t, recordings.WriteRobot(one, recordings.RobotSet{FPS: 10, Cameras: []recordings.RobotCamera{
		{Column: wrist, Width: 8, Height: 8}, {Column: top, Width: 8, Height: 8}}}, all))
}

// TestFastWAMCameras: views of several cameras stand in the order of their names, as lerobot's do, and what a
// run says of cameras, of encoders and of where latents lie is held to what there is before it begins.
func TestFastWAMCameras(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, strings.Replace(fastwamOf8, "views: 1", "views: 2", 1))
	dir, more := wanEncoders(t)
	p.more = more
	const top, wrist = "observation.images.top", "observation.images.wrist"
	twoCameras(t, p, top, wrist)
	one := filepath.Join(p.dir, "set")
	out := t.TempDir()
	losses := p.train(p.model, out, "train.steps=2", "schedule.decay_steps=3")
	require.Equal(t, losses, p.train(p.model, t.TempDir(), "train.steps=2", "schedule.decay_steps=3",
		fmt.Sprintf("policy.cameras=[%s, %s]", top, wrist)))
	blocked := filepath.Join(p.dir, "blocked")
	require.NoError(t, os.WriteFile(blocked, nil, 0o644))
	for arg, want := range map[string]string{
		fmt.Sprintf("policy.cameras=[%s, %s]", wrist, top):              "stand in the order of their names",
		fmt.Sprintf("policy.cameras=[%s, front]", top):                  "front",
		"data.paths=[" + one + ", " + filepath.Join(p.dir, "top") + "]": "has no camera \"" + wrist + `"`,
		"diffusion.cache=" + filepath.Join(blocked, "in"):               "diffusion.cache",
		"model.overrides.video_patch=[2, 1, 2]":                         "begin it with 1",
		"model.overrides.latent_patch=[1, 1, 3]":                        "tokens of a policy with a clip are actions",
	} {
		cfg, err := p.load(p.model, t.TempDir(), arg)
		if err == nil {
			err = Train(context.Background(), cfg, Options{})
		}
		require.ErrorContains(t, err, want, arg)
	}

	exported := filepath.Join(out, "saved", "release_hf_weights")
	chunk := func(views ...*media.Image) [][]float64 {
		m, err := trained.Open(exported, "")
		require.NoError(t, err)
		defer m.Close()
		actor, err := policies.NewActor(m)
		require.NoError(t, err)
		defer actor.Close()
		require.Equal(t, []string{top, wrist}, actor.Abilities().Cameras)
		chunks, err := actor.Act([]policies.Seen{{Task: "red disc", State: []float64{1, 2}, Views: views}})
		require.NoError(t, err)
		return chunks[0]
	}
	other, err := media.Decode(plainPNG(t, 9, 250), media.Options{})
	require.NoError(t, err)
	require.NotEqual(t, chunk(p.view, other), chunk(other, p.view))

	files, err := filepath.Glob(filepath.Join(dir, "vae", "*.safetensors"))
	require.NoError(t, err)
	vae := files[0]
	b, err := os.ReadFile(vae)
	require.NoError(t, err)
	b[len(b)-2] ^= 1
	require.NoError(t, os.WriteFile(vae, b, 0o644))
	cfg, err := p.load(p.model, out, "schedule.decay_steps=3")
	require.NoError(t, err)
	err = Train(context.Background(), cfg, Options{})
	require.ErrorContains(t, err, "the data is not that of the checkpoint")
	m, err := trained.Open(filepath.Join(out, "saved"), "")
	require.NoError(t, err)
	defer m.Close()
	_, err = policies.NewActor(m)
	require.ErrorContains(t, err, "not those that the policy learnt by")
}

// plainPNG is a picture of 8 by 8 pixels of one colour.
func plainPNG(t *testing.T, red, green uint8) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 8, 8))
	for p := range 64 {
		img.Set(p%8, p/8, color.RGBA{red, green, 0, 255})
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return b.Bytes()
}

// lingbotOf8 is a small LingBot-VA that sees 8 by 8 pixels.
const lingbotOf8 = `model_type: lingbot_va
hidden_size: 48
num_hidden_layers: 2
num_attention_heads: 4
head_dim: 12
intermediate_size: 24
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 5
chunk_size: 4
views: 1
view_height: 8
view_width: 8
text_dim: 14
freq_dim: 8
text_rows: 5
video_channels: 2
video_patch: [1, 1, 2]
video_scale: [4, 4, 4]
video_frames: 5
video_every: 1
`

// TestLingBotRun: LingBot-VA learns from clips of recordings as FastWAM does, and acts by a clip that it
// draws on from what it sees.
func TestLingBotRun(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, lingbotOf8)
	_, p.more = wanEncoders(t)
	one, exported := p.learns()
	for _, more := range together {
		require.InEpsilonSlice(t, one, p.train(p.model, t.TempDir(), strings.Fields(more)...), 1e-5, more)
	}
	actions := p.act(exported, "")
	theirs := t.TempDir() // lerobot's own has the scale of actions behind the model alone
	require.NoError(t, os.CopyFS(theirs, os.DirFS(exported)))
	before := filepath.Join(theirs, "policy_preprocessor.json")
	text, err := os.ReadFile(before)
	require.NoError(t, err)
	changed := regexp.MustCompile(`"ACTION": *"[A-Z_]+"`).ReplaceAll(text, []byte(`"ACTION": "IDENTITY"`))
	require.NotEqual(t, string(text), string(changed))
	require.NoError(t, os.WriteFile(before, changed, 0o600))
	require.Equal(t, actions, p.act(theirs, ""))
	changed = regexp.MustCompile(`"STATE": *"[A-Z_]+"`).ReplaceAll(changed, []byte(`"STATE": "IDENTITY"`))
	bare := regexp.MustCompile(`,\s*"state_file": *"[^"]+"`).ReplaceAll(changed, nil)
	require.NotEqual(t, string(changed), string(bare))
	require.NoError(t, os.WriteFile(before, bare, 0o600)) // and no statistics before it, which nothing takes
	require.Equal(t, actions, p.act(theirs, ""))
	require.NoError(t, os.Remove(filepath.Join(theirs, "policy_postprocessor.json")))
	refused := func(want string) {
		m, err := trained.Open(theirs, "")
		require.NoError(t, err)
		defer m.Close()
		_, err = policies.NewActor(m)
		require.ErrorContains(t, err, want)
	}
	refused("there are no statistics of actions")
	require.NoError(t, os.RemoveAll(theirs))
	require.NoError(t, os.CopyFS(theirs, os.DirFS(exported)))
	setKeys(t, theirs, map[string]any{"wan_pretrained_path": nil})
	refused("by the encoders of robbyant/lingbot-va-base")
	m, err := trained.Open(exported, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	require.Equal(t, []any{2, false}, []any{actor.Abilities().Chunk, actor.Abilities().Joins})
	require.Len(t, actions, 2) // those of the frame that is seen lie before it
	require.Len(t, actions[0], 3)
	for i := range p.view.Pix {
		p.view.Pix[i] = 200
	}
	require.NotEqual(t, actions, p.act(exported, "")) // it draws on from what it sees
}

// dreamOf8 is a small DreamZero that sees 8 by 8 pixels, of two blocks of a frame of latents.
const dreamOf8 = `model_type: dreamzero
hidden_size: 48
num_hidden_layers: 2
num_attention_heads: 4
head_dim: 12
intermediate_size: 24
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 5
state_size: 3
chunk_size: 4
views: 1
view_height: 8
view_width: 8
text_dim: 14
freq_dim: 8
text_rows: 5
image_dim: 12
image_rows: 10
video_channels: 2
video_patch: [1, 1, 2]
video_scale: [4, 4, 4]
video_frames: 9
video_every: 1
acting_steps: 4
block_frames: 1
block_window: 2
adapter_width: 6
video_given: %d
`

// TestDreamZeroRun: DreamZero learns from clips of recordings, with states and actions of fewer numbers than
// it has room for, with the same losses under plans, goes on where it stopped, and acts the same after its
// export, by a block that it draws behind what it sees; so does the form that reads the first frame beside each.
func TestDreamZeroRun(t *testing.T) {
	t.Parallel()
	for _, given := range []int{0, 6} {
		p := newRobotPolicy(t, fmt.Sprintf(dreamOf8, given))
		dir, more := wanEncoders(t)
		look := t.TempDir() // which lies elsewhere than the others
		require.NoError(t, os.CopyFS(look, os.DirFS("../../stages/texts/testdata/clip-vision")))
		p.more = append(more, "diffusion.image_encoder="+look)
		one, exported := p.learns()
		for _, more := range together {
			require.InEpsilonSlice(t, one, p.train(p.model, t.TempDir(), strings.Fields(more)...), 1e-5, more)
		}
		p.more = nil
		actions := p.act(exported, "")
		require.Len(t, actions, 2)
		require.Len(t, actions[0], 3)
		moved := t.TempDir() // with its encoders beside it
		require.NoError(t, os.CopyFS(moved, os.DirFS(exported)))
		require.NoError(t, os.CopyFS(filepath.Join(moved, "wan"), os.DirFS(dir)))
		require.NoError(t, os.CopyFS(filepath.Join(moved, "eyes"), os.DirFS(look)))
		setKeys(t, moved, map[string]any{"wan_pretrained_path": "wan",
			"image_encoder_pretrained_path": "eyes"})
		require.Equal(t, actions, p.act(moved, ""))
		setKeys(t, moved, map[string]any{"image_encoder_pretrained_path": "gone"})
		m, err := trained.Open(moved, "")
		require.NoError(t, err)
		defer m.Close()
		_, err = policies.NewActor(m)
		require.ErrorContains(t, err, `encoder of images "gone" (image_encoder_pretrained_path in its config`)
		for i := range p.view.Pix {
			p.view.Pix[i] = 200
		}
		require.NotEqual(t, actions, p.act(exported, "")) // it draws on from what it sees
		m, err = trained.Open(exported, "")
		require.NoError(t, err)
		defer m.Close()
		require.ErrorContains(t, policies.Encode(m, dir), "has no folder image_encoder")
		require.NoError(t, os.CopyFS(filepath.Join(dir, "image_encoder"), os.DirFS(look)))
		require.NoError(t, policies.Encode(m, dir))
		require.NoError(t, os.Rename(look, look+".away"))
		actor, err := policies.NewActor(m)
		require.NoError(t, err)
		actor.Close()
	}
}

// setKeys sets keys of a folder's config.json.
func setKeys(t *testing.T, dir string, keys map[string]any) {
	t.Helper()
	file, all := filepath.Join(dir, "config.json"), map[string]any{}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &all))
	maps.Copy(all, keys)
	b, err = json.Marshal(all)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b, 0o644))
}

// TestDreamZeroFolder: a policy acts from its export as from its checkpoint where a state lies far from those
// that it learnt of, which quantiles are cut to, and does not go on with other pixels for CLIP.
func TestDreamZeroFolder(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, fmt.Sprintf(dreamOf8, 0))
	_, p.more = wanEncoders(t)
	look := t.TempDir()
	require.NoError(t, os.CopyFS(look, os.DirFS("../../stages/texts/testdata/clip-vision")))
	p.more = append(p.more, "diffusion.image_encoder="+look)
	acts := func(dir string, state float64) [][]float64 {
		m, err := trained.Open(dir, "")
		require.NoError(t, err)
		defer m.Close()
		actor, err := policies.NewActor(m)
		require.NoError(t, err)
		defer actor.Close()
		chunks, err := actor.Act([]policies.Seen{{Task: "red disc", State: []float64{state, 2},
			Views: []*media.Image{p.view}}})
		require.NoError(t, err)
		return chunks[0]
	}
	saved := ""
	for _, how := range []string{"mean_std", "quantiles"} {
		saved = filepath.Join(t.TempDir(), "saved")
		p.train(p.model, filepath.Dir(saved), "policy.normalize="+how, "optimizer.lr=0.1")
		far := acts(saved, 50)
		off := math.Abs(far[0][0] - acts(saved, 0)[0][0])
		require.Greater(t, off, 1e-3, how)
		exported := filepath.Join(saved, "release_hf_weights")
		for k, v := range acts(exported, 50) { // whose statistics are float32
			require.InDeltaSlice(t, far[k], v, 1e-5, how)
		}
	}
	cfg, err := p.load(p.model, t.TempDir(), "model.overrides.view_form=grid")
	require.NoError(t, err)
	_, err = Open(cfg)
	require.ErrorContains(t, err, "policy.cameras: is not given, and view_form: grid says by their")
	file := filepath.Join(look, "preprocessor_config.json")
	was, err := os.ReadFile(file)
	require.NoError(t, err)
	now := regexp.MustCompile(`"image_mean": *\[\s*[0-9.]+`).ReplaceAll(was, []byte(`"image_mean": [0.25`))
	require.NotEqual(t, string(was), string(now))
	require.NoError(t, os.WriteFile(file, now, 0o644)) // other pixels are other features
	cfg, err = p.load(p.model, filepath.Dir(saved), "train.steps=4", "schedule.decay_steps=3")
	require.NoError(t, err)
	err = Train(context.Background(), cfg, Options{})
	require.ErrorContains(t, err, "the data is not that of the checkpoint")
}

// TestPromptsCut: a run says once that prompts are longer than what the model reads of them.
func TestPromptsCut(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, lingbotOf8)
	_, p.more = wanEncoders(t)
	for rows, want := range map[int]int{2: 1, 5: 0} {
		cfg, err := p.load(p.model, t.TempDir(), fmt.Sprintf("model.overrides.text_rows=%d", rows))
		require.NoError(t, err)
		var said bytes.Buffer
		require.NoError(t, Train(context.Background(), cfg, Options{Progress: &said}))
		require.Equal(t, want, strings.Count(said.String(), "note: the model reads 2 tokens of what it is"))
	}
}
