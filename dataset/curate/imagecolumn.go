package curate

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// imageColumn says where a document's images are: a column with the path of a file, an object with
// "bytes" (base64) or "path" as Hugging Face's data sets have it, a data URL, or a list of such.
type imageColumn struct {
	Column string `yaml:"column"`
	Folder string `yaml:"folder"` // that paths begin at; the folder of the document's file where none is given
}

// MissingImage is the reason of documents that name a file which is not there.
const MissingImage = "missing_image"

// check looks at the folder.
func (c *imageColumn) check() error {
	if c.Folder == "" {
		return nil
	}
	if info, err := os.Stat(c.Folder); err != nil {
		return &Fault{"folder", err.Error(), "name the folder that paths begin at"}
	} else if !info.IsDir() {
		return &Fault{"folder", c.Folder + " is no folder", "name the folder that paths begin at"}
	}
	return nil
}

// refuse says why a document whose images cannot be read is dropped, and notes the path or what is wrong.
func (c *imageColumn) refuse(d *Doc, err error) string {
	var at *fs.PathError
	if errors.Is(err, fs.ErrNotExist) && errors.As(err, &at) {
		d.Detail = filepath.ToSlash(at.Path)
		return MissingImage
	}
	d.Detail = err.Error()
	return "bad_image"
}

// imageBytesMax bounds the file of an image.
const imageBytesMax = 64 << 20

// imagesOf reads the images of a document; none where the column is missing or null.
func (c *imageColumn) imagesOf(d *Doc) ([][]byte, error) {
	raw := bytes.TrimSpace(d.Field(c.Column))
	if len(raw) == 0 || string(raw) == "null" {
		return c.partsOf(d)
	}
	list := []json.RawMessage{raw}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
	}
	var out [][]byte
	for _, r := range list {
		b, err := c.image(d, r)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// Images are the images of a document's column "image", or "images".
func Images(d *Doc) (list [][]byte, column string, err error) {
	for _, name := range []string{"image", "images"} {
		c := imageColumn{Column: name}
		if list, err = c.imagesOf(d); len(list) > 0 || err != nil {
			return list, name, err
		}
	}
	return nil, "", nil
}

// partsOf are the images among the files of a sample: the file that the column names, and all of them for the
// column that is looked at where none is given.
func (c *imageColumn) partsOf(d *Doc) (out [][]byte, err error) {
	if d.Sample == nil {
		return nil, nil
	}
	s, err := d.sample()
	if err != nil {
		return nil, err
	}
	for _, p := range s.Parts {
		if p.Name == c.Column || c.Column == usualImages && media.IsImage(p.Name) {
			out = append(out, p.Bytes)
		}
	}
	return out, nil
}

// usualImages is the column of images where none is given.
const usualImages = "image"

// partOf is the file of a sample that a path in its json names, by its whole name or what follows the key.
func (c *imageColumn) partOf(d *Doc, path string) (b []byte, ok bool, err error) {
	if d.Sample == nil {
		return nil, false, nil
	}
	s, err := d.sample()
	if err != nil {
		return nil, false, err
	}
	b, ok = s.Part(strings.ToLower(strings.TrimPrefix(path, s.Key+".")))
	return b, ok, nil
}

// sample reads the files of a document, and notes where that fails though they are not bad.
func (d *Doc) sample() (*Sample, error) {
	s, err := d.Sample()
	var bad *dataset.BadSample
	if err != nil && !errors.As(err, &bad) {
		d.Broken = err
	}
	return s, err
}

// image reads one image.
func (c *imageColumn) image(d *Doc, raw json.RawMessage) ([]byte, error) {
	var held struct {
		Bytes []byte
		Path  string
	}
	if json.Unmarshal(raw, &held) == nil && (held.Bytes != nil || held.Path != "") {
		if held.Bytes != nil {
			return held.Bytes, nil
		}
	} else if err := json.Unmarshal(raw, &held.Path); err != nil || held.Path == "" {
		return nil, fmt.Errorf("column %q holds no image and no path", c.Column)
	}
	if rest, ok := strings.CutPrefix(held.Path, "data:"); ok {
		_, text, _ := strings.Cut(rest, ";base64,")
		return base64.StdEncoding.DecodeString(text)
	}
	if b, ok, err := c.partOf(d, held.Path); ok || err != nil {
		return b, err
	}
	dir := c.Folder
	if dir == "" {
		dir = filepath.Dir(d.Place.File)
	}
	if !filepath.IsLocal(filepath.FromSlash(held.Path)) {
		return nil, errors.New("its path leads out of the folder")
	}
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(held.Path)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > imageBytesMax || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("it is no file of up to %d bytes", imageBytesMax), err)
	}
	return os.ReadFile(f.Name())
}
