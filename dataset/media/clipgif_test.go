package media

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/gif"
	"testing"

	"github.com/stretchr/testify/require"
)

// picked takes the frames of some numbers.
type picked struct {
	VideoProcessor
	at []int
}

func (p picked) Pick(VideoInfo) ([]int, error) { return p.at, nil }

// movingGIF has frames of 4 by 3 pixels: a whole one, and then single pixels over it.
func movingGIF(t *testing.T, disposal byte) []byte {
	t.Helper()
	colours := color.Palette{color.RGBA{}, color.RGBA{255, 0, 0, 255}, color.RGBA{0, 0, 255, 255}}
	whole := image.NewPaletted(image.Rect(0, 0, 4, 3), colours)
	for i := range whole.Pix {
		whole.Pix[i] = 1
	}
	g := &gif.GIF{Config: image.Config{ColorModel: colours, Width: 4, Height: 3}}
	g.Image, g.Delay, g.Disposal = append(g.Image, whole), []int{10}, []byte{gif.DisposalNone}
	for i := range 3 {
		dot := image.NewPaletted(image.Rect(i, 1, i+1, 2), colours)
		dot.Pix[0] = 2
		g.Image, g.Delay, g.Disposal = append(g.Image, dot), append(g.Delay, 10), append(g.Disposal,
			disposal)
	}
	var b bytes.Buffer
	require.NoError(t, gif.EncodeAll(&b, g))
	return b.Bytes()
}

// TestMovingGIF: a GIF of several frames is a clip without ffmpeg, its frames are as they are shown, and
// what is cut off is none.
func TestMovingGIF(t *testing.T) {
	ctx := context.Background()
	for disposal, want := range map[byte][]int{gif.DisposalNone: {0, 1, 2, 3}, gif.DisposalPrevious: {0, 1,
		1, 1},
		gif.DisposalBackground: {0, 1, 1, 1}} {
		b := movingGIF(t, disposal)
		require.True(t, Moves(b))
		v, err := FFmpeg{}.ProbeBytes(ctx, b)
		require.NoError(t, err)
		require.Equal(t, VideoInfo{W: 4, H: 3, Frames: 4, FPS: 10}, v)
		c, err := FFmpeg{}.ClipBytes(ctx, b, picked{at: []int{0, 1, 2, 3}})
		require.NoError(t, err)
		require.Equal(t, 10.0, c.FPS)
		for i, f := range c.Frames {
			blue, white := 0, 0
			for p := range 12 {
				switch [3]byte(f.Pix[3*p : 3*p+3]) {
				case [3]byte{0, 0, 255}:
					blue++
				case [3]byte{255, 255, 255}:
					white++
				default:
					require.Equal(t, [3]byte{255, 0, 0}, [3]byte(f.Pix[3*p:3*p+3]))
				}
			}
			require.Equal(t, want[i], blue, "disposal %d, frame %d", disposal, i)
			if disposal == gif.DisposalBackground {
				require.Equal(t, max(0, i-1), white)
			} else {
				require.Zero(t, white)
			}
		}
		for n := range len(b) - 1 {
			if Moves(b[:n]) { // what is cut off behind its first frame is no picture of it
				_, err := FFmpeg{}.ClipBytes(ctx, b[:n], picked{at: []int{0}})
				require.ErrorContains(t, err, "video: GIF of")
			}
		}
		_, err = FFmpeg{BytesMax: 100}.ClipBytes(ctx, b, picked{at: []int{0}})
		require.ErrorContains(t, err, "over the limit")
		_, err = FFmpeg{}.ClipBytes(ctx, b, picked{at: []int{9}})
		require.ErrorContains(t, err, "has no frame 9")
	}
	var still bytes.Buffer
	require.NoError(t, gif.Encode(&still, image.NewPaletted(image.Rect(0, 0, 2, 2),
		color.Palette{color.Black}), nil))
	require.False(t, Moves(still.Bytes()))
}

// FuzzMovingGIF: whatever the bytes, nothing but frames or an error comes of them.
func FuzzMovingGIF(f *testing.F) {
	f.Add([]byte("GIF89a\x04\x00\x03\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x04\x00\x03\x00\x00\x02\x02\x84\x51\x00;"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if Moves(b) {
			_, _ = FFmpeg{BytesMax: 1 << 20}.ClipBytes(context.Background(), b, picked{at: []int{0,
				1}}) // an error is fine
		}
	})
}
