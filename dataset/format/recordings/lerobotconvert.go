package recordings

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/topology/machine"
)

// RobotReport says what was written of recordings.
type RobotReport struct {
	Folder   string   `json:"folder"`
	Episodes int64    `json:"episodes"`
	Frames   int64    `json:"frames"`
	Cameras  []string `json:"cameras"`
	Aside    []string `json:"set_aside"` // episodes that could not be read, each with its reason
	Left     []string `json:"left_out"`  // what else of them cannot be read, each with its reason
}

// ConvertRobots writes recordings of RLDS, HDF5 or MCAP as a data set of LeRobot of version 3.0 to dst, a
// folder that is not there: with the state and the actions that keys name, the cameras that they name or
// all, and fps frames a second. An episode of which a frame cannot be read is left out.
func ConvertRobots(ctx context.Context, src, dst string, keys dataset.RobotKeys,
	fps float64) (r *RobotReport, err error) {
	dst = filepath.Clean(dst)
	if old, err := os.ReadDir(dst); len(old) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("%s is there already: name a new folder", dst), err)
	}
	if info, err := os.Stat(filepath.Join(src, "meta", "info.json")); err == nil && info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a data set of LeRobot already, and is read as it is", src)
	}
	s, err := OpenRobots(src, dataset.Options{Horizon: 1, Robot: keys})
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // it was read only
	x := &robotCopy{s: s, r: &RobotReport{Folder: dst, Cameras: s.Cameras(), Aside: []string{}, Left: []string{}},
		set: RobotSet{FPS: fps}}
	x.r.Left = append(x.r.Left, s.Left()...)
	if err := x.pick(keys.Cameras); err != nil {
		return nil, err
	}
	if err := x.first(); err != nil {
		return nil, err
	}
	err = written(dst, func(part string) error {
		return writeRobots(part, x.set, func(write func(RobotEpisode) error) error {
			return x.all(ctx, write)
		})
	})
	if err != nil {
		return nil, err
	}
	return x.r, nil
}

// written has write fill a new folder beside dst, which is not there or empty, and gives it that name. Dst is held
// meanwhile: another process that means to write it is refused. What lies beside dst under other names stays.
func written(dst string, write func(part string) error) error {
	_, err := os.Stat(dst)
	mine := err != nil
	release, err := machine.HoldFolder(dst)
	if err != nil {
		return err
	}
	defer release()
	part, err := os.MkdirTemp(filepath.Dir(dst), filepath.Base(dst)+".part")
	if err == nil {
		err = os.Chmod(part, 0o755) // as folders are, and not this user's alone
	}
	if err == nil {
		err = write(part)
	}
	if err == nil {
		if err = os.Remove(dst); err == nil { // it is empty, or else this fails
			err = os.Rename(part, dst)
		}
	}
	if err == nil {
		return nil
	}
	if mine {
		_ = os.Remove(dst) // it is empty, or another's by now
	}
	if part != "" {
		err = errors.Join(err, os.RemoveAll(part))
	}
	return err
}

// pick leaves the cameras that are named, in that order.
func (x *robotCopy) pick(named []string) error {
	for _, c := range named {
		if !slices.Contains(x.r.Cameras, c) {
			return fmt.Errorf("%s: %w: it has no camera %q that can be read; of those that are named it has %q",
				x.s.Name(), dataset.ErrNoTokens, format.Clip(c), x.r.Cameras)
		}
	}
	if len(named) > 0 {
		x.r.Cameras = named
	}
	return nil
}

// robotCopy is a data set that is being converted.
type robotCopy struct {
	s      Robots
	r      *RobotReport
	set    RobotSet
	widths [2]int // numbers of a state and of an action
}

// copied is a frame to write.
type copied struct {
	RobotStep
	episode string
	sizes   [][2]int // height and width of its pictures
}

