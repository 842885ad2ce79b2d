package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
)

// The keys of an observation beside its state and its cameras. A prompt may be called task too, as in
// LeRobot's data sets.
const (
	promptKey = "prompt"
	taskKey   = "task"
	seedKey   = "seed"
	joinKey   = "real_time_chunking"
)

// Keys name what an observation has: the columns of the recordings that the policy was trained on.
type Keys struct {
	State   string
	Cameras []string
	All     bool // the policy acts by none that is missing
	Steps   int  // that may be observed at once, the present one last: arrays with an axis more; 0 is one
}

// steps are the arrays of the steps of one that has an axis more than usual, or the one itself.
func (k Keys) steps(v any, usual int) ([]any, error) {
	a, ok := v.(Array)
	if !ok || k.Steps < 2 || len(a.Shape) != usual+1 {
		return []any{v}, nil
	}
	n := a.Shape[0]
	if n < 1 || n > k.Steps {
		return nil, fmt.Errorf("%d steps, and the policy reads %d", n, k.Steps)
	}
	var out []any
	for i := range n {
		out = append(out, Array{a.DType, a.Shape[1:], a.Data[i*len(a.Data)/n : (i+1)*len(a.Data)/n]})
	}
	return out, nil
}

// flat gives the leaves of maps in maps by their plain keys.
func flat(v map[string]any, before string, out map[string]any) error {
	for _, k := range slices.Sorted(maps.Keys(v)) {
		name := policies.Column(before + k)
		if m, ok := v[k].(map[string]any); ok && name != joinKey {
			if err := flat(m, before+k+"/", out); err != nil {
				return err
			}
			continue
		}
		if _, twice := out[name]; twice {
			return fmt.Errorf("%s comes twice", name)
		}
		out[name] = v[k]
	}
	return nil
}

// observation is what a robot asks.
type observation struct {
	seen   policies.Seen
	looks  []policies.Look // of the steps that are observed
	seeded bool
	join   *joining
}

// joining says how far the robot is in the chunk that it was given last: so many of its actions were carried
// out when the observation was made, and so many more will be before the next chunk comes.
type joining struct{ executed, delay int }

// observe reads an observation; usual is the prompt of one that has none. Errors name the key.
func (k Keys) observe(v any, usual string) (*observation, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("an observation is a map")
	}
	have := map[string]any{}
	if err := flat(m, "", have); err != nil {
		return nil, err
	}
	o := &observation{}
	for _, read := range []func(map[string]any, *observation) error{k.state, k.views, k.rest} {
		if err := read(have, o); err != nil {
			return nil, err
		}
	}
	if o.seen.Task == "" {
		o.seen.Task = usual
	}
	if o.seen.Task == "" {
		return nil, fmt.Errorf("%s: the observation says no task, and the server has none", promptKey)
	}
	o.settle()
	return o, nil
}

// settle takes the last of the steps that were read for the present one.
func (o *observation) settle() {
	last := len(o.looks) - 1
	o.seen.State, o.seen.Views, o.seen.Before = o.looks[last].State, o.looks[last].Views, o.looks[:last]
}

// state takes the robot's state.
func (k Keys) state(have map[string]any, o *observation) error {
	v, ok := have[policies.Column(k.State)]
	if !ok {
		return fmt.Errorf("%s: the observation has none", policies.Column(k.State))
	}
	delete(have, policies.Column(k.State))
	all, err := k.steps(v, 1)
	for _, v := range all {
		var l policies.Look
		if l.State, err = vector(v); err != nil {
			break
		}
		o.looks = append(o.looks, l)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", policies.Column(k.State), err)
	}
	return nil
}

