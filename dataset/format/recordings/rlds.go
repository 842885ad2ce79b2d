package recordings

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// RLDS's data sets, as TensorFlow Datasets keeps them and Open X-Embodiment has them: a folder with
// features.json and files of records, each of which is an episode (tf.Example). Columns are called as
// LeRobot calls them: steps/observation/image is observation.image, steps/action is action. All records are
// read once when a data set is opened, for the lengths of episodes and the statistics of numbers, which it
// does not have. Source: tensorflow/datasets, core/features; google-research/rlds.
var _ = registerRobots("rlds",
	"RLDS data sets of TensorFlow Datasets, as Open X-Embodiment's: a folder with features.json",
	opener{func(path string) bool {
		info, err := os.Stat(filepath.Join(path, "features.json"))
		return err == nil && info.Mode().IsRegular()
	}, func(path string, o dataset.Options) (Robots, error) { return openRLDS(path, o) }}, writeRLDS)

// rldsColumn is a column of the steps of a data set.
type rldsColumn struct {
	key   string // in examples
	image bool
	width int // numbers of a step
}

// rldsEpisode is where an episode lies, and how many steps it has.
type rldsEpisode struct {
	file  int
	place format.RecordPlace
	steps int64
}

// RLDS is an open data set.
type RLDS struct {
	recordings
	columns  map[string]rldsColumn
	text     []string // keys that may have the task, in order of preference
	episodes []rldsEpisode
}

// rldsFeature is a node of features.json.
type rldsFeature struct {
	Dict struct {
		Features map[string]*rldsFeature `json:"features"`
	} `json:"featuresDict"`
	Sequence struct {
		Feature *rldsFeature `json:"feature"`
	} `json:"sequence"`
	Tensor *rldsTensor     `json:"tensor"`
	Image  json.RawMessage `json:"image"`
	Text   json.RawMessage `json:"text"`
}

// rldsTensor is the shape of a step's numbers.
type rldsTensor struct {
	Shape struct {
		Dimensions []string `json:"dimensions"`
	} `json:"shape"`
	Type string `json:"dtype"`
}

// rldsWidthMost bounds the numbers of a step of a column.
const rldsWidthMost = 1 << 20

// collect lists the columns below a node of the steps.
func (r *RLDS) collect(key string, f *rldsFeature, depth int) error {
	if f == nil || depth > 16 {
		return nil
	}
	for name, child := range f.Dict.Features { // each by itself
		if err := r.collect(key+"/"+name, child, depth+1); err != nil {
			return err
		}
	}
	name := strings.ReplaceAll(strings.TrimPrefix(key, "steps/"), "/", ".")
	switch {
	case f.Image != nil:
		r.columns[name] = rldsColumn{key: key, image: true}
	case f.Text != nil && strings.HasSuffix(key, "instruction"):
		r.text = append(r.text, key)
	case f.Tensor != nil && f.Tensor.Type == "string" && strings.HasSuffix(key, "instruction"):
		r.text = append(r.text, key)
	case f.Tensor != nil && f.Tensor.Type != "string":
		n := 1
		for _, d := range f.Tensor.Shape.Dimensions {
			v, err := strconv.Atoi(d)
			if err != nil || v < 1 || n > rldsWidthMost/v {
				return nil // a column whose shape is open is none of a robot's numbers
			}
			n *= v
		}
		r.columns[name] = rldsColumn{key: key, width: n}
	}
	return nil
}

// openRLDS opens the data set in dir.
func openRLDS(dir string, o dataset.Options) (*RLDS, error) {
	if err := format.OnDisk(dir, "an RLDS data set"); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, "features.json"))
	if err != nil {
		return nil, err
	}
	var root rldsFeature
	if err := json.Unmarshal(b, &root); err != nil {
		return nil, fmt.Errorf("features.json: %w", err)
	}
	steps := root.Dict.Features["steps"]
	if steps == nil || steps.Sequence.Feature == nil {
		return nil, errors.New("features.json: there are no steps: a data set of RLDS has a sequence of them")
	}
	r := &RLDS{recordings: newRecordings(dir, o), columns: map[string]rldsColumn{}}
	if err := r.collect("steps", steps.Sequence.Feature, 0); err != nil {
		return nil, err
	}
	slices.Sort(r.text)
	if err := r.scan(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	places := append([]any{"rlds 1", string(b), r.o.Horizon, r.o.Robot.Columns(), r.o.Past}, ahead(r.o)...)
	for _, e := range r.episodes {
		places = append(places, fmt.Sprint(e.file, e.place, e.steps))
	}
	r.print = format.HashOf(places...)
	return r, nil
}

// scan reads all records for the lengths of episodes, and the statistics of their numbers.
func (r *RLDS) scan() error {
	names, err := filepath.Glob(filepath.Join(r.path, "*-"+orTrain(r.o.Split)+".tfrecord*"))
	if err != nil || len(names) == 0 {
		return errors.Join(fmt.Errorf("%s has no files of records called *-%s.tfrecord*", r.path, orTrain(r.o.Split)),
			err)
	}
	slices.Sort(names)
	all := map[string][][]float64{}
	for i, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		r.files = append(r.files, f)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		places, err := format.RecordsIn(f, info.Size())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, p := range places {
			e := rldsEpisode{file: i, place: p}
			if p.Size <= r.o.Limit() {
				r.measure(&e, all)
			}
			r.episodes = append(r.episodes, e)
			r.add(e.steps)
		}
	}
	r.stats = map[string]RobotStats{}
	for name, columns := range all { // each by itself
		r.stats[name] = statsOfColumns(columns)
	}
	return nil
}

