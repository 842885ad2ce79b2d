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

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
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
	b, err := os.ReadFile(filepath.Join(dir, preprocessor+".json"))
	if err != nil {
		return nil, exit.Usagef("%s has no statistics that actions are scaled by: %v; open the checkpoint of a "+
			"run, or a folder that lerobot wrote", dir, err)
	}
	var p policySteps
	if err = json.Unmarshal(b, &p); err == nil {
		err = x.robotIn(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.json: %w", preprocessor, err)
	}
	for _, s := range p.Steps {
		bare := s.State == "" && x.leaves(s.Config.Modes) // which takes no statistics
		if s.Name != normalizer || filepath.Base(s.State) != s.State && !bare {
			continue
		}
		if x.Policy.Cameras, err = camerasIn(s.Config.Features); err != nil {
			return nil, fmt.Errorf("%s.json: features: %w", preprocessor, err)
		}
		if err := x.ordered(dir); err != nil {
			return nil, err
		}
		if err := x.scaled(dir, s.State, s.Config.Modes); err != nil {
			return nil, fmt.Errorf("%s: %w", cmp.Or(s.State, preprocessor+".json"), err)
		}
		if err := x.scaledBehind(dir, s.Config.Modes); err != nil {
			return nil, err
		}
		if len(x.Scale.Action.Mid) == 0 {
			return nil, fmt.Errorf("%s.json and %s.json: there are no statistics of actions", preprocessor,
				postprocessor)
		}
		x.Policy.Normalize = normOf(s.Config.Modes["STATE"])
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

// robotIn finds in a pipeline which robot acts: the first one where it does not say.
func (x *Robots) robotIn(pipeline []byte) error {
	var p struct {
		Steps []struct {
			Name   string                     `json:"registry_name"`
			Config map[string]json.RawMessage `json:"config"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(pipeline, &p); err != nil {
		return err
	}
	r := x.D.Words.Robot
	for _, s := range p.Steps {
		value := s.Config[r.Key]
		if r.Step == "" || s.Name != r.Step || value == nil {
			continue
		}
		var name string
		numbers := map[string]json.RawMessage{name: value}
		if r.Tag != "" {
			if json.Unmarshal(s.Config[r.Tag], &name) != nil || json.Unmarshal(value, &numbers) != nil {
				return fmt.Errorf("%s: %s: %s is no name, or %s no numbers by names", r.Step, r.Tag,
					s.Config[r.Tag], r.Key)
			}
		}
		err := json.Unmarshal(numbers[name], &x.robot)
		if err != nil || x.robot < 0 || int(x.robot) >= x.D.Robots {
			return fmt.Errorf("%s: %s: robot %s, and the model has weights for %d", r.Step, r.Key,
				cmp.Or(string(numbers[name]), name), x.D.Robots)
		}
	}
	return nil
}

// policySteps are a pipeline's steps in lerobot's file of it.
type policySteps struct {
	Steps []struct {
		Name   string `json:"registry_name"`
		Config struct {
			Features json.RawMessage   `json:"features"`
			Modes    map[string]string `json:"norm_map"`
		} `json:"config"`
		State string `json:"state_file"`
	}
}

// scaledBehind takes the scale of actions from what makes them of the model's numbers, where what comes before
// the model leaves them as they are: lerobot's LingBot-VA has it there alone.
func (x *Robots) scaledBehind(dir string, before map[string]string) error {
	b, err := os.ReadFile(filepath.Join(dir, postprocessor+".json"))
	if before["ACTION"] != normModes["identity"] || x.paints() || errors.Is(err, fs.ErrNotExist) {
		return nil // where there is no such file, actions are as they are
	}
	if err != nil {
		return fmt.Errorf("the scale of actions: %w", err)
	}
	var p policySteps
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("%s.json: %w", postprocessor, err)
	}
	for _, s := range p.Steps {
		if s.Name != unnormalizer || filepath.Base(s.State) != s.State || s.State == "" {
			continue
		}
		behind := *x
		if err := behind.scaled(dir, s.State, map[string]string{"STATE": before["ACTION"],
			"ACTION": s.Config.Modes["ACTION"]}); err != nil {
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
	if mode != "MEAN_STD" {
		return fmt.Errorf("norm_map: VISUAL is scaled by %q, and pictures are read by MEAN_STD", mode)
	}
	for _, c := range x.Policy.Cameras {
		mean, deviation := have[c+".mean"], have[c+".std"]
		if len(mean) != 3 || len(deviation) != 3 {
			return fmt.Errorf("%s has no mean and std of three colours", c)
		}
		x.colour = append(x.colour, [2][3]float64{[3]float64(mean), [3]float64(deviation)})
	}
	return nil
}
