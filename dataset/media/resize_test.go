package media

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// noise is the image that bench/golden/media_pillow.py makes by the same formula.
func noise(w, h int) *Image {
	p := NewImage(w, h)
	for i := range p.Pix {
		x, y, k := uint32(i/3%w), uint32(i/3/w), uint32(i%3)
		v := x*2654435761 ^ (y*40503 + 77) ^ k*2246822519
		v = (v ^ v>>15) * 2654435769
		p.Pix[i] = byte((v>>24 + 3*((x*3+y*5+k*60)%256)) / 4)
	}
	return p
}

func sha(p *Image) string {
	s := sha256.Sum256(p.Pix)
	return hex.EncodeToString(s[:])[:16]
}

func TestResizeGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/resize.json")
	require.NoError(t, err)
	var rows [][6]any
	require.NoError(t, json.Unmarshal(b, &rows))
	require.Len(t, rows, 315)
	filters := map[any]*Filter{"bilinear": Bilinear, "bicubic": Bicubic, "lanczos": Lanczos}
	for _, r := range rows {
		n := func(i int) int { return int(r[i].(float64)) }
		got := noise(n(0), n(1)).Resize(n(2), n(3), filters[r[4]])
		require.Equal(t, []any{got.W, got.H, r[5]}, []any{n(2), n(3), sha(got)}, "%v", r)
	}
}

func TestResizePanics(t *testing.T) {
	require.PanicsWithValue(t, "media: resize 3×2 to 0×2", func() { noise(3, 2).Resize(0, 1, Bicubic) })
}

func BenchmarkResize(b *testing.B) {
	p := noise(384, 384)
	for b.Loop() {
		p.Resize(224, 224, Bicubic)
	}
}
