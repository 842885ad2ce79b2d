package media

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// portable runs a function without the assembly.
func portable(t *testing.T, f func()) {
	if !native {
		t.Skip("skipped: this machine has no assembly to compare with")
	}
	native = false
	defer func() { native = true }()
	f()
}

// The assembly of the transform is the definition's, also where numbers overflow.
func TestNativeInverse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 3000 {
		var a, b, q [64]int16
		for i := range a {
			if bits := rng.IntN(17); rng.IntN(1+n%8) == 0 {
				a[i], b[i] = int16(rng.Uint32()>>bits>>16), int16(rng.Uint32()>>bits)
			}
			q[i] = int16(1 + rng.IntN(1<<(1+n%9)))
		}
		var got, want [2][80]byte
		portable(t, func() {
			inverse(&a, &q, want[0][:], 9)
			inverse(&b, &q, want[1][:], 10)
		})
		inversePair(&a[0], &b[0], &q[0], &q[0], &got[0][0], 9, &got[1][0], 10)
		require.Equal(t, want, got, "blocks %v and %v by %v", a, b, q)
	}
}

// Images of all kinds come out the same with and without the assembly.
func TestNativeDecode(t *testing.T) {
	files, err := filepath.Glob("testdata/*.[jp][pn]g")
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		got, err := Decode(b, Options{})
		require.NoError(t, err)
		portable(t, func() {
			want, err := Decode(b, Options{})
			require.NoError(t, err)
			require.Equal(t, want, got, f)
		})
	}
}

// Resizing is the same with and without the assembly, and touches nothing behind an image.
func TestNativeResize(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 400 {
		side := func() int { return 1 + rng.IntN(1<<(1+n%9)) }
		p, w, h := noise(side(), side()), side(), side()
		if n%3 == 0 { // white and black edges overshoot most
			for i := range p.Pix {
				p.Pix[i] = p.Pix[i] & 64 / 64 * 255
			}
		}
		if n%2 == 0 { // no room behind the image
			p.Pix = append(make([]byte, 0, len(p.Pix)), p.Pix...)[:len(p.Pix):len(p.Pix)]
		}
		f := []*Filter{Bilinear, Bicubic, Lanczos}[rng.IntN(3)]
		got, torch := p.Resize(w, h, f), p.ResizeTorch(w, h, f)
		portable(t, func() {
			require.Equal(t, p.Resize(w, h, f).Pix, got.Pix, "%d×%d to %d×%d", p.W, p.H, w, h)
			require.Equal(t, p.ResizeTorch(w, h, f).Pix, torch.Pix, "%d×%d to %d×%d", p.W, p.H, w, h)
		})
	}
}

// Colours of all 2²⁴ kinds are the definition's.
func TestNativeColours(t *testing.T) {
	var y, cb, cr [256]byte
	var got, want [768]byte
	for i := range y {
		y[i] = byte(i)
	}
	for u := range 256 {
		for v := 0; v < 256; v++ {
			for i := range cb {
				cb[i], cr[i] = byte(u), byte(v)
			}
			rowFromYCC(got[:], y[:], cb[:], cr[:])
			for i := range y {
				want[i*3], want[i*3+1], want[i*3+2] = fromYCC(y[i], cb[i], cr[i])
			}
			if got != want {
				t.Fatalf("cb %d, cr %d: %v, want %v", u, v, got, want)
			}
		}
	}
}

// The filters of PNG's rows are the definition's, for pixels of 3 and 4 bytes and rows of all lengths.
func TestNativeUnfilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for n := range 4000 {
		size, pixels, h := 3+n%2, 1+rng.IntN(40), 3
		rows := make([]byte, (1+size*pixels)*h+slack)
		for i := range rows {
			rows[i] = byte(rng.Uint32()) >> (n / 8 % 2 * rng.IntN(8))
		}
		for y := range h {
			rows[y*(1+size*pixels)] = byte(rng.IntN(5))
		}
		f := pngFile{pngHeader: pngHeader{w: pixels, h: h}}
		white := n/2%2 == 1
		before := append([]byte(nil), rows...)
		got, want := bare(pixels, h), bare(pixels, h)
		require.True(t, f.unfilter(got, rows, size, white))
		portable(t, func() { require.True(t, f.unfilter(want, append([]byte(nil), before...), size, white)) })
		require.Equal(t, want.Pix, got.Pix, "rows %v of %d pixels", before, pixels)
	}
}
