package format

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/hdf5"
)

// Recordings in files of HDF5: those of robomimic and LIBERO, whose groups data/demo_N are episodes, and
// ALOHA's, of which each file is one. A data set is a file, or a folder of files. Columns are called as
// LeRobot calls them: obs/agentview_rgb is observation.images.agentview_rgb, observations/qpos is
// observation.qpos, actions are action. A state may be several columns one behind the other, with "+"
// between their names; without one that is called observation.state it is what these sets usually take. All
// numbers are read once when a set is opened, for its statistics, which it does not have. Source: robomimic,
// docs/datasets/overview; LIBERO; tonyzhaozh/act.
var _ = dataset.Register(dataset.Format{
	Name:  "hdf5",
	Doc:   "recordings of robots in files of HDF5, as robomimic, LIBERO and ALOHA have them: a file, or a folder of them",
	Kind:  dataset.KindEpisodes,
	Match: func(path string, _ []byte) bool { return isHDF5(path) },
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		h, err := openHDF5(path, o)
		if err != nil {
			return nil, err
		}
		return h, nil
	},
	Write: writeHDF5,
})

// hdf5Names are the files of a data set.
func hdf5Names(path string) []string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil
	case info.Mode().IsRegular() && (hasSuffix(path, ".hdf5") || hasSuffix(path, ".h5")):
		return []string{path}
	case !info.IsDir():
		return nil
	}
	var out []string
	for _, end := range []string{"*.hdf5", "*.h5"} {
		some, err := filepath.Glob(filepath.Join(path, end))
		if err == nil { // a folder whose name is a broken pattern has none
			out = append(out, some...)
		}
	}
	slices.Sort(out)
	return out
}

func isHDF5(path string) bool { return len(hdf5Names(path)) > 0 }

// hdf5States are what a state is where a set has no observation.state: of ALOHA, LIBERO and robomimic.
var hdf5States = []string{"qpos", "ee_pos+ee_ori+gripper_states",
	"robot0_eef_pos+robot0_eef_quat+robot0_gripper_qpos"}

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
	path     string
	o        dataset.Options
	files    []*os.File
	episodes []hdf5Episode
	from     []int64
	stats    map[string]RobotStats
	print    string
}

