package recordings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/hdf5"
)

// Recordings in files of HDF5: those of robomimic and LIBERO, whose groups data/demo_N are episodes, and ALOHA's,
// of which each file is one. A data set is a file, or a folder of files. Columns are called as LeRobot calls them:
// obs/agentview_rgb is observation.images.agentview_rgb, observations/qpos is observation.qpos, actions are action.
// A state may be several columns one behind the other, with "+" between their names; without one that is
// called observation.state it is what these sets usually take. All numbers are read once when a set is opened,
// for its statistics, which it does not have. Source: robomimic, docs/datasets/overview; LIBERO; tonyzhaozh/act.
var _ = registerRobots("hdf5",
	"recordings of robots in files of HDF5, as robomimic, LIBERO and ALOHA have them: a file, or a folder of them",
	opener{isHDF5, func(path string, o dataset.Options) (Robots, error) { return openHDF5(path, o) }}, writeHDF5)

// hdf5Names are the files of a data set.
func hdf5Names(path string) []string { return filesIn(path, ".hdf5", ".h5") }

func isHDF5(path string) bool { return len(hdf5Names(path)) > 0 }

// hdf5States are what a state is where a set has no observation.state: of ALOHA, LIBERO and robomimic.
var hdf5States = []string{"qpos", "ee_pos+ee_ori+gripper_states", "robot0_eef_pos+robot0_eef_quat+robot0_gripper_qpos"}

// hdf5Episode is one of them: its columns by name, and how many steps it has.
type hdf5Episode struct {
	file    int
	name    string // of its group, "" for a file that is one
	task    string
	columns map[string]*hdf5.Data
	action  *hdf5.Data
	state   []*hdf5.Data
	cameras []string
	steps   int64
	fault   string // why it cannot be read
}

// HDF5 is an open data set.
type HDF5 struct {
	recordings
	episodes []hdf5Episode
}

// openHDF5 opens a file or the files of a folder.
func openHDF5(path string, o dataset.Options) (*HDF5, error) {
	h := &HDF5{recordings: newRecordings(path, o)}
	parts := append([]any{"hdf5 1", o.Horizon, o.Robot.Columns(), o.Past}, ahead(o)...)
	for i, name := range hdf5Names(path) {
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.files = append(h.files, f)
		info, err := f.Stat()
		var print string
		if err == nil {
			print, err = format.FingerprintFile(f, info.Size(), o.Full)
		}
		if err == nil {
			parts = append(parts, filepath.Base(name), print)
			err = h.scan(i, info.Size())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), h.Close())
		}
	}
	if len(h.episodes) == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no recordings: neither data/demo_N nor action and observations", path),
			h.Close())
	}
	h.print = format.HashOf(parts...)
	h.measure(h.Numbers)
	return h, nil
}

// scan lists the episodes of a file.
func (h *HDF5) scan(file int, size int64) error {
	f, err := hdf5.Open(h.files[file], size)
	if err != nil {
		return err
	}
	root, err := f.Root()
	if err != nil {
		return err
	}
	names, err := root.Names()
	if err != nil {
		return err
	}
	if slices.Contains(names, "action") && slices.Contains(names, "observations") {
		h.add(root, hdf5Episode{file: file, task: h.named(file)}, "action", "observations")
		return nil
	}
	if !slices.Contains(names, "data") {
		return nil
	}
	data, err := root.Find("data")
	if err != nil {
		return err
	}
	task, err := hdf5Task(data)
	if err != nil {
		return err
	}
	if names, err = data.Names(); err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(numberIn(a), numberIn(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		e := hdf5Episode{file: file, name: name, task: cmp.Or(task, h.named(file))}
		demo, err := data.Find(name)
		if err != nil {
			e.fault = err.Error()
			h.append(e)
			continue
		}
		h.add(demo, e, "actions", "obs")
	}
	return nil
}

// numberIn is the number that a name ends with, -1 for none.
func numberIn(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '_')+1:])
	if err != nil {
		return -1
	}
	return n
}

// named is a task that a file is called by.
func (h *HDF5) named(file int) string {
	name := filepath.Base(h.files[file].Name())
	name = strings.TrimSuffix(strings.TrimSuffix(name, filepath.Ext(name)), "_demo")
	return strings.ReplaceAll(name, "_", " ")
}

