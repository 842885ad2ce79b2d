package media

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func settings(t testing.TB, json string) *Settings {
	s, err := ParseSettings("preprocessor_config.json", []byte(json))
	require.NoError(t, err)
	return s
}

func write(t *testing.T, dir, name, body string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600))
}

// What could change pixels and is not understood is refused, with the key and the remedy.
func TestSettingsRefuse(t *testing.T) {
	for _, c := range []struct{ class, json, want string }{
		{"Qwen2VLImageProcessor", `{"do_sharpen": true}`, "do_sharpen: true is not known"},
		{"Qwen2VLImageProcessor", `{"resample": 0}`, "resample is 0; supported are 1"},
		{"Qwen2VLImageProcessor", `{"patch_size": 0}`, "patch_size is 0"},
		{"Qwen2VLImageProcessor", `{"patch_size": "a"}`, `patch_size is "a"`},
		{"Qwen2VLImageProcessor", `{"size": {"height": 3, "width": 3}}`,
			"shortest_edge and longest_edge are wanted"},
		{"Qwen2VLImageProcessor", `{"min_pixels": 9, "max_pixels": 8}`, "at least 9 pixels and at most 8"},
		{"SiglipImageProcessor", `{"size": {"shortest_edge": 3}}`, "only height and width"},
		{"CLIPImageProcessor", `{"size": {"height": 3, "width": 3}}`, "only shortest_edge is supported"},
		{"CLIPImageProcessor", `{"crop_size": 225}`,
			"crop_size is 225×225, larger than the shorter side of 224"},
		{"CLIPImageProcessor", `{"size": 0}`, "size is 0"},
		{"CLIPImageProcessor", `{"do_center_crop": false}`, "do_center_crop is false"},
		{"SiglipImageProcessor", `{"image_std": [1, 0, 1]}`, "image_std has a 0"},
		{"SiglipImageProcessor", `{"image_mean": [1, 2]}`, "image_mean has 2 numbers"},
		{"SiglipImageProcessor", `{"do_center_crop": true}`, "do_center_crop is true; only false"},
		{"GotOcr2ImageProcessor", `{"min_patches": 13}`, "min_patches is 13 and max_patches 12"},
		{"LlavaOnevisionImageProcessor", `{"image_grid_pinpoints": [[384, 100]]}`,
			"384×100, which is not a multiple of tiles of 384"},
		{"LlavaOnevisionImageProcessor", `{"vision_aspect_ratio": "pad"}`, `vision_aspect_ratio is "pad"`},
		{"ViTImageProcessor", `{}`, "known are CLIPImageProcessor, "},
	} {
		_, err := NewImageProcessor(c.class, settings(t, c.json))
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "preprocessor_config.json")
	}
	big, err := NewImageProcessor("GotOcr2ImageProcessor",
		settings(t, `{"size": 16384, "max_patches": 4096, "min_patches": 4096, "crop_to_patches": true}`))
	require.NoError(t, err)
	_, err = big.Image(NewImage(5, 5), 1)
	require.ErrorContains(t, err, "over the limit of 4294967296 numbers; lower")
	late, err := NewVideoProcessor("InternVLVideoProcessor",
		settings(t, `{"num_frames": 3, "initial_shift": 9, "do_sample_frames": true}`))
	require.NoError(t, err)
	_, err = late.Pick(VideoInfo{Frames: 9})
	require.ErrorContains(t, err, "initial_shift is behind the end of a video of 9 frames")
	_, err = NewImageProcessor("SiglipImageProcessorFast",
		settings(t, `{"size": 224, "do_convert_rgb": null, "crop_size": null, "processor_class": "x"}`))
	require.NoError(t, err)
}

