package media

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color/palette"
	"image/draw"
	"image/gif"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
)

// FromPlanes is frame t of pictures [3 T H W] from -1 to 1 as an image: each number is brought to 0…255 and
// rounded, and what lies outside is cut off.
func FromPlanes(pixels []float32, size [3]int, t int) *Image {
	p := NewImage(size[2], size[1])
	plane := size[1] * size[2]
	for c := range 3 {
		from := pixels[(c*size[0]+t)*plane:][:plane]
		for i, v := range from {
			p.Pix[3*i+c] = byte(min(max(math.RoundToEven(float64(v)*127.5+127.5), 0), 255))
		}
	}
	return p
}

// Standard is the image as Go's packages have it.
func (p *Image) Standard() *image.NRGBA {
	out := image.NewNRGBA(image.Rect(0, 0, p.W, p.H))
	for i := range p.W * p.H {
		copy(out.Pix[4*i:], p.Pix[3*i:3*i+3])
		out.Pix[4*i+3] = 255
	}
	return out
}

// PNG is the image as a file.
func (p *Image) PNG() []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, p.Standard()); err != nil {
		panic(fmt.Sprintf("media: a PNG in memory: %v", err))
	}
	return b.Bytes()
}

// Sheet lays images of one size out in rows of so many, with a border of some pixels between them.
func Sheet(images []*Image, columns, border int) *Image {
	columns = min(columns, len(images))
	rows := (len(images) + columns - 1) / columns
	w, h := images[0].W, images[0].H
	out := NewImage(columns*(w+border)-border, rows*(h+border)-border)
	for i := range out.Pix[:3*out.W*out.H] {
		out.Pix[i] = 255
	}
	for i, p := range images {
		left, top := i%columns*(w+border), i/columns*(h+border)
		for y := range h {
			copy(out.Pix[3*((top+y)*out.W+left):], p.Pix[3*y*w:3*(y+1)*w])
		}
	}
	return out
}

// GIF is frames of one size as an animation, dithered to 256 colours, with so many frames a second.
func GIF(frames []*Image, fps float64) ([]byte, error) {
	g := &gif.GIF{}
	delay := max(2, int(math.Round(100/fps)))
	for _, p := range frames {
		m := image.NewPaletted(image.Rect(0, 0, p.W, p.H), palette.Plan9)
		draw.FloydSteinberg.Draw(m, m.Rect, p.Standard(), image.Point{})
		g.Image, g.Delay = append(g.Image, m), append(g.Delay, delay)
	}
	var b bytes.Buffer
	err := gif.EncodeAll(&b, g)
	return b.Bytes(), err
}

// WriteVideo writes frames of one size as a file: an MP4 by ffmpeg where the name ends so, else a GIF.
func WriteVideo(path string, frames []*Image, fps float64) error {
	if filepath.Ext(path) != ".mp4" {
		b, err := GIF(frames, fps)
		if err != nil {
			return err
		}
		return os.WriteFile(path, b, 0o644)
	}
	program, err := exec.LookPath("ffmpeg")
	if err != nil {
		return errors.New("ffmpeg, which writes MP4, is not installed: install it, or name a .gif")
	}
	w, h := frames[0].W, frames[0].H
	cmd := exec.Command(program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s",
		fmt.Sprintf("%dx%d", w, h), "-r", fmt.Sprint(fps), "-i", "-", "-pix_fmt", "yuv420p", "-vf",
		"pad=ceil(iw/2)*2:ceil(ih/2)*2", path)
	var in, out bytes.Buffer
	for _, p := range frames {
		in.Write(p.Pix[:3*w*h])
	}
	cmd.Stdin, cmd.Stderr = &in, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ffmpeg: %w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
