package policies

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/stages/family"
)

// readPipelines reads what a folder's pipelines say, as robotsOf does.
func readPipelines(dir string, d *family.Denoiser) (*Robots, error) {
	x := &Robots{D: d}
	steps, err := x.steps(dir, preprocessor)
	for _, s := range steps {
		if s.Name == normalizer && err == nil {
			if x.Policy.Cameras, err = camerasIn(s.Config["features"]); err == nil {
				err = x.scaled(dir, s.State, s.modes())
			}
		}
	}
	if err == nil {
		err = x.scaledBehind(dir)
	}
	return x, err
}

// idleSettings are settings of pipelines' steps that do nothing here, with the reason.
var idleSettings = map[string]string{
	"device": "where arithmetic is done", "float_dtype": "the same", "padding": "what is padded is not seen",
	"tokenizer_name": "the folder has its tokenizer",
	"shape":          "the statistics have as many numbers, and config.json says how large pictures are", "name": "a title",
	"type": "of what no policy reads", "VISUAL": "of policies that scale pixels by themselves", "STATE": "actions alone are made behind the model",
}

// TestPipelineLeaves alters each leaf of both pipelines of policies like Pi0.5 and ACT: what is read moves, or the
// folder is refused, or the leaf is listed with the reason. Steps that nobody knows are refused.
func TestPipelineLeaves(t *testing.T) {
	stats := recordings.RobotStats{Min: []float64{-1, -2}, Max: []float64{3, 4}, Mean: []float64{0.5, 1}, Std: []float64{1, 2},
		Q01: []float64{-0.9, -1.9}, Q99: []float64{2.9, 3.9}}
	counts := map[string]int{}
	for name, d := range map[string]*family.Denoiser{
		"pi05": {Policy: family.Policy{Sight: &family.Sight{}, Words: family.Words{Step: "pi05_prepare_state_tokenizer_processor_step",
			Tokenizer: "x", Padding: "max_length", Scaled: true}}},
		"xvla": {Policy: family.Policy{Robots: 3, Sight: &family.Sight{}, Words: family.Words{Tokenizer: "x", Padding: "max_length",
			Behind: []string{"xvla_image_to_float", "xvla_add_domain_id"}, Robot: family.RobotStep{Step: "xvla_add_domain_id", Key: "domain_id"}}}},
	} {
		dir := t.TempDir()
		x := &Robots{D: d, stats: [2]recordings.RobotStats{stats, stats}, Policy: configs.Policy{Cameras: []string{"observation.images.top"}, Normalize: "quantiles"}}
		var err error
		x.Scale.State, err = NewAffine(stats, "quantiles")
		require.NoError(t, err)
		x.Scale.Action = x.Scale.State
		require.NoError(t, x.pipelines(dir))
		base, err := readPipelines(dir, d)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"pi05": 2}[name], base.states)
		for _, file := range []string{preprocessor, postprocessor} {
			path := filepath.Join(dir, file+".json")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			var c any
			require.NoError(t, json.Unmarshal(text, &c))
			altered(c, "", func(leaf string) {
				b, err := json.Marshal(c)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, b, 0o600))
				got, err := readPipelines(dir, d)
				key := strings.Split(leaf, "/")
				if n := len(key); key[n-2] == "shape" {
					key = key[:n-1]
				}
				key = key[len(key)-1:]
				switch {
				case err != nil:
					counts["refused"]++
				case !reflect.DeepEqual(got, base):
					counts["moves"]++
				case slices.ContainsFunc(key, func(k string) bool { return idleSettings[k] != "" }) || key[len(key)-1] == "config": // lerobot refuses keys there
					counts["listed"]++
				default:
					t.Errorf("%s: %s: %s does nothing, and nothing says so", name, file, leaf)
				}
			})
			require.NoError(t, os.WriteFile(path, text, 0o600))
		}
	}
	t.Log(counts)
}

// altered calls f with each leaf of JSON altered.
func altered(v any, at string, f func(leaf string)) {
	set := func(key string, old any, to func(any)) {
		switch x := old.(type) {
		case map[string]any:
			if len(x) > 0 {
				altered(x, at+"/"+key, f)
				return
			}
			to(map[string]any{"a": "b"})
		case []any:
			altered(x, at+"/"+key, f)
			return
		case string:
			to(x + "x")
		case bool:
			to(!x)
		case float64:
			to(x + 1)
		default:
			to(3.0)
		}
		f(at + "/" + key)
		to(old)
	}
	switch x := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			set(k, x[k], func(n any) { x[k] = n })
		}
	case []any:
		for i := range x {
			set(fmt.Sprint(i), x[i], func(n any) { x[i] = n })
		}
	}
}

// TestStateInWords: a policy of lerobot's own folder is told of 32 numbers, as its step's default is; one of an export
// that neither the step nor config.json says a number of is told of the robot's own.
func TestStateInWords(t *testing.T) {
	dir := t.TempDir()
	d := &family.Denoiser{Policy: family.Policy{Sight: &family.Sight{}, Words: family.Words{Step: "words", Scaled: true}}}
	for config, want := range map[string]int{`{}`: 0, `{ }`: 32, `{"max_state_dim": 7}`: 7, `{"max_state_dim": 100000}`: -1,
		`{"max_state_dim": "a"}`: -1} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"),
			[]byte(map[bool]string{true: `{"max_state_dim": 32}`, false: `{}`}[config == "{ }"]), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, preprocessor+".json"),
			[]byte(`{"steps": [{"registry_name": "words", "config": `+config+`}]}`), 0o600))
		x := &Robots{D: d}
		_, err := x.steps(dir, preprocessor)
		if want < 0 {
			require.ErrorContains(t, err, "max_state_dim = ")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, x.states, config)
	}
}
