package recordings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/mcap"
)

// Recordings in files of MCAP, as ROS 2 writes its bags: each file is an episode, and a data set is a file, or a
// folder of files. Topics are columns: /camera/top/image_raw, of pictures, is observation.images.camera.top.image_raw,
// and /joint_states is joint_states. A column of numbers has those of its messages that are no whole numbers,
// without their headers, of sensor_msgs/JointState the positions; joint_states.velocity is a field by itself.
// A state may be several columns one behind the other, with "+" between their names. Messages come when they come,
// and frames at equal distances: each has the last message of every topic at or before its time in the recording,
// from the time on at which all topics have been heard. The task is the last text of /task, or the file's name.
var _ = registerRobots("mcap",
	"recordings of robots in files of MCAP, as bags of ROS 2 are: a file, or a folder of them",
	opener{isMCAP, func(path string, o dataset.Options) (Robots, error) { return openMCAP(path, o) }}, writeMCAP)

// mcapNames are the files of a data set.
func mcapNames(path string) []string { return filesIn(path, ".mcap") }

func isMCAP(path string) bool { return len(mcapNames(path)) > 0 }

// HasMessages reports whether recordings are messages that come when they come, and not frames at equal distances.
func HasMessages(path string) bool { return isMCAP(path) }

// filesIn are a file, or those of a folder, with some endings, in order of their names.
func filesIn(path string, ends ...string) (out []string) {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	has := func(name string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return format.HasSuffix(name, end) })
	}
	if !info.IsDir() {
		if info.Mode().IsRegular() && has(path) {
			out = append(out, path)
		}
		return out
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if !has(name) {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() { // or a link to one
			out = append(out, name)
		}
	}
	return out
}

// mcapTask is the topic whose texts say what is to be done, and mcapDocument that of episodes that this
// program wrote, which has them as they were.
const mcapTask, mcapDocument = "/task", "/lfactor/document"

// mcapFPS is how many frames a second there are where nothing else is said.
const mcapFPS = 10

// mcapEpisode is a file.
type mcapEpisode struct {
	mu      sync.Mutex // of the file, which holds a chunk of it
	file    *mcap.File
	topics  []*mcap.Topic
	name    string
	task    string
	action  mcapColumn
	state   []mcapColumn
	cameras map[string]*mcap.Topic
	first   int64 // time of the first frame, in nanoseconds
	steps   int64
	fault   string // why it cannot be read
}

// MCAP is an open data set.
type MCAP struct {
	recordings
	episodes []*mcapEpisode
	every    float64 // nanoseconds from frame to frame
	held     *mcap.Cache
	lefts    mcapLeft
}

// mcapHeld is how many bytes of expanded chunks all files of a data set hold.
const mcapHeld = 256 << 20

// openMCAP opens a file or the files of a folder. A file that is damaged is an episode that cannot be read.
func openMCAP(path string, o dataset.Options) (*MCAP, error) {
	fps := o.Robot.FPS
	if fps == 0 {
		fps = mcapFPS
	}
	m := &MCAP{recordings: newRecordings(path, o), every: 1e9 / fps, held: mcap.NewCache(mcapHeld),
		lefts: mcapLeft{files: map[string]int{}}}
	parts := append([]any{"mcap 2", o.Horizon, o.Robot, o.Past}, ahead(o)...)
	for _, name := range mcapNames(path) {
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.files = append(m.files, f)
		info, err := f.Stat()
		var print string
		if err == nil {
			print, err = format.FingerprintFile(f, info.Size(), o.Full)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), m.Close())
		}
		parts = append(parts, filepath.Base(name), print)
		e := &mcapEpisode{name: filepath.Base(name)}
		e.task = strings.ReplaceAll(strings.TrimSuffix(e.name, filepath.Ext(e.name)), "_", " ")
		if err := m.scan(e, f, info.Size()); err != nil {
			e.fault, e.steps = err.Error(), 0
		}
		m.episodes = append(m.episodes, e)
		m.add(e.steps)
	}
	m.print, m.left = format.HashOf(parts...), m.lefts.said()
	m.measure(m.Numbers)
	return m, nil
}

// scan finds an episode's columns and its frames.
func (m *MCAP) scan(e *mcapEpisode, f *os.File, size int64) (err error) {
	if e.file, err = mcap.Open(f, size, m.held); err != nil {
		return err
	}
	e.topics = e.file.Topics()
	columns, err := m.sort(e)
	if err != nil {
		return err
	}
	if m.o.Horizon == 0 && e.topic(mcapDocument) != nil {
		return nil // it is read as it is
	}
	if e.action, err = columns.find(m.action()); err != nil {
		return err
	}
	for part := range strings.SplitSeq(m.state(), "+") {
		c, err := columns.find(part)
		if err != nil && m.o.Horizon == 0 {
			break // episodes that are read whole have what they have
		}
		if err != nil {
			return err
		}
		e.state = append(e.state, c)
	}
	return e.frames(m.every)
}

// topic is that of a name, nil for none.
func (e *mcapEpisode) topic(name string) *mcap.Topic {
	for _, t := range e.topics {
		if t.Name == name && t.Why == "" {
			return t
		}
	}
	return nil
}

