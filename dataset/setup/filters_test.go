package setup

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// TestFilterSamples: samples of shards go through filters that look at images and texts, and keep their numbers and
// files; a filter that changes texts is refused for them.
func TestFilterSamples(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tar")
	w, err := format.CreateShard(path)
	require.NoError(t, err)
	for _, side := range []int{8, 40} {
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, side, side))))
		require.NoError(t, w.Add(map[int]string{8: "small", 40: "large"}[side], []dataset.Part{{Name: "png", Bytes: b.Bytes()},
			{Name: "json", Bytes: []byte(`{"messages": [{"role": "user", "content": "<image>one two"}, ` +
				`{"role": "assistant", "content": "three four five"}]}`)}}))
	}
	require.NoError(t, w.Add("torn", []dataset.Part{{Name: "json", Bytes: []byte(`{"messages"`)}}))
	require.NoError(t, w.Close())
	src, err := dataset.Open(path, dataset.Options{})
	require.NoError(t, err)
	defer src.Close()
	filter := func(steps string) (dataset.Source, error) {
		file := filepath.Join(dir, "filters.yaml")
		require.NoError(t, os.WriteFile(file, []byte("steps:\n"+steps), 0o600))
		c := &configs.Config{}
		c.Run.Data.Filters = file
		f, err := OpenFilters(c)
		require.NoError(t, err)
		return f.Of(src, dataset.Tags{})
	}
	s, err := filter("- {step: image_size, min_side: 16}\n- {step: length, min_words: 3}\n")
	require.NoError(t, err)
	require.Equal(t, int64(3), s.Len())
	d, err := s.Read(0)
	require.NoError(t, err)
	require.Equal(t, "image_size: small_image", d.Left)
	d, err = s.Read(1)
	require.NoError(t, err)
	require.Empty(t, d.Left)
	require.Len(t, d.Parts, 2)
	_, err = s.Read(2)
	var bad *dataset.BadSample
	require.ErrorAs(t, err, &bad)
	s, err = filter("- {step: length, min_words: 30}\n")
	require.NoError(t, err)
	d, err = s.Read(1)
	require.NoError(t, err)
	require.Equal(t, "length: too_few_words", d.Left, "what is said in it counts")
	_, err = filter("- pii\n")
	require.ErrorContains(t, err, "holds samples, and some filter changes texts; leave that one out")
}

// TestFilterTagged: conversations of shards whose keys and roles have an entry's names are looked at as
// training reads them; turns under other names are told of, and are no empty texts.
func TestFilterTagged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tar")
	w, err := format.CreateShard(path)
	require.NoError(t, err)
	require.NoError(t, w.Add("a", []dataset.Part{{Name: "json", Bytes: []byte(
		`{"messages": [{"who": "Q", "says": "one two three"}, {"who": "A", "says": "four"}]}`)}}))
	require.NoError(t, w.Add("b", []dataset.Part{{Name: "json",
		Bytes: []byte(`{"messages": [{"from": "Q", "value": "one two three"}]}`)}}))
	require.NoError(t, w.Add("c", []dataset.Part{{Name: "json", Bytes: []byte(`{"body": "one two three"}`)}}))
	require.NoError(t, w.Close())
	src, err := dataset.Open(path, dataset.Options{})
	require.NoError(t, err)
	defer src.Close()
	file := filepath.Join(dir, "filters.yaml")
	require.NoError(t, os.WriteFile(file, []byte("steps: [{step: length, min_words: 3}]\n"), 0o600))
	c := &configs.Config{}
	c.Run.Data.Filters, c.Run.Data.TextKey = file, "body"
	f, err := OpenFilters(c)
	require.NoError(t, err)
	s, err := f.Of(src, dataset.Tags{Role: "who", Content: "says", User: "Q", Assistant: "A"})
	require.NoError(t, err)
	d, err := s.Read(0)
	require.NoError(t, err)
	require.Empty(t, d.Left)
	_, err = s.Read(1)
	var bad *dataset.BadSample
	require.ErrorAs(t, err, &bad)
	d, err = s.Read(2)
	require.NoError(t, err)
	require.Empty(t, d.Left, "data.text_key counts")
}
