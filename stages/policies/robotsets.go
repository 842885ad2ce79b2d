package policies

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// robotSet is what a data set says of its robot.
type robotSet struct {
	name    string
	scale   RobotScale
	stats   [2]recordings.RobotStats // of states and of actions
	raw     [2]int                   // numbers of a state and of an action, as robots have them
	cameras []string
	left    []string // what of it cannot be read
	said    []string // what is to be known of its numbers
	rate    float64  // steps a second, 0 where they are not known
	shapes  map[string][2]int
	robot   int32 // which of the model's robots it is
}

// robots holds data sets to the robots that the model has weights for, and to what numbers it learns as they are.
func (x *Robots) robots(cfg *configs.Config) error {
	const key = "policy.embodiments"
	given, sets := cfg.Run.Policy.Robots, len(cfg.Run.Data.Paths)
	switch {
	case !cfg.Usual("policy.fps") && !slices.ContainsFunc(cfg.Run.Data.Paths, func(p configs.WeightPath) bool {
		return recordings.HasMessages(p.Path)
	}):
		return cfg.Fault("policy.fps", "recordings have frames of their own, and no messages that come when they come",
			"remove it")
	case x.D.Robots == 0 && len(given) > 0:
		return cfg.Fault(key, "the model has weights of one kind for all robots", "leave it out")
	case len(given) > 0 && len(given) != sets:
		return cfg.Fault(key, fmt.Sprintf("%d robots, and data.paths has %d data sets", len(given), sets),
			"name one for each")
	case len(given) == 0 && x.D.Robots > 0 && sets > x.D.Robots:
		return cfg.Fault("data.paths", fmt.Sprintf("%d data sets, and the model has weights for %d robots", sets,
			x.D.Robots), "say with policy.embodiments which are of one robot")
	case len(given) > 0 && slices.Max(given) >= x.D.Robots:
		return cfg.Fault(key, fmt.Sprintf("robot %d, and the model has weights for %d", slices.Max(given),
			x.D.Robots), "")
	case len(x.D.Squash) > 0 && cfg.Run.Policy.Normalize != "identity":
		return cfg.Fault("policy.normalize", fmt.Sprintf("%s, and the model gives grippers from 0 to 1",
			cfg.Run.Policy.Normalize), "set identity, or model.overrides.action_form to auto")
	}
	return nil
}

// open reads a data set's statistics.
func (x *Robots) open(cfg *configs.Config, path string) (*robotSet, error) {
	l, err := recordings.OpenRobots(path, dataset.Options{Robot: robotKeys(&cfg.Run.Policy)})
	if err != nil {
		return nil, cfg.Fault("data.paths", err.Error(), "")
	}
	defer l.Close() //nolint:errcheck // it was read only
	if own, ok := l.(recordings.Rated); ok && x.D.Worded() && own.Rate() != x.D.Clip.Joined.Rate {
		return nil, cfg.Fault("model.overrides.robot_rate", fmt.Sprintf("%g steps a second, and %s has %g",
			x.D.Clip.Joined.Rate, l.Name(), own.Rate()), "set it to those of the recordings")
	}
	stats, err := l.Stats()
	if err != nil {
		return nil, cfg.Fault("data.paths", err.Error(), "")
	}
	set, c := &robotSet{name: l.Name(), cameras: l.Cameras(), left: l.Left()}, &cfg.Run
	columns := []struct {
		key, column string
		to          *Affine
	}{{"policy.state_key", c.Policy.State, &set.scale.State}, {"policy.action_key", c.Policy.Action, &set.scale.Action}}
	for i, s := range columns {
		have, ok := stats[s.column]
		if !ok {
			return nil, cfg.Fault(s.key, fmt.Sprintf("the statistics of %s have no %q", l.Name(), s.column), "")
		}
		if len(have.Mean)+len(have.Min)+len(have.Q01) == 0 {
			return nil, cfg.Fault(s.key, fmt.Sprintf("%s has no numbers of %s", l.Name(), s.column), "name what it has")
		}
		set.stats[i], set.raw[i] = have, len(have.Mean)
	}
	if x.motion.moves() {
		if err := x.moved(cfg, l, set); err != nil {
			return nil, err
		}
	}
	set.of(l)
	for i, s := range columns {
		if *s.to, err = NewAffine(set.stats[i], c.Policy.Normalize); err != nil {
			return nil, cfg.Fault("policy.normalize", fmt.Sprintf("%s of %s: %v", s.column, l.Name(), err),
				"take another one")
		}
		set.said = append(set.said, far(s.column, set.stats[i], *s.to, c.Policy.Normalize)...)
	}
	return set, nil
}

