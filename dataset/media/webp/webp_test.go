package webp

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// file is a WebP image's one chunk of pixels.
type file struct {
	w, h  int
	lossy bool
	body  []byte
}

// files are the images of dataset/media's golden data that have a chunk of pixels and nothing else.
func files(t testing.TB) (all []file) {
	b, err := os.ReadFile("../testdata/webp.json.gz")
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	var kinds map[string]struct {
		File []byte
		W, H int
	}
	require.NoError(t, json.NewDecoder(r).Decode(&kinds))
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		if id := string(k.File[12:16]); id != "VP8X" {
			n := binary.LittleEndian.Uint32(k.File[16:])
			all = append(all, file{k.W, k.H, id == "VP8 ", k.File[20 : 20+n]})
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

// decode returns pixels and the text of an error.
func (f file) decode(body []byte) (pix []byte, fault string) {
	pix = make([]byte, 3*f.w*f.h)
	if f.lossy {
		if err := Lossy(body, f.w, f.h, pix); err != nil {
			return nil, err.Error()
		}
		return pix, ""
	}
	p, err := Lossless(body, f.w, f.h)
	if err != nil {
		return nil, err.Error()
	}
	RGB(pix, p)
	Release(p)
	return pix, ""
}

// portable runs a function without the assembly.
func portable(t *testing.T, f func()) {
	if !native {
		t.Skip("skipped: this machine has no assembly to compare with")
	}
	native = false
	defer func() { native = true }()
	f()
}

// The assembly decodes as the portable code does, also what is damaged or cut off.
func TestNative(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	whole, faults := 0, 0
	for _, f := range files(t) {
		for k := range 12 {
			body := bytes.Clone(f.body)
			for range k {
				body[10+rng.IntN(len(body)-10)] ^= 1 << rng.IntN(8)
			}
			if k%4 == 3 {
				body = body[:10+rng.IntN(len(body)-10)]
			}
			got, fault := f.decode(body)
			portable(t, func() {
				want, expected := f.decode(body)
				require.Equal(t, expected, fault)
				require.True(t, bytes.Equal(want, got), "%d×%d, damage %d", f.w, f.h, k)
			})
			if fault == "" {
				whole++
			} else {
				faults++
			}
		}
	}
	require.Greater(t, whole, 150)
	require.Greater(t, faults, 100)
}

// The transform of a block is the definition's, also where numbers overflow, by itself and among four.
func TestNativeTransform(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 2000 {
		var got, want lossy
		for i := range got.coef {
			if rng.IntN(1+n%6) == 0 {
				got.coef[i] = int16(rng.Uint32()) >> rng.IntN(16)
			}
		}
		for i := range got.work {
			got.work[i] = byte(rng.Uint32())
		}
		want.coef, want.work = got.coef, got.work
		act := func(d *lossy) {
			d.addFour(lumaAt, 0, 15, false)
			d.addFour(uAt, 16, 15<<16, true)
			d.addBlock(lumaAt+8*workStride+4, 5)
		}
		act(&got)
		portable(t, func() { act(&want) })
		require.Equal(t, want.work, got.work)
	}
}

// Every prediction of VP8L is the definition's, for all widths of a run.
func TestNativePredictions(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const w = 40
	for mode := range 16 {
		for n := 1; n < w; n++ {
			got, want := make([]uint32, 3*w), make([]uint32, 3*w)
			for i := range got {
				got[i] = rng.Uint32() >> (8 * rng.IntN(2))
				want[i] = got[i]
			}
			addPredicted(mode, got, w+1, n, w)
			portable(t, func() { addPredicted(mode, want, w+1, n, w) })
			require.Equal(t, want, got, "mode %d, %d pixels", mode, n)
		}
	}
}

// Sizes other than those of the data are refused.
func TestSizes(t *testing.T) {
	for _, f := range files(t) {
		f.w++
		_, fault := f.decode(f.body)
		require.Contains(t, fault, "malformed")
	}
	_, err := Lossless([]byte{0x2f, 0, 0, 0}, 1, 1)
	require.ErrorIs(t, err, errLossless)
	require.Error(t, Lossy(make([]byte, 9), 1, 1, make([]byte, 3)))
}

// FuzzLossy and FuzzLossless: whatever comes, decoding ends.
func FuzzLossy(f *testing.F) { fuzz(f, true) }

func FuzzLossless(f *testing.F) { fuzz(f, false) }

func fuzz(f *testing.F, lossy bool) {
	for _, c := range files(f) {
		if c.lossy == lossy && len(c.body) < 1500 {
			f.Add(c.body, c.w, c.h)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, w, h int) {
		if w < 1 || h < 1 || w > 200 || h > 200 {
			return
		}
		file{w, h, lossy, nil}.decode(b)
	})
}
