package policies

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// TestFrameOf: a video that is shorter than its table says, or that is none, is an error that names it. ffprobe is a
// script here that knows three frames.
func TestFrameOf(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nfor f; do :; done\nf=${f#file:}\ngrep -q video \"$f\" || { echo \"$f: moov atom not found\" >&2; exit 1; }\n" +
		`echo '{"streams": [{"codec_name": "h264", "width": 8, "height": 8, "avg_frame_rate": "10/1", ` +
		`"nb_read_packets": "3", "nb_read_frames": "3"}], ` +
		`"packets": [{"pts_time": "0.0"}, {"pts_time": "0.1"}, {"pts_time": "0.2"}]}'` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ffprobe"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	whole, broken := filepath.Join(dir, "a.mp4"), filepath.Join(dir, "b.mp4")
	require.NoError(t, os.WriteFile(whole, []byte("video"), 0o644))
	require.NoError(t, os.WriteFile(broken, []byte("nothing"), 0o644))
	_, err := viewOf(nil, &recordings.VideoFrame{File: whole, Seconds: 0.7})
	require.ErrorContains(t, err, "a.mp4 has no frame at 0.7 s, which its table asks for: the nearest of its 3 "+
		"frames is at 0.2 s, and the last at 0.2 s")
	_, err = viewOf(nil, &recordings.VideoFrame{File: broken})
	require.ErrorContains(t, err, "b.mp4")
	require.ErrorContains(t, err, "moov atom not found")
	_, err = viewOf(nil, &recordings.VideoFrame{File: filepath.Join(dir, "none.mp4")})
	require.ErrorContains(t, err, "none.mp4")
	p, err := viewOf(nil, nil) // a camera that the recording lacks
	require.NoError(t, err)
	require.Nil(t, p)
}

// TestFramesOfNone: a frame with an action that is no number is set aside with its episode and frame.
func TestFramesOfNone(t *testing.T) {
	dir := t.TempDir()
	step := func(v float32) recordings.RobotStep {
		return recordings.RobotStep{State: []float32{0}, Action: []float32{v}}
	}
	set := recordings.RobotSet{FPS: 10}
	good := []recordings.RobotEpisode{{Task: "x", Frames: []recordings.RobotStep{step(1), step(2)}}}
	require.NoError(t, recordings.WriteRobot(filepath.Join(dir, "good"), set, good))
	set.Like = filepath.Join(dir, "good")
	for name, v := range map[string]float32{"nan": float32(math.NaN()), "inf": float32(math.Inf(1))} {
		bad := []recordings.RobotEpisode{{Task: "x", Frames: []recordings.RobotStep{step(1), step(v), step(2)}}}
		require.NoError(t, recordings.WriteRobot(filepath.Join(dir, name), set, bad))
		s, err := dataset.Open(filepath.Join(dir, name), dataset.Options{Horizon: 1})
		require.NoError(t, err)
		_, err = s.Read(0)
		require.NoError(t, err)
		_, err = s.Read(1)
		require.Error(t, err, name)
		require.ErrorContains(t, err, "episode 0, frame 1: ")
		_, err = s.Read(2)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}

// TestShots: the frames of a sample are those of their numbers, and each of its videos is read once.
func TestShots(t *testing.T) {
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	file := filepath.Join(dir, "a.mp4")
	made, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i",
		"color=black:s=32x32:r=8:d=2,geq=lum='20+10*N':cb=128:cr=128", "-pix_fmt", "yuv420p",
		file).CombinedOutput()
	if err != nil {
		t.Skip(string(made), err)
	}
	x := &Robots{}
	x.Policy.Cameras = []string{"top", "none"}
	look := func(n int) recordings.RobotLook {
		return recordings.RobotLook{Videos: map[string]recordings.VideoFrame{"top": {File: file, Seconds: float64(n) / 8}}}
	}
	f := &recordings.RobotFrame{RobotLook: look(5), Before: []recordings.RobotLook{look(4)},
		Later: []recordings.RobotLook{look(9), look(15), look(15)}}
	whole, err := exec.LookPath("ffmpeg")
	require.NoError(t, err)
	script := "#!/bin/sh\necho >>" + log + "\nexec " + whole + " \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ffmpeg"), []byte(script), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	shown, err := x.shots(f)
	require.NoError(t, err)
	calls, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "\n", string(calls))
	for _, l := range append([]recordings.RobotLook{f.RobotLook}, f.Later...) {
		v := l.Videos["top"]
		want, err := viewOf(nil, &v)
		require.NoError(t, err)
		views, err := x.views(&l, shown)
		require.NoError(t, err)
		require.Len(t, views, 2)
		require.Nil(t, views[1])
		require.Equal(t, want.Pix, views[0].Pix, "at %v", v.Seconds)
	}
	f.Later[0] = look(16)
	_, err = x.shots(f)
	require.ErrorContains(t, err, "top: "+file+" has no frame at 2 s, which its table asks for: the nearest of its 16 frames is at "+
		"1.875 s")
}
