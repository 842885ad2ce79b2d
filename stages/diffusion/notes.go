package diffusion

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// noter says what of captions and pictures is not read or is worth little, each kind once. The zero value says nothing.
type noter struct {
	to   io.Writer
	said sync.Map // kinds
}

// Tell has notes of what the model does not read of captions and pictures be written, before it reads any.
func (x *Pictures) Tell(notes io.Writer) { x.notes.to = notes }

// note says something of a kind that was not said of yet.
func (n *noter) note(kind, format string, args ...any) {
	if n.to == nil {
		return
	}
	if _, said := n.said.LoadOrStore(kind, true); !said {
		fmt.Fprintf(n.to, "note: "+format+"\n", args...)
	}
}

// measured are encoders of captions that say how many tokens a caption has, and how many of them they read.
type measured interface {
	Length(caption string) (n, most int, err error)
}

// caption says what is not read of a caption.
func (n *noter) caption(c Captioner, caption string) error {
	if n.to == nil {
		return nil
	}
	if strings.TrimSpace(caption) == "" {
		n.note("blank", "a caption is empty or blank, and its picture is taken as one without a caption, as others like it "+
			"are: leave such samples out, or say with diffusion.caption_dropout how many should be")
		return nil
	}
	return n.read(c, caption)
}

// read says what the encoder does not read of a caption.
func (n *noter) read(c Captioner, caption string) error {
	if !utf8.ValidString(caption) {
		n.note("bytes", "a caption is no valid UTF-8, and bytes that are none reach the model as U+FFFD, as those of "+
			"others do: %.100q", caption)
	}
	if m, ok := c.(measured); ok {
		tokens, most, err := m.Length(caption)
		if err != nil {
			return err
		}
		if tokens > most {
			n.note("cut", "the text encoder reads %d tokens of a caption, and one of %d is cut, as are others that are longer: "+
				"%.200q", most, tokens, caption)
		}
	}
	return nil
}

// enlarged says that a picture is far smaller than what the model sees of it.
func (n *noter) enlarged(w, h int, size [3]int) {
	if n.to == nil || size[0] == 0 {
		return
	}
	if 4*w <= size[2] || 4*h <= size[1] {
		n.note("small", "a picture of %d×%d pixels is enlarged to %d×%d, as are others that are small: set diffusion.upscale "+
			"to false to leave them out", w, h, size[2], size[1])
	}
}
