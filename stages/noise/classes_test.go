package noise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// classTable is a table of levels that diffusers has of a class with some keys: ᾱ of its times, or σ of flow matching.
type classTable struct {
	Keys         map[string]any
	Bars, Sigmas []float64
}

// Every class of diffusers 0.42.1 trains and samples, trains, or is refused with a reason; those that are read have
// diffusers' keys, its defaults and its noise; and docs/diffusion.md counts them and names those that only train.
func TestEveryClass(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/classes.json") // by bench/golden/noise_classes.py
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct {
		Keys   map[string]any
		Tables []classTable
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var samples, trains, refused []string
	for _, class := range slices.Sorted(maps.Keys(all)) {
		s := New(class)
		if s == nil {
			_, err := Read("f", []byte(`{"_class_name": "`+class+`"}`))
			if err == nil || strings.Contains(err.Error(), "is unknown") || !strings.Contains(err.Error(), class+" ") {
				t.Errorf("%s is refused without a reason: %v", class, err)
			}
			if len(all[class].Tables) > 0 && !strings.HasPrefix(class, "Flow") { // FlowMap is told two times, FlowMatchLCM names another class
				t.Errorf("%s has a table of noise and is not read", class)
			}
			refused = append(refused, class)
			continue
		}
		holdDefaults(t, s, all[class].Keys)
		for _, table := range all[class].Tables {
			holdLevels(t, class, table)
		}
		if _, err := s.Sampler(Options{Steps: 4}); err != nil && strings.Contains(err.Error(), class+" trains, and its sampler") {
			trains = append(trains, class)
		} else {
			samples = append(samples, class)
		}
	}
	if got, want := len(samples)+len(trains), len(Classes()); got != want {
		t.Errorf("%d classes of diffusers are read, and %d are registered", got, want)
	}
	doc, err := os.ReadFile("../../docs/diffusion.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append(slices.Clone(trains), fmt.Sprintf("%d train and sample, %d train and are refused by name when samples are "+
		"asked for, and %d are refused", len(samples), len(trains), len(refused))) {
		if !strings.Contains(strings.Join(strings.Fields(string(doc)), " "), strings.TrimSuffix(want, "Scheduler")) {
			t.Errorf("docs/diffusion.md does not say %q", want)
		}
	}
}

// holdDefaults holds a class's keys and their defaults to diffusers'; keys of others may be written beside them.
func holdDefaults(t *testing.T, s Scheduler, want map[string]any) {
	t.Helper()
	var have map[string]any
	if err := json.Unmarshal(bytes.ReplaceAll(Marshal(s), []byte("-Infinity"), []byte(`"-Infinity"`)), &have); err != nil {
		t.Fatal(err, string(Marshal(s)))
	}
	for key, v := range want {
		got, ok := have[key]
		if list, empty := got.([]any); empty && len(list) == 0 && v == nil {
			got = nil
		}
		if !ok || fmt.Sprint(got) != fmt.Sprint(v) {
			t.Errorf("%s: %s is %v, and diffusers has %v", s.Class(), key, got, v)
		}
	}
}

// holdLevels holds levels of training to diffusers', of times 0, 1, 250, 500, 750, 998 and 999.
func holdLevels(t *testing.T, class string, want classTable) {
	t.Helper()
	keys := map[string]any{"_class_name": class, "prediction_type": "v_prediction"}
	maps.Copy(keys, want.Keys)
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read("f", text)
	if err != nil && strings.Contains(err.Error(), "prediction_type") {
		delete(keys, "prediction_type")
		text, _ = json.Marshal(keys)
		s, err = Read("f", text)
	}
	if err != nil {
		t.Fatal(err)
	}
	levels, err := s.Levels()
	if err != nil {
		t.Fatal(err)
	}
	table := levels.Table()
	for i, at := range []int{0, 1, 250, 500, 750, 998, 999} {
		switch {
		case want.Bars != nil:
			l := table[len(table)-1-at]
			if off := math.Abs(float64(l.Alpha*l.Alpha) - want.Bars[i]); off > 2e-6*want.Bars[i]+2e-9 {
				t.Errorf("%s: ᾱ of time %d is off by %g of %g", text, at, off, want.Bars[i])
			}
		case math.Abs(float64(table[at].Sigma)-want.Sigmas[i]) > 1e-6:
			t.Errorf("%s: σ of entry %d is %g, want %g", text, at, table[at].Sigma, want.Sigmas[i])
		}
	}
}
