package media

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/draw"
	"image/gif"
)

// moving says of a GIF how many frames it has and how long they last together, in hundredths of a second; ok
// is false for what is none or has no end.
func moving(b []byte) (frames, lasts int, ok bool) {
	if len(b) < 13 || !bytes.HasPrefix(b, []byte("GIF8")) {
		return 0, 0, false
	}
	at := 13
	if b[10]&0x80 != 0 {
		at += 3 << (b[10]&7 + 1)
	}
	blocks := func() bool { // sub-blocks up to the empty one
		for at < len(b) {
			n := int(b[at])
			if at += n + 1; n == 0 {
				return true
			}
		}
		return false
	}
	for at < len(b) {
		switch b[at] {
		case 0x3b:
			return frames, lasts, true
		case 0x21:
			if at+6 < len(b) && b[at+1] == 0xf9 {
				lasts += int(binary.LittleEndian.Uint16(b[at+4:]))
			}
			if at += 2; !blocks() {
				return frames, lasts, false
			}
		case 0x2c:
			if at+10 > len(b) {
				return frames, lasts, false
			}
			frames++
			local := b[at+9]
			if at += 10; local&0x80 != 0 {
				at += 3 << (local&7 + 1)
			}
			if at++; !blocks() { // behind the least code size
				return frames, lasts, false
			}
		default:
			return frames, lasts, false
		}
	}
	return frames, lasts, false
}

// Moves reports whether a file is a GIF of more than one frame, which is a clip that needs no ffmpeg. One that is
// cut off behind its first frame is no picture of that one.
func Moves(b []byte) bool {
	n, _, _ := moving(b)
	return n > 1
}

// gifInfo is a moving GIF's size, rate and number of frames.
func gifInfo(b []byte) VideoInfo {
	n, lasts, _ := moving(b)
	v := VideoInfo{W: int(binary.LittleEndian.Uint16(b[6:])), H: int(binary.LittleEndian.Uint16(b[8:])), Frames: n}
	if lasts > 0 {
		v.FPS = 100 * float64(n) / float64(lasts)
	}
	return v
}

// gifClip decodes a moving GIF's frames that a processor picks, each as it is shown: what is under a frame
// shows through its transparent colour, the ground is white.
func (f FFmpeg) gifClip(ctx context.Context, b []byte, p VideoProcessor) (*Clip, error) {
	v := gifInfo(b)
	most := f.BytesMax
	if most == 0 {
		most = videoBytesMax
	}
	if size := int64(v.W) * int64(v.H) * 4; size < 4 || size > most/int64(v.Frames) {
		return nil, fmt.Errorf("video: %d frames of %d×%d pixels are over the limit of %d bytes", v.Frames,
			v.W, v.H, most)
	}
	at, err := p.Pick(v)
	if err != nil {
		return nil, fmt.Errorf("video: %w", err)
	}
	all, err := gif.DecodeAll(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("video: GIF of %d bytes: %w", len(b), err)
	}
	shown := make([]*Image, len(all.Image))
	canvas := image.NewRGBA(image.Rect(0, 0, v.W, v.H))
	draw.Draw(canvas, canvas.Bounds(), image.White, image.Point{}, draw.Src)
	for i, frame := range all.Image {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		before := canvas
		if i < len(all.Disposal) && all.Disposal[i] == gif.DisposalPrevious {
			before = image.NewRGBA(canvas.Bounds())
			copy(before.Pix, canvas.Pix)
		}
		draw.Draw(canvas, frame.Bounds(), frame, frame.Bounds().Min, draw.Over)
		shown[i] = NewImage(v.W, v.H)
		for k := range v.W * v.H {
			copy(shown[i].Pix[3*k:3*k+3], canvas.Pix[4*k:4*k+3])
		}
		canvas = before
		if i < len(all.Disposal) && all.Disposal[i] == gif.DisposalBackground {
			draw.Draw(canvas, frame.Bounds(), image.White, image.Point{}, draw.Src)
		}
	}
	c := &Clip{At: at, FPS: v.FPS, Of: v.Frames}
	for _, k := range at {
		if k < 0 || k >= len(shown) {
			return nil, fmt.Errorf("video: GIF of %d frames has no frame %d", len(shown), k)
		}
		c.Frames = append(c.Frames, shown[k])
	}
	return c, nil
}
