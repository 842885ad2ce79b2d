package media

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWebPKinds: images of both kinds, of all qualities and methods of libwebp, become Pillow's pixels. What
// is cut off is an error.
func TestWebPKinds(t *testing.T) {
	want := readKinds(t, "testdata/webp.json.gz")
	require.GreaterOrEqual(t, len(want), 70)
	for name, c := range want {
		p, err := Decode(c.File, Options{})
		require.NoError(t, err, name)
		require.Equal(t, [2]int{c.W, c.H}, [2]int{p.W, p.H}, name)
		require.Equal(t, c.RGB, crc32.ChecksumIEEE(p.Pix), name)
		for _, cut := range []int{len(c.File) / 3, len(c.File) - 4} {
			_, err = Decode(c.File[:cut], Options{})
			require.ErrorContains(t, err, "WebP image of", name)
		}
	}
}

// TestWebPDamaged: damage gives an image of the announced size or an error that names the format.
func TestWebPDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	errors := 0
	for name, c := range readKinds(t, "testdata/webp.json.gz") {
		for range 20 {
			b := append([]byte(nil), c.File...)
			for range 1 + rng.IntN(4) {
				b[20+rng.IntN(len(b)-20)] ^= 1 << rng.IntN(8)
			}
			if p, err := Decode(b, Options{PixelsMax: 1 << 16}); err != nil {
				require.ErrorContains(t, err, "WebP image of", name)
				errors++
			} else {
				require.Len(t, p.Pix, 3*p.W*p.H)
			}
		}
	}
	require.Greater(t, errors, 100)
}
