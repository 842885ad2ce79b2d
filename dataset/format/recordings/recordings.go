// Package recordings reads what robots did: LeRobot data sets, HDF5, MCAP and bags of ROS 2, RLDS; it writes LeRobot data
// sets of them. It registers its formats.
package recordings

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"sort"

	"github.com/lfactor/lfactor/dataset"
)

// recordings are what data sets have in common that are no tables of LeRobot's: episodes of steps, one behind the
// other, whose numbers are read when a set is opened, for the statistics that it does not have.
type recordings struct {
	path, print string
	o           dataset.Options
	files       []*os.File
	from        []int64 // the number of each episode's first step, and of all
	stats       map[string]RobotStats
	left        []string // what of them is not read, each with its reason
}

func newRecordings(path string, o dataset.Options) recordings {
	return recordings{path: path, o: o, from: []int64{0}}
}

// opened is an episode that is read: its values by steps, of those that were asked for.
type opened struct {
	steps         int64
	whole         []byte // the episode as this program wrote it, nil where it did not
	task          func(n int64) string
	state, action func(n int64) []float64
	images        func(n int64) (map[string][]byte, error)
}

// orName is the name of a column, or the usual one.
func orName(name, usual string) string {
	if name == "" {
		return usual
	}
	return name
}

func (r *recordings) action() string { return orName(r.o.Robot.Action, "action") }
func (r *recordings) state() string  { return orName(r.o.Robot.State, "observation.state") }

// add counts an episode; one that cannot be read is one sample, which is quarantined when it is read.
func (r *recordings) add(steps int64) { r.from = append(r.from, r.from[len(r.from)-1]+max(1, steps)) }

// Name implements dataset.Source.
func (r *recordings) Name() string { return r.path }

// Kind implements dataset.Source.
func (r *recordings) Kind() dataset.Kind { return dataset.KindEpisodes }

// Fingerprint implements dataset.Source.
func (r *recordings) Fingerprint() string { return r.print }

// Stats are the statistics of actions and states, of all steps.
func (r *recordings) Stats() (map[string]RobotStats, error) { return r.stats, nil }

// Left implements Robots.
func (r *recordings) Left() []string { return r.left }

// Steps implements Robots.
func (r *recordings) Steps() int64 { return r.from[len(r.from)-1] }

// Len implements dataset.Source: the number of steps with a horizon, else that of episodes.
func (r *recordings) Len() int64 {
	if r.o.Horizon == 0 {
		return int64(len(r.from) - 1)
	}
	return r.Steps()
}

// Close implements dataset.Source.
func (r *recordings) Close() (err error) {
	for _, f := range r.files {
		err = errors.Join(err, f.Close())
	}
	r.files = nil
	return err
}

// ahead are parts of a fingerprint that say which later frames are read, none where none are.
func ahead(o dataset.Options) []any {
	if o.Later == 0 {
		return nil
	}
	return []any{"later", o.Later, o.Every}
}

// window are the steps that step k is read with, [from, to), of an episode of so many.
func (r *recordings) window(k, steps int64) (from, to int64) {
	past := int64(r.o.Past)
	return max(0, k-past), min(steps, max(k+1, k-past+int64(r.o.Horizon)))
}

// looks are the steps of an episode of so many whose pictures are read with step k.
func (r *recordings) looks(k, steps int64) (out []int64) {
	for n := max(0, k-int64(r.o.Past)); n <= k; n++ {
		out = append(out, n)
	}
	for i := range r.o.Later {
		out = append(out, min(k+int64((i+1)*r.o.Every), steps-1))
	}
	return out
}

// read is document i: a step with the actions that follow, or a whole episode. Place is where an episode
// lies, and what it is called beside its number; open reads it for step k.
func (r *recordings) read(i int64, place func(at int) (p dataset.Place, called string),
	open func(at int, k int64) (*opened, error)) (dataset.Document, error) {
	at, k := int(i), int64(0)
	if r.o.Horizon > 0 {
		at = sort.Search(len(r.from)-1, func(n int) bool { return r.from[n+1] > i })
		k = i - r.from[at]
	}
	where, called := place(at)
	d := dataset.Document{Key: fmt.Sprintf("episode_%06d", at), Place: where}
	if r.o.Horizon > 0 {
		d.Key += fmt.Sprintf(".%06d", k)
	}
	bad := func(err error) error {
		if called != "" {
			called = " (" + called + ")"
		}
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("episode %d%s, step %d: %v", at, called, k, err)}
	}
	e, err := open(at, k)
	if err != nil {
		return d, bad(err)
	}
	if e.whole != nil {
		d.Parts = []dataset.Part{{Name: "json", Bytes: e.whole}}
		return d, nil
	}
	var v any = map[string]any{"episode_index": at, "length": e.steps, "tasks": []string{e.task(0)}}
	if r.o.Horizon > 0 {
		if v, err = r.frame(e, at, k); err != nil {
			return d, bad(err)
		}
	}
	b, err := json.Marshal(v)
	if err != nil { // a number that is none
		return d, bad(err)
	}
	d.Parts = []dataset.Part{{Name: "json", Bytes: b}}
	return d, nil
}

