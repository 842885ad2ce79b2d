package recordings

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/hdf5"
)

// hdf5Columns are the data sets of an episode by LeRobot's names.
func hdf5Columns(o *hdf5.Object, action, seen string) (map[string]*hdf5.Data, error) {
	out := map[string]*hdf5.Data{}
	put := func(column, path string) error {
		child, err := o.Find(path)
		if err != nil {
			return err
		}
		d, err := child.Data()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(d.Shape) > 0 {
			if len(d.Shape) == 4 && !strings.Contains(column, ".images.") {
				column = strings.Replace(column, "observation.", "observation.images.", 1)
			}
			out[column] = d
		}
		return nil
	}
	if err := put("action", action); err != nil {
		return nil, err
	}
	all, err := o.Names()
	if err != nil {
		return nil, err
	}
	if slices.Contains(all, hdf5Document) {
		if err := put(hdf5Document, hdf5Document); err != nil {
			return nil, err
		}
	}
	group, err := o.Find(seen)
	if err != nil {
		return nil, err
	}
	names, err := group.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name != "images" {
			if err := put("observation."+name, seen+"/"+name); err != nil {
				return nil, err
			}
			continue
		}
		images, err := group.Find(name)
		if err != nil {
			return nil, err
		}
		cameras, err := images.Names()
		if err != nil {
			return nil, err
		}
		for _, c := range cameras {
			if err := put("observation.images."+c, seen+"/images/"+c); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func hdf5Keys(m map[string]*hdf5.Data) (out []string) {
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// pictured reports a column of pictures: of pixels, or of files with zeros behind them.
func pictured(name string, d *hdf5.Data) bool {
	bytes := d.Kind.Class == 0 && d.Kind.Size == 1
	return bytes && (len(d.Shape) == 4 && d.Shape[3] == 3 || len(d.Shape) == 2 && strings.Contains(name, ".images."))
}

// find takes the columns of a state.
func (e *hdf5Episode) find(name string) error {
	all := []string{name}
	if name == "observation.state" {
		for _, s := range hdf5States {
			all = append(all, "observation."+strings.ReplaceAll(s, "+", "+observation."))
		}
	}
	for _, names := range all {
		var out []*hdf5.Data
		for part := range strings.SplitSeq(names, "+") {
			if d := e.columns[part]; d != nil && len(d.Shape) < 3 {
				out = append(out, d)
			}
		}
		if len(out) == strings.Count(names, "+")+1 {
			e.state = out
			return nil
		}
	}
	return fmt.Errorf("it has no %s; there are %s: name one, or several with + between them", name,
		strings.Join(hdf5Keys(e.columns), ", "))
}

// numbersOf are the numbers of steps of columns, one behind the other in each step.
func numbersOf(columns []*hdf5.Data, from, n int64) ([][]float64, error) {
	out := make([][]float64, n)
	for _, d := range columns {
		raw, err := d.Rows(int(from), int(n))
		if err != nil {
			return nil, err
		}
		all, err := d.Numbers(raw)
		if err != nil {
			return nil, err
		}
		w := len(all) / max(1, int(n))
		for i := range out {
			out[i] = append(out[i], all[i*w:(i+1)*w]...)
		}
	}
	return out, nil
}

// picture is that of a step, as a file: of pixels as BMP.
func (h *HDF5) picture(d *hdf5.Data, n int) ([]byte, error) {
	if int64(d.Row()) > h.o.Limit() {
		return nil, fmt.Errorf("a picture of %d bytes, and %d are read at most", d.Row(), h.o.Limit())
	}
	b, err := d.Rows(n, 1)
	if err != nil || len(d.Shape) == 2 {
		return b, err
	}
	return bitmap(b, d.Shape[2], d.Shape[1]), nil
}

// bitmap is a BMP of pixels [height width 3].
func bitmap(pixels []byte, w, h int) []byte {
	line := (3*w + 3) / 4 * 4
	var b bytes.Buffer
	b.WriteString("BM")
	put := func(v ...any) {
		for _, x := range v {
			_ = binary.Write(&b, binary.LittleEndian, x) // to memory
		}
	}
	put(uint32(54+line*h), uint32(0), uint32(54), uint32(40), int32(w), int32(h), uint16(1), uint16(24), uint32(0),
		uint32(line*h), int32(2835), int32(2835), uint32(0), uint32(0))
	row := make([]byte, line)
	for y := h - 1; y >= 0; y-- {
		for x := range w {
			p := pixels[3*(y*w+x):]
			row[3*x], row[3*x+1], row[3*x+2] = p[2], p[1], p[0]
		}
		b.Write(row)
	}
	return b.Bytes()
}

// hdf5Document is the data set of an episode that this program wrote that has it as it was.
const hdf5Document = "document"

// writeHDF5 writes episodes in robomimic's layout: their actions, and beside them the episodes as they are.
func writeHDF5(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
	demos := map[string]*hdf5.Node{}
	for i, d := range docs {
		b, _ := d.Part("json")
		var e lerobotEpisode
		if err := json.Unmarshal(b, &e); err != nil {
			return "", o, err
		}
		width, actions := 0, []float32{}
		for _, f := range e.Frames {
			v, why := numbers(f, "action")
			if why != "" || width > 0 && len(v) != width {
				return "", o, fmt.Errorf("%s: actions of %d numbers, want %d: %s", d.Key, len(v), width, why)
			}
			width = len(v)
			for _, x := range v {
				actions = append(actions, float32(x))
			}
		}
		demos[fmt.Sprintf("demo_%d", i)] = &hdf5.Node{
			Children: map[string]*hdf5.Node{"actions": {Floats: actions, Shape: []int{len(e.Frames), width}},
				"obs": {Children: map[string]*hdf5.Node{}}, hdf5Document: {Bytes: b, Shape: []int{len(b)}}}}
	}
	root := &hdf5.Node{Children: map[string]*hdf5.Node{"data": {Children: demos}}}
	path = filepath.Join(dir, "recordings.hdf5")
	return path, o, os.WriteFile(path, hdf5.Encode(root), 0o644)
}