// The nested configuration counts more than the file of its own, and what stands beside it is read too.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(dir)
	require.ErrorContains(t, err, "has no preprocessor_config.json; copy it")
	write(t, dir, "preprocessor_config.json",
		`{"image_processor_type": "SiglipImageProcessor", "size": {"height": 32, "width": 16}}`)
	write(t, dir, "config.json", `{"vision_config": {"patch_size": 8}}`)
	p, err := Load(dir)
	require.NoError(t, err)
	e, err := p.Image.ImageExtent(9, 7, 1)
	require.NoError(t, err)
	require.Equal(t, Extent{Shape: []int{1, 3, 32, 16}, Grid: [3]int{1, 1, 1}, Tokens: 8,
		Size: [2]int{7, 9}}, e)
	write(t, dir, "config.json", `{"model_type": "vlm", "vision_config": {"patch_size": 8, "merge": 2}}`)
	p, err = Load(dir)
	require.NoError(t, err)
	e, err = p.Image.ImageExtent(9, 7, 1)
	require.NoError(t, err)
	require.Equal(t, 2, e.Tokens)
	write(t, dir, "processor_config.json", `{"image_processor": {"image_processor_type": "GotOcr2ImageProcessorFast", "size": {"height": 28, "width": 28}},
		"processor_class": "InternVLProcessor", "image_seq_length": 5}`)
	p, err = Load(dir)
	require.NoError(t, err)
	require.Equal(t, "GotOcr2ImageProcessor", p.Class)
	e, err = p.Image.ImageExtent(200, 100, 1)
	require.NoError(t, err)
	require.Equal(t, []int{9, 3, 28, 28}, e.Shape) // 4×2 tiles and a thumbnail
	require.Equal(t, 45, e.Tokens)
	chat := t.TempDir()
	write(t, chat, "preprocessor_config.json",
		`{"feature_extractor_type": "CLIPFeatureExtractor", "crop_size": 448, "do_center_crop": true}`)
	write(t, chat, "config.json",
		`{"model_type": "internvl_chat", "force_image_size": 448, "max_dynamic_patch": 6, "vision_config": {"patch_size": 14}}`)
	p, err = Load(chat)
	require.NoError(t, err)
	e, err = p.Image.ImageExtent(1200, 800, 1)
	require.NoError(t, err)
	require.Equal(t, Extent{Shape: []int{7, 3, 448, 448}, Grid: [3]int{1, 2, 3}, Tokens: 7 * 256,
		Size: [2]int{800, 1200}}, e)
	require.Nil(t, p.Video)
	write(t, chat, "config.json", `{"model_type": "internvl_chat", "use_thumbnail": false}`)
	_, err = Load(chat)
	require.ErrorContains(t, err, "use_thumbnail is false; only true")
	write(t, dir, "processor_config.json", `[`)
	_, err = Load(dir)
	require.ErrorContains(t, err, "processor_config.json: ")
}

// TestGemma3: the tile is SigLIP's, the tokens are as many as the model has means of patches, and crops are refused.
func TestGemma3(t *testing.T) {
	same := `{"size": {"height": 56, "width": 42}, "resample": 2`
	g, err := NewImageProcessor("Gemma3ImageProcessor", settings(t, same+`, "image_seq_length": 16,
		"do_pan_and_scan": null, "pan_and_scan_max_num_crops": 4}`))
	require.NoError(t, err)
	siglip, err := NewImageProcessor("SiglipImageProcessor", settings(t, same+`}`))
	require.NoError(t, err)
	a, err := g.Image(opened(t, "photo.jpg"), 1)
	require.NoError(t, err)
	b, err := siglip.Image(opened(t, "photo.jpg"), 1)
	require.NoError(t, err)
	require.Equal(t, b.Pixels, a.Pixels)
	require.Equal(t, []int{1, 3, 56, 42}, a.Shape)
	require.Equal(t, 16, a.Tokens)
	e, err := g.ImageExtent(30, 20, 1)
	require.NoError(t, err)
	require.Equal(t, 16, e.Tokens)
	_, err = NewImageProcessor("Gemma3ImageProcessor", settings(t, `{"do_pan_and_scan": true}`))
	require.ErrorContains(t, err, "do_pan_and_scan is true; only false is supported")
	dir := t.TempDir()
	write(t, dir, "preprocessor_config.json", `{"image_processor_type": "Gemma3ImageProcessor"}`)
	write(t, dir, "config.json", `{"model_type": "gemma3", "mm_tokens_per_image": 64}`)
	_, err = Load(dir)
	require.ErrorContains(t, err, "image_seq_length is 256, and mm_tokens_per_image of config.json 64")
	write(t, dir, "processor_config.json", `{"image_seq_length": 64}`)
	p, err := Load(dir)
	require.NoError(t, err)
	e, err = p.Image.ImageExtent(30, 20, 1)
	require.NoError(t, err)
	require.Equal(t, 64, e.Tokens)
}

