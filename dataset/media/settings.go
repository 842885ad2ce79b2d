package media

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Settings are the keys of a processor's configuration. What a processor does not read must be without effect.
type Settings struct {
	file        string
	keys        map[string]json.RawMessage
	more, model map[string]json.RawMessage // processor_config.json and config.json
	read        map[string]bool
	errs        []error
}

// ParseSettings reads a configuration in JSON; file is for messages.
func ParseSettings(file string, b []byte) (*Settings, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return newSettings(file, keys), nil
}

func newSettings(file string, keys map[string]json.RawMessage) *Settings {
	return &Settings{file: file, keys: keys, read: map[string]bool{}}
}

// idle are keys that change no pixel.
var idle = map[string]bool{"processor_class": true, "image_processor_type": true, "video_processor_type": true,
	"feature_extractor_type": true, "auto_map": true, "_valid_kwargs_names": true, "_valid_processor_keys": true,
	"return_tensors": true, "disable_grouping": true, "device": true, "data_format": true, "input_data_format": true,
	"return_metadata": true, "model_input_names": true, "transformers_version": true, "_processor_class": true,
	"_auto_class": true, "_name_or_path": true, "default_to_square": true, "do_convert_rgb": true, "backend": true,
	"is_fast": true, "use_fast": true, "video_metadata": true, "size_divisor": true, "max_image_size": true}

// get decodes a key; false where it is absent or null.
func (s *Settings) get(key string, to any) bool {
	s.read[key] = true
	b, ok := s.keys[key]
	if !ok || string(b) == "null" {
		return false
	}
	if err := json.Unmarshal(b, to); err != nil {
		s.fail("%s is %s: %v", key, b, err)
		return false
	}
	return true
}

func (s *Settings) fail(format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

// number returns a key's number, or the default.
func (s *Settings) number(key string, def float64) float64 {
	s.get(key, &def)
	return def
}

// count returns a key's whole number from 1 to 1<<31, or the default.
func (s *Settings) count(key string, def int) int {
	v := def
	s.get(key, &v)
	if v < 1 || v > 1<<31 {
		s.fail("%s is %d; it is a number from 1 on", key, v)
		return def
	}
	return v
}

// few is count for a number that multiplies others: a side of a patch, patches that are merged, frames of one.
func (s *Settings) few(key string, def int) int {
	v := s.count(key, def)
	if v > fewMax {
		s.fail("%s is %d; it is at most %d", key, v, fewMax)
		return def
	}
	return v
}

const fewMax = 256

// flag returns a key's truth, or the default.
func (s *Settings) flag(key string, def bool) bool {
	s.get(key, &def)
	return def
}

// must refuses a key that is not as it has to be.
func (s *Settings) must(key string, want bool) {
	if s.flag(key, want) != want {
		s.fail("%s is %v; only %v is supported", key, !want, want)
	}
}

// text returns a string that processor_config.json may hold instead.
func (s *Settings) text(key, def string) string {
	if b, ok := s.more[key]; ok {
		if err := json.Unmarshal(b, &def); err != nil {
			s.fail("%s is %s: %v", key, b, err)
		}
	}
	s.get(key, &def)
	return def
}

// countBeside is count for a key that processor_config.json may hold instead; def may be 0 for unknown.
func (s *Settings) countBeside(key string, def int) int {
	if b, ok := s.more[key]; ok && string(b) != "null" {
		if err := json.Unmarshal(b, &def); err != nil {
			s.fail("%s is %s: %v", key, b, err)
		}
	}
	s.get(key, &def)
	return def
}

// modelCount returns a whole number of config.json, under its vision_config or at the top; 0 where there is none.
func (s *Settings) modelCount(key string) (n int) {
	var vision map[string]json.RawMessage
	_ = json.Unmarshal(s.model["vision_config"], &vision) // another type has no such number
	for _, from := range []map[string]json.RawMessage{vision, s.model} {
		if json.Unmarshal(from[key], &n) == nil && n > 0 {
			return n
		}
	}
	return 0
}

// filters are Pillow's numbers of them.
var filters = map[int]*Filter{1: Lanczos, 2: Bilinear, 3: Bicubic}

// filter reads the filter by Pillow's number, bicubic if none is given.
func (s *Settings) filter() *Filter {
	n := 3
	s.get("resample", &n)
	f := filters[n]
	if f == nil {
		s.fail("resample is %d; supported are 1 (Lanczos), 2 (bilinear) and 3 (bicubic)", n)
		return Bicubic
	}
	return f
}

// size is a processor's "size": a box, or limits of pixels.
type size struct {
	Height, Width int
	ShortestEdge  int `json:"shortest_edge"`
	LongestEdge   int `json:"longest_edge"`
	MinPixels     int `json:"min_pixels"`
	MaxPixels     int `json:"max_pixels"`
	MaxHeight     int `json:"max_height"`
	MaxWidth      int `json:"max_width"`
}

// box returns size as height and width.
func (s *Settings) box(height, width int) (h, w int) {
	var side int
	if b := s.keys["size"]; json.Unmarshal(b, &side) == nil && side > 0 {
		s.read["size"] = true
		return side, side
	}
	v := size{Height: height, Width: width}
	if s.get("size", &v) && (v.ShortestEdge > 0 || v.LongestEdge > 0 || v.MaxHeight > 0 || v.MaxWidth > 0) {
		s.fail("size is %s; only height and width are supported", s.keys["size"])
	}
	if v.Height < 1 || v.Width < 1 || v.Height > sideMax || v.Width > sideMax {
		s.fail("size is %d×%d; each is from 1 to %d", v.Height, v.Width, sideMax)
		return height, width
	}
	return v.Height, v.Width
}

// sideMax bounds a side of a tower's input.
const sideMax = 1 << 14

// pixels returns size as limits of pixels, with min_pixels and max_pixels before it.
func (s *Settings) pixels(least, most int) (int, int) {
	v := size{ShortestEdge: least, LongestEdge: most}
	if s.get("size", &v) && (v.Height > 0 || v.Width > 0) {
		s.fail("size is %s; shortest_edge and longest_edge are wanted, which are numbers of pixels", s.keys["size"])
	}
	if v.MinPixels > 0 && v.MaxPixels > 0 { // older checkpoints
		v.ShortestEdge, v.LongestEdge = v.MinPixels, v.MaxPixels
	}
	least, most = s.count("min_pixels", v.ShortestEdge), s.count("max_pixels", v.LongestEdge)
	if least > most {
		s.fail("at least %d pixels and at most %d are wanted", least, most)
	}
	return least, most
}

// class is the image processor's; a configuration of early days names a feature extractor.
func (s *Settings) class() string {
	name := ""
	for _, key := range []string{"image_processor_type", "feature_extractor_type"} {
		if name == "" {
			s.get(key, &name)
		}
	}
	return strings.TrimSuffix(strings.TrimSuffix(name, "Fast"), "Pil")
}

// videoClass is the class of the video processor. If the file names none, it is the one of the same model
// as the image processor's.
func (s *Settings) videoClass() string {
	name, model := "", ""
	if s.get("video_processor_type", &name) {
		return name
	}
	s.get("processor_class", &model)
	if class, ok := videoOf[model]; ok {
		return class
	}
	return strings.Replace(s.class(), "ImageProcessor", "VideoProcessor", 1)
}

// done reports what went wrong, and keys that nobody read.
func (s *Settings) done() error {
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if v := string(s.keys[key]); !s.read[key] && !idle[key] && v != "null" {
			s.fail("%s: %s is not known, and it could change the pixels; remove it if it does not", key, v)
		}
	}
	return errors.Join(s.errs...)
}