// frame is step k of an episode with the actions that follow, as LeRobot's frames are.
func (r *recordings) frame(e *opened, episode int, k int64) (f RobotFrame, err error) {
	f = RobotFrame{Set: r.Name(), Episode: int64(episode), Frame: k, Task: e.task(k)}
	f.fill(e.steps, r.o, func(n int64) (l RobotLook) {
		if n <= k { // of what comes pictures alone are seen
			l.State = e.state(n)
		}
		if err == nil {
			l.Images, err = e.images(n)
		}
		return l
	}, e.action)
	return f, err
}

// fill adds what was seen in a frame, before it and behind it, and the actions that follow; those of steps
// that an episode of so many has not are its first or its last.
func (f *RobotFrame) fill(steps int64, o dataset.Options, look func(n int64) RobotLook,
	action func(n int64) []float64) {
	k, past := f.Frame, int64(o.Past)
	for n := k - past; n < k; n++ {
		f.Before = append(f.Before, look(max(0, n)))
	}
	f.RobotLook = look(k)
	for n := k - past; n < k-past+int64(o.Horizon); n++ {
		switch {
		case n < 0:
			f.Lead++
		case n >= steps:
			f.Pad++
		}
		f.Actions = append(f.Actions, action(min(max(0, n), steps-1)))
	}
	for i := range o.Later {
		f.Later = append(f.Later, look(f.place(int64((i+1)*o.Every), steps)))
	}
}

// tally gathers numbers by columns; those that are none are left out.
func tally(to [][]float64, row []float64) [][]float64 {
	if to == nil {
		to = make([][]float64, len(row))
	}
	for k := range min(len(row), len(to)) {
		if v := row[k]; !math.IsNaN(v) && !math.IsInf(v, 0) {
			to[k] = append(to[k], v)
		}
	}
	return to
}

// measure makes the statistics of states and actions of what numbers gives of each episode.
func (r *recordings) measure(numbers func(each func(states, actions [][]float64)) error) {
	var all [2][][]float64
	_ = numbers(func(states, actions [][]float64) { // what cannot be read is set aside when it is learnt
		for i, rows := range [][][]float64{states, actions} {
			for _, row := range rows {
				all[i] = tally(all[i], row)
			}
		}
	})
	r.stats = map[string]RobotStats{r.state(): statsOfColumns(all[0]), r.action(): statsOfColumns(all[1])}
}

// Robots is a data set of recordings, with what a policy is to know of it beside its frames.
type Robots interface {
	dataset.Source
	Cameras() []string
	Stats() (map[string]RobotStats, error)
	Steps() int64   // of all episodes
	Left() []string // what the recordings have besides that cannot be read, each with its reason
	// Numbers gives the states and the actions of each episode, [steps][numbers], in order. An episode that
	// cannot be read is left out.
	Numbers(each func(states, actions [][]float64)) error
}

// Rated are recordings that say how many steps they have a second.
type Rated interface{ Rate() float64 }

// openers are the formats of recordings that are no tables of LeRobot's: which paths are theirs, and how
// they are opened.
var openers []opener

type opener struct {
	is   func(path string) bool
	open func(path string, o dataset.Options) (Robots, error)
}

// registerRobots enters a format of recordings.
func registerRobots(name, doc string, o opener,
	write func(dir string, docs []dataset.Document) (string, dataset.Options, error)) bool {
	openers = append(openers, o)
	return dataset.Register(dataset.Format{Name: name, Doc: doc, Kind: dataset.KindEpisodes,
		Match: func(path string, _ []byte) bool { return o.is(path) },
		Open: func(path string, q dataset.Options) (dataset.Source, error) {
			r, err := o.open(path, q)
			if err != nil {
				return nil, err
			}
			return r, nil
		}, Write: write})
}

// OpenRobots opens a data set of recordings, of whatever format.
func OpenRobots(dir string, o dataset.Options) (Robots, error) {
	for _, x := range openers {
		if x.is(dir) {
			return x.open(dir, o)
		}
	}
	return OpenLeRobot(dir, o)
}
