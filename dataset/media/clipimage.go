package media

import (
	"encoding/json"
	"fmt"
)

var _ = registerImage("CLIPImageProcessor", newClip)

// centre is a processor that makes an image's shorter side fit and takes a box out of the middle: CLIP's,
// as LLaVA 1.5 has it.
type centre struct {
	short, h, w  int // pixels of the shorter side, and of the box
	patch, merge int // as of box
	filter       *Filter
	norm         *norm
}

// newClip reads the settings of CLIP's processor: the shorter side is resized and the middle is cut out.
func newClip(s *Settings) (ImageProcessor, error) {
	c := &centre{filter: s.filter(), patch: s.modelCount("patch_size"), merge: max(1, s.modelCount("merge"))}
	c.short = s.shortest(224)
	c.h, c.w = s.crop(224)
	if c.h > c.short || c.w > c.short {
		s.fail("crop_size is %d×%d, larger than the shorter side of %d that size leaves; only smaller "+
			"ones are supported", c.h, c.w, c.short)
	}
	s.must("do_resize", true)
	if !s.flag("do_center_crop", true) {
		s.fail("do_center_crop is false; towers take images of one size")
	}
	s.must("do_pad", false)
	c.norm = s.affine(clipMean, clipStd).pillow()
	return c, nil
}

// plain returns the value of a key that is written as one positive integer. It returns 0 if the key is
// missing or has another form, such as a mapping, and then does not count the key as read.
func (s *Settings) plain(key string) (n int) {
	if json.Unmarshal(s.keys[key], &n) != nil || n < 1 {
		return 0
	}
	s.read[key] = true
	return n
}

// shortest returns size as the length of the shorter side.
func (s *Settings) shortest(def int) int {
	side := s.plain("size")
	if side == 0 {
		v := size{ShortestEdge: def}
		if s.get("size", &v) && v != (size{ShortestEdge: v.ShortestEdge}) {
			s.fail("size is %s; only shortest_edge is supported", s.keys["size"])
		}
		side = v.ShortestEdge
	}
	return s.side("size", side, def)
}

// crop returns crop_size as height and width.
func (s *Settings) crop(def int) (h, w int) {
	v := size{Height: def, Width: def}
	if n := s.plain("crop_size"); n > 0 {
		v.Height, v.Width = n, n
	} else {
		s.get("crop_size", &v)
	}
	return s.side("crop_size", v.Height, def), s.side("crop_size", v.Width, def)
}

// side checks a length in pixels; def stands in for a faulty one, so that further faults are found too.
func (s *Settings) side(key string, n, def int) int {
	if n < 1 || n > sideMax {
		s.fail("%s is %d; it is from 1 to %d", key, n, sideMax)
		return def
	}
	return n
}

// resized is the size of an image of w by h pixels whose shorter side fits; the longer is rounded down,
// as transformers does.
func (c *centre) resized(w, h int) (nw, nh int, err error) {
	nw, nh = c.short, c.short
	if w <= h {
		nh = int(int64(c.short) * int64(h) / int64(w))
	} else {
		nw = int(int64(c.short) * int64(w) / int64(h))
	}
	if max(nw, nh) > sideMax {
		return 0, 0, fmt.Errorf("an image of %d×%d pixels would become %d×%d before its middle is "+
			"taken, over the limit of %d a side; cut it", w, h, nw, nh, sideMax)
	}
	return nw, nh, nil
}

// ImageExtent implements ImageProcessor. Tokens are as those of box.
func (c *centre) ImageExtent(w, h, _ int) (Extent, error) {
	e := Extent{Shape: []int{1, 3, c.h, c.w}, Grid: [3]int{1, 1, 1}, Size: [2]int{h, w}}
	if c.patch > 0 {
		e.Tokens = (c.h / c.patch / c.merge) * (c.w / c.patch / c.merge)
	}
	_, _, err := c.resized(w, h)
	return e, err
}

// Image implements ImageProcessor.
func (c *centre) Image(p *Image, _ int) (*Features, error) {
	nw, nh, err := c.resized(p.W, p.H)
	if err != nil {
		return nil, err
	}
	e, err := c.ImageExtent(p.W, p.H, 1)
	whole := p.Resize(nw, nh, c.filter)
	apart := whole.planes()
	out := apart.tile(make([]byte, 0, e.Width()), (nw-c.w)/2, (nh-c.h)/2, c.w, c.h)
	apart.release()
	whole.releaseUnless(p)
	return &Features{Extent: e, Pixels: out, norm: c.norm, run: c.h * c.w}, err
}
