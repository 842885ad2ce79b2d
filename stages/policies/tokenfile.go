package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// Beside the files of a vision-language model that writes actions lies what makes actions of its answers, so
// that the folder acts without the recordings: this program's own file, with the tokenizer of actions and
// the template that it names.
const (
	scribeName     = "action_policy.json"
	scribeFAST     = "action_tokenizer"
	scribeTemplate = "action_template.jinja"
)

// tokenPolicyFile is that file.
type tokenPolicyFile struct {
	Policy   configs.Policy     `json:"policy"`
	Template bool               `json:"template"` // lies beside it
	Robots   []tokenPolicyRobot `json:"robots"`
}

// tokenPolicyRobot is what a data set said of its robot.
type tokenPolicyRobot struct {
	Name    string     `json:"name"`
	Scale   RobotScale `json:"scale"`
	Numbers [2]int     `json:"numbers"` // of a state and of an action, as the robot has them
	Cameras []string   `json:"cameras"`
}

// exportTokenPolicy writes what a policy that writes its actions acts by.
func exportTokenPolicy(e *trained.Exporter, dst string) error {
	c := &e.Cfg.Run
	if c.Policy.Tokens == "none" && !hosted(e.Model) {
		return nil
	}
	tok, conf, err := trained.TokenizerAt(c.Data.Tokenizer, c.Model.Path)
	if err != nil {
		return err
	}
	var s *TokenPolicy
	if hosted(e.Model) {
		var g *HostedPolicy
		if g, err = NewHostedPolicy(e.Cfg, e.Model, tok, conf, e.Saved, nowhere{}); err == nil {
			s = g.TokenPolicy
		}
	} else {
		s, err = NewTokenPolicy(e.Cfg, e.Model, tok, conf, e.Saved, nowhere{})
	}
	if err != nil {
		return err
	}
	f := tokenPolicyFile{Policy: s.Policy}
	for _, r := range s.sets {
		f.Robots = append(f.Robots, tokenPolicyRobot{filepath.Base(r.name), r.scale, r.raw, r.cameras})
	}
	if s.fast != nil {
		f.Policy.Fast = scribeFAST
		if err := s.fast.Save(filepath.Join(dst, scribeFAST)); err != nil {
			return err
		}
	}
	if c.Data.Template != "" {
		t, err := setup.Template(e.Cfg, trained.Marks(tok, e.Cfg.Model.Vision, nowhere{}), conf)
		if err != nil {
			return err
		}
		f.Template = true
		if err := os.WriteFile(filepath.Join(dst, scribeTemplate), []byte(t.Source()), 0o644); err != nil {
			return err
		}
	}
	if dir := c.Data.Tokenizer; dir != "" && dir != e.Side {
		if err := wordsOf(dir, dst); err != nil {
			return err
		}
	}
	const settings = "preprocessor_config.json"
	if dir := c.Data.Processor; dir != "" && !machine.Exists(filepath.Join(dst, settings)) {
		b, err := os.ReadFile(filepath.Join(dir, settings))
		if err == nil {
			err = os.WriteFile(filepath.Join(dst, settings), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dst, scribeName), f)
}

// hosted reports whether a vision-language model hosts a policy.
func hosted(m *family.Model) bool { return m.Denoiser != nil && m.Denoiser.Hosted }

// wordsOf brings the files of a tokenizer's folder to that of a model, whose own configuration stays.
func wordsOf(from, dst string) error {
	between := filepath.Join(dst, ".words")
	names, err := checkpoint.CopySideFiles(from, between)
	for _, name := range names {
		if err == nil && name != "config.json" && name != "generation_config.json" {
			err = os.Rename(filepath.Join(between, name), filepath.Join(dst, name))
		}
	}
	return errors.Join(err, os.RemoveAll(between))
}

// nowhere is where notes go that were told when a run began.
type nowhere struct{}

// Write implements io.Writer.
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// tokenPolicyConfig is the configuration of a policy that writes in a model's folder, nil for another folder.
func tokenPolicyConfig(dir, tokenizer string) (*configs.Config, error) {
	path := filepath.Join(dir, scribeName)
	if !machine.Exists(path) {
		return nil, nil
	}
	f, err := readTokenPolicy(dir)
	if err != nil {
		return nil, exit.With(err, exit.Corrupt)
	}
	cfg, err := configs.ForModel(dir)
	if err != nil {
		return nil, err
	}
	cfg.Run.Policy, cfg.Run.Data.Tokenizer = f.Policy, dir
	if tokenizer != "" {
		cfg.Run.Data.Tokenizer = tokenizer
	}
	if f.Template {
		cfg.Run.Data.Template = filepath.Join(dir, scribeTemplate)
	}
	if f.Policy.Fast != "" {
		cfg.Run.Policy.Fast = filepath.Join(dir, scribeFAST)
	}
	return cfg, nil
}

// readTokenPolicy reads the file in a folder, and holds its numbers together.
func readTokenPolicy(dir string) (f tokenPolicyFile, err error) {
	path := filepath.Join(dir, scribeName)
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	p := &f.Policy
	switch {
	case err != nil:
	case !(p.Tokens == "bins" || p.Tokens == "fast" || p.Tokens == "none" && (p.Expert == "none" || p.Guides())) ||
		len(f.Robots) == 0 || p.Horizon < 1 || p.Horizon > 4096 || p.ViewSize < 8 || p.ViewSize > 4096 ||
		p.TokenEnd < 0 || len(p.Cameras) > p.ViewsMax():
		err = errors.New("it says of no policy what it gives actions as, for which robots")
	case slices.ContainsFunc(f.Robots, func(r tokenPolicyRobot) bool {
		return !r.Scale.sound(r.Numbers)
	}):
		err = errors.New("a robot's numbers have no scale")
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w; export the run again", path, err)
	}
	return f, nil
}

// tokenPolicyRobots are the robots of a policy that writes: of a run's recordings, or of the folder that it lies in.
func tokenPolicyRobots(cfg *configs.Config, d *family.Denoiser, saved *checkpoint.Reader) (*Robots, error) {
	if len(cfg.Run.Data.Paths) > 0 {
		return robotsOfRun(cfg, d, saved)
	}
	f, err := readTokenPolicy(cfg.Run.Model.Path)
	if err != nil {
		return nil, err
	}
	x := &Robots{D: d, Policy: cfg.Run.Policy, Chunk: d.Chunk, Begin: -1, Size: d.Sight.Seen(),
		motion: newMotion(&cfg.Run.Policy)}
	for _, r := range f.Robots {
		x.sets = append(x.sets, &robotSet{name: r.Name, scale: r.Scale, raw: r.Numbers, cameras: r.Cameras})
	}
	x.as(x.sets[0])
	return x, nil
}

// acting is the configuration that a policy acts by, nil for a model that is none.
func acting(m *trained.Trained) *configs.Config {
	if m.Cfg != nil {
		return m.Cfg
	}
	return m.ActsBy
}
