package recordings

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/lfactor/lfactor/dataset/media"
)

// stampSlack is how far a time of a table may lie from what it stands for, in seconds: lerobot's tolerance_s. Times
// are float32 there, whose rounding comes on top.
const stampSlack = 1e-4

// slackAt is the tolerance at a time.
func slackAt(seconds float64) float64 { return stampSlack + 0x1p-23*math.Abs(seconds) }

// stamp is the time of frame n of an episode by its row, in seconds from the episode's beginning: that of its column
// "timestamp", and without one by the rate. why says what is wrong.
func (l *LeRobot) stamp(columns map[string]json.RawMessage, n int64) (seconds float64, why string) {
	raw, ok := columns["timestamp"]
	if !ok {
		return float64(n) / l.info.FPS, ""
	}
	var all []float64
	switch {
	case json.Unmarshal(raw, &seconds) == nil && string(raw) != "null":
		return seconds, ""
	case json.Unmarshal(raw, &all) == nil && len(all) == 1:
		return all[0], ""
	}
	return 0, fmt.Sprintf("its timestamp is %.40s, which is no number of seconds", raw)
}

// stamps holds the times of ascending frames of an episode to the rate, as lerobot does: behind a gap, actions would not
// be what is done in the next steps.
type stamps struct {
	*LeRobot
	n    int64
	last float64
	any  bool
}

// next takes the row of frame n; why says what is wrong.
func (s *stamps) next(row []byte, n int64) (why string) {
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(row, &columns); err != nil {
		return err.Error()
	}
	at, why := s.stamp(columns, n)
	if why != "" {
		return why
	}
	if steps := float64(n - s.n); s.any && steps > 0 && math.Abs(at-s.last-steps/s.info.FPS) > steps*slackAt(at) {
		return fmt.Sprintf("frames %d and %d are %.6g s apart by their timestamps, and fps = %g in meta/info.json says "+
			"%.6g: frames are missing, or were recorded at another rate", s.n, n, at-s.last, s.info.FPS, steps/s.info.FPS)
	}
	s.n, s.last, s.any = n, at, true
	return ""
}

// At are the numbers of the frames that a video shows at ascending times by its own clock, each within lerobot's
// tolerance; of a time between frames there is none.
func At(file string, times media.Times, seconds []float64) ([]int, error) {
	out := make([]int, len(seconds))
	for i, s := range seconds {
		n, off := times.Nearest(s)
		if off > slackAt(s) {
			return nil, fmt.Errorf("%s has no frame at %.6g s, which its table asks for: %s", file, s, around(times, n))
		}
		out[i] = n
	}
	return out, nil
}

// around says which frame of a video is nearest.
func around(times media.Times, n int) string {
	if n < 0 {
		return "it has no frames"
	}
	return fmt.Sprintf("the nearest of its %d frames is at %.6g s, and the last at %.6g s", len(times), times[n],
		times[len(times)-1])
}

// FramesAt decodes the frames that a video shows at ascending times by its own clock.
func FramesAt(ctx context.Context, f media.FFmpeg, file string, seconds []float64) ([]*media.Image, error) {
	info, times, err := f.Timed(ctx, file)
	if err != nil {
		return nil, err
	}
	at, err := At(file, times, seconds)
	if err != nil {
		return nil, err
	}
	return f.Frames(ctx, file, info, at)
}