// orTrain is the split that a data set is opened by.
func orTrain(split string) string {
	if split == "" {
		return "train"
	}
	return split
}

// measure finds the number of steps of an episode and adds its numbers to all, by columns. An episode that
// cannot be read has none: it is one sample, which is quarantined when it is read.
func (r *RLDS) measure(e *rldsEpisode, all map[string][][]float64) {
	features, steps, err := r.episode(*e)
	if err != nil {
		return
	}
	e.steps = steps
	for _, name := range []string{r.action(), r.state()} {
		c, ok := r.columns[name]
		if !ok || c.image {
			continue
		}
		if all[name] == nil {
			all[name] = make([][]float64, c.width)
		}
		for i, v := range features[c.key].Numbers() {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				all[name][i%c.width] = append(all[name][i%c.width], v)
			}
		}
	}
}

// episode reads an episode's features, and how many steps it has by its actions.
func (r *RLDS) episode(e rldsEpisode) (features map[string]*format.ExampleFeature, steps int64, err error) {
	b, err := format.RecordAt(r.files[e.file], e.place)
	if err == nil {
		features, err = format.ParseExample(b)
	}
	if err != nil {
		return nil, 0, err
	}
	for i, name := range []string{r.action(), r.state()} {
		c, ok := r.columns[name]
		if !ok && r.o.Horizon == 0 {
			continue // whole episodes have what they have
		}
		if !ok || c.image {
			return nil, 0, fmt.Errorf("features.json has no numbers %q; there are %s", name,
				strings.Join(r.names(), ", "))
		}
		f := features[c.key]
		if f == nil {
			return nil, 0, fmt.Errorf("it has no %s", c.key)
		}
		n := len(f.Floats) + len(f.Ints)
		if n == 0 && r.o.Horizon == 0 {
			continue
		}
		if n == 0 || n%c.width != 0 || i > 0 && int64(n/c.width) != steps {
			return nil, 0, fmt.Errorf("%s has %d numbers, and a step has %d", c.key, n, c.width)
		}
		steps = int64(n / c.width)
	}
	for _, c := range r.columns { // each by itself
		if c.image && (features[c.key] == nil || int64(len(features[c.key].Bytes)) != steps) {
			return nil, 0, fmt.Errorf("%s has no picture of each of %d steps", c.key, steps)
		}
	}
	return features, steps, nil
}

// names are the columns of numbers.
func (r *RLDS) names() (out []string) {
	for name, c := range r.columns {
		if !c.image {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Cameras are the columns that are pictures, in order of their names.
func (r *RLDS) Cameras() (out []string) {
	for name, c := range r.columns {
		if c.image {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Read implements dataset.Source.
func (r *RLDS) Read(i int64) (dataset.Document, error) {
	return r.read(i, func(at int) (dataset.Place, string) {
		e := r.episodes[at]
		return dataset.Place{File: r.files[e.file].Name(), Offset: e.place.At}, ""
	}, r.open)
}

// open reads an episode.
func (r *RLDS) open(at int, _ int64) (*opened, error) {
	e := r.episodes[at]
	if e.place.Size > r.o.Limit() {
		return nil, fmt.Errorf("the episode has %d bytes, and %d are read at most", e.place.Size, r.o.Limit())
	}
	features, steps, err := r.episode(e)
	if err != nil {
		return nil, err
	}
	out := &opened{steps: steps, task: func(n int64) string { return r.task(features, n) }}
	if r.o.Horizon == 0 {
		if f := features[rldsDocument]; f != nil && len(f.Bytes) == 1 {
			out.whole = f.Bytes[0]
		}
		return out, nil
	}
	rows := func(name string) func(n int64) []float64 {
		c := r.columns[name]
		all, w := features[c.key].Numbers(), int64(c.width)
		return func(n int64) []float64 { return all[n*w : (n+1)*w] }
	}
	out.state, out.action = rows(r.state()), rows(r.action())
	out.images = func(n int64) (map[string][]byte, error) {
		images := map[string][]byte{}
		for name, c := range r.columns {
			if c.image {
				images[name] = features[c.key].Bytes[n]
			}
		}
		return images, nil
	}
	return out, nil
}

// task is what is to be done in a step.
func (r *RLDS) task(features map[string]*format.ExampleFeature, k int64) string {
	for _, key := range r.text {
		if f := features[key]; f != nil && len(f.Bytes) > 0 {
			if text := string(f.Bytes[min(int(k), len(f.Bytes)-1)]); text != "" {
				return text
			}
		}
	}
	return ""
}

// Numbers implements Robots.
func (r *RLDS) Numbers(each func(states, actions [][]float64)) error {
	for _, e := range r.episodes {
		if e.place.Size > r.o.Limit() {
			continue
		}
		features, steps, err := r.episode(e)
		if err != nil {
			continue
		}
		rows := func(name string) (out [][]float64) {
			c, ok := r.columns[name]
			if !ok || features[c.key] == nil {
				return nil
			}
			all := features[c.key].Numbers()
			for k := range min(int(steps), len(all)/c.width) {
				out = append(out, all[k*c.width:(k+1)*c.width])
			}
			return out
		}
		if s, a := rows(r.state()), rows(r.action()); len(s) == len(a) {
			each(s, a)
		}
	}
	return nil
}
