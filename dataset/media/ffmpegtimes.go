package media

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Times are when the frames of a video are shown, in seconds by the file's own clock, ascending: one for each frame.
// A file may begin at another time than 0, and its frames need not be equally far apart.
type Times []float64

// packet is what ffprobe says of a packet: when its frame is shown, and whether an edit list leaves it out.
type packet struct {
	At    string `json:"pts_time"`
	Flags string `json:"flags"`
}

// timesMax bounds what ffprobe may say of packets, in bytes: about four million frames.
const timesMax = 1 << 28

// Timed is Probe with the times of the frames.
func (f FFmpeg) Timed(ctx context.Context, file string) (VideoInfo, Times, error) {
	s, packets, err := f.ask(ctx, file, timesMax, "-show_entries", "packet=pts_time,flags:"+shown)
	if err != nil {
		return VideoInfo{}, nil, fmt.Errorf("video %s: %w", file, err)
	}
	var times Times
	for _, p := range packets {
		at, err := strconv.ParseFloat(p.At, 64)
		switch {
		case strings.Contains(p.Flags, "D"):
		case err != nil:
			return VideoInfo{}, nil, fmt.Errorf("video %s: a frame has no time, and which one a time means is not known",
				file)
		default:
			times = append(times, at)
		}
	}
	slices.Sort(times)
	v, err := s.info()
	if err != nil {
		return v, nil, fmt.Errorf("video %s: %w", file, err)
	}
	v.Frames = len(times)
	return v, times, nil
}

// Nearest is the number of the frame that is shown nearest to a time, of two the earlier, and how far from it; -1
// of no frames.
func (t Times) Nearest(seconds float64) (n int, off float64) {
	n, _ = slices.BinarySearchFunc(t, seconds, cmp.Compare)
	if n > 0 && (n == len(t) || seconds-t[n-1] <= t[n]-seconds) {
		n--
	}
	if n >= len(t) {
		return -1, math.Inf(1)
	}
	return n, math.Abs(t[n] - seconds)
}
