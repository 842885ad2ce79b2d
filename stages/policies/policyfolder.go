package policies

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// How a folder that lerobot wrote, or an export, says what its policy reads and gives.

// robotsOf reads how a policy's numbers are scaled from the folder that it lies in, as lerobot writes it.
func robotsOf(dir string, cfg *configs.Config, d *family.Denoiser) (*Robots, error) {
	x := &Robots{D: d, Seed: uint64(cfg.Run.Train.Seed), Policy: cfg.Run.Policy, Chunk: d.Chunk, Begin: -1,
		Size: d.Sight.Seen()}
	if err := refuseMotion(&x.Policy); err != nil {
		return nil, err
	}
	steps, err := x.steps(dir, preprocessor)
	if errors.Is(err, fs.ErrNotExist) {
		err = exit.Usagef("%s has no statistics that actions are scaled by: %v; open the checkpoint of a "+
			"run, or a folder that lerobot wrote", dir, err)
	}
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		modes := s.modes()
		bare := s.State == "" && x.leaves(modes) // which takes no statistics
		if s.Name != normalizer || filepath.Base(s.State) != s.State && !bare {
			continue
		}
		if x.Policy.Cameras, err = camerasIn(s.Config["features"]); err != nil {
			return nil, fmt.Errorf("%s.json: features: %w", preprocessor, err)
		}
		if err := x.ordered(dir); err != nil {
			return nil, err
		}
		if err := x.scaled(dir, s.State, modes); err != nil {
			return nil, fmt.Errorf("%s: %w", cmp.Or(s.State, preprocessor+".json"), err)
		}
		if err := x.scaledBehind(dir); err != nil {
			return nil, err
		}
		if len(x.Scale.Action.Mid) == 0 {
			return nil, fmt.Errorf("%s.json and %s.json: there are no statistics of actions", preprocessor,
				postprocessor)
		}
		x.Policy.Normalize = normOf(modes["STATE"])
		x.raw = [2]int{len(x.Scale.State.Mid), len(x.Scale.Action.Mid)}
		if d.Real = len(x.Scale.Action.Mid); d.Sight.Whole() {
			if err := x.whole(cfg); err != nil || !d.Worded() {
				return x, err
			}
			return x, x.words(cfg)
		}
		if n := len(x.Policy.Cameras); n > d.Sight.Cameras() || d.Real > d.Width() {
			return nil, fmt.Errorf("%s.json: %d cameras and actions of %d numbers, and the model has room for %d "+
				"and %d", preprocessor, n, d.Real, d.Sight.Cameras(), d.Width())
		}
		return x, x.words(cfg)
	}
	return nil, fmt.Errorf("%s.json: there is no step %s with a file of statistics", preprocessor, normalizer)
}

// robotIn finds in a step which robot acts: the first one where it does not say.
func (x *Robots) robotIn(s policyStep) error {
	r := x.D.Words.Robot
	value := s.Config[r.Key]
	if r.Step == "" || s.Name != r.Step || value == nil {
		return nil
	}
	var name string
	numbers := map[string]json.RawMessage{name: value}
	if r.Tag != "" {
		if json.Unmarshal(s.Config[r.Tag], &name) != nil || json.Unmarshal(value, &numbers) != nil {
			return fmt.Errorf("%s: %s: %s is no name, or %s no numbers by names", r.Step, r.Tag, s.Config[r.Tag], r.Key)
		}
	}
	err := json.Unmarshal(numbers[name], &x.robot)
	if err != nil || x.robot < 0 || int(x.robot) >= x.D.Robots {
		return fmt.Errorf("%s: %s: robot %s, and the model has weights for %d", r.Step, r.Key,
			cmp.Or(string(numbers[name]), name), x.D.Robots)
	}
	return nil
}

// policyStep is a step of a pipeline in lerobot's file of it.
type policyStep struct {
	Name   string                     `json:"registry_name"`
	Config map[string]json.RawMessage `json:"config"`
	State  string                     `json:"state_file"`
}

// modes are lerobot's names of how each kind of numbers is scaled.
func (s *policyStep) modes() (modes map[string]string) {
	_ = json.Unmarshal(s.Config["norm_map"], &modes) // what is none names no mode, which is refused
	return modes
}

// statesMost bounds the numbers of a state in words; 32 is the default of lerobot's step.
const statesMost, statesUsual = 1024, 32

