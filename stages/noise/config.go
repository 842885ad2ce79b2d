package noise

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/diffusers"
)

// foreign are keys of schedulers that are not registered, and lie in published files, since diffusers keeps
// the keys of a scheduler that it replaces.
var foreign = []string{"skip_prk_steps", "s_noise"}

// ReadFile reads a scheduler_config.json.
func ReadFile(path string) (Scheduler, error) {
	text, err := diffusers.ReadFile(path, "a scheduler's settings")
	if err != nil {
		return nil, err
	}
	return Read(path, text)
}

// Read reads the text of a scheduler_config.json; file is what errors call it. Keys that it does not have get
// diffusers' defaults. A key that no scheduler has, one given twice, a value of another type and keys that contradict
// each other are errors, all reported at once. Keys of other schedulers are passed over, as diffusers does.
func Read(file string, text []byte) (Scheduler, error) {
	f := diffusers.New(file)
	raw := f.Object(text, "give the scheduler_config.json of a diffusers folder")
	if f.Any() {
		return nil, f.Err()
	}
	var class string
	_ = json.Unmarshal(raw["_class_name"], &class) // where it is none, Class says so
	for why, classes := range refusals {
		if slices.Contains(strings.Fields(classes), class) {
			f.Add("_class_name", "train another model: this one's denoiser does not learn by a scheduler that is read here",
				"%s %s", class, why)
			return nil, f.Err()
		}
	}
	if class = f.Class(raw, "scheduler", Classes()); class == "" {
		return nil, f.Err()
	}
	s := New(class)
	if f.Fill(s, raw, knownKeys(), "no scheduler"); !f.Any() {
		s.check(f)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// knownKeys are the keys of all schedulers.
func knownKeys() []string {
	known := slices.Clone(foreign)
	for _, class := range Classes() {
		known = append(known, diffusers.Keys(New(class))...)
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// Marshal writes a scheduler as scheduler_config.json, as diffusers does: all keys in order, two spaces, and
// whole numbers of a float's key with a point. Read gives back an equal one.
func Marshal(s Scheduler) []byte { return diffusers.Marshal(s.Class(), s) }