// A processor serves several goroutines at once, and memory that is used again is nobody else's.
func TestProcessorsAtOnce(t *testing.T) {
	b := readFile(t, "photo.jpg")
	for _, class := range []string{"Qwen2VLImageProcessor", "GotOcr2ImageProcessor",
		"LlavaOnevisionImageProcessor", "SiglipImageProcessor", "CLIPImageProcessor",
		"Gemma3ImageProcessor"} {
		p, err := NewImageProcessor(class, settings(t, `{}`))
		require.NoError(t, err)
		var want string
		got := make([]string, 4)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				for range 3 {
					m, err := Decode(b, Options{})
					if err != nil {
						return
					}
					f, err := p.Image(m, 1)
					m.Release()
					if err == nil {
						got[i] += hashOf(f.Pixels)
					}
				}
			})
		}
		all.Wait()
		f, err := p.Image(opened(t, "photo.jpg"), 1)
		require.NoError(t, err)
		want = strings.Repeat(hashOf(f.Pixels), 3)
		require.Equal(t, []string{want, want, want, want}, got, class)
	}
}

// Any configuration gives a processor that tells sizes, or an error.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{`{}`, `{"patch_size": 16, "min_pixels": 9, "max_pixels": 999}`,
		`{"size": {"height": 7, "width": 9}, "resample": 2}`,
		`{"image_grid_pinpoints": [[384, 768]]}`, `{"size": 5, "image_std": 0.5}`,
		`{"fps": 1e300, "do_sample_frames": true}`, `{"num_frames": 3, "initial_shift": 1e9}`} {
		f.Add([]byte(s), 40, 30)
	}
	f.Fuzz(func(t *testing.T, b []byte, w, h int) {
		w, h = 1+w&0xfff, 1+h&0xfff
		for _, class := range append(slices.Sorted(maps.Keys(imageClasses)), slices.Sorted(maps.Keys(videoClasses))...) {
			s, err := ParseSettings("x", b)
			if err != nil {
				return
			}
			if imageClasses[class] != nil {
				if p, err := NewImageProcessor(class, s); err == nil {
					_, _ = p.ImageExtent(w, h, 1)
				}
				continue
			}
			if p, err := NewVideoProcessor(class, s); err == nil {
				if at, err := p.Pick(VideoInfo{Frames: w, FPS: float64(h)}); err == nil {
					require.NotEmpty(t, at)
					require.Less(t, at[len(at)-1], w)
					_, _ = p.VideoExtent(len(at), w, h)
				}
			}
		}
	})
}

// processed is what transformers' processor made of an image.
type processed struct {
	Pixels, Values, Error string
	Shape                 []int
	Grid                  *[3]int
	Tokens                int
}

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])[:16]
}

func hashValues(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return hashOf(b)
}

// cases is a folder that bench/golden/media_processors.py filled with random images and what became of them.
var cases = flag.String("cases", "testdata", "folder of the images and processors.json to compare with")

// opened is an image as Hugging Face's processors take it: a file, or noise of a size.
func opened(t testing.TB, name string) *Image {
	var w, h int
	if n, _ := fmt.Sscanf(name, "%dx%d", &w, &h); n == 2 {
		return noise(w, h)
	}
	b, err := os.ReadFile(filepath.Join(*cases, name))
	require.NoError(t, err)
	p, err := Decode(b, Options{White: true})
	require.NoError(t, err, name)
	return p
}

