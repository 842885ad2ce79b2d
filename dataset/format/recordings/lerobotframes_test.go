package recordings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/format/formattest"
	"github.com/lfactor/lfactor/dataset/media"
)

// recorded are recordings of 3, 1 and 4 frames, whose numbers say which they are.
func recorded() (all []RobotEpisode) {
	for i, n := range []int{3, 1, 4} {
		e := RobotEpisode{Task: []string{"stack", "push"}[i%2]}
		for k := range n {
			e.Frames = append(e.Frames, RobotStep{Images: [][]byte{fmt.Appendf(nil, "\x89PNG %d %d", i, k)},
				State: []float32{float32(i), float32(k)}, Action: []float32{float32(10*i + k)}})
		}
		all = append(all, e)
	}
	return all
}

// frame reads frame i of a data set that is read by frames.
func frame(t *testing.T, s dataset.Source, i int64) (f RobotFrame) {
	t.Helper()
	d, err := s.Read(i)
	require.NoError(t, err)
	b, ok := d.Part("json")
	require.True(t, ok)
	require.NoError(t, json.Unmarshal(b, &f))
	return f
}

// Frames of what WriteRobot wrote come with their image, state, task and the actions that follow; those
// behind the episode repeat its last one and are counted, and none is of the next episode.
func TestRobotFrames(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteRobot(dir, RobotTop(10, 1), recorded()))
	s, err := dataset.Open(dir, dataset.Options{Horizon: 3})
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, dataset.KindEpisodes, s.Kind())
	require.EqualValues(t, 8, s.Len())
	at := int64(0)
	for i, e := range recorded() {
		for k, want := range e.Frames {
			f := frame(t, s, at)
			require.EqualValues(t, []int64{int64(i), int64(k)}, []int64{f.Episode, f.Frame})
			require.Equal(t, e.Task, f.Task)
			require.Equal(t, want.Images[0], f.Images["observation.images.top"])
			require.Equal(t, []float64{float64(i), float64(k)}, f.State)
			require.Equal(t, max(0, k+3-len(e.Frames)), f.Pad)
			for step, a := range f.Actions {
				require.Equal(t, []float64{float64(10*i + min(k+step, len(e.Frames)-1))}, a)
			}
			require.Len(t, f.Actions, 3)
			at++
		}
	}
	past, err := dataset.Open(dir, dataset.Options{Horizon: 3, Past: 1})
	require.NoError(t, err)
	defer past.Close()
	require.NotEqual(t, s.Fingerprint(), past.Fingerprint())
	at = 0
	for i, e := range recorded() {
		for k := range e.Frames { // the step before is observed too, and actions begin with it
			f, before := frame(t, past, at), max(0, k-1)
			require.Len(t, f.Before, 1)
			require.Equal(t, []float64{float64(i), float64(before)}, f.Before[0].State)
			require.Equal(t, e.Frames[before].Images[0], f.Before[0].Images["observation.images.top"])
			require.Equal(t, []float64{float64(i), float64(k)}, f.State)
			require.Equal(t, [2]int{max(0, k+2-len(e.Frames)), max(0, 1-k)}, [2]int{f.Pad, f.Lead})
			require.Len(t, f.Actions, 3)
			for step, a := range f.Actions {
				require.Equal(t, []float64{float64(10*i + max(0, min(k+step-1, len(e.Frames)-1)))}, a)
			}
			at++
		}
	}
	other, err := dataset.Open(dir, dataset.Options{Horizon: 4})
	require.NoError(t, err)
	defer other.Close()
	require.NotEqual(t, s.Fingerprint(), other.Fingerprint())

	wrong, err := dataset.Open(dir, dataset.Options{Horizon: 3,
		Robot: dataset.RobotKeys{State: "observation.none"}})
	require.NoError(t, err)
	defer wrong.Close()
	_, err = wrong.Read(0)
	var bad *dataset.BadSample
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason, `there is no column "observation.none"`)
}

// The statistics of a set of version 3 are read as they are; those of version 2.1 are made of its
// episodes': the mean of all frames and their deviation from it, and no quantiles.
func TestRobotStats(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteRobot(dir, RobotTop(10, 1), recorded()))
	l, err := OpenLeRobot(dir, dataset.Options{})
	require.NoError(t, err)
	defer l.Close()
	three, err := l.Stats()
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{12.375}, three["action"].Mean, 1e-12) // of 0 1 2 10 20 21 22 23
	require.Equal(t, []float64{0}, three["action"].Min)
	require.Equal(t, []float64{23}, three["action"].Max)
	require.Equal(t, []float64{0}, three["action"].Q01)
	require.NotContains(t, three, "observation.images.top")

	old := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(old, "meta"), 0o755))
	info := `{"codebase_version": "v2.1", "fps": 10, "data_path": "a", "features": {}}`
	lines := `{"episode_index": 0, "stats": {"action": {"min": [0], "max": [2], "mean": [1], "std": [0.816496580927726], "count": [3]}}}
{"episode_index": 1, "stats": {"action": {"min": [10], "max": [10], "mean": [10], "std": [0], "count": [1]}}}
{"episode_index": 2, "stats": {"action": {"min": [20], "max": [23], "mean": [21.5], "std": [1.118033988749895], "count": [4]}, "observation.images.top": {"min": [[[0]]], "count": [4]}}}
`
	for name, text := range map[string]string{"info.json": info, "episodes_stats.jsonl": lines, "episodes.jsonl": `{"episode_index": 0, "length": 8}`} {
		require.NoError(t, os.WriteFile(filepath.Join(old, "meta", name), []byte(text), 0o600))
	}
	l2, err := OpenLeRobot(old, dataset.Options{})
	require.NoError(t, err)
	defer l2.Close()
	two, err := l2.Stats()
	require.NoError(t, err)
	require.InDeltaSlice(t, three["action"].Mean, two["action"].Mean, 1e-12)
	require.InDeltaSlice(t, three["action"].Std, two["action"].Std, 1e-12)
	require.Equal(t, three["action"].Max, two["action"].Max)
	require.Nil(t, two["action"].Q01)
	require.Len(t, two, 1)
}

