package policies

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/trained"
)

// A policy's folder as lerobot keeps it: beside config.json and model.safetensors two pipelines, of what the
// policy reads and of what it gives, with the statistics that numbers are scaled by.

// The columns of lerobot's policies, and the files of their pipelines without their endings.
const (
	stateColumn  = "observation.state"
	actionColumn = "action"

	preprocessor  = "policy_preprocessor"
	postprocessor = "policy_postprocessor"
	normalizer    = "normalizer_processor"
	unnormalizer  = "unnormalizer_processor"
)

// normModes are lerobot's names of policy.normalize.
var normModes = map[string]string{"quantiles": "QUANTILES", "min_max": "MIN_MAX", "mean_std": "MEAN_STD",
	"identity": "IDENTITY"}

// normOf is what policy.normalize calls one of lerobot's modes, "" for one that is not known.
func normOf(mode string) string {
	for ours, theirs := range normModes {
		if theirs == mode {
			return ours
		}
	}
	return ""
}

const mute = "the model is a policy of a robot: it acts (docs/policies.md), and neither speaks nor draws"

// The task of policies of robots that give numbers.
var _ = trained.Register(trained.Task{Name: "policy", Library: "lerobot",
	Owns: func(m *family.Model) bool { return m.Denoiser != nil && m.Denoiser.Sight != nil && !m.Denoiser.Hosted },
	Mute: mute, Export: exportPolicy, Adapters: diffusion.ExportAdapters, Beside: exportTokenPolicy, Notes: notes,
	Settings: tokenPolicyConfig, Shows: shows})

// A policy that a vision-language model hosts is kept as transformers keeps that model.
var _ = trained.Register(trained.Task{Name: "hosted policy", Owns: hosted, Mute: mute})

// exportPolicy writes a policy of a robot as lerobot keeps it, with the tokenizer of what it is told.
func exportPolicy(e *trained.Exporter, dst string) error {
	d := e.Model.Denoiser
	if err := refuseMotion(&e.Cfg.Run.Policy); err != nil {
		return err
	}
	x, err := robotsOfRun(e.Cfg, d, e.Saved)
	if err != nil {
		return err
	}
	// before the model's files: its writer takes files of the model's names for its own
	if err := x.pipelines(dst); err != nil {
		return err
	}
	stem := checkpoint.Stem
	if d.Worded() { // which diffusers loads
		stem = checkpoint.DiffusersStem
	}
	sink, err := checkpoint.NewWriterOf(stem, dst, e.Model.HFTensors(e.DType), trained.ShardBytes)
	if err != nil {
		return err
	}
	if err := e.Model.Export(sink, e.DType, e.Value); err != nil {
		_ = sink.Abort() // the first error is the one to report
		return err
	}
	var config map[string]any
	if err := json.Unmarshal(e.Cfg.Model.HFConfig(trained.LongName(e.DType(""))), &config); err != nil {
		return err
	}
	config["input_features"], config["output_features"] = x.reads(), x.gives()
	config["normalization_mapping"] = x.modes()
	if dir := imageEncoder(e.Cfg); d.ImageKey != "" && dir != "" {
		config[d.ImageKey] = dir
	}
	if d.Sight.Whole() { // what follows from the features; lerobot refuses keys that it does not know
		x.follows(config, encoders(e.Cfg, d.Worded()))
	}
	if dir := cmp.Or(e.Cfg.Run.Data.Tokenizer, e.Cfg.Run.Model.Path); !d.Sight.Whole() || d.Worded() {
		if _, err := checkpoint.CopySideFiles(dir, dst); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dst, "config.json"), config)
}

// follows sets what of a policy that reads views whole follows from its features, and from the folder of its encoders.
func (x *Robots) follows(config map[string]any, encoders string) {
	keys := []string{"in_channels", "state_size", "views", "view_height", "view_width"}
	from, to := x.given()
	if d := x.D; d.Clip != nil {
		if keys = []string{"views"}; d.Worded() { // whose files have no features
			keys = nil
		}
		set := func(key string, v any, there bool) {
			if key != "" && there {
				config[key] = v
			}
		}
		used := make([]int, len(x.Scale.Action.Mid))
		for i := range used {
			used[i] = i
		}
		set(d.EncodersKey, encoders, encoders != "")
		set(d.CamerasKey, x.Policy.Cameras, true)
		set(d.NumbersKey, used, true)
	} else {
		config["pretrained_backbone_weights"] = nil
	}
	for _, key := range keys {
		delete(config, key)
	}
	if !x.draws() && !x.D.Sight.Plain { // a clip says how many actions there are, and VQ-BeT's chunk
		config["n_action_steps"] = to - from
	}
}

