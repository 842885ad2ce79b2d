package media

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stillFiles is the folder of bench/golden/stills.py: the small set, or the one that LFACTOR_STILLS names.
func stillFiles() string {
	if dir := os.Getenv("LFACTOR_STILLS"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "stills")
}

// AVIF, HEIC and JPEG 2000 have the sizes that Pillow reads, by their headers alone, and where ffmpeg
// is there its pixels: of JPEG 2000 without loss exactly; of the others, whose colours libraries round
// in their own ways, within 12 of 255, and 2 on average.
func TestStills(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(stillFiles(), "stills.json"))
	require.NoError(t, err)
	var want map[string]struct {
		W, H int
		RGB  []byte
	}
	require.NoError(t, json.Unmarshal(text, &want))
	require.GreaterOrEqual(t, len(want), 6)
	_, missing := exec.LookPath("ffmpeg")
	for name, w := range want {
		b, err := os.ReadFile(filepath.Join(stillFiles(), name))
		require.NoError(t, err)
		width, height, err := Size(b, Options{})
		require.NoError(t, err, name)
		require.Equal(t, []int{w.W, w.H}, []int{width, height}, name)
		p, err := Decode(b, Options{})
		if missing != nil {
			require.ErrorContains(t, err, "ffmpeg is not installed", name)
			continue
		}
		if err != nil && filepath.Ext(name) == ".heic" {
			require.ErrorContains(t, err, "install a later one", name)
			continue
		}
		require.NoError(t, err, name)
		most, sum := 0, 0
		for i, v := range p.Pix {
			d := max(int(v)-int(w.RGB[i]), int(w.RGB[i])-int(v))
			most, sum = max(most, d), sum+d
		}
		if filepath.Ext(name) == ".jp2" || filepath.Ext(name) == ".j2k" {
			require.Zero(t, most, name)
		}
		require.LessOrEqual(t, most, 12, name)
		require.LessOrEqual(t, sum, 2*len(p.Pix), name)
	}
}

// Headers that are cut off or lie are errors, never a crash or memory of any size.
func TestStillsDamaged(t *testing.T) {
	files, err := filepath.Glob("testdata/stills/0*")
	require.NoError(t, err)
	for _, name := range files {
		good, err := os.ReadFile(name)
		require.NoError(t, err)
		for at := range min(len(good), 600) {
			if _, _, err := Size(good[:at], Options{}); err == nil && at < 24 {
				t.Errorf("%s: %d bytes have a size", name, at)
			}
			b := append([]byte{}, good...)
			b[at] ^= 0xff
			w, h, err := Size(b, Options{})
			require.True(t, err != nil || int64(w)*int64(h) <= PixelsMax, "%s at %d", name, at)
		}
	}
	_, err = readPPM(strings.NewReader("P6\n2 1\n255\nabcd"))
	require.ErrorContains(t, err, "breaks off")
	_, err = readPPM(strings.NewReader(""))
	require.ErrorContains(t, err, "no picture")
}

// Sides whose product is over 64 bits are over the limit, as other large ones are.
func TestStillSides(t *testing.T) {
	files, err := filepath.Glob("testdata/stills/*.jp2")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	at := bytes.Index(b, []byte("ihdr")) + len("ihdr")
	for _, sides := range [][2]uint32{{1<<32 - 1, 1<<32 - 1}, {1 << 31, 1 << 31}, {1 << 30, 4}, {1,
		1 << 31}} {
		binary.BigEndian.PutUint32(b[at:], sides[0])
		binary.BigEndian.PutUint32(b[at+4:], sides[1])
		_, _, err = Size(b, Options{})
		require.ErrorContains(t, err, "are over the limit of", "%v", sides)
	}
}
