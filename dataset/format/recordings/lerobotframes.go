package recordings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// RobotFrame is one frame of a robot's recording with what is done from it on: a document of a data set of
// LeRobot that is opened with a horizon has it as its part "json".
type RobotFrame struct {
	Set     string      `json:"set"` // name of the data set
	Episode int64       `json:"episode"`
	Frame   int64       `json:"frame"`
	Task    string      `json:"task"`
	Actions [][]float64 `json:"actions"` // of as many steps as the horizon says
	// steps at the end that lie behind the episode, and at the beginning before it: the last and the first
	// action stand for them, as in LeRobot
	Pad  int `json:"pad"`
	Lead int `json:"lead,omitempty"`
	RobotLook
	Before []RobotLook `json:"before,omitempty"` // of steps before, the earliest first
	// of steps behind, the next first, and how many of them lie behind the episode: its last step stands for
	// those, as in LeRobot
	Later    []RobotLook `json:"later,omitempty"`
	LaterPad int         `json:"later_pad,omitempty"`
}

// place is the step of an episode of so many that stands for one that lies n steps behind the frame's.
func (f *RobotFrame) place(n, steps int64) int64 {
	if n += f.Frame; n >= steps {
		f.LaterPad++
		return steps - 1
	}
	return n
}

// RobotLook is what is observed in a step.
type RobotLook struct {
	State  []float64             `json:"state"`
	Images map[string][]byte     `json:"images,omitempty"` // of cameras that are columns
	Videos map[string]VideoFrame `json:"videos,omitempty"`
}

// VideoFrame is a frame of a video: the one that is shown at a time by the file's clock.
type VideoFrame struct {
	File    string  `json:"file"`
	Seconds float64 `json:"seconds"`
}

// robotFrames is a data set of LeRobot frame by frame.
type robotFrames struct {
	*LeRobot
	from []int64 // the number of each episode's first frame, and of all frames
}

func newRobotFrames(l *LeRobot) *robotFrames {
	r := &robotFrames{LeRobot: l, from: []int64{0}}
	for _, e := range l.episodes {
		r.from = append(r.from, r.from[len(r.from)-1]+e.Length)
	}
	return r
}

// Len implements dataset.Source: the number of frames.
func (r *robotFrames) Len() int64 { return r.from[len(r.from)-1] }

// Fingerprint implements dataset.Source.
func (r *robotFrames) Fingerprint() string {
	if r.cameras() != nil {
		return format.HashOf("frames 4", r.LeRobot.Fingerprint(), r.o.Horizon, r.o.Robot, r.o.Past,
			r.o.Later, r.o.Every)
	}
	if r.o.Later > 0 {
		return format.HashOf("frames 3", r.LeRobot.Fingerprint(), r.o.Horizon, r.o.Robot, r.o.Past,
			r.o.Later, r.o.Every)
	}
	if r.o.Past > 0 {
		return format.HashOf("frames 2", r.LeRobot.Fingerprint(), r.o.Horizon, r.o.Robot, r.o.Past)
	}
	return format.HashOf("frames 1", r.LeRobot.Fingerprint(), r.o.Horizon, r.o.Robot)
}

// Read implements dataset.Source.
func (r *robotFrames) Read(i int64) (dataset.Document, error) {
	at := sort.Search(len(r.episodes), func(k int) bool { return r.from[k+1] > i })
	e, k := &r.episodes[at], i-r.from[at]
	d := dataset.Document{Key: fmt.Sprintf("episode_%06d.%06d", e.Index, k),
		Place: dataset.Place{File: filepath.Join(r.dir, e.file), Offset: e.row + k}}
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("episode %d, frame %d: ", e.Index, k) +
			fmt.Sprintf(format, args...)}
	}
	t, err := r.tables.get(filepath.Join(r.dir, e.file))
	if os.IsNotExist(err) {
		return d, bad("its table is missing")
	}
	if err != nil {
		return d, err
	}
	if e.row+e.Length > t.Len() {
		return d, bad("the episode has %d frames from row %d on, and the table has %d rows", e.Length, e.row, t.Len())
	}
	f := RobotFrame{Set: r.Name(), Episode: e.Index, Frame: k}
	past, clock := int64(r.o.Past), stamps{LeRobot: r.LeRobot}
	for step := range max(int64(r.o.Horizon), past+1) {
		n := k + step - past
		if n >= e.Length && step > past {
			f.Pad++
			f.Actions = append(f.Actions, f.Actions[len(f.Actions)-1])
			continue
		}
		if n < 0 {
			f.Lead++
		}
		row, _, err := t.Record(e.row + max(0, n))
		if err != nil {
			return d, err
		}
		if why := clock.next(row, max(0, n)); why != "" {
			return d, bad("%s", why)
		}
		action, why := numbers(row, cmp.Or(r.o.Robot.Action, "action"))
		if why != "" {
			return d, bad("%s of frame %d", why, max(0, n))
		}
		f.Actions = append(f.Actions, action)
		if step > past {
			continue
		}
		look := &f.RobotLook
		if step < past {
			f.Before = append(f.Before, RobotLook{})
			look = &f.Before[step]
		}
		if why := r.here(&f, look, e, row, max(0, n)); why != "" {
			return d, bad("%s", why)
		}
	}
	f.Actions = f.Actions[:r.o.Horizon]
	why, err := r.later(&f, t, e)
	if err != nil || why != "" {
		return d, cmp.Or(err, bad("%s", why))
	}
	b, err := json.Marshal(f)
	d.Parts = []dataset.Part{{Name: "json", Bytes: b}}
	return d, err
}

