package media

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Extent is what an image or video becomes, told from its size alone: planning needs no pixels.
type Extent struct {
	Shape []int // of the tower's input: [patches, 3·time·patch·patch], or [tiles, 3, height, width]
	// patches (or tiles, a thumbnail left out) in time, height and width; image_grid_thw of Qwen's
	Grid   [3]int
	Tokens int    // places that the language model sets aside: repetitions of the image or video token
	Size   [2]int // height and width of the source, image_sizes of LLaVA-OneVision
}

// Rows returns the rows of the tower's input as a matrix: patches or tiles.
func (e *Extent) Rows() int { return e.Shape[0] }

// Width returns the numbers in a row of the tower's input as a matrix.
func (e *Extent) Width() (n int) {
	n = 1
	for _, d := range e.Shape[1:] {
		n *= d
	}
	return n
}

// bytesMax bounds the pixels of one image or video that a tower takes.
const bytesMax = 4 << 30

// check refuses what no machine holds, which only settings can ask for.
func (e *Extent) check() error {
	n := 1.0
	for _, d := range e.Shape {
		n *= float64(d)
	}
	if n > bytesMax {
		return fmt.Errorf("%d×%d pixels become %v, over the limit of %d numbers; lower max_pixels, "+
			"max_patches or size", e.Size[1], e.Size[0], e.Shape, bytesMax)
	}
	return nil
}

// Features are what a vision tower takes of one image or video.
type Features struct {
	Extent
	Pixels  []byte    // in the layout of Shape, before rescaling and normalisation
	Seconds []float64 // of a video: the time of each row of the grid; nil where the source's rate is unknown
	// of a video: seconds from one row of the grid to the next by the rate of the frames taken; 0 where unknown
	Every float64

	norm *norm
	run  int // bytes of one channel in a row
}

// Values returns pixel_values, bit for bit those of Hugging Face's processor: Pixels rescaled and
// normalised, in the layout of Shape.
func (f *Features) Values() []float32 {
	out := make([]float32, len(f.Pixels))
	f.Fill(out)
	return out
}

// Fill writes Values into out, which has the length of Pixels.
func (f *Features) Fill(out []float32) {
	for i, channel := 0, 0; i < len(f.Pixels); i, channel = i+f.run, (channel+1)%3 {
		table, to := &f.norm[channel], out[i:i+f.run]
		for k, v := range f.Pixels[i : i+f.run] {
			to[k] = table[v]
		}
	}
}

// ImageProcessor prepares images for a vision tower. It may be used by several goroutines at once.
type ImageProcessor interface {
	// Image prepares one of the n images of a sample; n matters to LLaVA-OneVision, which cuts only single images.
	Image(p *Image, n int) (*Features, error)
	// ImageExtent tells what Image would return for an image of w by h pixels.
	ImageExtent(w, h, n int) (Extent, error)
}

// VideoProcessor prepares videos for a vision tower. It may be used by several goroutines at once.
type VideoProcessor interface {
	// Pick returns the numbers of the frames to take of a video, in ascending order.
	Pick(v VideoInfo) ([]int, error)
	// Video prepares frames that were picked.
	Video(c *Clip) (*Features, error)
	// VideoExtent tells what Video would return for frames of w by h pixels.
	VideoExtent(frames, w, h int) (Extent, error)
}

// VideoInfo is what a container says of a video.
type VideoInfo struct {
	W, H   int
	Frames int
	FPS    float64 // 0 where unknown
}

// Clip is a choice of a video's frames, all of one size.
type Clip struct {
	Frames []*Image
	At     []int   // each frame's number in the video; nil where unknown
	FPS    float64 // of the video; 0 where unknown
	Of     int     // frames of the video; 0 where unknown
}

// Processor prepares the images and videos of a model. Video is nil where the model takes none.
type Processor struct {
	Image ImageProcessor
	Video VideoProcessor
	Class string // of Hugging Face's image processor
}

// imageClasses and videoClasses hold the processors by the names of Hugging Face's classes; videoOf names a
// model's video processor by the class of the processor of all its inputs.
var (
	imageClasses = map[string]func(s *Settings) (ImageProcessor, error){}
	videoClasses = map[string]func(s *Settings) (VideoProcessor, error){}
	videoOf      = map[string]string{}
)

