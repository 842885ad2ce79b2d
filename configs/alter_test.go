package configs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/megatron"
	"github.com/lfactor/lfactor/configs/source"
)

// loongFiles are the model files of a tree in LoongForge's layout that are accepted.
func loongFiles(t *testing.T, tree string) (files []string) {
	require.NoError(t, filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" && LoongFile(path) {
			if _, err := Compose(Request{File: path}); err == nil {
				files = append(files, path)
			}
		}
		return err
	}))
	return files
}

// leaves lists the paths of values below a node, with the values.
func leaves(n *hydra.Node, path string, out map[string]*yaml.Node) {
	for _, name := range n.Keys {
		kid, at := n.Kids[name], strings.TrimPrefix(path+"."+name, ".")
		if kid.Kids != nil {
			leaves(kid, at, out)
		} else {
			out[at] = kid.Value
		}
	}
}

// others are values that differ from one, in the form of an override.
func others(v *yaml.Node) []string {
	if v.Kind == yaml.SequenceNode {
		return []string{"[1, 1]", "[]"}
	}
	if v.Tag == "!!null" {
		return nil
	}
	switch low := strings.ToLower(v.Value); low {
	case "true":
		return []string{"false"}
	case "false":
		return []string{"true"}
	}
	if x, err := strconv.ParseFloat(v.Value, 64); err == nil {
		return []string{strconv.FormatFloat(2*x+3, 'g', -1, 64)}
	}
	return []string{v.Value + "x"}
}

func lastWord(key string) string { return key[strings.LastIndex(key, ".")+1:] }

// quiet is a sink for a tree that is composed to be looked at.
type quiet struct{ source.Sink }

func (quiet) Faults() int                                { return 0 }
func (quiet) Fail(source.Origin, string, string, string) {}
func (quiet) Report(error)                               {}
func (quiet) Note(string)                                {}

// TestAlterEveryKey alters each value of each accepted model file of LoongForge's: it must be refused, or
// change the configuration, or be named in a note. LFACTOR_LOONGFORGE names a clone whose files are gone
// through too; of those here, each key of a class is altered once.
func TestAlterEveryKey(t *testing.T) {
	trees := []string{"testdata/loong/configs/models/"}
	if clone := os.Getenv("LFACTOR_LOONGFORGE"); clone != "" {
		trees = append(trees, filepath.Join(clone, "configs/models"))
	}
	for _, tree := range trees {
		files := loongFiles(t, tree)
		require.NotEmpty(t, files)
		n, seen := 0, map[string]bool{}
		for _, file := range files {
			base, err := Compose(Request{File: file})
			require.NoError(t, err)
			all := map[string]*yaml.Node{}
			h := hydra.Compose(quiet{}, nil, file, nil)
			h.Resolve()
			leaves(h.Tree, "", all)
			for _, key := range source.SortedKeys(all) {
				for _, value := range others(all[key]) {
					arg := key + "=" + value
					if class := all[strings.TrimSuffix(key,
						lastWord(key))+"_target_"]; tree == "testdata/loong/configs/models/" && class != nil {
						if seen[class.Value+arg] { // the same key of the same class, in another file
							continue
						}
						seen[class.Value+arg] = true
					}
					n++
					c, err := Compose(Request{File: file, Args: []string{arg}})
					if err != nil {
						continue
					}
					named := slices.ContainsFunc(c.Notices, func(s string) bool {
						return strings.Contains(s, key) && !strings.Contains(s, "overrules")
					})
					if !named && maps.Equal(base.Flat(), c.Flat()) && base.VocabUnit == c.VocabUnit {
						t.Errorf("%s: %s is swallowed", file, arg)
					}
				}
			}
		}
		t.Logf("%s: %d files, %d altered values", tree, len(files), n)
	}
}

// TestAlterEveryFlag gives each flag that a launch script may have, and two values of it: they must be told
// apart by the configuration, or one be refused, or a note must name the flag.
func TestAlterEveryFlag(t *testing.T) {
	load := func(args ...string) (*Config, error) {
		return Load(Request{Args: append([]string{"--model-name", "llama2-7b", "--data-path", "x",
			"--train-iters", "20"}, args...)})
	}
	base, err := load()
	require.NoError(t, err)
	told := func(c *Config, err error, name string) bool {
		return err != nil || !maps.Equal(base.Flat(), c.Flat()) ||
			slices.ContainsFunc(c.Notices, func(s string) bool { return strings.Contains(s, "--"+name) })
	}
	for _, name := range knownFlags() {
		if name == "model-name" || name == "data-path" || name == "train-iters" {
			continue // of the base itself
		}
		values := [][]string{nil, {"3"}, {"0.25"}, {"other"}}
		if k := table().byFlag[name]; k != nil {
			for _, v := range k.OneOf {
				values = append(values, []string{v})
			}
			for v := range k.from {
				values = append(values, []string{v})
			}
		}
		if only := megatron.OnlyFlags[name]; only != nil {
			values = [][]string{{only.Values[0]}, {"other"}}
		}
		n, accepted := 0, 0
		for _, v := range values {
			c, err := load(append([]string{"--" + name}, v...)...)
			if told(c, err, name) {
				n++
			}
			if err == nil {
				accepted++
			}
		}
		require.NotZero(t, n, "--%s is swallowed", name)
		if megatron.IdleFlags[name] {
			require.Equal(t, n, len(values), "--%s without a note", name)
			require.NotZero(t, accepted, name)
		}
	}
}
