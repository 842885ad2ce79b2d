package recordings

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// lerobotDrawn is what bench/golden/lerobot_drawn.py has written of a set.
type lerobotDrawn struct {
	Horizon, Frames int
	Cameras         map[string][2]int // height and width
	Items           []struct {
		Index, Episode, Frame int64
		Task                  string
		State                 []float64
		Actions               [][]float64
		Pad                   int
	}
	Stats map[string]RobotStats
}

// TestLeRobotDrawn: sets that the lerobot package wrote with its videos (LFACTOR_LEROBOT names their folder)
// are read as it reads them at its random indices: states, actions, padding and tasks to the bit of float32,
// each frame the one of its timestamp, and the statistics.
func TestLeRobotDrawn(t *testing.T) {
	root := os.Getenv("LFACTOR_LEROBOT")
	if root == "" {
		t.Skip("LFACTOR_LEROBOT names no sets that bench/golden/lerobot_drawn.py has written")
	}
	sets, err := filepath.Glob(filepath.Join(root, "*", "drawn.json"))
	require.NoError(t, err)
	require.NotEmpty(t, sets)
	for _, file := range sets {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var want lerobotDrawn
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &want))
			s, err := dataset.Open(dir, dataset.Options{Horizon: want.Horizon})
			require.NoError(t, err)
			defer s.Close()
			require.EqualValues(t, want.Frames, s.Len())
			frames := make([]RobotFrame, len(want.Items))
			for i, w := range want.Items {
				f := frame(t, s, w.Index)
				frames[i] = f
				require.Equal(t, []any{w.Episode, w.Frame, w.Task, w.Pad},
					[]any{f.Episode, f.Frame, f.Task, f.Pad}, "%d", w.Index)
				require.Equal(t, narrow(w.State), narrow(f.State), "%d", w.Index)
				require.Len(t, f.Actions, len(w.Actions))
				for k := range w.Actions {
					require.Equal(t, narrow(w.Actions[k]), narrow(f.Actions[k]), "%d", w.Index)
				}
			}
			for camera, side := range want.Cameras {
				drawnFrames(t, dir, camera, side, frames)
			}
			l, err := OpenLeRobot(dir, dataset.Options{})
			require.NoError(t, err)
			defer l.Close()
			stats, err := l.Stats()
			require.NoError(t, err)
			for name, w := range want.Stats {
				for k, v := range map[string][2][]float64{"min": {w.Min, stats[name].Min}, "max": {w.Max,
					stats[name].Max}, "mean": {w.Mean, stats[name].Mean}, "std": {w.Std, stats[name].Std},
					"q01": {w.Q01, stats[name].Q01}, "q99": {w.Q99, stats[name].Q99}} {
					require.InDeltaSlice(t, v[0], v[1], 1e-6, "%s %s", name, k)
				}
			}
		})
	}
}

// drawnFrames holds a camera's frames to lerobot's, which other versions of ffmpeg may decode: they are the
// same but for rounding, and no neighbour is.
func drawnFrames(t *testing.T, dir, camera string, side [2]int, frames []RobotFrame) {
	t.Helper()
	theirs, err := os.ReadFile(filepath.Join(dir, camera+".rgb"))
	require.NoError(t, err)
	size := 3 * side[0] * side[1]
	require.Len(t, theirs, size*len(frames))
	times := map[string]media.Times{}
	shown, worst, nearest := map[string]map[int]*media.Image{}, 0.0, math.Inf(1)
	for _, f := range frames {
		v := f.Videos["observation.images."+camera]
		require.True(t, strings.HasSuffix(v.File, ".mp4"))
		if shown[v.File] == nil {
			shown[v.File] = allFrames(t, v.File)
			_, times[v.File], err = media.FFmpeg{}.Timed(t.Context(), v.File)
			require.NoError(t, err)
		}
	}
	for i, f := range frames {
		v, want := f.Videos["observation.images."+camera], theirs[i*size:(i+1)*size]
		at, err := At(v.File, times[v.File], []float64{v.Seconds})
		require.NoError(t, err)
		worst = max(worst, apart(t, want, shown[v.File][at[0]].Pix))
		if next := shown[v.File][at[0]+1]; next != nil {
			nearest = min(nearest, apart(t, want, next.Pix))
		}
	}
	t.Logf("%s: frames differ by at most %.3f of 255 in the mean, their neighbours by at least %.1f", camera,
		worst, nearest)
	require.Less(t, worst, 0.5)
	require.Greater(t, nearest, 5.0)
}

// allFrames are those of a video.
func allFrames(t *testing.T, file string) map[int]*media.Image {
	t.Helper()
	info, err := media.FFmpeg{}.Probe(t.Context(), file)
	require.NoError(t, err)
	at := make([]int, info.Frames)
	for i := range at {
		at[i] = i
	}
	got, err := media.FFmpeg{}.Frames(t.Context(), file, info, at)
	require.NoError(t, err)
	all := map[int]*media.Image{}
	for i := range got {
		all[i] = got[i]
	}
	return all
}

// apart is the mean difference of two pictures' bytes.
func apart(t *testing.T, a, b []byte) (sum float64) {
	t.Helper()
	require.Len(t, b, len(a))
	for k := range a {
		sum += math.Abs(float64(a[k]) - float64(b[k]))
	}
	return sum / float64(len(a))
}

// narrow gives numbers as float32, which the sets have.
func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