// mcapStepsMost bounds the frames of an episode.
const mcapStepsMost = 1 << 20

// frames says how many frames there are: from the time on at which all topics that are read have been
// heard, to the last action.
func (e *mcapEpisode) frames(every float64) error {
	used := []*mcap.Topic{e.action.topic}
	for _, c := range e.state {
		used = append(used, c.topic)
	}
	for _, t := range e.cameras { // each by itself
		used = append(used, t)
	}
	for _, t := range used {
		e.first = max(e.first, t.Times[0])
	}
	times := e.action.topic.Times
	if e.first > times[len(times)-1] {
		return fmt.Errorf("not all topics are heard before the last message of %s", e.action.topic.Name)
	}
	steps := float64(times[len(times)-1]-e.first)/every + 1e-6
	if steps > mcapStepsMost {
		return fmt.Errorf("%.0f frames, and an episode has %d at most", steps, mcapStepsMost)
	}
	e.steps = int64(steps) + 1
	return nil
}

// Cameras are the topics of pictures of the first episode that can be read, in order of their names.
func (m *MCAP) Cameras() []string {
	for _, e := range m.episodes {
		if e.fault == "" {
			return slices.Sorted(maps.Keys(e.cameras))
		}
	}
	return nil
}

// Read implements dataset.Source.
func (m *MCAP) Read(i int64) (dataset.Document, error) {
	return m.read(i, func(at int) (dataset.Place, string) {
		return dataset.Place{File: m.files[at].Name()}, m.episodes[at].name
	}, m.open)
}

// open reads an episode for step k.
func (m *MCAP) open(at int, k int64) (*opened, error) {
	e := m.episodes[at]
	if e.fault != "" {
		return nil, errors.New(e.fault)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out := &opened{steps: e.steps}
	if m.o.Horizon == 0 {
		task, err := e.told(e.first)
		out.task = func(int64) string { return task }
		if t := e.topic(mcapDocument); err == nil && t != nil {
			var d *mcap.Message
			if d, err = e.file.Message(t, 0); err == nil {
				out.whole = []byte(d.Texts["data"])
			}
		}
		return out, err
	}
	from, to := m.window(k, e.steps)
	actions, err := e.rows([]mcapColumn{e.action}, from, to, m.every)
	if err != nil {
		return nil, err
	}
	states, err := e.rows(e.state, from, k+1, m.every)
	if err != nil {
		return nil, err
	}
	task, err := e.told(e.time(k, m.every))
	if err != nil {
		return nil, err
	}
	out.task = func(int64) string { return task }
	out.state = func(n int64) []float64 { return states[n-from] }
	out.action = func(n int64) []float64 { return actions[n-from] }
	images := map[int64]map[string][]byte{}
	for _, n := range m.looks(k, e.steps) {
		if images[n], err = e.seen(e.time(n, m.every), m.o.Limit()); err != nil {
			return nil, err
		}
	}
	out.images = func(n int64) (map[string][]byte, error) { return images[n], nil }
	return out, nil
}

// time is that of a frame.
func (e *mcapEpisode) time(n int64, every float64) int64 { return e.first + int64(float64(n)*every) }

// told is the task at a time.
func (e *mcapEpisode) told(at int64) (string, error) {
	t := e.topic(mcapTask)
	if t == nil {
		return e.task, nil
	}
	m, err := e.file.Message(t, max(0, t.At(at)))
	if err != nil {
		return "", err
	}
	return m.Texts["data"], nil
}

// rows are the numbers of columns at frames, one column behind the other in each.
func (e *mcapEpisode) rows(columns []mcapColumn, from, to int64, every float64) ([][]float64, error) {
	out := make([][]float64, to-from)
	for _, c := range columns {
		var v []float64
		width, last := -1, -1
		for n := from; n < to; n++ {
			if at := c.topic.At(e.time(n, every)); at != last { // a message may stand for several frames
				m, err := e.file.Message(c.topic, at)
				if err != nil {
					return nil, err
				}
				v, last = c.of(m), at
			}
			if width < 0 {
				width = len(v)
			}
			if len(v) == 0 || len(v) != width {
				return nil, fmt.Errorf("%s has %d numbers in a message, and %d in another", c.topic.Name, len(v), width)
			}
			out[n-from] = append(out[n-from], v...)
		}
	}
	return out, nil
}

// seen are the pictures at a time.
func (e *mcapEpisode) seen(at, most int64) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(e.cameras)) {
		t := e.cameras[name]
		m, err := e.file.Message(t, t.At(at))
		if err == nil {
			out[name], err = mcapPicture(m, most)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// Numbers implements Robots.
func (m *MCAP) Numbers(each func(states, actions [][]float64)) error {
	for _, e := range m.episodes {
		if e.fault != "" || e.steps == 0 {
			continue
		}
		e.mu.Lock()
		states, err := e.rows(e.state, 0, e.steps, m.every)
		actions, further := e.rows([]mcapColumn{e.action}, 0, e.steps, m.every)
		e.mu.Unlock()
		if err == nil && further == nil {
			each(states, actions)
		}
	}
	return nil
}
