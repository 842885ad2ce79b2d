package media

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scroll is the video that bench/golden/media_videos.py makes by the same formula.
func scroll(frames, w, h int) (out []*Image) {
	tall := noise(w, h+frames)
	for i := range frames {
		out = append(out, &Image{w, h, tall.Pix[i*w*3 : (i+h)*w*3]})
	}
	return out
}

type goldenVideos struct {
	Settings map[string]json.RawMessage
	Clips    [][]json.RawMessage
	Picks    [][]json.RawMessage
	Scaled   [][6]any
}

func readVideos(t *testing.T) (g goldenVideos) {
	require.NoError(t, json.Unmarshal(readFile(t, "videos.json"), &g))
	return g
}

func videoProcessor(t *testing.T, b []byte) VideoProcessor {
	s := settings(t, string(b))
	s.more = map[string]json.RawMessage{"num_image_tokens": []byte("729")}
	p, err := NewVideoProcessor(s.videoClass(), s)
	require.NoError(t, err)
	return p
}

// Frames taken, pixels, values, grids, tokens and times are bit for bit those of transformers and
// qwen-vl-utils, but for the pixels of the latter: it sums in float32, where the order that the compiler of
// its kernels chose moves a pixel in about 10⁵ by one level.
func TestVideosGolden(t *testing.T) {
	g := readVideos(t)
	require.Len(t, g.Clips, 4*len(g.Settings))
	for _, c := range g.Clips {
		var video [4]float64
		var name string
		var want struct {
			processed
			At      []int
			Seconds []float64
			Parts   [16]int // sums of pixels
		}
		require.NoError(t, json.Unmarshal(c[0], &video))
		require.NoError(t, json.Unmarshal(c[1], &name))
		require.NoError(t, json.Unmarshal(c[2], &want))
		t.Run(fmt.Sprint(video, name), func(t *testing.T) {
			p := videoProcessor(t, g.Settings[name])
			v := VideoInfo{Frames: int(video[0]), W: int(video[1]), H: int(video[2]), FPS: video[3]}
			at, err := p.Pick(v)
			require.NoError(t, err)
			require.Equal(t, want.At, at)
			clip := &Clip{At: at, FPS: v.FPS}
			for all := scroll(v.Frames, v.W, v.H); len(clip.Frames) < len(at); {
				clip.Frames = append(clip.Frames, all[at[len(clip.Frames)]])
			}
			f, err := p.Video(clip)
			require.NoError(t, err)
			require.Equal(t, want.Shape, f.Shape)
			if strings.HasPrefix(name, "qwen-vl-utils") {
				requireParts(t, want.Parts, f.Pixels)
			} else {
				require.Equal(t, want.Pixels, hashOf(f.Pixels))
				require.Equal(t, want.Values, hashValues(f.Values()))
			}
			require.Equal(t, want.Seconds, f.Seconds)
			require.Equal(t, want.Tokens, f.Tokens)
			if want.Grid != nil {
				require.Equal(t, *want.Grid, f.Grid)
			}
		})
	}
}

func requireParts(t *testing.T, want [16]int, pixels []byte) {
	n, more := len(pixels)/16, len(pixels)%16 // as numpy.array_split has it
	for i, w := range want {
		size := n
		if i < more {
			size++
		}
		sum := 0
		for _, v := range pixels[:size] {
			sum += int(v)
		}
		require.InDelta(t, w, sum, 2, "part %d of 16", i)
		pixels = pixels[size:]
	}
}

// Over lengths, rates and settings the same frames are taken, and refused where they cannot be.
func TestPickGolden(t *testing.T) {
	for _, c := range readVideos(t).Picks {
		var v VideoInfo
		var want string
		require.NoError(t, json.Unmarshal(c[0], &v.Frames))
		require.NoError(t, json.Unmarshal(c[1], &v.FPS))
		require.NoError(t, json.Unmarshal(c[3], &want))
		t.Run(fmt.Sprintf("%d %v %s", v.Frames, v.FPS, c[2]), func(t *testing.T) {
			at, err := videoProcessor(t, c[2]).Pick(v)
			if want == "error" { // no frame at all is an error there, and one frame here
				require.True(t, err != nil || len(at) == 1)
				return
			}
			require.NoError(t, err)
			var b []byte
			for _, i := range at {
				b = binary.LittleEndian.AppendUint32(b, uint32(i))
			}
			require.Equal(t, want, hashOf(b))
		})
	}
}

// Images are resized as torchvision does.
func TestResizeTorchGolden(t *testing.T) {
	filters := map[any]*Filter{"bilinear": Bilinear, "bicubic": Bicubic, "lanczos": Lanczos}
	for _, r := range readVideos(t).Scaled {
		n := func(i int) int { return int(r[i].(float64)) }
		require.Equal(t, r[5], sha(noise(n(0), n(1)).ResizeTorch(n(2), n(3), filters[r[4]])), "%v", r)
	}
}

// What cannot be prepared is refused with the reason.
func TestClipRefuses(t *testing.T) {
	p := videoProcessor(t, []byte(`{"video_processor_type": "Qwen3VLVideoProcessor"}`))
	for want, c := range map[string]*Clip{
		"0 frames; from 1": {},
		"frame 1 is 9×8 pixels, and frame 0 8×9": {Frames: []*Image{NewImage(8, 9),
			NewImage(9, 8)}},
		"1 frames; at least the 2":                             {Frames: scroll(1, 40, 40)},
		"2 frames have 1 numbers":                              {Frames: scroll(2, 40, 40), At: []int{1}},
		"a side of 33×6700 pixels is over 200 times the other": {Frames: scroll(2, 33, 6700)},
	} {
		_, err := p.Video(c)
		require.ErrorContains(t, err, want)
	}
	_, err := p.Pick(VideoInfo{})
	require.ErrorContains(t, err, "no frames")
	_, err = videoProcessor(t, []byte(`{"video_processor_type": "QwenVLUtils"}`)).Pick(VideoInfo{Frames: 9})
	require.ErrorContains(t, err, "does not tell its frame rate")
	_, err = NewVideoProcessor("InternVLVideoProcessor", settings(t, `{"fps": 2, "num_frames": 3}`))
	require.ErrorContains(t, err, "fps and num_frames exclude each other")
}