// Pixels, values, shapes, grids and tokens are bit for bit those of transformers' processors.
func TestProcessorsGolden(t *testing.T) {
	var golden struct {
		Settings map[string]json.RawMessage
		Cases    []json.RawMessage
	}
	b, err := os.ReadFile(filepath.Join(*cases, "processors.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &golden))
	require.True(t, *cases != "testdata" || len(golden.Cases) > 600)
	if raced {
		t.Log("skipped: seven of eight cases, as the race detector slows them most")
	}
	made := map[string]*Image{}
	for i, c := range golden.Cases {
		if raced && i%8 != 0 {
			continue
		}
		var image, name string
		var n int
		var want processed
		require.NoError(t, json.Unmarshal(c, &[]any{&image, &name, &n, &want}))
		s := settings(t, string(golden.Settings[name]))
		s.more = map[string]json.RawMessage{"num_image_tokens": []byte("729")}
		p, err := NewImageProcessor(s.class(), s)
		require.NoError(t, err)
		if made[image] == nil {
			made[image] = opened(t, image)
		}
		t.Run(fmt.Sprintf("%s by %s, one of %d", image, name, n),
			func(t *testing.T) { compare(t, p, made[image], n, want) })
	}
}

func compare(t *testing.T, p ImageProcessor, m *Image, n int, want processed) {
	f, err := p.Image(m, n)
	if want.Error != "" {
		require.Error(t, err, "transformers says %s", want.Error)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want.Shape, f.Shape)
	require.Equal(t, want.Pixels, hashOf(f.Pixels))
	require.Equal(t, want.Values, hashValues(f.Values()))
	require.Equal(t, want.Tokens, f.Tokens)
	if want.Grid != nil {
		require.Equal(t, *want.Grid, f.Grid)
	}
	e, err := p.ImageExtent(m.W, m.H, n)
	require.NoError(t, err)
	require.Equal(t, e, f.Extent)
}

// Configurations as published checkpoints have them are understood, null keys and all.
func TestLoadPublished(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "preprocessor_config.json", `{"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
		"merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "processor_class": "Qwen3VLProcessor",
		"image_processor_type": "Qwen2VLImageProcessorFast"}`)
	write(t, dir, "video_preprocessor_config.json", `{"crop_size": null, "data_format": "channels_first", "default_to_square": true, "device": null,
		"do_center_crop": null, "do_convert_rgb": true, "do_normalize": true, "do_rescale": true, "do_resize": true, "do_sample_frames": true, "fps": 2,
		"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "input_data_format": null, "max_frames": 768, "merge_size": 2, "min_frames": 4,
		"num_frames": null, "pad_size": null, "patch_size": 16, "processor_class": "Qwen3VLProcessor", "resample": 3,
		"rescale_factor": 0.00392156862745098, "return_metadata": false, "size": {"longest_edge": 25165824, "shortest_edge": 4096},
		"temporal_patch_size": 2, "video_metadata": null, "video_processor_type": "Qwen3VLVideoProcessor"}`)
	p, err := Load(dir)
	require.NoError(t, err)
	e, err := p.Video.VideoExtent(9, 640, 360)
	require.NoError(t, err)
	require.Equal(t, Extent{Shape: []int{5 * 22 * 40, 1536}, Grid: [3]int{5, 22, 40}, Tokens: 1100,
		Size: [2]int{360, 640}}, e)

	dir = t.TempDir()
	write(t, dir, "preprocessor_config.json", `{"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
		"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
		"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"}`)
	p, err = Load(dir)
	require.NoError(t, err)
	require.IsType(t, &qwen2Video{}, p.Video)

	dir = t.TempDir()
	write(t, dir, "preprocessor_config.json", `{"crop_size": null, "crop_to_patches": false, "do_center_crop": null, "do_convert_rgb": true,
		"image_mean": [0.485, 0.456, 0.406], "image_processor_type": "GotOcr2ImageProcessorFast", "image_std": [0.229, 0.224, 0.225], "max_patches": 12,
		"min_patches": 1, "processor_class": "InternVLProcessor", "resample": 3, "size": {"height": 448, "width": 448}}`)
	p, err = Load(dir)
	require.NoError(t, err)
	require.IsType(t, &boxVideo{}, p.Video)
	e, err = p.Image.ImageExtent(900, 450, 1)
	require.NoError(t, err)
	require.Equal(t, 3*256, e.Tokens)
}
