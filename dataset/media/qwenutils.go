package media

import (
	"errors"
	"fmt"
	"math"
)

var _ = registerVideo("QwenVLUtils", newQwenUtils)

// qwenUtils samples and resizes videos as qwen-vl-utils does, which the published recipes of Qwen2-VL, Qwen2.5-VL and
// Qwen3-VL put before the processor: settings fps or nframes, min_frames, max_frames, min_pixels, max_pixels (of a
// frame), total_pixels (of a video), and patch_size, 14 or 16. Source: qwen-vl-utils 0.0.14, vision_process.py.
type qwenUtils struct {
	*qwenVideo
	nframes int
	framing float64 // fps
	mostSet bool
	frames  [2]int // min_frames, max_frames; 0 where not said
	total   float64
}

// newQwenUtils reads the settings of Qwen's own tools, which size frames by the total number of pixels of a video.
func newQwenUtils(s *Settings) (VideoProcessor, error) {
	u := &qwenUtils{framing: s.number("fps", 2)}
	s.get("nframes", &u.nframes)
	s.get("min_frames", &u.frames[0])
	s.get("max_frames", &u.frames[1])
	if b := string(s.keys["fps"]); b != "" && b != "null" && u.nframes != 0 {
		s.fail("fps and nframes exclude each other")
	}
	if u.nframes < 0 || u.frames[0] < 0 || u.frames[1] < 0 ||
		max(u.nframes, u.frames[0], u.frames[1]) > framesMax || !(u.framing > 0) {
		s.fail("fps is %v, nframes %d, min_frames %d and max_frames %d; they are over 0 and up to %d",
			u.framing, u.nframes, u.frames[0], u.frames[1], framesMax)
	}
	patch := s.few("patch_size", 14)
	unit := patch * 2
	mean, std := three(clipMean), three(clipStd)
	if patch == 16 {
		mean, std = half, half
	}
	least := s.count("min_pixels", 128*unit*unit)
	most := least
	u.mostSet = s.get("max_pixels", &most)
	u.total = s.number("total_pixels", 128000*float64(unit*unit)*0.9)
	u.qwenVideo = &qwenVideo{qwen: qwen{patch: patch, merge: 2, time: 2, least: least, most: most}}
	u.resized = (*Image).resizeFloat
	u.norm = s.affine(mean, std).torch()
	u.sides = u.share
	return u, nil
}

// Pick implements VideoProcessor.
func (u *qwenUtils) Pick(v VideoInfo) ([]int, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	n := int(math.RoundToEven(float64(u.nframes)/2)) * 2
	if u.nframes == 0 {
		if err := v.rate(); err != nil {
			return nil, errors.New("the video does not tell its frame rate, and fps is to sample it by; " +
				"set nframes instead")
		}
		least, most := 4, min(768, v.Frames)
		if u.frames[0] > 0 {
			least = u.frames[0]
		}
		if u.frames[1] > 0 {
			most = u.frames[1]
		}
		want := float64(float64(v.Frames)/v.FPS) * u.framing
		n = int(min(max(want, float64((least+1)/2*2)), float64(most/2*2), float64(v.Frames))) / 2 * 2
	}
	if n < 2 || n > v.Frames {
		return nil, fmt.Errorf("%d frames are wanted of a video of %d frames at %v a second; from 2 to "+
			"all of them, an even number, can be taken", n, v.Frames, v.FPS)
	}
	if err := v.enough(n); err != nil {
		return nil, err
	}
	return v.linspace(n), nil
}

// linspace returns n frames from the first to the last as torch.linspace and round do: in float32, from both ends.
func (v VideoInfo) linspace(n int) []int {
	out := make([]int, n)
	last := float32(v.Frames - 1)
	step := last / float32(n-1)
	for i := range out {
		at := float32(float32(i) * step)
		if i >= n/2 {
			at = last - float32(float32(n-1-i)*step)
		}
		out[i] = int(math.RoundToEven(float64(at)))
	}
	return out
}

// share limits the pixels of a frame to its share of the video's.
func (u *qwenUtils) share(frames, w, h int) (int, int, error) {
	unit := u.patch * u.merge
	most := max(min(float64(768*unit*unit), u.total/float64(frames)*2), math.Trunc(float64(u.least)*1.05))
	if u.mostSet {
		most = min(most, float64(u.most))
	}
	if most < float64(u.least) {
		return 0, 0, fmt.Errorf("max_pixels leaves %v pixels, less than the min_pixels of %d", most, u.least)
	}
	return fitWhole(h, w, float64(unit), float64(u.least), most)
}

// fitWhole is fitPatches as qwen-vl-utils has it: a side has a unit at least before the limits are looked
// at, but not after.
func fitWhole(h, w int, unit, least, most float64) (int, int, error) {
	fh, fw := float64(h), float64(w)
	if max(fh, fw)/min(fh, fw) > ratioMax {
		return 0, 0, fmt.Errorf("a side of %d×%d pixels is over %d times the other; crop the video", w, h, ratioMax)
	}
	nh, nw := max(unit, math.RoundToEven(fh/unit)*unit), max(unit, math.RoundToEven(fw/unit)*unit)
	switch {
	case nh*nw > most:
		beta := math.Sqrt(fh * fw / most)
		nh, nw = math.Floor(fh/beta/unit)*unit, math.Floor(fw/beta/unit)*unit
	case nh*nw < least:
		beta := math.Sqrt(least / (fh * fw))
		nh, nw = math.Ceil(float64(fh*beta)/unit)*unit, math.Ceil(float64(fw*beta)/unit)*unit
	}
	if nh < unit || nw < unit {
		return 0, 0, fmt.Errorf("%d×%d pixels leave less than a patch within %v pixels; crop the video", w, h, most)
	}
	return int(nh), int(nw), nil
}
