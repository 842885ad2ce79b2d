package media

import (
	"fmt"
	"math"
)

var (
	_ = registerVideo("Qwen2VLVideoProcessor", newQwen2Video, "Qwen2VLProcessor", "Qwen2_5_VLProcessor")
	_ = registerVideo("Qwen3VLVideoProcessor", newQwen3Video, "Qwen3VLProcessor")
)

// qwenVideo is what the video processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL share: patches of some frames each.
type qwenVideo struct {
	qwen
	asked
	framesLeast, framesMost int
	capped                  bool // each frame gets an even share of the pixels
	tokensMost              int  // that cap pixels
	sides                   func(frames, w, h int) (nh, nw int, err error)
	resized                 func(p *Image, w, h int) *Image
}

// newQwenVideo reads what the video processors of the Qwen family share; the arguments are the
// defaults in which they differ.
func newQwenVideo(s *Settings, patch, least, most, tokens int, mean, std three) *qwenVideo {
	q := &qwenVideo{qwen: qwen{patch: s.few("patch_size", patch), merge: s.few("merge_size", 2),
		time: s.few("temporal_patch_size", 2)}}
	q.least, q.most = s.pixels(least, most)
	q.framesLeast, q.framesMost = s.count("min_frames", 4), s.count("max_frames", 768)
	q.capped, q.tokensMost = s.flag("cap_pixels_per_frame", false), s.count("max_video_tokens", tokens)
	q.filter = s.filter()
	s.must("do_resize", true)
	s.must("do_pad", false)
	s.must("do_center_crop", false)
	q.norm = s.affine(mean, std).torch()
	q.resized = func(p *Image, w, h int) *Image { return p.ResizeTorch(w, h, q.filter) }
	return q
}

// Video implements VideoProcessor. The last frame is repeated to fill its patches.
func (q *qwenVideo) Video(c *Clip) (*Features, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	e, err := q.VideoExtent(len(c.Frames), c.Frames[0].W, c.Frames[0].H)
	if err != nil {
		return nil, err
	}
	f := &Features{Extent: e, Seconds: c.seconds(q.time), Every: c.every(q.time), norm: q.norm,
		run: q.time * q.patch * q.patch}
	f.Pixels = make([]byte, 0, e.Rows()*e.Width())
	frames := c.padded(q.time)
	for i := 0; i < len(frames); i += q.time {
		step := make([]*Image, q.time)
		for k, p := range frames[i : i+q.time] {
			step[k] = q.resized(p, e.Grid[2]*q.patch, e.Grid[1]*q.patch)
		}
		f.Pixels = patches(f.Pixels, step, q.patch, q.merge)
		for k, p := range frames[i : i+q.time] {
			step[k].releaseUnless(p)
		}
	}
	return f, nil
}

// VideoExtent implements VideoProcessor.
func (q *qwenVideo) VideoExtent(frames, w, h int) (Extent, error) {
	if frames < 1 {
		return Extent{}, errNoFrames
	}
	nh, nw, err := q.sides(frames, w, h)
	if err != nil {
		return Extent{}, err
	}
	return q.extent(over(frames, q.time), nh, nw, h, w)
}

// newQwen2Video reads the video processor of Qwen2-VL and Qwen2.5-VL, which takes all frames where nothing
// else is said.
func newQwen2Video(s *Settings) (VideoProcessor, error) {
	q := newQwenVideo(s, 14, 128*28*28, 28*28*768, 128000, clipMean, clipStd)
	q.asked = s.asked(false, 0)
	q.sides = q.sides2
	return &qwen2Video{q}, nil
}

type qwen2Video struct{ *qwenVideo }

