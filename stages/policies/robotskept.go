package policies

import (
	"errors"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// RobotsSection is where a policy's checkpoint has what its recordings said of their robots when it was
// trained, so that it acts by that and not by what lies at data.paths later.
const RobotsSection = "robots"

// KeptRobots is that section.
type KeptRobots struct {
	Cameras []string   `json:"cameras"`
	Fast    string     `json:"fast,omitempty"` // print of the tokenizer of actions
	Film    string     `json:"film,omitempty"` // print of the encoders of a policy with a clip
	Sets    []keptSets `json:"sets"`
}

// keptSets is what a data set said.
type keptSets struct {
	Name    string                   `json:"name"`
	Scale   RobotScale               `json:"scale"`
	Stats   [2]recordings.RobotStats `json:"stats"` // of states and of actions
	Numbers [2]int                   `json:"numbers"`
	Cameras []string                 `json:"cameras"`
	Robot   int32                    `json:"robot"`
	Shapes  map[string][2]int        `json:"shapes,omitempty"` // heights and widths of cameras
}

// Kept is what a checkpoint keeps of the recordings that a policy learns of.
func (x *Robots) Kept() *KeptRobots {
	k := &KeptRobots{Cameras: x.Policy.Cameras, Film: x.film.print()}
	for _, s := range x.sets {
		k.Sets = append(k.Sets, keptSets{Name: s.name, Scale: s.scale, Stats: s.stats, Numbers: s.raw,
			Cameras: s.cameras, Robot: s.robot, Shapes: s.shapes})
	}
	return k
}

// sets are the data sets that were kept.
func (k *KeptRobots) sets() (out []*robotSet) {
	for _, s := range k.Sets {
		out = append(out, &robotSet{name: s.Name, scale: s.Scale, stats: s.Stats, raw: s.Numbers, cameras: s.Cameras,
			robot: s.Robot, shapes: s.Shapes})
	}
	return out
}

// Kept is that of a policy that writes, with its tokenizer of actions.
func (s *TokenPolicy) Kept() *KeptRobots {
	k := s.Robots.Kept()
	if s.fast != nil {
		k.Fast = s.fast.Fingerprint()
	}
	return k
}

// sound reports whether numbers can be scaled.
func (s RobotScale) sound(numbers [2]int) bool {
	for i, a := range []Affine{s.State, s.Action} {
		if len(a.Mid) != len(a.By) || len(a.Mid) == 0 || slices.Contains(a.By, 0) || numbers[i] < 1 {
			return false
		}
	}
	return true
}

// keptIn is what a checkpoint keeps of recordings, nil where that is nothing, or where there is no checkpoint.
func keptIn(saved *checkpoint.Reader) (*KeptRobots, error) {
	if saved == nil {
		return nil, nil
	}
	var k KeptRobots
	err := saved.Section(RobotsSection, &k)
	var bad *checkpoint.Error
	if errors.As(err, &bad) && bad.Fault == checkpoint.Missing {
		return nil, nil // it is of a version that kept none
	}
	if err == nil && (len(k.Sets) == 0 || slices.ContainsFunc(k.Sets, func(s keptSets) bool {
		return !s.Scale.sound(s.Numbers)
	})) {
		err = &checkpoint.Error{File: saved.Path(), Fault: checkpoint.Malformed,
			Why: "section robots: a robot's numbers have no scale"}
	}
	return &k, err
}

// robotsOfRun are the robots of a run's policy: as its checkpoint keeps them, or, where that keeps none or
// there is none, as the run's recordings say now.
func robotsOfRun(cfg *configs.Config, d *family.Denoiser, saved *checkpoint.Reader) (*Robots, error) {
	k, err := keptIn(saved)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return NewRobots(cfg, d)
	}
	x, err := newRobots(cfg, d)
	if err != nil {
		return nil, err
	}
	x.Policy.Cameras, x.learnt = k.Cameras, k.Film
	x.sets = k.sets()
	return x, x.ready(cfg)
}