// step is document i; its episode is known where it cannot be read too.
func (x *robotCopy) step(i int64) (step copied, err error) {
	d, err := x.s.Read(i)
	if step.episode, _, _ = strings.Cut(d.Key, "."); err != nil {
		return step, err
	}
	var f RobotFrame
	b, _ := d.Part("json")
	if err := json.Unmarshal(b, &f); err != nil {
		return step, err
	}
	bad := func(err error) error {
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("episode %d, step %d: %v", f.Episode,
			f.Frame, err)}
	}
	step.Task = f.Task
	for _, v := range f.State {
		step.State = append(step.State, float32(v))
	}
	for _, v := range f.Actions[0] {
		step.Action = append(step.Action, float32(v))
	}
	for _, c := range x.r.Cameras {
		b, ok := f.Images[c]
		if !ok {
			return step, bad(fmt.Errorf("it has no %s", c))
		}
		p, err := media.Decode(b, media.Options{White: true, Turn: true})
		if err != nil {
			return step, bad(fmt.Errorf("%s: %w", c, err))
		}
		if !bytes.HasPrefix(b, []byte("\x89PNG")) {
			if b, err = pngOf(p); err != nil {
				return step, err
			}
		}
		step.Images, step.sizes = append(step.Images, b), append(step.sizes, [2]int{p.H, p.W})
	}
	return step, x.unlike(&step, bad)
}

// pngOf is a picture as a file.
func pngOf(p *media.Image) ([]byte, error) {
	img := image.NewNRGBA(image.Rect(0, 0, p.W, p.H))
	for i := range p.W * p.H {
		copy(img.Pix[4*i:], p.Pix[3*i:3*i+3])
		img.Pix[4*i+3] = 255
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// unlike says that a frame has another shape than the first.
func (x *robotCopy) unlike(step *copied, bad func(error) error) error {
	widths := [2]int{len(step.State), len(step.Action)}
	if x.widths == [2]int{} { // it is the first
		x.widths = widths
		for k, c := range x.r.Cameras {
			x.set.Cameras = append(x.set.Cameras, RobotCamera{c, step.sizes[k][0], step.sizes[k][1]})
		}
	}
	if widths != x.widths {
		return bad(fmt.Errorf("%v numbers of a state and an action, and at first %v", widths, x.widths))
	}
	for k, size := range step.sizes {
		if c := x.set.Cameras[k]; size != [2]int{c.Height, c.Width} {
			return bad(fmt.Errorf("%s has %d by %d pixels, and at first %d by %d", c.Column, size[1], size[0], c.Width,
				c.Height))
		}
	}
	return nil
}

// first finds the shapes of frames, by the first one that can be read.
func (x *robotCopy) first() (err error) {
	for i := range x.s.Len() {
		if _, err = x.step(i); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w: %w", x.s.Name(), dataset.ErrNoTokens, err)
}

// all writes the episodes of which every frame can be read.
func (x *robotCopy) all(ctx context.Context, write func(RobotEpisode) error) error {
	var e RobotEpisode
	var fault error
	episode := ""
	end := func() (err error) {
		if fault != nil {
			x.r.Aside = append(x.r.Aside, fault.Error())
		} else if len(e.Frames) > 0 {
			x.r.Episodes, x.r.Frames = x.r.Episodes+1, x.r.Frames+int64(len(e.Frames))
			err = write(e)
		}
		e, fault = RobotEpisode{}, nil
		return err
	}
	for i := range x.s.Len() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		step, err := x.step(i)
		var bad *dataset.BadSample
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		if step.episode != episode {
			if err := end(); err != nil {
				return err
			}
			episode = step.episode
		}
		if fault = cmp.Or(fault, err); fault == nil {
			e.Frames = append(e.Frames, step.RobotStep)
		}
	}
	if err := end(); err != nil || x.r.Episodes > 0 {
		return err
	}
	return fmt.Errorf("%s: %w: no episode can be read as a whole: %s", x.s.Name(), dataset.ErrNoTokens, x.r.Aside[0])
}
