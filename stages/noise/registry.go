package noise

import (
	"maps"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
)

// Scheduler is the contents of a scheduler_config.json: the noise that a denoiser was trained under and how
// samples are drawn from it. The types of this package that have a Class are pointers to structs whose
// fields are the keys of that file, with diffusers' defaults where a file says nothing.
type Scheduler interface {
	// Class is diffusers' name, as in "_class_name".
	Class() string
	// Predicts is the name of the [Target] that the denoiser gives.
	Predicts() string
	// Levels are the noise levels of training.
	Levels() (Levels, error)
	// Sampler lays out a run of the denoiser.
	Sampler(o Options) (*Sampler, error)
	// check reports keys that contradict each other or are out of range.
	check(f *faults)
}

// table is a registry: names and what they stand for.
type table[T any] struct {
	what string
	m    map[string]T
}

// add enters a value. Two of one name are a bug of the program.
func (t *table[T]) add(name string, v T) bool {
	if t.m == nil {
		t.m = map[string]T{}
	}
	if _, dup := t.m[name]; dup {
		panic("noise: " + t.what + " " + name + " registered twice")
	}
	t.m[name] = v
	return true
}

func (t *table[T]) names() []string { return slices.Sorted(maps.Keys(t.m)) }

var (
	schedulers = table[func() Scheduler]{what: "scheduler"}
	curves     = table[Curve]{what: "beta schedule"}
	draws      = table[Draw]{what: "draw of times"}
	targets    = table[Target]{what: "target"}
	weights    = table[Weight]{what: "weight"}
)

// Register adds a scheduler under the name of its class. It is called when a package is loaded and returns
// true, so that it can stand in a variable's declaration. New gives one with the defaults.
func Register(fresh func() Scheduler) bool { return schedulers.add(fresh().Class(), fresh) }

// RegisterCurve adds a table of variances, a value of "beta_schedule".
func RegisterCurve(c Curve) bool { return curves.add(c.Name, c) }

// RegisterDraw adds a distribution of training times, a value of [Times.Kind].
func RegisterDraw(d Draw) bool {
	source.Offer(source.Draws, d.Name)
	return draws.add(d.Name, d)
}

// RegisterTarget adds what a denoiser may be asked for, a value of "prediction_type".
func RegisterTarget(t Target) bool { return targets.add(t.Name, t) }

// RegisterWeight adds a weight of the loss, a value of [Weighting.Kind].
func RegisterWeight(w Weight) bool {
	source.Offer(source.Weights, w.Name)
	return weights.add(w.Name, w)
}

// Classes lists the schedulers, Curves the tables of variances, Draws the distributions of training times and
// Weights the weights of their losses, each in order.
func Classes() []string { return schedulers.names() }

// Curves lists the values of "beta_schedule".
func Curves() []string { return curves.names() }

// Draws lists the values of [Times.Kind].
func Draws() []string { return draws.names() }

// Weights lists the values of [Weighting.Kind].
func Weights() []string { return weights.names() }

// New is a scheduler with diffusers' defaults, or nil if there is none of that class.
func New(class string) Scheduler {
	if fresh := schedulers.m[class]; fresh != nil {
		return fresh()
	}
	return nil
}

// Lookup returns the target of a name, which is one of "prediction_type" or "flow_prediction" or "edm".
func Lookup(target string) (Target, bool) {
	t, ok := targets.m[target]
	return t, ok
}
