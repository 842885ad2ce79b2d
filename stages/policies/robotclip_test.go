package policies

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/texts"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestSideBySide: the first view lies to the left and the second to the right, each brought to its half.
func TestSideBySide(t *testing.T) {
	plain := func(w, h int, v byte) *media.Image {
		p := media.NewImage(w, h)
		for i := range p.Pix {
			p.Pix[i] = v
		}
		return p
	}
	p := sideBySide([]*media.Image{plain(2, 2, 10), plain(6, 4, 200)}, 2, 4)
	require.Equal(t, []int{4, 2}, []int{p.W, p.H})
	for i, v := range p.Pix {
		require.Equal(t, []byte{10, 10, 200, 200}[i/3%4], v, "byte %d", i)
	}
}

// TestCosmosPrompt: Cosmos3 is told a task in Qwen3-VL's chat template, with what its clip is.
func TestCosmosPrompt(t *testing.T) {
	cfg, err := configs.Load(configs.Request{Args: []string{"model.name=cosmos3/nano", "data.paths=x",
		"data.tokenizer=y", "data.seq_len=32", "model.overrides.views=3",
		"model.overrides.view_form=above"}})
	require.NoError(t, err)
	m, err := family.Build(cfg.Model, 32)
	require.NoError(t, err)
	require.Equal(t, [3]int{33, 384, 320}, m.Denoiser.Clip.Size)
	require.Equal(t, "<|im_start|>user\npick it up. This video contains concatenated views from multiple camera "+
		"perspectives. The top row is from the wrist-mounted camera. The bottom row contains two horizontally "+
		"concatenated third-person perspective views of the scene from opposite sides, with the robot visible. "+
		"The video is 2.0 seconds long and is of 15 FPS. This video is of 384x320 resolution.<|im_end|>\n"+
		"<|im_start|>assistant\n<|im_end|><|vision_start|>", m.Denoiser.Prompt("pick it up "))
	require.Equal(t, "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|><|vision_start|>",
		m.Denoiser.Prompt(""))
}

// TestLaid: three views make quarters of a picture, or the third lies above both others in its whole width.
func TestLaid(t *testing.T) {
	var views []*media.Image
	for i := range 3 {
		p := media.NewImage(2, 1)
		for k := range p.Pix {
			p.Pix[k] = byte(10*(i+1) + k/3)
		}
		views = append(views, p)
	}
	above := laid("above", views, 3, 4) // the third as it is, and the others at half its size
	for i, v := range above.Pix {
		y, x := i/12, i/3%4
		switch {
		case y < 2:
			require.GreaterOrEqual(t, v, byte(30), "byte %d", i)
		case x < 2:
			require.Equal(t, byte(10+x), v, "byte %d", i)
		default:
			require.Equal(t, byte(20+x-2), v, "byte %d", i)
		}
	}
	for form, want := range map[string][]byte{"grid": {10, 11, 30, 31, 20, 21, 0, 0},
		"droid": {30, 30, 31, 31, 10, 11, 20, 21}, "row": nil} {
		if want == nil {
			require.Equal(t, sideBySide(views, 1, 6), laid(form, views, 1, 6))
			continue
		}
		p := laid(form, views, 2, 4)
		require.Equal(t, []int{4, 2}, []int{p.W, p.H})
		for i, v := range p.Pix {
			require.Equal(t, want[i/3], v, "%s byte %d", form, i)
		}
	}
}

// TestClipPrompts: LingBot-VA cleans what it is told, as its own code does, and FastWAM does not.
func TestClipPrompts(t *testing.T) {
	for name, clean := range map[string]bool{"fastwam/base": false, "lingbot-va/base": true} {
		c, err := configs.Published(name)
		require.NoError(t, err)
		m, err := family.Build(c, 32)
		require.NoError(t, err)
		use, err := texts.UseOf(m.Denoiser.Pipeline, "text_encoder")
		require.NoError(t, err)
		require.Equal(t, clean, use.Clean, name)
	}
}

// TestClipFolder: cameras of a folder stand by their names or as its config.json has them, and encoders lie
// beside the policy or where they are said to lie.
func TestClipFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
	}
	order := func(d *family.Denoiser) ([]string, error) {
		x := &Robots{D: d}
		x.Policy.Cameras = []string{"wrist", "top"}
		err := x.ordered(dir)
		return x.Policy.Cameras, err
	}
	got, err := order(&family.Denoiser{Policy: family.Policy{Clip: &family.ClipStream{Sorted: true}}})
	require.NoError(t, err)
	require.Equal(t, []string{"top", "wrist"}, got)
	named := &family.Denoiser{Policy: family.Policy{Clip: &family.ClipStream{}, CamerasKey: "keys"}}
	write(`{"keys": ["top", "wrist"]}`)
	got, err = order(named)
	require.NoError(t, err)
	require.Equal(t, []string{"top", "wrist"}, got)
	write(`{"keys": ["top", "front"]}`)
	_, err = order(named)
	require.ErrorContains(t, err, "config.json: keys names [top front], and")

	m := &trained.Trained{Dir: dir}
	_, err = pipelineOf(m, filepath.Join(dir, "gone"), "where")
	require.ErrorContains(t, err, "set where to the folder of a pipeline")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "wan", "vae"), 0o755))
	at, err := pipelineOf(m, "wan", "where")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "wan"), at)
	m.Model = &family.Model{Denoiser: named}
	require.ErrorContains(t, Encode(m, filepath.Join(dir, "wan")), "has no folder text_encoder")
}

