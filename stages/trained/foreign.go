package trained

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// Dropped are entries of a checkpoint that are not taken over.
type Dropped struct {
	Why   string
	Names []string
}

// String says what was dropped, by at most three names.
func (d Dropped) String() string {
	some := strings.Join(d.Names[:min(3, len(d.Names))], ", ")
	if len(d.Names) > 3 {
		some += ", …"
	}
	return fmt.Sprintf("%d entries are dropped, %s: %s", len(d.Names), d.Why, some)
}

// prefixes are what programs put before the names of a model's parameters.
var prefixes = []string{"", "model.", "module.", "state_dict.", "app.", "model.module.", "app.model.",
	"_orig_mod.", "model._orig_mod."}

// unweighted are beginnings of names of what a training keeps beside the model, and what that is.
var unweighted = []struct{ prefix, why string }{
	{"optimizer.", "state of the optimizer"}, {"optim.", "state of the optimizer"},
	{"optimizers.", "state of the optimizer"}, {"app.optimizer.", "state of the optimizer"},
	{"app.optim.", "state of the optimizer"}, {"lr_scheduler.", "state of the schedule"},
	{"dataloader.", "place in the data"}, {"train_state.", "state of the training"},
}

// Named shows those tensors of src that are the model's of a Hugging Face directory's config.json, by its
// names: what programs put before them is found out. Every other tensor is one that training keeps beside a
// model and is dropped, or an error; so is one that the model lacks. path names the source.
func Named(src checkpoint.Source, path, dir string) (checkpoint.Source, []Dropped, error) {
	c, err := configs.ReadModel(dir)
	if err != nil {
		return nil, nil, err
	}
	m, err := build(c)
	if err != nil {
		return nil, nil, err
	}
	have := map[string]bool{}
	for _, t := range src.Tensors() {
		have[t.Name] = true
	}
	wanted := m.HFShapes()
	best, most := "", -1
	for _, p := range prefixes {
		n := 0
		for _, t := range wanted {
			if have[p+t.Name] {
				n++
			}
		}
		if n > most {
			best, most = p, n
		}
	}
	from, dropped := map[string]string{}, map[string][]string{}
	for _, t := range src.Tensors() {
		if why := notWeight(t.Name); why != "" && !slices.ContainsFunc(wanted, func(w checkpoint.Info) bool {
			return best+w.Name == t.Name
		}) {
			dropped[why] = append(dropped[why], t.Name)
			continue
		}
		name, ok := strings.CutPrefix(t.Name, best)
		if !ok {
			name = t.Name
		}
		from[name] = t.Name
	}
	out := checkpoint.Renamed(src, from)
	if _, err := m.OpenWeights(out, path); err != nil {
		return nil, nil, err
	}
	var list []Dropped
	for _, x := range unweighted {
		if names := dropped[x.why]; len(names) > 0 {
			list = append(list, Dropped{x.why, names})
			delete(dropped, x.why)
		}
	}
	return out, list, nil
}

// notWeight says what a tensor is that training keeps beside a model, "" for none of that.
func notWeight(name string) string {
	for _, x := range unweighted {
		if strings.HasPrefix(name, x.prefix) {
			return x.why
		}
	}
	return ""
}

// WriteFolder copies a source to a Hugging Face directory, with the files beside the weights of another.
// A type is that which config.json is to name.
func WriteFolder(dst string, src checkpoint.Source, sides string, f Form) error {
	if _, err := checkpoint.CopySideFiles(sides, dst); err != nil {
		return err
	}
	if f.DType != "" && machine.Exists(filepath.Join(dst, "config.json")) {
		if err := retype(filepath.Join(dst, "config.json"), LongName(f.DType)); err != nil {
			return err
		}
	}
	return checkpoint.BuildDir(f.Journal, dst, checkpoint.Finite(src), f.shard())
}

// retype makes a config.json name a type of weights.
func retype(path, dtype string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	for _, key := range []string{"torch_dtype", "dtype"} {
		if _, has := keys[key]; has {
			keys[key] = json.RawMessage(fmt.Sprintf("%q", dtype))
		}
	}
	return writeKeys(path, keys)
}
