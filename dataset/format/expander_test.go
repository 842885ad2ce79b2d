package format

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/jpeg"
	"image/png"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// names are the special tokens of a tokenizer.
type names map[string]int32

func (n names) TokenID(s string) (int32, bool) { id, ok := n[s]; return id, ok }
func (n names) Fingerprint() string            { return "names" }

// marked is a tokenizer whose model has a mark of its own.
type marked struct{ names }

func (marked) MediaMarks() (image, video string) { return "<|own|>", "" }

func imageProcessor(t *testing.T, class, settings string) *media.Processor {
	s, err := media.ParseSettings("preprocessor_config.json", []byte(settings))
	require.NoError(t, err)
	p, err := media.NewImageProcessor(class, s)
	require.NoError(t, err)
	return &media.Processor{Image: p, Class: class}
}

// pngHeader announces an image of a size, and has nothing of it.
func pngHeader(w, h uint32) []byte {
	b := binary.BigEndian.AppendUint32([]byte("IHDR"), w)
	b = append(binary.BigEndian.AppendUint32(b, h), 8, 2, 0, 0, 0)
	out := binary.BigEndian.AppendUint32([]byte("\x89PNG\r\n\x1a\n"), uint32(len(b)-4))
	return binary.BigEndian.AppendUint32(append(out, b...), crc32.ChecksumIEEE(b))
}

// An image stands as the tokens that the model's processor says, whatever its extension; what is not a
// image, empty or too large is refused by its header.
func TestProcessorExpander(t *testing.T) {
	m := image.NewRGBA(image.Rect(0, 0, 56, 84))
	var jp, pn bytes.Buffer
	require.NoError(t, jpeg.Encode(&jp, m, nil))
	require.NoError(t, png.Encode(&pn, image.NewGray16(m.Rect)))
	qwen := imageProcessor(t, "Qwen2VLImageProcessor", `{"min_pixels": 3136, "max_pixels": 50176}`)
	x, err := NewProcessorExpander(qwen, names{"<|image_pad|>": 9})
	require.NoError(t, err)
	id, ok := x.Mark(dataset.Image)
	require.True(t, ok)
	require.EqualValues(t, 9, id)
	for name, b := range map[string][]byte{"a.jpg": jp.Bytes(), "wrong.jpg": pn.Bytes()} {
		ids, fill, err := x.Expand(&dataset.Media{Kind: dataset.Image, Key: name, Bytes: b}, 1)
		require.NoError(t, err, name)
		require.Equal(t, []int32{9, 9, 9, 9, 9, 9}, ids, "56 by 84 pixels are 2 by 3 merged patches of 28")
		require.Equal(t, []dataset.Span{{From: 0, To: 6}}, fill)
	}
	for _, b := range [][]byte{nil, []byte("text"), jp.Bytes()[:20]} {
		_, _, err := x.Expand(&dataset.Media{Kind: dataset.Image, Bytes: b}, 1)
		require.ErrorContains(t, err, "it is not an image")
	}
	_, _, err = x.Expand(&dataset.Media{Kind: dataset.Image, Bytes: pngHeader(60000, 60000)}, 1)
	require.ErrorContains(t, err, "60000")
	_, _, err = x.Expand(&dataset.Media{Kind: dataset.Video, Bytes: []byte("x")}, 1)
	require.ErrorContains(t, err, "takes no videos")
	// the model says which token it is, whatever else the tokenizer has
	x, err = NewProcessorExpander(qwen, marked{names{"<|image_pad|>": 9, "<|own|>": 12}})
	require.NoError(t, err)
	ids, _, err := x.Expand(&dataset.Media{Kind: dataset.Image, Bytes: jp.Bytes()}, 1)
	require.NoError(t, err)
	require.Equal(t, []int32{12, 12, 12, 12, 12, 12}, ids)
	_, err = NewProcessorExpander(qwen, names{})
	require.ErrorContains(t, err, "model for text")
	_, err = NewProcessorExpander(qwen, names{"<IMG_CONTEXT>": 4})
	require.ErrorContains(t, err, "not <img> and </img>")
	x, err = NewProcessorExpander(qwen, names{"<IMG_CONTEXT>": 4, "<img>": 5, "</img>": 6})
	require.NoError(t, err)
	ids, fill, err := x.Expand(&dataset.Media{Kind: dataset.Image, Bytes: jp.Bytes()}, 1)
	require.NoError(t, err)
	require.Equal(t, []int32{5, 4, 4, 4, 4, 4, 4, 6}, ids)
	require.Equal(t, []dataset.Span{{From: 1, To: 7}}, fill)
}
