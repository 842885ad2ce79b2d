package world

import (
	"errors"
	"strings"

	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// Corrected are the steps of episodes that a policy acted in, as recordings of what one who knows would have
// done in each (DAgger, arXiv:1011.0686); of a world without one, of what the policy did, where it
// succeeded. corrected is which of the two. Every camera must see something in every step.
func Corrected(s Spec, all []Episode) (out []recordings.RobotEpisode, corrected bool, err error) {
	for _, e := range all {
		corrected = corrected || len(e.Scenes) > 0 && e.Scenes[0].Expert != nil
	}
	for _, e := range all {
		if e.Lost || len(e.Actions) == 0 || !corrected && !e.Success {
			continue
		}
		r := recordings.RobotEpisode{Task: e.Task}
		for i, action := range e.Actions {
			c := e.Scenes[i]
			if corrected {
				if action = c.Expert; action == nil {
					return nil, true, errors.New("the world has an expert in some steps alone")
				}
			}
			f := recordings.RobotStep{State: narrow(c.State), Action: narrow(action)}
			for k, v := range c.Views {
				if v == nil {
					return nil, corrected, errors.New("camera " + s.Cameras[k] + " sees nothing in some steps")
				}
				f.Images = append(f.Images, v.PNG())
			}
			r.Frames = append(r.Frames, f)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, corrected, errors.New("no episode is there to be recorded: none succeeded, or none came to its end")
	}
	return out, corrected, nil
}

func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

// Set is what recordings of the world have in common: its cameras under the names of columns, of the size of
// what they saw first.
func (s Spec) Set(all []Episode) recordings.RobotSet {
	set := recordings.RobotSet{FPS: s.FPS}
	for i, c := range s.Cameras {
		camera := recordings.RobotCamera{Column: column(c)}
		for _, e := range all {
			if len(e.Scenes) > 0 && e.Scenes[0].Views[i] != nil {
				camera.Height, camera.Width = e.Scenes[0].Views[i].H, e.Scenes[0].Views[i].W
				break
			}
		}
		set.Cameras = append(set.Cameras, camera)
	}
	return set
}

// column is a camera's in a data set, where a world says the end of its name alone.
func column(camera string) string {
	if strings.ContainsAny(camera, "./") {
		return camera
	}
	return "observation.images." + camera
}