// openHDF5 opens a file or the files of a folder.
func openHDF5(path string, o dataset.Options) (*HDF5, error) {
	h := &HDF5{path: path, o: o, from: []int64{0}}
	parts := []any{"hdf5 1", o.Horizon, o.Robot, o.Past}
	for i, name := range hdf5Names(path) {
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.files = append(h.files, f)
		info, err := f.Stat()
		var print string
		if err == nil {
			print, err = fingerprintFile(f, info.Size(), o.Full)
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
	h.print = HashOf(parts...)
	h.measure()
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
		return cmp.Or(cmp.Compare(numberIn(a), numberIn(b)),
			cmp.Compare(a, b))
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
	h.from = append(h.from, h.from[len(h.from)-1]+max(1, e.steps))
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
	name := orName(h.o.Robot.Action, "action")
	if e.action = e.columns[name]; e.action == nil {
		fault(fmt.Errorf("it has no %s; there are %s", name, strings.Join(hdf5Keys(e.columns), ", ")))
		return
	}
	e.steps = int64(e.action.Shape[0])
	whole := h.o.Horizon == 0 // episodes that are read whole have what they have
	if err := e.find(orName(h.o.Robot.State, "observation.state")); !whole && fault(err) {
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

// measure makes the statistics of states and actions.
func (h *HDF5) measure() {
	var columns [2][][]float64
	each := func(states, actions [][]float64) {
		for i, rows := range [][][]float64{states, actions} {
			for _, row := range rows {
				if columns[i] == nil {
					columns[i] = make([][]float64, len(row))
				}
				for k := range min(len(row), len(columns[i])) {
					if v := row[k]; !math.IsNaN(v) && !math.IsInf(v, 0) {
						columns[i][k] = append(columns[i][k], v)
					}
				}
			}
		}
	}
	_ = h.Numbers(each) // episodes that cannot be read are set aside when they are learnt
	h.stats = map[string]RobotStats{orName(h.o.Robot.State, "observation.state"): statsOfColumns(columns[0]),
		orName(h.o.Robot.Action, "action"): statsOfColumns(columns[1])}
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

// Stats are the statistics of actions and states, of all steps.
func (h *HDF5) Stats() (map[string]RobotStats, error) { return h.stats, nil }

// Steps implements Robots.
func (h *HDF5) Steps() int64 { return h.from[len(h.from)-1] }

// Name implements dataset.Source.
func (h *HDF5) Name() string { return h.path }

// Kind implements dataset.Source.
func (h *HDF5) Kind() dataset.Kind { return dataset.KindEpisodes }

// Fingerprint implements dataset.Source.
func (h *HDF5) Fingerprint() string { return h.print }

// Len implements dataset.Source: the number of steps with a horizon, else that of episodes.
func (h *HDF5) Len() int64 {
	if h.o.Horizon == 0 {
		return int64(len(h.episodes))
	}
	return h.Steps()
}

// Close implements dataset.Source.
func (h *HDF5) Close() (err error) {
	for _, f := range h.files {
		err = errors.Join(err, f.Close())
	}
	h.files = nil
	return err
}

// Read implements dataset.Source.
func (h *HDF5) Read(i int64) (dataset.Document, error) {
	at, k := int(i), int64(0)
	if h.o.Horizon > 0 {
		at = sort.Search(len(h.episodes), func(n int) bool { return h.from[n+1] > i })
		k = i - h.from[at]
	}
	e := &h.episodes[at]
	d := dataset.Document{Key: fmt.Sprintf("episode_%06d", at),
		Place: dataset.Place{File: h.files[e.file].Name(),
			Offset: int64(max(0, numberIn(e.name)))}}
	if h.o.Horizon > 0 {
		d.Key += fmt.Sprintf(".%06d", k)
	}
	bad := func(why string) error {
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("episode %d (%s), step %d: %s", at,
			e.name, k, why)}
	}
	if e.fault != "" {
		return d, bad(e.fault)
	}
	if b := e.columns[hdf5Document]; h.o.Horizon == 0 && b != nil {
		text, err := b.Rows(0, b.Shape[0])
		if err != nil {
			return d, bad(err.Error())
		}
		d.Parts = []dataset.Part{{Name: "json", Bytes: text}}
		return d, nil
	}
	var v any = map[string]any{"episode_index": at, "length": e.steps, "tasks": []string{e.task}}
	if h.o.Horizon > 0 {
		f, err := h.frame(e, at, k)
		if err != nil {
			return d, bad(err.Error())
		}
		v = f
	}
	b, err := json.Marshal(v)
	if err != nil { // a number that is none
		return d, bad(err.Error())
	}
	d.Parts = []dataset.Part{{Name: "json", Bytes: b}}
	return d, nil
}

// frame is step k of an episode with the actions that follow.
func (h *HDF5) frame(e *hdf5Episode, episode int, k int64) (f RobotFrame, err error) {
	past := int64(h.o.Past)
	from, to := max(0, k-past), min(e.steps, max(k+1, k-past+int64(h.o.Horizon)))
	actions, err := numbersOf([]*hdf5.Data{e.action}, from, to-from)
	if err != nil {
		return f, err
	}
	states, err := numbersOf(e.state, from, k+1-from)
	if err != nil {
		return f, err
	}
	f = RobotFrame{Set: h.Name(), Episode: int64(episode), Frame: k, Task: e.task}
	look := func(n int64) RobotLook {
		l := RobotLook{State: states[n-from], Images: map[string][]byte{}}
		for _, c := range e.cameras {
			var picture []byte
			if picture, err = h.picture(e.columns[c], int(n)); err != nil {
				err = fmt.Errorf("%s: %w", c, err)
				break
			}
			l.Images[c] = picture
		}
		return l
	}
	f.fill(e.steps, h.o, look, func(n int64) []float64 { return actions[n-from] })
	return f, err
}