// writeJSON writes a value for people to read.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// named is a mapping whose keys have an order, which lerobot takes for that of cameras where a policy does
// not sort them or name them itself.
type named []struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler.
func (n named) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, x := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(x.key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		b.Write(append(append(k, ':'), v...))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// add adds a feature.
func (n *named) add(key, kind string, shape ...int) {
	*n = append(*n, struct {
		key   string
		value any
	}{key, map[string]any{"type": kind, "shape": shape}})
}

// reads and gives are the features of a policy, of which normalization_mapping says how each kind is scaled.
func (x *Robots) reads() (out named) {
	out.add(stateColumn, "STATE", len(x.Scale.State.Mid))
	for _, c := range x.Policy.Cameras {
		out.add(c, "VISUAL", 3, x.Size[0], x.Size[1])
	}
	return out
}

func (x *Robots) gives() (out named) {
	out.add(actionColumn, "ACTION", len(x.Scale.Action.Mid))
	return out
}

func (x *Robots) modes() map[string]string {
	how := normModes[x.Policy.Normalize]
	modes := map[string]string{"VISUAL": "IDENTITY", "STATE": how, "ACTION": how}
	if x.paints() && !x.D.Sight.Plain {
		modes["VISUAL"] = "MEAN_STD"
	}
	return modes
}

// paints reports whether pixels are brought to the mean and the deviation of each colour.
func (x *Robots) paints() bool { return x.D.Sight.Whole() && x.D.Clip == nil }

// pipelines writes both pipelines and their statistics.
func (x *Robots) pipelines(dst string) error {
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return err
	}
	type step struct {
		Name   string         `json:"registry_name"`
		Config map[string]any `json:"config"`
		State  string         `json:"state_file,omitempty"`
	}
	device := step{Name: "device_processor", Config: map[string]any{"device": "cpu", "float_dtype": nil}}
	scale := func(pipeline string, at int, name string, features named) step {
		return step{Name: name, Config: map[string]any{"eps": least, "features": features, "norm_map": x.modes()},
			State: fmt.Sprintf("%s_step_%d_%s.safetensors", pipeline, at, name)}
	}
	before := []step{{Name: "rename_observations_processor", Config: map[string]any{"rename_map": map[string]any{}}},
		{Name: "to_batch_processor", Config: map[string]any{}}}
	scaled := func() {
		before = append(before, scale(preprocessor, len(before), normalizer, append(x.reads(), x.gives()...)))
	}
	w := x.D.Words
	if w.Scaled {
		scaled()
	}
	if w.Step != "" {
		before = append(before, step{Name: w.Step, Config: x.robotConfig(w.Step)})
	}
	if w.Tokenizer != "" {
		before = append(before, step{Name: "tokenizer_processor",
			Config: map[string]any{"max_length": cmp.Or(x.D.PromptMost, promptMost), "task_key": "task",
				"padding_side": "right", "padding": w.Padding, "truncation": true, "tokenizer_name": w.Tokenizer}})
	}
	for _, name := range w.Behind {
		before = append(before, step{Name: name, Config: x.robotConfig(name)})
	}
	if before = append(before, device); !w.Scaled {
		scaled()
	}
	if name := w.Robot.Step; name != "" && !slices.Contains(w.Behind, name) {
		before = append(before, step{Name: name, Config: x.robotConfig(name)})
	}
	for name, steps := range map[string][]step{preprocessor: before,
		postprocessor: {scale(postprocessor, 0, unnormalizer, x.gives()), device}} {
		for _, s := range steps {
			if s.State == "" {
				continue
			}
			if err := x.statistics(dst, strings.TrimSuffix(s.State, ".safetensors")); err != nil {
				return err
			}
		}
		err := writeJSON(filepath.Join(dst, name+".json"), map[string]any{"name": name, "steps": steps})
		if err != nil {
			return err
		}
	}
	return nil
}

// statistics writes those of actions, states and pictures to a file of tensors.
func (x *Robots) statistics(dst, stem string) error {
	values := map[string][]float64{}
	var tensors []checkpoint.Info
	put := func(name string, v []float64, shape ...int) {
		if len(v) > 0 {
			values[name] = v
			tensors = append(tensors, checkpoint.Info{Name: name, DType: "F32", Shape: shape, Bytes: int64(4 * len(v))})
		}
	}
	for _, s := range []struct {
		column string
		of     recordings.RobotStats
	}{{actionColumn, x.stats[1]}, {stateColumn, x.stats[0]}} {
		for _, p := range []struct {
			name string
			v    []float64
		}{{"max", s.of.Max}, {"mean", s.of.Mean}, {"min", s.of.Min}, {"q01", s.of.Q01}, {"q99", s.of.Q99},
			{"std", s.of.Std}} {
			put(s.column+"."+p.name, p.v, len(p.v))
		}
	}
	for _, c := range x.Policy.Cameras {
		if x.paints() && !x.D.Sight.Plain {
			put(c+".mean", imageMean[:], 3, 1, 1)
			put(c+".std", imageDeviation[:], 3, 1, 1)
		}
	}
	sink, err := checkpoint.NewWriterOf(stem, dst, tensors, 0)
	if err != nil {
		return err
	}
	for _, t := range tensors {
		var b []byte
		for _, v := range values[t.Name] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
		if err := sink.WriteTensor(t.Name, b); err != nil {
			_ = sink.Abort() // the first error is the one to report
			return err
		}
	}
	return sink.Commit()
}

// robotConfig are the settings of a pipeline's step, which may be the one that says which robot acts.
func (x *Robots) robotConfig(step string) map[string]any {
	r, config := x.D.Words.Robot, map[string]any{}
	if x.D.Words.Scaled && step == x.D.Words.Step { // else lerobot tells Pi0.5 of 32 numbers
		config["max_state_dim"] = max(x.states, len(x.Scale.State.Mid))
	}
	if step != r.Step {
		return config
	}
	maps.Copy(config, r.More)
	if config[r.Key] = x.robot; r.Tag != "" {
		config[r.Tag], config[r.Key] = r.Name, map[string]int32{r.Name: x.robot}
	}
	return config
}