// views takes what the cameras see. A camera that is nil is left out of what the policy reads.
func (k Keys) views(have map[string]any, o *observation) error {
	for _, c := range k.Cameras {
		name := policies.Column(c)
		v, ok := have[name]
		if !ok {
			name = policies.Camera(c)
			v, ok = have[name]
		}
		if !ok {
			if k.All {
				return fmt.Errorf("%s: the observation has none, and the policy reads all of its cameras",
					policies.Column(c))
			}
			return fmt.Errorf("%s: the observation has none; send nil for a camera that is missing", policies.Column(c))
		}
		delete(have, name)
		if err := k.camera(v, o); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// camera takes what a camera sees in each of the steps.
func (k Keys) camera(v any, o *observation) error {
	if v == nil {
		for i := range o.looks {
			o.looks[i].Views = append(o.looks[i].Views, nil)
		}
		return nil
	}
	all, err := k.steps(v, 3)
	if err != nil {
		return err
	}
	if len(all) != len(o.looks) {
		return fmt.Errorf("%d steps, and %d of the state", len(all), len(o.looks))
	}
	for i, v := range all {
		a, ok := v.(Array)
		if !ok {
			return errors.New("a camera's picture is an array of NumPy")
		}
		p, err := picture(a)
		if err != nil {
			return err
		}
		o.looks[i].Views = append(o.looks[i].Views, p)
	}
	return nil
}

// rest takes the keys that every policy has, and refuses those that nobody reads.
func (k Keys) rest(have map[string]any, o *observation) error {
	for _, key := range []string{taskKey, promptKey} {
		v, ok := have[key]
		if !ok {
			continue
		}
		delete(have, key)
		text, isText := v.(string)
		if !isText {
			return fmt.Errorf("%s: it is no text", key)
		}
		o.seen.Task = text
	}
	if v, ok := have[seedKey]; ok {
		delete(have, seedKey)
		n, err := whole(v, math.MaxUint32)
		if err != nil {
			return fmt.Errorf("%s: %w", seedKey, err)
		}
		o.seen.Seed, o.seeded = uint64(n), true
	}
	if v, ok := have[joinKey]; ok {
		delete(have, joinKey)
		j, err := joins(v)
		if err != nil {
			return fmt.Errorf("%s: %w", joinKey, err)
		}
		o.join = j
	}
	if len(have) > 0 {
		return fmt.Errorf("%s: the policy reads no such thing; it reads %s", slices.Sorted(maps.Keys(have))[0],
			strings.Join(k.names(), ", "))
	}
	return nil
}

// names are the keys of an observation.
func (k Keys) names() []string {
	out := []string{policies.Column(k.State)}
	for _, c := range k.Cameras {
		out = append(out, policies.Column(c))
	}
	return append(out, promptKey, seedKey, joinKey)
}

// joins reads a robot's place in its last chunk.
func joins(v any) (*joining, error) {
	m, ok := v.(map[string]any)
	if !ok || len(m) != 2 {
		return nil, errors.New("it is a map with executed and delay")
	}
	j := &joining{}
	for key, to := range map[string]*int{"executed": &j.executed, "delay": &j.delay} {
		n, err := whole(m[key], math.MaxInt32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		*to = n
	}
	return j, nil
}

// whole reads a number without a fraction, from 0 to most.
func whole(v any, most float64) (int, error) {
	x, ok := number(v)
	if !ok || x != math.Trunc(x) || x < 0 || x > most {
		return 0, fmt.Errorf("%v is no whole number from 0 to %.0f", v, most)
	}
	return int(x), nil
}

// vector reads an array with one axis, or a list of numbers.
func vector(v any) (out []float64, err error) {
	switch x := v.(type) {
	case Array:
		if len(x.Shape) != 1 {
			return nil, fmt.Errorf("an array of shape %v, want one axis", x.Shape)
		}
		out = x.Floats()
	case []any:
		for i := range x {
			n, ok := number(x[i])
			if !ok {
				return nil, fmt.Errorf("number %d is none", i)
			}
			out = append(out, n)
		}
	default:
		return nil, errors.New("it is no array and no list of numbers")
	}
	for i, n := range out {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, fmt.Errorf("number %d is %g", i, n)
		}
	}
	return out, nil
}

// sideMost bounds the height and the width of a picture.
const sideMost = 8192

// picture reads pixels [h w 3] or [3 h w]: bytes, or numbers from 0 to 1 as openpi's clients may send them.
func picture(a Array) (*media.Image, error) {
	if len(a.Shape) != 3 || a.Shape[0] != 3 && a.Shape[2] != 3 {
		return nil, fmt.Errorf("an array of shape %v, want [height, width, 3] or [3, height, width]", a.Shape)
	}
	if a.DType != "|u1" && !a.floating() {
		return nil, fmt.Errorf("an array of %s, want bytes or floats from 0 to 1", a.DType)
	}
	planes := a.Shape[0] == 3
	h, w := a.Shape[0], a.Shape[1]
	if planes {
		h, w = a.Shape[1], a.Shape[2]
	}
	if h < 1 || w < 1 || h > sideMost || w > sideMost {
		return nil, fmt.Errorf("a picture of %d by %d pixels, want from 1 to %d each", w, h, sideMost)
	}
	bytes := a.Data
	if a.floating() {
		var err error
		if bytes, err = quantized(a.Floats()); err != nil {
			return nil, err
		}
	}
	p := media.NewImage(w, h)
	if !planes {
		copy(p.Pix, bytes)
		return p, nil
	}
	for i := range w * h {
		for c := range 3 {
			p.Pix[3*i+c] = bytes[c*w*h+i]
		}
	}
	return p, nil
}

// quantized are pixels from 0 to 1 as bytes, cut as openpi cuts them.
func quantized(v []float64) ([]byte, error) {
	out := make([]byte, len(v))
	for i, x := range v {
		if !(x >= 0 && x <= 1) {
			return nil, fmt.Errorf("pixel %d is %g, and floats lie from 0 to 1", i, x)
		}
		out[i] = byte(255 * x)
	}
	return out, nil
}
