package media

import (
	"errors"
	"fmt"
	"math"
)

// framesMax bounds the frames of a video that a processor takes.
const framesMax = 1 << 16

// check tells whether a clip can be prepared at all.
func (c *Clip) check() error {
	if len(c.Frames) == 0 || len(c.Frames) > framesMax {
		return fmt.Errorf("%d frames; from 1 to %d are wanted", len(c.Frames), framesMax)
	}
	if c.At != nil && len(c.At) != len(c.Frames) {
		return fmt.Errorf("%d frames have %d numbers", len(c.Frames), len(c.At))
	}
	for i, f := range c.Frames {
		if f.W != c.Frames[0].W || f.H != c.Frames[0].H || f.W < 1 || f.H < 1 {
			return fmt.Errorf("frame %d is %d×%d pixels, and frame 0 %d×%d", i, f.W, f.H, c.Frames[0].W, c.Frames[0].H)
		}
	}
	return nil
}

// padded returns frames to a multiple of n: the last is repeated.
func (c *Clip) padded(n int) []*Image {
	frames := c.Frames[:len(c.Frames):len(c.Frames)]
	for len(frames)%n != 0 {
		frames = append(frames, frames[len(frames)-1])
	}
	return frames
}

// seconds returns the middle of the first and the last frame's time of every n frames; nil where the rate or
// the numbers are unknown. Source: _calculate_timestamps of transformers' processing_qwen3_vl.py.
func (c *Clip) seconds(n int) (out []float64) {
	if c.FPS <= 0 || c.At == nil {
		return nil
	}
	return gridSeconds(c.At, c.FPS, n)
}

// gridSeconds is the middle time of each group of n frames, in seconds; the last frame stands in
// where a group is not full.
func gridSeconds(at []int, fps float64, n int) (out []float64) {
	time := func(i int) float64 { return float64(at[min(i, len(at)-1)]) / fps }
	for i := 0; i < len(at); i += n {
		out = append(out, (time(i)+time(i+n-1))/2)
	}
	return out
}

// every returns the seconds from one n frames to the next at the rate of the frames taken, 0 where that is
// unknown: the second_per_grid_ts of Qwen2.5-VL, which does not go by where the frames lie.
func (c *Clip) every(n int) float64 {
	if c.FPS <= 0 || c.Of < 1 {
		return 0
	}
	return float64(n) / (float64(len(c.Frames)) / float64(c.Of) * c.FPS)
}

var errNoFrames = errors.New("the video has no frames")

// check is an error for a video without frames.
func (v VideoInfo) check() error {
	if v.Frames < 1 {
		return errNoFrames
	}
	return nil
}

// asked is how many frames, or how many a second, a processor's settings want.
type asked struct {
	sample bool
	frames int     // 0: not said
	fps    float64 // 0: not said
}

// asked reads how many frames are wanted, by number or by rate; both at once exclude each other.
func (s *Settings) asked(sample bool, fps float64) (a asked) {
	a.sample = s.flag("do_sample_frames", sample)
	some, rate := s.get("num_frames", &a.frames), s.get("fps", &a.fps)
	if some && rate {
		s.fail("fps and num_frames exclude each other")
	}
	if !some && !rate {
		a.fps = fps
	}
	if a.frames < 0 || a.frames > framesMax {
		s.fail("num_frames is %d; it is from 1 to %d", a.frames, framesMax)
	}
	if a.fps < 0 || math.IsNaN(a.fps) || math.IsInf(a.fps, 0) {
		s.fail("fps is %v; it is over 0", a.fps)
	}
	return a
}

// all is every frame of a video.
func (v VideoInfo) all() ([]int, error) {
	if v.Frames > framesMax {
		return nil, fmt.Errorf("the video has %d frames, over the limit of %d, and do_sample_frames is false", v.Frames, framesMax)
	}
	out := make([]int, v.Frames)
	for i := range out {
		out[i] = i
	}
	return out, nil
}

// enough refuses to take more frames than there are.
func (v VideoInfo) enough(n int) error {
	if n < 1 || n > v.Frames {
		return fmt.Errorf("%d frames are wanted of a video of %d frames at %v a second; set fps or "+
			"num_frames to less", n, v.Frames, v.FPS)
	}
	if n > framesMax {
		return fmt.Errorf("%d frames are wanted of a video; the limit is %d", n, framesMax)
	}
	return nil
}

// rate is an error where frames are to be picked by rate and the video does not tell its own.
func (v VideoInfo) rate() error {
	if v.FPS <= 0 || math.IsInf(v.FPS, 0) || math.IsNaN(v.FPS) {
		return errors.New("the video does not tell its frame rate, and fps is to sample it by; set num_frames instead")
	}
	return nil
}

// stride returns frames from a start on by a step, as torch.arange in float32 and a cast to int do; the
// frame beyond the end that arange now and then adds is left out.
func (v VideoInfo) stride(start float64, n int) []int {
	step := float64(v.Frames) / float64(n)
	count := max(min(int(math.Ceil((float64(v.Frames)-min(start, float64(v.Frames)))/step)), n), 0)
	out := make([]int, count)
	for i := range out {
		out[i] = min(int(float32(start+float64(float64(i)*step))), v.Frames-1)
	}
	return out
}

// spread returns n frames from the first to the last, rounded as NumPy's linspace and round do.
func (v VideoInfo) spread(n int) []int {
	out := make([]int, n)
	step := float64(v.Frames-1) / float64(max(n-1, 1))
	for i := range out {
		out[i] = int(math.RoundToEven(float64(i) * step))
	}
	if n > 1 {
		out[n-1] = v.Frames - 1
	}
	return out
}
