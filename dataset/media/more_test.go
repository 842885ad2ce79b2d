package media

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"hash/crc32"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

type moreKind struct {
	File  []byte
	W, H  int
	RGB   uint32
	White *uint32
}

func moreKinds(t testing.TB) map[string]moreKind { return readKinds(t, "testdata/more.json.gz") }

func readKinds(t testing.TB, file string) (want map[string]moreKind) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(r).Decode(&want))
	return want
}

// FuzzMoreKinds: whatever bytes come, decoding ends with an image of the size that Size tells, or an error.
func FuzzMoreKinds(f *testing.F) {
	for _, c := range moreKinds(f) {
		f.Add(c.File)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o := Options{PixelsMax: 1 << 16, Turn: true}
		p, err := Decode(b, o)
		if err != nil {
			return
		}
		w, h, err := Size(b, o)
		require.NoError(t, err)
		require.Equal(t, [3]int{w, h, 3 * w * h}, [3]int{p.W, p.H, len(p.Pix)})
	})
}

// TestMoreKinds: BMP, TIFF and PNG of 16 bits of grey with a transparent colour become Pillow's pixels, and
// are refused where they are cut off.
func TestMoreKinds(t *testing.T) {
	want := moreKinds(t)
	require.GreaterOrEqual(t, len(want), 20)
	for name, c := range want {
		t.Run(name, func(t *testing.T) {
			p, err := Decode(c.File, Options{})
			require.NoError(t, err)
			require.Equal(t, [2]int{c.W, c.H}, [2]int{p.W, p.H})
			require.Equal(t, c.RGB, crc32.ChecksumIEEE(p.Pix))
			w, h, err := Size(c.File, Options{Turn: true})
			require.NoError(t, err)
			require.Equal(t, [2]int{c.W, c.H}, [2]int{w, h})
			turned, err := Decode(c.File, Options{Turn: true})
			require.NoError(t, err)
			require.Equal(t, p.Pix, turned.Pix, "it stands upright already")
			if c.White != nil {
				p, err := Decode(c.File, Options{White: true})
				require.NoError(t, err)
				require.Equal(t, *c.White, crc32.ChecksumIEEE(p.Pix), "on white")
			}
			_, err = Decode(c.File[:len(c.File)*2/3], Options{})
			require.Error(t, err)
		})
	}
}