// Pick implements VideoProcessor: a multiple of a patch's frames.
func (q *qwen2Video) Pick(v VideoInfo) ([]int, error) {
	if err := v.check(); err != nil || !q.sample || q.frames == 0 && q.fps == 0 {
		if err != nil {
			return nil, err
		}
		return v.all()
	}
	t := float64(q.time)
	n := int(math.RoundToEven(float64(q.frames)/t) * t)
	if q.frames == 0 {
		if err := v.rate(); err != nil {
			return nil, err
		}
		most := math.Floor(float64(min(q.framesMost, v.Frames))/t) * t
		want := float64(float64(v.Frames)/v.FPS) * q.fps
		n = int(math.Floor(min(max(want, float64(q.framesLeast)), most, float64(v.Frames))/t) * t)
	}
	if err := v.enough(n); err != nil {
		return nil, err
	}
	return v.stride(0, n), nil
}

// sides2 limits the pixels of a frame.
func (q *qwenVideo) sides2(frames, w, h int) (int, int, error) {
	unit, most := q.patch*q.merge, q.most
	if q.capped {
		share := int(float64(q.tokensMost*unit*unit)*0.9) * q.time / frames
		most = max(min(most, share), int(float64(q.least)*1.05))
	}
	return fitPatches(h, w, unit, q.least, most)
}

// newQwen3Video reads the video processor of Qwen3-VL, which takes two frames a second where nothing else is said.
func newQwen3Video(s *Settings) (VideoProcessor, error) {
	q := newQwenVideo(s, 16, 128*32*32, 32*32*768, 768, half, half)
	q.asked = s.asked(true, 2)
	q.sides = q.sides3
	return &qwen3Video{q}, nil
}

type qwen3Video struct{ *qwenVideo }

// rate3 is the frame rate that Qwen3-VL takes a video to have which tells none.
const rate3 = 24

// Pick implements VideoProcessor.
func (q *qwen3Video) Pick(v VideoInfo) ([]int, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	if !q.sample {
		return v.all()
	}
	n := q.frames
	if n == 0 {
		rate := v.FPS
		if v.rate() != nil {
			rate = rate3
		}
		n = int(min(float64(float64(v.Frames)/rate)*q.fps, framesMax))
		n = min(max(n, q.framesLeast), q.framesMost, v.Frames)
	}
	if err := v.enough(n); err != nil {
		return nil, err
	}
	return v.spread(n), nil
}

// sides3 limits the pixels of all frames together. Source: smart_resize of transformers' video_processing_qwen3_vl.py.
func (q *qwenVideo) sides3(frames, w, h int) (int, int, error) {
	unit, most := float64(q.patch*q.merge), float64(q.most)
	if q.capped {
		share := max(min(q.tokensMost*q.patch*q.merge*q.patch*q.merge, q.most/frames), int(float64(q.least)*1.05))
		most = float64(share * frames)
	}
	if frames < q.time {
		return 0, 0, fmt.Errorf("%d frames; at least the %d of a patch are wanted", frames, q.time)
	}
	fh, fw, ft := float64(h), float64(w), float64(frames)
	if fh < unit || fw < unit {
		scale := max(unit/fh, unit/fw)
		fh, fw = math.Trunc(fh*scale), math.Trunc(fw*scale)
	}
	if max(fh, fw)/min(fh, fw) > ratioMax {
		return 0, 0, fmt.Errorf("a side of %d×%d pixels is over %d times the other; crop the video", w, h, ratioMax)
	}
	nh, nw := math.RoundToEven(fh/unit)*unit, math.RoundToEven(fw/unit)*unit
	t := float64(q.time)
	switch all := math.RoundToEven(ft/t) * t * nh * nw; {
	case all > most:
		beta := math.Sqrt(ft * fh * fw / most)
		nh, nw = max(unit, math.Floor(fh/beta/unit)*unit), max(unit, math.Floor(fw/beta/unit)*unit)
	case all < float64(q.least):
		beta := math.Sqrt(float64(q.least) / (ft * fh * fw))
		nh, nw = math.Ceil(float64(fh*beta)/unit)*unit, math.Ceil(float64(fw*beta)/unit)*unit
	}
	return int(nh), int(nw), nil
}
