package trained

import (
	"bytes"
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
	"github.com/lfactor/lfactor/dataset/format"
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
		return nil,
			exit.Usagef("%s has no statistics that actions are scaled by: %v; open the checkpoint of a run, or a "+
				"folder that lerobot wrote", dir, err)
	}
	var p policySteps
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("%s.json: %w", preprocessor, err)
	}
	for _, s := range p.Steps {
		if s.Name != normalizer || filepath.Base(s.State) != s.State || s.State == "" {
			continue
		}
		if x.Policy.Cameras, err = camerasIn(s.Config.Features); err != nil {
			return nil, fmt.Errorf("%s.json: features: %w", preprocessor, err)
		}
		if err := x.ordered(dir); err != nil {
			return nil, err
		}
		if err := x.scaled(filepath.Join(dir, s.State), s.Config.Modes); err != nil {
			return nil, fmt.Errorf("%s: %w", s.State, err)
		}
		if err := x.scaledBehind(dir, s.Config.Modes); err != nil {
			return nil, err
		}
		x.raw = [2]int{len(x.Scale.State.Mid), len(x.Scale.Action.Mid)}
		if d.Real = len(x.Scale.Action.Mid); d.Sight.Whole() {
			if err := x.whole(cfg); err != nil || !d.Worded() {
				return x, err
			}
			return x, x.words(cfg)
		}
		if n := len(x.Policy.Cameras); n > d.Sight.Cameras() || d.Real > d.Width() {
			return nil,
				fmt.Errorf("%s.json: %d cameras and actions of %d numbers, and the model has room for %d "+
					"and %d", preprocessor, n, d.Real, d.Sight.Cameras(), d.Width())
		}
		return x, x.words(cfg)
	}
	return nil, fmt.Errorf("%s.json: there is no step %s with a file of statistics", preprocessor,
		normalizer)
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
		if err := behind.scaled(filepath.Join(dir, s.State), map[string]string{"STATE": before["ACTION"],
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

// scaled reads statistics and makes scales of them, by lerobot's names of modes.
func (x *Robots) scaled(path string, modes map[string]string) error {
	file, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer file.Close()
	have := map[string][]float64{}
	for _, t := range file.Tensors() {
		raw := make([]byte, t.Bytes)
		if err := file.ReadInto(t.Name, 0, t.Bytes, raw); err != nil {
			return err
		}
		if t.DType != "F32" {
			continue // counts
		}
		for i := range tensor.Len(t.Shape) {
			have[t.Name] = append(have[t.Name],
				float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))))
		}
	}
	how := map[string]string{}
	for ours, theirs := range normModes {
		how[theirs] = ours
	}
	for _, s := range []struct {
		kind, column string
		to           *Affine
	}{{"STATE", stateColumn, &x.Scale.State}, {"ACTION", actionColumn, &x.Scale.Action}} {
		of := func(name string) []float64 { return have[s.column+"."+name] }
		stats := format.RobotStats{Min: of("min"), Max: of("max"), Mean: of("mean"), Std: of("std"),
			Q01: of("q01"),
			Q99: of("q99")}
		if how[modes[s.kind]] == "" {
			return fmt.Errorf("norm_map: %s is scaled by %q, and %v are known", s.kind, modes[s.kind],
				normModes)
		}
		if *s.to, err = NewAffine(stats, how[modes[s.kind]]); err != nil {
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