// later reads what is seen behind a frame; why is what is wrong with it.
func (r *robotFrames) later(f *RobotFrame, t format.Records, e *lerobotEpisode) (why string, err error) {
	task, clock := f.Task, stamps{LeRobot: r.LeRobot} // of the present step
	for i := range r.o.Later + min(1, r.o.Later) {    // from the frame itself on, where the clock begins
		n := f.place(int64(i*r.o.Every), e.Length)
		row, _, err := t.Record(e.row + n)
		if err != nil {
			return "", err
		}
		if why := clock.next(row, n); why != "" {
			return why, nil
		}
		if i == 0 {
			continue
		}
		f.Later = append(f.Later, RobotLook{})
		if why := r.here(f, &f.Later[i-1], e, row, n); why != "" {
			return why, nil
		}
	}
	f.Task = task
	return "", nil
}

// here reads what is observed in frame n of an episode, and the task; why is what is wrong with it.
func (r *robotFrames) here(f *RobotFrame, look *RobotLook, e *lerobotEpisode, row []byte, n int64) (why string) {
	if look.State, why = numbers(row, cmp.Or(r.o.Robot.State, "observation.state")); why != "" {
		return why
	}
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(row, &columns); err != nil {
		return err.Error()
	}
	var index int
	if json.Unmarshal(columns["task_index"], &index) == nil && r.tasks != nil {
		if index < 0 || index >= len(r.tasks) {
			return fmt.Sprintf("task_index is %d, and there are %d tasks", index, len(r.tasks))
		}
		f.Task = r.tasks[index]
	} else if len(e.Tasks) > 0 {
		f.Task = e.Tasks[0]
	}
	for name, feature := range r.info.Features {
		switch feature.Type {
		case "image":
			var image struct{ Bytes []byte }
			if json.Unmarshal(columns[name], &image) != nil || len(image.Bytes) == 0 {
				return fmt.Sprintf("%s has no image", name)
			}
			if look.Images == nil {
				look.Images = map[string][]byte{}
			}
			look.Images[name] = image.Bytes
		case "video":
			if look.Videos == nil {
				look.Videos = map[string]VideoFrame{}
			}
			at, why := r.stamp(columns, n)
			if why != "" {
				return why
			}
			v := e.Videos[name]
			look.Videos[name] = VideoFrame{filepath.Join(r.dir, v.File), v.From + at}
		}
	}
	return ""
}

// Left implements Robots: all is read.
func (l *LeRobot) Left() []string { return nil }