// as takes the numbers of a data set's robot for those of robots that are asked about.
func (x *Robots) as(set *robotSet) {
	x.Scale, x.stats, x.raw, x.robot = set.scale, set.stats, set.raw, set.robot
}

// moved holds what a policy learns of actions to a data set's robot, and makes the statistics of it.
func (x *Robots) moved(cfg *configs.Config, l recordings.Robots, set *robotSet) (err error) {
	x.motion.check(set.raw[0], set.raw[1], func(key, why, try string) {
		if err == nil {
			err = cfg.Fault(key, fmt.Sprintf("%s: %s", l.Name(), why), try)
		}
	})
	if err != nil {
		return err
	}
	chunk, past := x.Chunk, 0
	if x.D.Executed > 0 {
		past = x.D.Sight.Observed() - 1
	}
	if !x.motion.shifts() { // an action is the same in every chunk: statistics are of frames, as a data set's own are
		chunk, past = 1, 0
	}
	if set.stats, err = x.motion.statistics(l, chunk, past, x.Policy.Padding && !x.D.Masked); err != nil {
		return cfg.Fault("policy.actions", err.Error(), "")
	}
	return nil
}

// of is the scale and the robot of the data set called name: the first one's for others, as those of data.valid are.
func (x *Robots) of(name string) (RobotScale, int32) {
	for _, s := range x.sets {
		if s.name == name {
			return s.scale, s.robot
		}
	}
	return x.Scale, x.robot
}

// ready holds the model to what the data sets say of their robots, and prepares what it is told.
func (x *Robots) ready(cfg *configs.Config) error {
	d := x.D
	if len(x.Policy.Cameras) > d.Sight.Cameras() {
		return cfg.Fault("policy.cameras", fmt.Sprintf("%d cameras, and the model has %d",
			len(x.Policy.Cameras), d.Sight.Cameras()), "name fewer, or set model.overrides.views")
	}
	d.Real = 0
	for _, set := range x.sets {
		x.Scale = set.scale
		n := len(set.scale.Action.Mid)
		if n > d.Width() {
			return cfg.Fault("policy.action_key",
				fmt.Sprintf("actions have %d numbers, and the model has room for %d", n, d.Width()), "")
		}
		if d.Real = max(d.Real, n); d.Sight.Whole() {
			if err := x.whole(cfg); err != nil {
				return err
			}
		}
	}
	if x.as(x.sets[0]); d.Sight.Whole() && !d.Worded() {
		return nil
	}
	return x.words(cfg)
}

// Left are what the recordings of data.paths have that cannot be read, each with its reason.
func (x *Robots) Left() (out []string) {
	for _, set := range x.sets {
		for _, why := range set.left {
			out = append(out, set.name+": "+why)
		}
	}
	return out
}

// whole holds recordings to a policy that reads views whole and states as numbers, and no words.
func (x *Robots) whole(cfg *configs.Config) error {
	d := x.D
	if n := len(x.Scale.State.Mid); n != d.Sight.Numbers() && d.Sight.State > 0 &&
		!(d.Roomy() && n < d.Sight.Numbers()) {
		return cfg.Fault("policy.state_key", fmt.Sprintf("states have %d numbers, and the model reads %d", n,
			d.Sight.Numbers()), "set model.overrides.state_size")
	}
	if d.Real != d.Width() && !d.Quiet && !d.Broad {
		return cfg.Fault("policy.action_key", fmt.Sprintf("actions have %d numbers, and the model gives %d", d.Real,
			d.Width()), "set model.overrides.in_channels")
	}
	if n := len(x.Policy.Cameras); n != d.Sight.Cameras() {
		return cfg.Fault("policy.cameras", fmt.Sprintf("%d cameras, and the model reads %d", n, d.Sight.Cameras()),
			"set model.overrides.views, or name as many")
	}
	return nil
}