// TestExportNotes: an export that names no encoders, or that lerobot's class does not load, says so.
func TestExportNotes(t *testing.T) {
	name := "fastwam/base"
	notes := func(over ...string) []string {
		cfg, err := configs.Load(configs.Request{Args: append([]string{"model.name=" + name, "data.paths=x",
			"data.seq_len=32", "data.tokenizer=y"}, over...)})
		require.NoError(t, err)
		m, err := family.Build(cfg.Model, 32)
		require.NoError(t, err)
		return (&trained.Exporter{Cfg: cfg, Model: m}).Notes()
	}
	both := []string{"diffusion.autoencoder=/a/vae", "diffusion.text_encoder=/a/text_encoder"}
	require.Empty(t, notes(both...))
	require.Contains(t, notes("diffusion.autoencoder=/a/vae", "diffusion.text_encoder=/b/text_encoder")[0],
		"--encoders")
	require.Contains(t, notes(append(both, "model.overrides.video_frames=13")...)[0],
		"chunk_size 32 is no multiple of the 12 frames")
	require.Contains(t, notes(append(both, "model.overrides.head_dim=120")...)[0], "head_dim 120")
	require.Contains(t, notes(append(both, "model.overrides.video_scale=[2, 16, 16]")...)[0], "video_scale [2 16 16]")
	name = "lingbot-va/base"
	require.Empty(t, notes(both...))
	for key, value := range map[string]string{"video_loss": "2", "action_loss": "0.5", "acting_shift": "3",
		"video_every": "7"} {
		got := notes(append(both, "model.overrides."+key+"="+value)...)
		require.Len(t, got, 1)
		require.Contains(t, got[0], key+" is "+value+", for which it has no key")
	}
}

// TestScaleBehind: a file of the scale of actions that cannot be read is an error, and none is none.
func TestScaleBehind(t *testing.T) {
	dir, x := t.TempDir(), &Robots{D: &family.Denoiser{Policy: family.Policy{Sight: &family.Sight{}}}}
	require.NoError(t, x.scaledBehind(dir))
	require.NoError(t, os.Mkdir(filepath.Join(dir, postprocessor+".json"), 0o755))
	require.ErrorContains(t, x.scaledBehind(dir), postprocessor+".json")
}

// TestActionsThatLead: to a policy that draws a clip, the actions of a frame lead to it: none does to the one
// that is seen, and those that it gives when it acts are those that it learnt as now.
func TestActionsThatLead(t *testing.T) {
	x := &Robots{Chunk: 6, D: &family.Denoiser{Policy: family.Policy{Chunk: 6, Parts: 3,
		Clip: &family.ClipStream{Steps: 2}}}}
	f := &recordings.RobotFrame{}
	for k := range 6 {
		f.Actions = append(f.Actions, []float64{float64(10 + k)})
	}
	got, err := x.aims(f, RobotScale{Action: Affine{Mid: []float64{1}, By: []float64{1}}})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{-1}, {-1}, {9}, {10}, {11}, {12}}, got) // raw zeros are scaled too
	from, to := x.given()
	require.Equal(t, got[from:to], [][]float64{{9}, {10}, {11}, {12}})
	got, err = x.aims(f, RobotScale{Action: Affine{Mid: []float64{9}, By: []float64{1e8}}})
	require.NoError(t, err)
	require.Equal(t, []float64{-stillMost}, got[0])
	x.D.Clip.Steps = 0
	got, err = x.aims(f, RobotScale{Action: Affine{Mid: []float64{1}, By: []float64{1}}})
	require.NoError(t, err)
	require.Len(t, got, 6)
	require.Equal(t, []float64{9}, got[0])
}

