package diffusion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/features"
	"github.com/lfactor/lfactor/stages/texts"
)

// Judged are the statistics of a folder of pictures against another, and what could not be read.
type Judged struct {
	features.Statistics
	Tower   string   `json:"tower"` // class of the network that describes pictures
	Skipped []string `json:"skipped,omitempty"`
}

// pictureFiles are the ends of names of pictures.
var pictureFiles = []string{".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"}

// Judge compares the pictures below two folders by a network whose weights lie at a path: Inception v3 or
// VGG in files of PyTorch or safetensors, or a folder of CLIP. A picture that cannot be read is left out,
// and named. shown is told how many of how many pictures are described.
func Judge(ctx context.Context, pictures, reference, tower, device string, shown func(done, all int)) (*Judged, error) {
	var files [2][]string
	for i, dir := range []string{pictures, reference} {
		var err error
		if files[i], err = pictureList(dir); err != nil {
			return nil, err
		}
	}
	b, err := kernels.Open(device, kernels.Options{})
	if err != nil {
		return nil, err
	}
	w, err := openWatcher(tower, b)
	if err != nil {
		return nil, err
	}
	defer w.close()
	j := &Judged{Tower: w.class}
	var sets [2][][]float32
	done := 0
	for i, list := range files {
		for _, name := range list {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			v, err := w.file(name)
			if err != nil {
				j.Skipped = append(j.Skipped, fmt.Sprintf("%s: %v", name, err))
			} else {
				sets[i] = append(sets[i], v)
			}
			done++
			shown(done, len(files[0])+len(files[1]))
		}
	}
	s, err := features.Compare(sets[0], sets[1])
	if err != nil {
		if len(j.Skipped) > 0 {
			err = fmt.Errorf("%w (%d cannot be read, first %s)", err, len(j.Skipped), j.Skipped[0])
		}
		return nil, err
	}
	j.Statistics = *s
	return j, nil
}

// pictureList are the files of pictures below a folder, in the order of their names.
func pictureList(dir string) (list []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && slices.Contains(pictureFiles, strings.ToLower(filepath.Ext(path))) {
			list = append(list, path)
		}
		return err
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: no file of a picture below it (%s)", dir, strings.Join(pictureFiles, ", "))
	}
	return list, err
}

// watcher describes pictures by one network.
type watcher struct {
	class string
	of    func(p *media.Image) ([]float32, error)
	close func()
}

// openWatcher opens the network at a path: CLIP by its config.json, else one of stages/features.
func openWatcher(path string, b kernels.Backend) (*watcher, error) {
	text, err := os.ReadFile(filepath.Join(path, "config.json"))
	var kind struct {
		Type string `json:"model_type"`
	}
	if err == nil {
		err = json.Unmarshal(text, &kind)
	}
	if err == nil && strings.HasPrefix(kind.Type, "clip") {
		return openCLIP(path, b)
	}
	d, err := features.Load(path, b)
	if err != nil {
		return nil, err
	}
	return &watcher{class: d.Class, close: d.Close, of: func(p *media.Image) ([]float32, error) {
		v := make([]float32, len(p.Pix))
		for i, c := range p.Pix {
			v[i] = float32(c)/127.5 - 1
		}
		return d.Describe(v, p.H, p.W)
	}}, nil
}

func openCLIP(path string, b kernels.Backend) (*watcher, error) {
	processor, err := media.LoadFor(path, 1, 1)
	if err != nil {
		return nil, err
	}
	x, err := texts.OpenWhole(path, b)
	if err != nil {
		return nil, err
	}
	return &watcher{class: "CLIP's vision encoder", close: x.Close, of: func(p *media.Image) ([]float32, error) {
		f, err := processor.Image.Image(p, 1)
		if err != nil {
			return nil, err
		}
		return x.Encode(f.Values())
	}}, nil
}

// largestPicture bounds the bytes of a file that is read whole.
const largestPicture = 1 << 28

// file describes the picture of a file.
func (w *watcher) file(name string) ([]float32, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("is no file")
	case info.Size() > largestPicture:
		return nil, fmt.Errorf("%d bytes, limit %d", info.Size(), largestPicture)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	p, err := media.Decode(raw, media.Options{White: true, Turn: true})
	if err != nil {
		return nil, err
	}
	return w.of(p)
}