// steps reads a pipeline. Steps that are not known, and settings that do what is not done here, are refused. Pi0.5's
// prompts have as many numbers of a state as its step says. lerobot's own files leave that to its default; their
// config.json has the key, which exports of before lack, whose runs told the robot's own numbers.
func (x *Robots) steps(dir, file string) ([]policyStep, error) {
	var p struct{ Steps []policyStep }
	b, err := os.ReadFile(filepath.Join(dir, file+".json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	w := x.D.Words
	only := map[string]string{"rename_map": "{}", "eps": fmt.Sprint(least), "padding_side": `"right"`, "truncation": "true",
		"task_key": `"task"`, "normalize_observation_keys": "null", "max_length": fmt.Sprint(cmp.Or(x.D.PromptMost, promptMost))}
	known := append([]string{"rename_observations_processor", "to_batch_processor", "device_processor", "tokenizer_processor",
		normalizer, unnormalizer, w.Step, w.Robot.Step}, w.Behind...)
	for _, s := range p.Steps {
		if !slices.Contains(known, s.Name) {
			err = errors.Join(err, fmt.Errorf("the step %q is not known, and what it does would be missing", s.Name))
		}
		for _, key := range source.SortedKeys(only) {
			want := only[key]
			if value := s.Config[key]; value != nil && !source.SameValue(string(value), want) {
				err = errors.Join(err, fmt.Errorf("%s: %s = %s, and only %s is known", s.Name, key, value, want))
			}
		}
		if w.Scaled && s.Name == w.Step {
			var c map[string]json.RawMessage
			if text, bad := os.ReadFile(filepath.Join(dir, "config.json")); bad == nil {
				_ = json.Unmarshal(text, &c) // whoever reads the model has said what is wrong with it
			}
			if n, bad := strconv.Atoi(string(s.Config["max_state_dim"])); bad == nil && n > 0 && n <= statesMost {
				x.states = n
			} else if value := s.Config["max_state_dim"]; value != nil {
				err = errors.Join(err, fmt.Errorf("%s: max_state_dim = %.40s, want a number up to %d", s.Name, value, statesMost))
			} else if c["max_state_dim"] != nil {
				x.states = statesUsual
			}
		}
		err = errors.Join(err, x.robotIn(s))
	}
	if err != nil {
		return nil, fmt.Errorf("%s.json: %w", file, err)
	}
	return p.Steps, nil
}

// scaledBehind takes the scale of actions from what makes them of the model's numbers, as an acting policy of lerobot
// does: LingBot-VA has it there alone.
func (x *Robots) scaledBehind(dir string) error {
	steps, err := x.steps(dir, postprocessor)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // actions are as they are
	}
	if err != nil {
		return fmt.Errorf("the scale of actions: %w", err)
	}
	for _, s := range steps {
		if s.Name != unnormalizer || filepath.Base(s.State) != s.State || s.State == "" {
			continue
		}
		behind := *x
		behind.Policy.Cameras = nil // its file has no statistics of pictures
		if err := behind.scaled(dir, s.State, map[string]string{"STATE": normModes["identity"],
			"ACTION": s.modes()["ACTION"], "VISUAL": "MEAN_STD"}); err != nil {
			return fmt.Errorf("%s: %w", s.State, err)
		}
		x.Scale.Action = behind.Scale.Action
	}
	return nil
}

// camerasIn are the cameras among features, in their order.
func camerasIn(features json.RawMessage) (out []string, err error) {
	d := json.NewDecoder(bytes.NewReader(features))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var f struct{ Type string }
		if err := d.Decode(&f); err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok && f.Type == "VISUAL" {
			out = append(out, name)
		}
	}
	return out, nil
}

// leaves reports whether modes leave states, actions and pictures as they are.
func (x *Robots) leaves(modes map[string]string) bool {
	none := normModes["identity"]
	return modes["STATE"] == none && modes["ACTION"] == none && !x.paints()
}

// statisticsIn are the statistics in a file of tensors, by their names.
func statisticsIn(path string) (map[string][]float64, error) {
	file, err := checkpoint.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	have := map[string][]float64{}
	for _, t := range file.Tensors() {
		raw := make([]byte, t.Bytes)
		if err := file.ReadInto(t.Name, 0, t.Bytes, raw); err != nil {
			return nil, err
		}
		if t.DType != "F32" {
			continue // counts
		}
		for i := range tensor.Len(t.Shape) {
			have[t.Name] = append(have[t.Name], float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))))
		}
	}
	return have, nil
}

// scaled reads the statistics of a file, "" for none, and makes scales of them, by lerobot's names of modes.
func (x *Robots) scaled(dir, name string, modes map[string]string) (err error) {
	var have map[string][]float64
	if name != "" {
		if have, err = statisticsIn(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		kind, column string
		to           *Affine
	}{{"STATE", stateColumn, &x.Scale.State}, {"ACTION", actionColumn, &x.Scale.Action}} {
		of := func(name string) []float64 { return have[s.column+"."+name] }
		stats := recordings.RobotStats{Min: of("min"), Max: of("max"), Mean: of("mean"), Std: of("std"), Q01: of("q01"),
			Q99: of("q99")}
		how := normOf(modes[s.kind])
		if how == "" {
			return fmt.Errorf("norm_map: %s is scaled by %q, and %v are known", s.kind, modes[s.kind], normModes)
		}
		if *s.to, err = NewAffine(stats, how); err != nil {
			return fmt.Errorf("%s: %w", s.column, err)
		}
	}
	if !x.paints() {
		return nil
	}
	return x.colours(have, modes["VISUAL"])
}

// colours takes the mean and the deviation of each colour from the statistics of the cameras.
func (x *Robots) colours(have map[string][]float64, mode string) error {
	if mode != "MEAN_STD" && mode != "IDENTITY" {
		return fmt.Errorf("norm_map: VISUAL is scaled by %q, and pictures are read by MEAN_STD or IDENTITY", mode)
	}
	for _, c := range x.Policy.Cameras {
		mean, deviation := have[c+".mean"], have[c+".std"]
		if mode == "IDENTITY" { // from 0 to 1
			mean, deviation = make([]float64, 3), []float64{1, 1, 1}
		}
		if len(mean) != 3 || len(deviation) != 3 {
			return fmt.Errorf("%s has no mean and std of three colours", c)
		}
		x.colour = append(x.colour, [2][3]float64{[3]float64(mean), [3]float64(deviation)})
	}
	return nil
}
