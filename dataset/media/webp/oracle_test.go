package webp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/vp8"
)

// Planes are those of another decoder, also with the simple filter, which libwebp's encoder does not
// choose: damage to headers does.
func TestOtherDecoder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	simple, compared := 0, 0
	for _, f := range files(t) {
		for range 30 {
			body := bytes.Clone(f.body)
			if !f.lossy {
				break
			}
			body[10+rng.IntN(12)] ^= 1 << rng.IntN(8)
			other := vp8.NewDecoder()
			other.Init(bytes.NewReader(body), len(body))
			_, err := other.DecodeFrameHeader()
			require.NoError(t, err)
			want, err := other.DecodeFrame()
			d := &lossy{}
			// its levels of filters overflow in eight bits where deltas add to them
			if d.decode(body, f.w, f.h, make([]byte, 3*f.w*f.h)) != nil || err != nil || d.filter.deltas {
				continue
			}
			if compared++; d.filter.simple && d.filter.level > 0 {
				simple++
			}
			for y := range f.h {
				require.Equal(t, want.Y[y*want.YStride:][:f.w], d.y.pix[y*d.y.stride+d.y.origin:][:f.w])
			}
			for y := range (f.h + 1) / 2 {
				for _, p := range []struct {
					want []byte
					got  plane
				}{{want.Cb, d.u}, {want.Cr, d.v}} {
					at := y*p.got.stride + p.got.origin
					require.Equal(t, p.want[y*want.CStride:][:(f.w+1)/2], p.got.pix[at:][:(f.w+1)/2])
				}
			}
		}
	}
	require.Greater(t, simple, 10)
	require.Greater(t, compared, 500)
}