// Cameras are the features that are images or videos, in order of their names.
func (l *LeRobot) Cameras() (out []string) {
	for name, f := range l.info.Features {
		if f.Type == "video" || f.Type == "image" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// numbers are those of a column of a row: a list, or one number. why says what is wrong.
func numbers(row []byte, column string) (v []float64, why string) {
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(row, &columns); err != nil {
		return nil, err.Error()
	}
	raw, ok := columns[column]
	if !ok {
		return nil, fmt.Sprintf("there is no column %q", column)
	}
	if bytes.Contains(raw, []byte("null")) || bytes.Contains(raw, []byte(`NaN"`)) ||
		bytes.Contains(raw, []byte(`Infinity"`)) {
		return nil, fmt.Sprintf("%q has a number that is none", column)
	}
	var one float64
	if json.Unmarshal(raw, &one) == nil {
		return []float64{one}, ""
	}
	if json.Unmarshal(raw, &v) != nil || len(v) == 0 {
		return nil, fmt.Sprintf("%q is no list of numbers", column)
	}
	return v, ""
}

// RobotStats are the statistics of a column of numbers, each for every number of it.
type RobotStats struct {
	Min, Max, Mean, Std []float64
	Q01, Q99            []float64 // nil where the data set has none
}

// Stats reads a data set's statistics: those of meta/stats.json, or, in version 2.1, what those of its
// episodes come to, without quantiles.
func (l *LeRobot) Stats() (map[string]RobotStats, error) {
	b, err := os.ReadFile(filepath.Join(l.dir, "meta", "stats.json"))
	if err == nil {
		return statsOf(b)
	}
	lines, err := format.OpenJSON(filepath.Join(l.dir, "meta", "episodes_stats.jsonl"), l.o)
	if err != nil {
		return nil, fmt.Errorf("%s has neither meta/stats.json nor meta/episodes_stats.jsonl: %w", l.dir, err)
	}
	defer lines.Close()
	sums := map[string]*pooled{}
	for i := range lines.Len() {
		b, _, err := lines.Record(i)
		if err != nil {
			return nil, err
		}
		var e struct{ Stats map[string]json.RawMessage }
		if err := json.Unmarshal(b, &e); err != nil {
			return nil, fmt.Errorf("meta/episodes_stats.jsonl: line %d: %w", i+1, err)
		}
		for name, raw := range e.Stats {
			if sums[name] == nil {
				sums[name] = &pooled{}
			}
			sums[name].add(raw)
		}
	}
	out := map[string]RobotStats{}
	for name, p := range sums { // each by itself
		if len(p.sum) > 0 {
			out[name] = p.stats()
		}
	}
	return out, nil
}

// statsOf reads stats.json; statistics of images, which are nested, are left out.
func statsOf(b []byte) (map[string]RobotStats, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("meta/stats.json: %w%s", err, brokenAt(b))
	}
	out := map[string]RobotStats{}
	for name, raw := range all { // each by itself
		var s RobotStats
		if json.Unmarshal(raw, &s) == nil && len(s.Mean) > 0 {
			out[name] = s
		}
	}
	return out, nil
}

// Steps implements Robots.
func (l *LeRobot) Steps() (n int64) {
	for _, e := range l.episodes {
		n += e.Length
	}
	return n
}

// Numbers implements Robots.
func (l *LeRobot) Numbers(each func(states, actions [][]float64)) (err error) {
	wanted := []string{cmp.Or(l.o.Robot.State, "observation.state"), cmp.Or(l.o.Robot.Action, "action")}
	var t format.Records
	name := ""
	defer func() {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, e := range l.episodes {
		if e.file != name {
			if t != nil {
				if err := t.Close(); err != nil {
					return err
				}
			}
			name = e.file
			if t, err = format.OpenColumns(filepath.Join(l.dir, name), l.o, wanted...); err != nil &&
				!os.IsNotExist(err) {
				return err
			}
			err = nil // a file that is missing has its frames set aside
		}
		if t == nil {
			continue
		}
		var states, actions [][]float64
		for k := range min(e.Length, t.Len()-e.row) {
			row, _, err := t.Record(e.row + k)
			if err != nil {
				return err
			}
			state, why := numbers(row, wanted[0])
			action, further := numbers(row, wanted[1])
			if why != "" || further != "" {
				break
			}
			states, actions = append(states, state), append(actions, action)
		}
		if int64(len(states)) == e.Length && e.Length > 0 {
			each(states, actions)
		}
	}
	return nil
}

// pooled adds up statistics of episodes.
type pooled struct {
	n   float64
	sum []RobotStats
	of  []float64
}

func (p *pooled) add(raw json.RawMessage) {
	var s RobotStats
	var n struct{ Count []float64 }
	if json.Unmarshal(raw, &s) != nil || json.Unmarshal(raw, &n) != nil || len(n.Count) == 0 || len(s.Mean) == 0 {
		return // of images, which are nested
	}
	p.sum, p.of, p.n = append(p.sum, s), append(p.of, n.Count[0]), p.n+n.Count[0]
}

// stats has the mean of all frames and the deviation of all frames from it.
func (p *pooled) stats() (out RobotStats) {
	n := len(p.sum[0].Mean)
	out = RobotStats{Min: slices.Clone(p.sum[0].Min), Max: slices.Clone(p.sum[0].Max), Mean: make([]float64, n),
		Std: make([]float64, n)}
	for k, s := range p.sum {
		for i := range min(n, len(s.Mean)) {
			out.Min[i], out.Max[i] = min(out.Min[i], s.Min[i]), max(out.Max[i], s.Max[i])
			out.Mean[i] += p.of[k] / p.n * s.Mean[i]
		}
	}
	for k, s := range p.sum {
		for i := range min(n, len(s.Mean)) {
			out.Std[i] += p.of[k] / p.n * (s.Std[i]*s.Std[i] + math.Pow(s.Mean[i]-out.Mean[i], 2))
		}
	}
	for i := range n {
		out.Std[i] = math.Sqrt(out.Std[i])
	}
	return out
}