// TestRobotFramesAreLeRobots: frames of a set that lerobot wrote, with images in its table, are what
// lerobot reads of it: tasks, states, actions, how many are padding, every pixel, and the statistics.
func TestRobotFramesAreLeRobots(t *testing.T) {
	const dir = "testdata/lerobot3"
	var want struct {
		Items []struct {
			Task    string
			State   []float64
			Actions [][]float64
			Pad     int
			Pixels  []int
		}
		Stats map[string]RobotStats
	}
	text, err := os.ReadFile(filepath.Join(dir, "items.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	s, err := dataset.Open(dir, dataset.Options{Horizon: 3})
	require.NoError(t, err)
	defer s.Close()
	require.EqualValues(t, len(want.Items), s.Len())
	for i, w := range want.Items {
		f := frame(t, s, int64(i))
		require.Equal(t, w.Task, f.Task, "%d", i)
		require.Equal(t, w.Pad, f.Pad, "%d", i)
		require.InDeltaSlice(t, w.State, f.State, 1e-7, "%d", i)
		for k := range w.Actions {
			require.InDeltaSlice(t, w.Actions[k], f.Actions[k], 1e-7, "%d", i)
		}
		p, err := media.Decode(f.Images["observation.images.top"], media.Options{})
		require.NoError(t, err)
		for k, v := range w.Pixels {
			require.EqualValues(t, v, p.Pix[k], "%d", i)
		}
	}
	l, err := OpenLeRobot(dir, dataset.Options{})
	require.NoError(t, err)
	defer l.Close()
	stats, err := l.Stats()
	require.NoError(t, err)
	for name, w := range want.Stats {
		require.Equal(t, w, stats[name], name)
	}
	require.Equal(t, []string{"observation.images.top"}, l.Cameras())
}

// TestRobotVideos: every frame of every episode in one video is the one of its timestamp, in the codec that
// LeRobot writes (AV1) and in ones that decode frames in another order than they show them. It wants ffmpeg.
func TestRobotVideos(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg")
	}
	known, err := exec.Command("ffmpeg", "-v", "error", "-encoders").Output()
	require.NoError(t, err)
	const camera = "observation.images.top"
	for _, codec := range [][]string{{"libsvtav1", "-g", "2", "-crf", "30"}, {"libx264", "-bf", "3"},
		{"mpeg4", "-q:v", "1"}} {
		t.Run(codec[0], func(t *testing.T) {
			if !bytes.Contains(known, []byte(" "+codec[0]+" ")) {
				t.Skip("ffmpeg has no such encoder")
			}
			dir := t.TempDir()
			writeLeRobot3(t, dir)
			args := append([]string{"-v", "error", "-f", "lavfi", "-i",
				"color=black:s=64x64:r=8:d=2.5,geq=lum='20+10*N':cb=128:cr=128", "-pix_fmt", "yuv420p",
				"-c:v"},
				codec...)
			out, err := exec.Command("ffmpeg", append(args,
				filepath.Join(dir, "videos", camera, "chunk-000/file-000.mp4"))...).CombinedOutput()
			require.NoError(t, err, string(out))
			s := formattest.Open(t, dir, dataset.Options{Horizon: 1, Robot: dataset.RobotKeys{State: "action"}})
			require.EqualValues(t, 20, s.Len())
			var asked []float64
			file := ""
			for i := range s.Len() {
				v := frame(t, s, i).Videos[camera]
				asked, file = append(asked, v.Seconds), v.File
			}
			info, times, err := media.FFmpeg{}.Timed(t.Context(), file)
			require.NoError(t, err)
			at, err := At(file, times, asked)
			require.NoError(t, err)
			require.EqualValues(t, 20, info.Frames)
			for _, some := range [][]int{at, at[:1], at[13:14], at[19:]} {
				frames, err := media.FFmpeg{}.Frames(t.Context(), file, info, some)
				require.NoError(t, err)
				for k, n := range some {
					// luma from 16 to 235 is stretched to 0 to 255; neighbours are 11.6 apart
					require.InDelta(t, (20+10*float64(n)-16)*255/219, float64(frames[k].Pix[3*(32*64+32)]),
						4, n)
					if len(some) == 20 {
						require.Equal(t, k, n)
					}
				}
			}
		})
	}
}

// TestNumbersReadNoPictures: states and actions of all episodes are those of their frames, and what they are
// read from has no other column.
func TestNumbersReadNoPictures(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteRobot(dir, RobotTop(10, 1), recorded()))
	l, err := OpenLeRobot(dir, dataset.Options{Horizon: 1})
	require.NoError(t, err)
	defer l.Close()
	at := 0
	require.NoError(t, l.Numbers(func(states, actions [][]float64) {
		for k, f := range recorded()[at].Frames {
			require.Equal(t, []float64{float64(f.State[0]), float64(f.State[1])}, states[k])
			require.Equal(t, []float64{float64(f.Action[0])}, actions[k])
		}
		at++
	}))
	require.Equal(t, 3, at)
	rows, err := format.OpenColumns(filepath.Join(dir, "data/chunk-000/file-000.parquet"), dataset.Options{},
		"action")
	require.NoError(t, err)
	defer rows.Close()
	b, _, err := rows.Record(3)
	require.NoError(t, err)
	require.JSONEq(t, `{"action":[10]}`, string(b))
}
