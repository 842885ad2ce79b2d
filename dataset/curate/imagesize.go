package curate

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/dataset/media"
)

// image_size: bounds of the images of a document.
var _ = Register(Kind{Name: "image_size",
	Doc: "drops documents with an image that is too small, too large, too " +
		"oblong, missing or cannot be read",
	Source:   "the sizes that images announce, upright",
	Settings: func() Settings { return &imageSize{imageColumn: imageColumn{Column: usualImages}} }})

// imageSize is its settings; a zero switches a bound off.
type imageSize struct {
	imageColumn
	MinSide   int     `yaml:"min_side"` // pixels of the shorter side
	MaxSide   int     `yaml:"max_side"` // of the longer side
	MinPixels int     `yaml:"min_pixels"`
	MaxPixels int     `yaml:"max_pixels"`
	MaxAspect float64 `yaml:"max_aspect"` // longer side over shorter side
	MinImages int     `yaml:"min_images"` // of a document
	MaxImages int     `yaml:"max_images"`
}

func (s *imageSize) Open() (Step, error) {
	all := *s
	if all.imageColumn = (imageColumn{}); all == (imageSize{}) {
		return nil, &Fault{"min_side", "no bound is given",
			"give min_side, max_side, min_pixels, max_pixels, max_aspect, min_images or max_images"}
	}
	if err := s.bounds(); err != nil {
		return nil, err
	}
	return s, s.check()
}

// bounds refuses bounds that no image, or each, is within.
func (s *imageSize) bounds() error {
	for _, b := range []struct {
		key      string
		min, max int
	}{{"side", s.MinSide, s.MaxSide}, {"pixels", s.MinPixels, s.MaxPixels}, {"images", s.MinImages, s.MaxImages}} {
		switch {
		case b.min < 0:
			return &Fault{"min_" + b.key, fmt.Sprintf("%d is below 0", b.min), "0 switches it off"}
		case b.max < 0:
			return &Fault{"max_" + b.key, fmt.Sprintf("%d is below 0", b.max), "0 switches it off"}
		case b.max != 0 && b.min > b.max:
			return &Fault{"min_" + b.key,
				fmt.Sprintf("%d is over max_%s = %d: nothing is within them", b.min, b.key, b.max), "exchange them"}
		}
	}
	if a := s.MaxAspect; a != 0 && !(a >= 1 && a <= math.MaxFloat64) {
		return &Fault{"max_aspect", fmt.Sprintf("%g is no ratio of a longer side to a shorter one", a),
			"give 1 or more, or 0 to switch it off"}
	}
	return nil
}

func (s *imageSize) Columns() Columns { return Columns{Reads: []string{s.Column}} }

func (s *imageSize) Do(_ *Desk, d *Doc) string {
	list, err := s.imagesOf(d)
	switch {
	case err != nil:
		return s.refuse(d, err)
	case len(list) < s.MinImages:
		return "too_few_images"
	case s.MaxImages != 0 && len(list) > s.MaxImages:
		return "too_many_images"
	}
	for _, b := range list {
		if reason := s.judge(d, b); reason != "" {
			return reason
		}
	}
	return ""
}

// judge says why an image is none of those that are wanted, "" for nothing.
func (s *imageSize) judge(d *Doc, b []byte) string {
	w, h, err := media.Size(b, media.Options{Turn: true})
	short, long := min(w, h), max(w, h)
	switch {
	case err != nil:
		return s.refuse(d, err)
	case short < s.MinSide || s.MinPixels != 0 && w*h < s.MinPixels:
		return "small_image"
	case s.MaxSide != 0 && long > s.MaxSide || s.MaxPixels != 0 && w*h > s.MaxPixels:
		return "large_image"
	case s.MaxAspect != 0 && float64(long) > s.MaxAspect*float64(short):
		return "oblong_image"
	}
	return ""
}
