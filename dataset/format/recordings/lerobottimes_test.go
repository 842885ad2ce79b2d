package recordings

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
	"github.com/lfactor/lfactor/dataset/media"
)

// askedOf is lerobot's rule for the frames of a video (decode_video_frames in lerobot/datasets/video_utils.py): of all
// frames the one nearest to the wanted time, and an error where that is tolerance_s = 1e-4 away or more.
func askedOf(shown []float64, want float64) (int, bool) {
	best := 0
	for i, s := range shown {
		if math.Abs(s-want) < math.Abs(shown[best]-want) {
			best = i
		}
	}
	return best, len(shown) > 0 && math.Abs(shown[best]-want) < 1e-4
}

// TestTimesDrawn holds the choice of frames to lerobot's on drawn videos: rates of the file and of the table that
// differ, files that begin late, rates that vary, frames that are lost, episodes that begin anywhere.
func TestTimesDrawn(t *testing.T) {
	refused, taken := 0, 0
	for seed := range uint64(240) {
		r := rand.New(rand.NewPCG(seed, 58))
		fps := []float64{5, 10, 15, 24, 25, 30, 50, 60}[r.IntN(8)]
		rate := fps * []float64{1, 1, 2, 3, 0.5, 1.2}[r.IntN(6)]
		offset, from := []float64{0, 0, 0.1, 0.033, 7.5}[r.IntN(5)], []float64{0, 0, 12.4, 1500.2}[r.IntN(4)]
		var times media.Times
		for i := range 400 {
			at := offset + from + float64(i)/rate
			switch seed % 4 {
			case 1: // a rate that varies
				at += 0.2 / rate * math.Sin(float64(i))
			case 2: // frames that are lost
				if r.IntN(10) == 0 {
					continue
				}
			}
			times = append(times, math.Round(at*1e6)/1e6) // as ffprobe prints it
		}
		for n := range 60 {
			want := from + float64(float32(float64(n)/fps))
			frame, ok := askedOf(times, want)
			got, err := At("a.mp4", times, []float64{want})
			if _, off := times.Nearest(want); math.Abs(off-1e-4) < 1e-6+0x1p-22*want {
				continue // on the border, where float32 decides in lerobot
			}
			require.Equal(t, ok, err == nil, "seed %d, frame %d: %v", seed, n, err)
			if ok {
				require.Equal(t, frame, got[0], "seed %d, frame %d", seed, n)
				taken++
			} else {
				refused++
			}
		}
	}
	t.Logf("%d frames taken, %d refused", taken, refused)
	require.Greater(t, min(taken, refused), 1000)
	_, err := At("a.mp4", nil, []float64{0})
	require.ErrorContains(t, err, "it has no frames")
}

// TestTableTimes: a frame of a video is asked for by its row's timestamp, in each form that tables have it, and frames
// around a gap in time are set aside, as lerobot raises.
func TestTableTimes(t *testing.T) {
	l := &LeRobot{info: lerobotInfo{FPS: 10}}
	for row, want := range map[string]float64{`{"timestamp":0.7}`: 0.7, `{"timestamp":[0.7]}`: 0.7, `{"other":1}`: 0.5} {
		var columns map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(row), &columns))
		got, why := l.stamp(columns, 5)
		require.Empty(t, why)
		require.Equal(t, want, got)
	}
	for _, row := range []string{`{"timestamp":null}`, `{"timestamp":"x"}`, `{"timestamp":[1,2]}`, `{"timestamp":[]}`} {
		clock := stamps{LeRobot: l}
		require.Contains(t, clock.next([]byte(row), 0), "its timestamp is ", row)
	}
	clock := stamps{LeRobot: l}
	for n, at := range []float64{0, 0.1, 0.2, 0.3} {
		require.Empty(t, clock.next(fmt.Appendf(nil, `{"timestamp":%g}`, at), int64(n)))
	}
	require.Empty(t, clock.next([]byte(`{"timestamp":0.3}`), 3), "the same again, for what lies before an episode")
	require.Contains(t, clock.next([]byte(`{"timestamp":0.7}`), 4),
		"frames 3 and 4 are 0.4 s apart by their timestamps, and fps = 10 in meta/info.json says 0.1")
}

// TestVideoOfAnotherRate: fps 8 beside a video of 24 frames a second, which begins at another time than 0, has every
// third frame, where there is an ffmpeg.
func TestVideoOfAnotherRate(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("skipped: no ffmpeg")
	}
	const camera = "observation.images.top"
	dir := t.TempDir()
	writeLeRobot3(t, dir)
	file := filepath.Join(dir, "videos", camera, "chunk-000/file-000.mp4")
	out, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i",
		"color=black:s=32x32:r=24:d=2.5,geq=lum='20+3*N':cb=128:cr=128", "-pix_fmt", "yuv420p", "-c:v", "mpeg4", "-q:v",
		"1", file).CombinedOutput()
	require.NoError(t, err, string(out))
	s := formattest.Open(t, dir, dataset.Options{Horizon: 1, Robot: dataset.RobotKeys{State: "action"}})
	for i := range s.Len() {
		v := frame(t, s, i).Videos[camera]
		require.True(t, strings.HasSuffix(v.File, ".mp4"))
		got, err := FramesAt(t.Context(), media.FFmpeg{}, v.File, []float64{v.Seconds})
		require.NoError(t, err)
		require.InDelta(t, (20+3*3*float64(i)-16)*255/219, float64(got[0].Pix[3*(16*32+16)]), 5, "frame %d", i)
	}
	late := filepath.Join(dir, "late.mp4")
	out, err = exec.Command("ffmpeg", "-v", "error", "-itsoffset", "0.5", "-i", file, "-c", "copy", "-copyts", late).
		CombinedOutput()
	require.NoError(t, err, string(out))
	info, times, err := media.FFmpeg{}.Timed(t.Context(), late)
	require.NoError(t, err)
	require.Equal(t, 60, info.Frames)
	require.InDelta(t, 0.5, times[0], 1e-3)
	n, off := times.Nearest(0.5 + 10.0/24)
	require.Equal(t, 10, n)
	require.Less(t, off, 1e-4)
	require.NoError(t, os.WriteFile(late, []byte("nothing"), 0o644))
	_, _, err = media.FFmpeg{}.Timed(t.Context(), late)
	require.ErrorContains(t, err, "late.mp4")
}