// registerImage enters an image processor under the class that configurations name.
func registerImage(class string, make func(s *Settings) (ImageProcessor, error)) bool {
	imageClasses[class] = make
	return true
}

// registerVideo enters a video processor, and the image processors beside which it is taken if no other is named.
func registerVideo(class string, make func(s *Settings) (VideoProcessor, error), of ...string) bool {
	videoClasses[class] = make
	for _, o := range of {
		videoOf[o] = class
	}
	return true
}

// NewImageProcessor makes a processor of a class from its settings. A setting that is not known is an error,
// as it could change pixels.
func NewImageProcessor(class string, s *Settings) (ImageProcessor, error) {
	return build(imageClasses, "image", class, s)
}

// NewVideoProcessor is NewImageProcessor for videos.
func NewVideoProcessor(class string, s *Settings) (VideoProcessor, error) {
	return build(videoClasses, "video", class, s)
}

// build makes a processor from its settings. Faster variants of a class, which end in a backend's
// name, count as the class itself; settings that nothing has read are faults.
func build[P any](classes map[string]func(*Settings) (P, error), kind, class string, s *Settings) (p P, err error) {
	for _, backend := range []string{"Fast", "Pil"} {
		class = strings.TrimSuffix(class, backend)
	}
	make := classes[class]
	if make == nil {
		return p, fmt.Errorf("%s: %s processor %q is not known; known are %s", s.file, kind, class,
			strings.Join(slices.Sorted(maps.Keys(classes)), ", "))
	}
	if p, err = make(s); err == nil {
		err = s.done()
	}
	if err != nil {
		return p, fmt.Errorf("%s: %s: %w", s.file, class, err)
	}
	return p, nil
}

// Files of a checkpoint that say how images and videos are prepared.
const (
	imageFile     = "preprocessor_config.json"
	videoFile     = "video_preprocessor_config.json"
	processorFile = "processor_config.json"
)

// Load reads a checkpoint's processor_config.json, preprocessor_config.json and
// video_preprocessor_config.json with the precedence that Hugging Face gives them.
func Load(dir string) (*Processor, error) { return LoadFor(dir, 0, 1) }

// LoadFor is Load for a model whose tower has square patches of that many pixels a side, merge × merge of
// which become one feature; 0 leaves both to config.json.
func LoadFor(dir string, patch, merge int) (*Processor, error) {
	both, err := readKeys(filepath.Join(dir, processorFile))
	if err != nil {
		return nil, err
	}
	model, err := readKeys(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	image, err := section(dir, both, "image_processor", imageFile)
	if err != nil {
		return nil, err
	}
	if image == nil {
		return nil, fmt.Errorf("%s has no %s; copy it from the model's repository", dir, imageFile)
	}
	if patch > 0 {
		vision := fmt.Appendf(nil, `{"patch_size":%d,"merge":%d}`, patch, merge)
		if model == nil {
			model = map[string]json.RawMessage{}
		}
		model["vision_config"] = vision
	}
	image.more, image.model = both, model
	class := image.class()
	if string(model["model_type"]) == `"internvl_chat"` {
		class = "InternVLChat"
	}
	p := &Processor{Class: class}
	if p.Image, err = NewImageProcessor(class, image); err != nil {
		return nil, err
	}
	video, err := section(dir, both, "video_processor", videoFile, imageFile)
	if err != nil {
		return nil, err
	}
	if video == nil {
		return p, nil
	}
	video.more, video.model = both, model
	if class := video.videoClass(); videoClasses[class] != nil {
		p.Video, err = NewVideoProcessor(class, video)
	}
	return p, err
}

// section returns the settings under a key of processor_config.json, or else of the first file that exists.
func section(dir string, both map[string]json.RawMessage, key string, files ...string) (*Settings, error) {
	if b, ok := both[key]; ok {
		return ParseSettings(filepath.Join(dir, processorFile)+": "+key, b)
	}
	for _, f := range files {
		file := filepath.Join(dir, f)
		keys, err := readKeys(file)
		if err != nil {
			return nil, err
		}
		if keys != nil {
			return newSettings(file, keys), nil
		}
	}
	return nil, nil
}

// readKeys returns nil where there is no such file.
func readKeys(file string) (keys map[string]json.RawMessage, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err = json.Unmarshal(b, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}