// TestBlockStates: a policy over blocks is given the states where its blocks begin, scaled as the first is, with
// zeros in the room that is left, and cut to their quantiles; actions are cut too.
func TestBlockStates(t *testing.T) {
	d := &family.Denoiser{Policy: family.Policy{Chunk: 4, Parts: 2, Broad: true,
		Sight: &family.Sight{Views: 1, State: 2},
		Clip:  &family.ClipStream{Scale: [3]int{2, 1, 1}, Blocks: &family.Blocks{Frames: 1}}}}
	one := Affine{Mid: []float64{1}, By: []float64{0.5}}
	x := &Robots{D: d, Chunk: 4, Scale: RobotScale{State: one, Action: one}}
	f := &recordings.RobotFrame{Later: []recordings.RobotLook{{State: []float64{7}}, {State: []float64{2}},
		{State: []float64{8}}, {State: []float64{9}}}, Actions: [][]float64{{0}, {1}, {2}, {9}}}
	for how, want := range map[string][2]float64{"quantiles": {0.5, 1}, "mean_std": {0.5, 4}} {
		x.Policy.Normalize = how
		e := &family.Encoded{Clip: &family.Clip{}}
		require.NoError(t, x.starts(e, f))
		require.Equal(t, []float32{float32(want[0]), 0}, e.Clip.States)
		a, err := x.aims(f, x.Scale)
		require.NoError(t, err)
		require.Equal(t, [][]float64{{-0.5}, {0}, {0.5}, {want[1]}}, a)
	}
}

// TestQuietRobots: a robot with fewer numbers than another that the policy learnt of acts without noise in
// those that it has not, as it was learnt.
func TestQuietRobots(t *testing.T) {
	d := &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: 3,
		Policy: family.Policy{Chunk: 2, Quiet: true, Real: 3, Sight: &family.Sight{},
			Clip: &family.ClipStream{Size: [3]int{5, 4, 4}, Scale: [3]int{4, 4, 4},
				Joined: &family.Joined{}, Latents: &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: 2}}}}
	x := &filmer{Pictures: &diffusion.Pictures{D: d}}
	e := &family.Encoded{Grid: d.ChunkGrid(), Real: 2, X0: []float32{1, 2, 3, 4, 5, 6},
		Clip: &family.Clip{X0: []float32{9}}}
	require.NoError(t, x.open(e, 1))
	require.Equal(t, []float32{1, 2, 0, 4, 5, 0}, e.X0)
	d.Advance(e.X0, nil, []float32{1, 1, 1, 1, 1, 1}, e.Real, 1, 1)
	require.Equal(t, []float32{0, 1, 0, 3, 4, 0}, e.X0)

	sets := []*robotSet{{name: "a/three", scale: RobotScale{Action: Affine{Mid: make([]float64, 3)}}},
		{name: "a/two", scale: RobotScale{Action: Affine{Mid: make([]float64, 2)}}}}
	r := &Robots{D: &family.Denoiser{Policy: family.Policy{Chunk: 2, Sight: &family.Sight{Size: [2]int{4, 4}}}}, sets: sets}
	for _, set := range sets {
		r.as(set)
		e, err := r.See("", Look{})
		require.NoError(t, err)
		require.Equal(t, len(set.scale.Action.Mid), e.Real)
	}
}

// TestBareStatistics: statistics of one kind are enough for what takes no others, and what lacks those that
// it takes is refused.
func TestBareStatistics(t *testing.T) {
	two := []float64{1, 3}
	for how, s := range map[string]recordings.RobotStats{"quantiles": {Q01: two, Q99: two},
		"min_max": {Min: two, Max: two}, "mean_std": {Mean: two, Std: two},
		"identity": {Q01: two, Q99: two}} {
		a, err := NewAffine(s, how)
		require.NoError(t, err, how)
		require.Len(t, a.Mid, 2, how)
		require.Len(t, a.By, 2, how)
	}
	for how, s := range map[string]recordings.RobotStats{"quantiles": {Mean: two, Q01: two},
		"min_max": {Mean: two}, "mean_std": {Mean: two}} {
		_, err := NewAffine(s, how)
		require.ErrorContains(t, err, "the statistics have no "+how)
	}
}

// TestViewWidths: each view of LingBot-VA is whole latents, also where all of them together are whole tokens,
// and what is said of another form says what picture the views make.
func TestViewWidths(t *testing.T) {
	above := []string{"model.name=cosmos3/nano", "data.seq_len=32", "model.overrides.views=3",
		"model.overrides.view_form=above"}
	for want, over := range map[string][]string{
		"view_width: 24 pixels are no whole latents of 16": {"model.name=lingbot-va/base", "data.seq_len=16",
			"model.overrides.views=4", "model.overrides.view_width=24"},
		"view_width: 40 pixels, of which 3 views make a picture of 40 by view_form: above, are no": append(
			slices.Clone(above), "model.overrides.view_width=40"),
		"view_height: 48 pixels, which make a picture of 72 by view_form: above, are no whole tokens": append(
			slices.Clone(above), "model.overrides.view_height=48")} {
		_, err := configs.Load(configs.Request{Args: append(over, "data.paths=x", "data.tokenizer=y")})
		require.ErrorContains(t, err, want)
	}
}
