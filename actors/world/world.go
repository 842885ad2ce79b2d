// Package world has policies act in worlds: environments that are reset from a seed, are told an action a step and
// say what a robot sees then. A world is a value of a Go program or a command that speaks the protocol of
// docs/policies.md. What a policy does in one depends on the seed alone, not on how many worlds there are.
package world

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
)

// World is an environment. It is not safe for concurrent use; what its methods return is the caller's. After an
// error it is only closed.
type World interface {
	// Spec says what the world has; it is the same always.
	Spec() Spec
	// Reset begins an episode that follows from the seed and the actions alone.
	Reset(ctx context.Context, seed uint64) (Scene, error)
	// Step carries out an action.
	Step(ctx context.Context, action []float64) (Scene, error)
	// Close ends the world.
	Close() error
}

// Spec is what a world has.
type Spec struct {
	Name    string   `json:"world"`
	State   int      `json:"state"`   // numbers of a state
	Action  int      `json:"action"`  // numbers of an action
	Cameras []string `json:"cameras"` // columns of a data set, or the ends of their names
	FPS     float64  `json:"fps"`     // steps a second of recordings
}

// Scene is what a robot sees after a reset or a step, and how it does.
type Scene struct {
	Task    string
	State   []float64
	Views   []*media.Image // in the order of the world's cameras, nil for one that sees nothing now
	Reward  float64
	Done    bool // the episode ends here
	Success bool // what was told is done
	// Expert is what one who knows would do now, nil in a world where nobody does.
	Expert []float64
}

// Bounds of what a world may say.
const (
	sideMost    = 8192  // pixels a side of a view
	numbersMost = 65536 // of a state or an action
	camerasMost = 64
	wordsMost   = 4096 // bytes of a task
)

// check reports what no world can have.
func (s Spec) check() error {
	switch {
	case s.State < 1 || s.State > numbersMost || s.Action < 1 || s.Action > numbersMost:
		return fmt.Errorf("a state of %d numbers and an action of %d; each has from 1 to %d", s.State, s.Action,
			numbersMost)
	case len(s.Cameras) > camerasMost:
		return fmt.Errorf("%d cameras, more than %d", len(s.Cameras), camerasMost)
	case !(s.FPS > 0) || s.FPS > 10000:
		return fmt.Errorf("fps is %g, want a number of steps a second", s.FPS)
	}
	for i, c := range s.Cameras {
		if c == "" || slices.Contains(s.Cameras[:i], c) {
			return fmt.Errorf("camera %d is called %q, as none or as another is", i, c)
		}
	}
	return nil
}

// check reports a scene that is none of the world's.
func (c Scene) check(s Spec) error {
	if len(c.State) != s.State {
		return fmt.Errorf("state has %d numbers, and the world said %d", len(c.State), s.State)
	}
	if c.Expert != nil && len(c.Expert) != s.Action {
		return fmt.Errorf("expert has %d numbers, and an action %d", len(c.Expert), s.Action)
	}
	if len(c.Views) != len(s.Cameras) {
		return fmt.Errorf("%d views, and the world has %d cameras", len(c.Views), len(s.Cameras))
	}
	if c.Task == "" || len(c.Task) > wordsMost {
		return fmt.Errorf("task has %d bytes, want from 1 to %d", len(c.Task), wordsMost)
	}
	for name, v := range map[string][]float64{"state": c.State, "expert": c.Expert, "reward": {c.Reward}} {
		for i, x := range v {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("%s: number %d is %g", name, i, x)
			}
		}
	}
	for i, v := range c.Views {
		if v != nil && (v.W < 1 || v.H < 1 || v.W > sideMost || v.H > sideMost) {
			return fmt.Errorf("%s: a view of %d by %d pixels", s.Cameras[i], v.W, v.H)
		}
	}
	return nil
}

// same reports whether two scenes show the same.
func (c Scene) same(o Scene) bool {
	return c.Task == o.Task && slices.Equal(c.State, o.State) && slices.EqualFunc(c.Views, o.Views,
		func(a, b *media.Image) bool {
			return a == nil && b == nil || a != nil && b != nil && a.W == b.W && slices.Equal(a.Pix, b.Pix)
		})
}

// Policy is what acts: *trained.Actor does.
type Policy interface {
	Abilities() policies.Abilities
	// Act gives the next actions of each robot, [chunk][numbers].
	Act(robots []policies.Seen) ([][][]float64, error)
}

// fits reports why a policy cannot act in a world, and else gives the world's camera of each of the policy's.
func fits(can policies.Abilities, s Spec) ([]int, error) {
	if can.Numbers != s.State {
		return nil, fmt.Errorf("a state of the world has %d numbers, and the policy reads %d", s.State, can.Numbers)
	}
	if can.Width != s.Action {
		return nil, fmt.Errorf("an action of the world has %d numbers, and the policy gives %d", s.Action, can.Width)
	}
	var cameras []int
	for _, c := range can.Cameras {
		i := slices.IndexFunc(s.Cameras, func(name string) bool { return policies.Camera(name) == policies.Camera(c) })
		if i < 0 {
			return nil, fmt.Errorf("the world has no camera %s, which the policy reads; it has %q", c, s.Cameras)
		}
		cameras = append(cameras, i)
	}
	return cameras, nil
}

// errClosed says that a world was asked after its end.
var errClosed = errors.New("the world has ended")