// hdf5Task is the task that LIBERO says of a file.
func hdf5Task(data *hdf5.Object) (string, error) {
	text, err := data.Attribute("problem_info")
	if err != nil || text == "" {
		return "", err
	}
	var info struct {
		Task string `json:"language_instruction"`
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return "", fmt.Errorf("problem_info: %w", err)
	}
	return strings.Trim(info.Task, `"`), nil
}

// append adds an episode; one that cannot be read is one sample, which is quarantined.
func (h *HDF5) append(e hdf5Episode) {
	h.episodes = append(h.episodes, e)
	h.recordings.add(e.steps)
}

// add reads what an episode has.
func (h *HDF5) add(o *hdf5.Object, e hdf5Episode, action, seen string) {
	defer func() { h.append(e) }()
	fault := func(err error) bool {
		if err != nil && e.fault == "" {
			e.fault, e.steps = err.Error(), 0
		}
		return err != nil
	}
	var err error
	if e.columns, err = hdf5Columns(o, action, seen); fault(err) {
		return
	}
	name := h.action()
	if e.action = e.columns[name]; e.action == nil {
		fault(fmt.Errorf("it has no %s; there are %s", name, strings.Join(hdf5Keys(e.columns), ", ")))
		return
	}
	e.steps = int64(e.action.Shape[0])
	whole := h.o.Horizon == 0 // episodes that are read whole have what they have
	if err := e.find(h.state()); !whole && fault(err) {
		return
	}
	for name, d := range e.columns { // each by itself
		if pictured(name, d) {
			e.cameras = append(e.cameras, name)
		}
	}
	slices.Sort(e.cameras)
	used := append(slices.Clone(e.state), e.action)
	for _, c := range e.cameras {
		used = append(used, e.columns[c])
	}
	for _, d := range used {
		if int64(d.Shape[0]) != e.steps || e.steps == 0 && !whole {
			fault(fmt.Errorf("its columns have %d and %d steps", d.Shape[0], e.steps))
		}
	}
}

// Numbers implements Robots.
func (h *HDF5) Numbers(each func(states, actions [][]float64)) error {
	for i := range h.episodes {
		e := &h.episodes[i]
		if e.fault != "" {
			continue
		}
		states, err := numbersOf(e.state, 0, e.steps)
		actions, further := numbersOf([]*hdf5.Data{e.action}, 0, e.steps)
		if err == nil && further == nil {
			each(states, actions)
		}
	}
	return nil
}

// Cameras are the columns of pictures of the first episode that can be read, in order of their names.
func (h *HDF5) Cameras() []string {
	for _, e := range h.episodes {
		if e.fault == "" {
			return e.cameras
		}
	}
	return nil
}

// Read implements dataset.Source.
func (h *HDF5) Read(i int64) (dataset.Document, error) {
	return h.read(i, func(at int) (dataset.Place, string) {
		e := &h.episodes[at]
		return dataset.Place{File: h.files[e.file].Name(), Offset: int64(max(0, numberIn(e.name)))}, e.name
	}, h.open)
}

// open reads an episode for step k.
func (h *HDF5) open(at int, k int64) (*opened, error) {
	e := &h.episodes[at]
	if e.fault != "" {
		return nil, errors.New(e.fault)
	}
	out := &opened{steps: e.steps, task: func(int64) string { return e.task }}
	if h.o.Horizon == 0 {
		b := e.columns[hdf5Document]
		if b == nil {
			return out, nil
		}
		var err error
		out.whole, err = b.Rows(0, b.Shape[0])
		return out, err
	}
	from, to := h.window(k, e.steps)
	actions, err := numbersOf([]*hdf5.Data{e.action}, from, to-from)
	if err != nil {
		return nil, err
	}
	states, err := numbersOf(e.state, from, k+1-from)
	if err != nil {
		return nil, err
	}
	out.state = func(n int64) []float64 { return states[n-from] }
	out.action = func(n int64) []float64 { return actions[n-from] }
	out.images = func(n int64) (map[string][]byte, error) {
		images := map[string][]byte{}
		for _, c := range e.cameras {
			picture, err := h.picture(e.columns[c], int(n))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c, err)
			}
			images[c] = picture
		}
		return images, nil
	}
	return out, nil
}
