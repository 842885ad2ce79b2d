package media

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Damage anywhere gives an error or an image of the right size, never a panic.
func TestJPEGDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"p01.jpg", "p05.jpg", "p17.jpg", "p28.jpg", "cmyk.jpg"} {
		b := readFile(t, name)
		for range 300 {
			c := bytes.Clone(b)
			for range 1 + rng.IntN(4) {
				c[rng.IntN(len(c))] = byte(rng.Uint32())
			}
			if p, err := Decode(c, Options{PixelsMax: 1 << 16}); err == nil {
				require.Len(t, p.Pix, p.W*p.H*3)
			}
		}
		for cut := range len(b) - 1 {
			_, err := Decode(b[:cut], Options{})
			require.Error(t, err, "%s cut to %d bytes", name, cut)
		}
	}
}

// TestJPEGLikePillow: of images whose compressed data is damaged, each is refused or has the pixels that Pillow
// gives it, and none that Pillow refuses is taken.
func TestJPEGLikePillow(t *testing.T) {
	want := readKinds(t, "testdata/damaged.json.gz")
	require.Len(t, want, 120)
	same := map[string]int{}
	for name, c := range want {
		if p, err := Decode(c.File, Options{}); err == nil {
			require.Equal(t, c.RGB, crc32.ChecksumIEEE(p.Pix), name)
			same[name[:4]]++
		}
	}
	t.Logf("with Pillow's pixels, of 60 each: %v", same)
	require.Greater(t, same["base"], 20)
	require.Greater(t, same["prog"], 8)
}

// TestJPEGScans: what lacks scans looks as Pillow has it, whose library guesses the coefficients that are missing.
func TestJPEGScans(t *testing.T) {
	want := readKinds(t, "testdata/scans.json.gz")
	require.GreaterOrEqual(t, len(want), 70)
	for name, c := range want {
		p, err := Decode(c.File, Options{})
		require.NoError(t, err, name)
		require.Equal(t, c.RGB, crc32.ChecksumIEEE(p.Pix), name)
	}
}

// A small file that announces a large image, and one with endless scans, are refused.
func TestJPEGBombs(t *testing.T) {
	b := bytes.Clone(readFile(t, "p00.jpg"))
	i := bytes.Index(b, []byte{0xff, 0xc0})
	copy(b[i+5:], []byte{0x20, 0, 0x20, 0})
	_, err := Decode(b, Options{})
	require.ErrorContains(t, err, "8192×8192 pixels are more than can be in it")
	b = readFile(t, "p01.jpg")
	s := bytes.Index(b, []byte{0xff, 0xda})
	end := s + 14
	for b[end] != 0xff || b[end+1] == 0 {
		end++
	}
	b = append(append(bytes.Clone(b[:s]), bytes.Repeat(b[s:end], scansMax+1)...), b[s:]...)
	_, err = Decode(b, Options{})
	require.ErrorContains(t, err, "over 100 scans")
}

func BenchmarkJPEG(b *testing.B) {
	data := readFile(b, "p29.jpg")
	for b.Loop() {
		_, err := Decode(data, Options{})
		require.NoError(b, err)
	}
}
