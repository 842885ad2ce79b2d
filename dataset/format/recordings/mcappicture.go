package recordings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/mcap"
)

// mcapPixels are the bytes of a pixel of sensor_msgs/Image, and where in it red, green and blue lie.
var mcapPixels = map[string]struct{ size, r, g, b int }{"rgb8": {3, 0, 1, 2}, "bgr8": {3, 2, 1, 0},
	"mono8": {1, 0, 0, 0}, "rgba8": {4, 0, 1, 2}, "bgra8": {4, 2, 1, 0}, "8UC1": {1, 0, 0, 0}, "8UC3": {3, 2, 1, 0}}

// mcapPicture is the picture of a message, as a file: that of sensor_msgs/CompressedImage, or a BMP of
// the pixels of sensor_msgs/Image.
func mcapPicture(m *mcap.Message, most int64) ([]byte, error) {
	data, one := m.Bytes["data"], func(name string) int {
		if v := m.Numbers[name]; len(v) == 1 && v[0] < 1<<31 {
			return int(v[0])
		}
		return 0
	}
	if _, ok := m.Texts["format"]; ok {
		return bytes.Clone(data), nil
	}
	how, ok := mcapPixels[m.Texts["encoding"]]
	if !ok {
		return nil, fmt.Errorf("pixels in %.20q, and rgb8, bgr8, rgba8, bgra8 and mono8 are read", m.Texts["encoding"])
	}
	w, h, step := one("width"), one("height"), one("step")
	if w < 1 || h < 1 || step < w*how.size || len(data) < step*(h-1)+w*how.size || int64(w)*int64(h)*3 > most {
		return nil, fmt.Errorf("%d by %d pixels in lines of %d bytes, and it has %d", w, h, step, len(data))
	}
	pixels := make([]byte, 0, 3*w*h)
	for y := range h {
		for x := range w {
			p := data[y*step+x*how.size:]
			pixels = append(pixels, p[how.r], p[how.g], p[how.b])
		}
	}
	return bitmap(pixels, w, h), nil
}

// writeMCAP writes episodes as bags of ROS 2: a file each, with its actions, and the episode as it is.
func writeMCAP(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
	for i, d := range docs {
		b, _ := d.Part("json")
		var e lerobotEpisode
		if err := json.Unmarshal(b, &e); err != nil {
			return "", o, err
		}
		w := mcap.NewWriter()
		w.Text(mcapDocument, 0, string(b))
		for k, f := range e.Frames {
			v, why := numbers(f, "action")
			if why != "" {
				return "", o, fmt.Errorf("%s: %s", d.Key, why)
			}
			w.Floats("/action", int64(k)*100_000_000, v)
		}
		name := filepath.Join(dir, fmt.Sprintf("episode_%06d.mcap", i))
		if err := os.WriteFile(name, w.Close(), 0o644); err != nil {
			return "", o, err
		}
	}
	return dir, o, nil
}
