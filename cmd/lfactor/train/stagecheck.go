package train

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/stages/fit"
)

const initKey, loadKey = "model.init", "checkpoint.load"

// owned is a key that lfactor stages sets itself.
type owned struct {
	key, value string
	have       func(*configs.Run) any
}

// own are the keys of a stage that are not the user's to set.
func (s *staged) own(n int) []owned {
	in := func(name string) string { return filepath.Join(s.Dir, s.Stages[n].Name, name) }
	keys := []owned{
		{"checkpoint.dir", in("checkpoints"), func(r *configs.Run) any { return r.Checkpoint.Dir }},
		{"checkpoint.save_hf", "true", func(r *configs.Run) any { return r.Checkpoint.SaveHF }},
		{"checkpoint.save_hf_path", in("export"), func(r *configs.Run) any { return r.Checkpoint.SaveHFPath }},
		{"log.dir", in("run"), func(r *configs.Run) any { return r.Log.Dir }},
	}
	if n > 0 { // whatever the first one begins with
		keys = append(keys, owned{initKey, "load", func(r *configs.Run) any { return r.Model.Init }},
			owned{loadKey, s.export(n - 1), func(r *configs.Run) any { return r.Checkpoint.Load }})
	}
	return keys
}

// check holds all stages to what can follow one another.
func (s *staged) check(more []string) error {
	var first *configs.Config
	var want map[string]string
	for n, x := range s.Stages {
		cfg, err := setup.Config(s.Run, "", s.args(n, more)[1:], n == 0)
		if err != nil {
			return fmt.Errorf("stage %s: %w", x.Name, err)
		}
		if err := s.taken(n, cfg); err != nil {
			return err
		}
		if err := setup.Vocabulary(cfg); err != nil && n == 0 {
			return fmt.Errorf("stage %s: %w", x.Name, err)
		} else if err != nil { // its tokenizer may not be there yet
			cfg.Model.Vocab = first.Model.Vocab
		}
		have, err := shapes(cfg)
		if err != nil {
			return fmt.Errorf("stage %s: %w", x.Name, err)
		}
		if n == 0 {
			first, want = cfg, have
		} else if text := differs(want, have); text != "" {
			return exit.Usagef("stage %s has another model than %s, and cannot begin from an export of it: %s; "+
				"set the model in %s, for all stages", x.Name, s.Stages[0].Name, text, s.Run)
		}
	}
	return nil
}

// taken refuses settings that would say otherwise than the stages do.
func (s *staged) taken(n int, cfg *configs.Config) error {
	for _, k := range s.own(n) {
		if have := fmt.Sprint(k.have(&cfg.Run)); have != k.value {
			return exit.Usagef("stage %s: %s=%s: lfactor stages sets it itself, to %s; remove it",
				s.Stages[n].Name, k.key, have, k.value)
		}
	}
	if l := cfg.Run.LoRA; l.Rank > 0 && !l.Merge {
		return exit.Usagef("stage %s: lora.rank=%d: a stage exports whole weights; set lora.merge=true",
			s.Stages[n].Name, l.Rank)
	}
	return nil
}

// shapes are those of a model's parameters, by their names.
func shapes(cfg *configs.Config) (map[string]string, error) {
	m, err := fit.Build(cfg)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	out := map[string]string{}
	for _, p := range m.Params(nil) {
		out[p.Name] = fmt.Sprint(p.Shape)
	}
	return out, nil
}

// differs names a parameter that is in one model alone, or has another shape there; "" where there is none.
func differs(first, later map[string]string) string {
	const none = "not there"
	names := slices.Concat(slices.Collect(maps.Keys(first)), slices.Collect(maps.Keys(later)))
	slices.Sort(names)
	for _, name := range names {
		if a, b := first[name], later[name]; a != b {
			return fmt.Sprintf("%s is %s, and was %s", name, cmp.Or(b, none), cmp.Or(a, none))
		}
	}
	return ""
}
