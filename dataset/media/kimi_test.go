package media

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKimiGolden and TestErnieGolden: images are resized, filled up and normalised as the processors of Kimi K2.5 and
// ERNIE 4.5 do (bench/golden/kimi_images.py, ernie_images.py), bit for bit, and their size alone tells the grid.
func TestKimiGolden(t *testing.T) { holdNoise(t, "kimi", "Kimi_K25ImageProcessor", 28) }

func TestErnieGolden(t *testing.T) { holdNoise(t, "ernie", "Ernie4_5_VLMoeImageProcessor", 21) }

func holdNoise(t *testing.T, file, class string, n int) {
	text, err := os.ReadFile("testdata/" + file + ".json")
	require.NoError(t, err)
	var rows [][]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &rows))
	require.Len(t, rows, n)
	for _, r := range rows {
		var w, h int
		var grid [3]int
		var want string
		for i, to := range map[int]any{0: &w, 1: &h, 3: &grid, 4: &want} {
			require.NoError(t, json.Unmarshal(r[i], to))
		}
		p, err := NewImageProcessor(class, settings(t, string(r[2])))
		require.NoError(t, err)
		f, err := p.Image(noise(w, h), 1)
		require.NoError(t, err)
		e, err := p.ImageExtent(w, h, 1)
		require.NoError(t, err)
		require.Equal(t, f.Extent, e)
		require.Equal(t, grid, e.Grid, "%s", r)
		var b []byte
		for _, v := range f.Values() {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		sum := sha256.Sum256(b)
		require.Equal(t, want, hex.EncodeToString(sum[:])[:16], "%s", r)
	}
}

// TestKimiRefuses: sizes that are no two equal numbers of patches, and settings that are not known.
func TestKimiRefuses(t *testing.T) {
	for given, want := range map[string]string{
		`{"size": {"max_height": 5, "max_width": 6}}`: "two equal numbers of patches",
		`{"size": {"height": 5, "width": 5}}`:         "max_height and max_width are wanted",
		`{"do_resize": false}`:                        "do_resize is false",
		`{"max_patches": 0}`:                          "max_patches",
		`{"pad_to": 3}`:                               "pad_to",
	} {
		_, err := NewImageProcessor("Kimi_K25ImageProcessor", settings(t, given))
		require.ErrorContains(t, err, want)
	}
}

// TestErnieLimit: images of more pixels than Qwen2-VL's processor takes keep them, up to 28·28·6177.
func TestErnieLimit(t *testing.T) {
	p, err := NewImageProcessor("Ernie4_5_VLMoeImageProcessor", settings(t, `{}`))
	require.NoError(t, err)
	for sides, want := range map[[2]int][3]int{{1400, 1400}: {1, 100, 100}, {2800, 2800}: {1, 156, 156}} {
		e, err := p.ImageExtent(sides[0], sides[1], 1)
		require.NoError(t, err)
		require.Equal(t, want, e.Grid)
		require.Equal(t, 3*14*14, e.Width()) // one frame
	}
	_, err = NewImageProcessor("Ernie4_5_VLMoeImageProcessor", settings(t, `{"temporal_patch_size": 2}`))
	require.ErrorContains(t, err, "patches of images have one frame")
}
