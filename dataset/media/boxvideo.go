package media

import (
	"fmt"
	"math"
)

var (
	_ = registerVideo("InternVLVideoProcessor", newInternVLVideo, "InternVLProcessor")
	_ = registerVideo("LlavaOnevisionVideoProcessor", newLlavaVideo, "LlavaOnevisionProcessor")
)

// boxVideo squeezes every frame into a tile: what the video processors of InternVL and LLaVA-OneVision share.
type boxVideo struct {
	box
	asked
	tokens func(frames int) int
	choose func(v VideoInfo, n int) []int
	// numbered says that a prompt numbers the frames, each between its own tokens.
	numbered bool
}

// newBoxVideo reads the settings of processors that bring all frames to one size. Settings that
// would change the result and are not supported are refused.
func newBoxVideo(s *Settings) *boxVideo {
	b := &boxVideo{box: box{filter: s.filter()}, asked: s.asked(false, 0)}
	b.h, b.w = s.box(384, 384)
	s.must("do_resize", true)
	s.must("do_center_crop", false)
	s.must("do_pad", false)
	b.norm = s.affine(clipMean, clipStd).torch()
	return b
}

// newInternVLVideo reads InternVL's settings: a fixed number of tokens per frame, and frames picked
// from the middle of equal parts unless a shift is given.
func newInternVLVideo(s *Settings) (VideoProcessor, error) {
	b := newBoxVideo(s)
	a := s.countBeside("image_seq_length", 256)
	b.numbered = true
	b.tokens = func(frames int) int { return a * frames }
	shift, middle := 0.0, true
	if raw := string(s.keys["initial_shift"]); raw == "true" || raw == "false" {
		middle = s.flag("initial_shift", true)
	} else if s.get("initial_shift", &shift) {
		middle = false
	}
	if shift < 0 || math.IsNaN(shift) {
		s.fail("initial_shift is %v; it is from 0 on", shift)
	}
	b.choose = func(v VideoInfo, n int) []int {
		at := shift
		if middle {
			at = float64(v.Frames) / float64(n) / 2
		}
		return v.stride(at, n)
	}
	for _, key := range []string{"crop_to_patches", "min_patches", "max_patches"} {
		s.read[key] = true // of the image processor, whose file may serve both
	}
	return b, nil
}

// newLlavaVideo reads LLaVA-OneVision's settings: frames are pooled by two in both directions,
// which makes the tokens per frame.
func newLlavaVideo(s *Settings) (VideoProcessor, error) {
	b := newBoxVideo(s)
	a := s.countBeside("num_image_tokens", 0)
	side := over(int(math.Sqrt(float64(max(a, 0)))), 2)
	b.tokens = func(frames int) int {
		if a < 1 {
			return 0
		}
		return frames*side*side + 1 // one more for the end of a line
	}
	b.choose = func(v VideoInfo, n int) []int {
		out := make([]int, n)
		for i := range out {
			out[i] = i * v.Frames / n
		}
		return out
	}
	s.read["image_grid_pinpoints"] = true // of the image processor, whose file may serve both
	return b, nil
}

// Pick implements VideoProcessor: one frame at least.
func (b *boxVideo) Pick(v VideoInfo) ([]int, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	if !b.sample || b.frames == 0 && b.fps == 0 {
		return v.all()
	}
	n := b.frames
	if n == 0 {
		if err := v.rate(); err != nil {
			return nil, err
		}
		n = max(1, int(min(float64(float64(v.Frames)/v.FPS)*b.fps, framesMax+1)))
	}
	if err := v.enough(n); err != nil {
		return nil, err
	}
	at := b.choose(v, n)
	if len(at) == 0 {
		return nil, fmt.Errorf("initial_shift is behind the end of a video of %d frames", v.Frames)
	}
	return at, nil
}

// VideoExtent implements VideoProcessor.
func (b *boxVideo) VideoExtent(frames, w, h int) (Extent, error) {
	e := Extent{Shape: []int{frames, 3, b.h, b.w}, Grid: [3]int{frames, 1, 1}, Tokens: b.tokens(frames),
		Size: [2]int{h, w}}
	return e, e.check()
}

// Video implements VideoProcessor.
func (b *boxVideo) Video(c *Clip) (*Features, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	e, err := b.VideoExtent(len(c.Frames), c.Frames[0].W, c.Frames[0].H)
	if err != nil {
		return nil, err
	}
	f := &Features{Extent: e, Seconds: c.seconds(1), Every: c.every(1), norm: b.norm, run: b.h * b.w}
	f.Pixels = make([]byte, 0, e.Rows()*e.Width())
	for _, p := range c.Frames {
		f.Pixels = p.whole(f.Pixels, p.ResizeTorch(b.w, b.h, b.filter))
	}
	return f, nil
}
