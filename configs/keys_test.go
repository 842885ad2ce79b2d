package configs

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/configs/megatron"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/stretchr/testify/require"
)

// TestTableIsComplete holds every key to having a sentence, a class, a default that decodes and is allowed,
// and flags that no other table claims.
func TestTableIsComplete(t *testing.T) {
	keys := Keys()
	require.Greater(t, len(keys), 90)
	for _, k := range keys {
		require.Contains(t, []Class{Free, Replan, Fixed}, k.Class, k.Name)
		require.True(t, strings.HasSuffix(k.Doc, "."), "%s: %s", k.Name, k.Doc)
		for _, f := range k.Flags {
			require.False(t, megatron.IdleFlags[f.Name], f.Name)
			require.Nil(t, megatron.OnlyFlags[f.Name], f.Name)
			require.Empty(t, megatron.RefusedFlags[f.Name], f.Name)
		}
		if k.Default == "" {
			continue
		}
		node, err := source.ParseValue(k.Default)
		require.NoError(t, err, k.Name)
		v := reflect.New(k.typ).Elem()
		why, _ := setValue(v, node)
		require.Empty(t, why, k.Name)
		why, _ = k.check(v)
		require.Empty(t, why, k.Name)
	}
	for name := range megatron.IdleFlags {
		require.Nil(t, megatron.OnlyFlags[name], name)
		require.Empty(t, megatron.RefusedFlags[name], name)
	}
}

func TestEveryFlagValueIsAllowed(t *testing.T) {
	for _, k := range Keys() {
		for _, f := range k.Flags {
			if f.Value == "" {
				continue
			}
			v := reflect.New(k.typ).Elem()
			why, _ := setValue(v, source.ScalarNode(f.Value))
			require.Empty(t, why, f.Name)
			why, _ = k.check(v)
			require.Empty(t, why, f.Name)
		}
		for from, to := range k.from {
			v := reflect.New(k.typ).Elem()
			why, _ := setValue(v, source.ScalarNode(to))
			require.Empty(t, why, from)
			why, _ = k.check(v)
			require.Empty(t, why, from)
		}
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{"plan.tp": "plan.tp", "tp": "plan.tp",
		"--seq-length": "data.seq_len", "rotary_base": "model.overrides.rope_theta", "device": "device"} {
		k, err := Find(name)
		require.NoError(t, err)
		require.Equal(t, want, k.Name)
	}
	_, err := Find("dir")
	require.EqualError(t, err,
		"command line: dir: more than one key has this name; one of checkpoint.dir, log.dir")
	_, err = Find("plan.zeroo")
	require.EqualError(t, err, `command line: plan.zeroo: unknown key; did you mean "plan.zero"?`)
	_, err = Find("train.step")
	require.EqualError(t, err, `command line: train.step: unknown key; did you mean "train.steps"?`)
}

func TestExplain(t *testing.T) {
	c, err := Load(Request{File: "r.yaml",
		Text: []byte("model: {name: llama/2-7b}\ndata: {paths: [x]}\nplan:\n  zero: 2\n"),
		Args: []string{"--use-distributed-optimizer", "plan.zero=3"}})
	require.NoError(t, err)
	k, err := Find("zero")
	require.NoError(t, err)
	require.Equal(t, `plan.zero = 1
  set by: --use-distributed-optimizer
  over: 3 from plan.zero=3
  over: 2 from r.yaml:4
plan.zero: integer
  What data-parallel ranks share out: 1 optimizer state, 2 gradients as well, 3 weights as well (arXiv:1910.02054).
  default: 0
  at least 0
  at most 3
  on resume: may change; the plan is made anew
  Megatron: --use-distributed-optimizer means 1
  Megatron: --data-parallel-sharding-strategy
`, c.Explain(k))
}

// TestSchemaNamesEveryKey walks the schema along each key.
func TestSchemaNamesEveryKey(t *testing.T) {
	var root map[string]any
	require.NoError(t, json.Unmarshal(Schema(), &root))
	require.Equal(t, false, root["additionalProperties"])
	for _, k := range Keys() {
		at := root
		for _, part := range strings.Split(k.Name, ".") {
			at = at["properties"].(map[string]any)[part].(map[string]any)
		}
		require.Equal(t, k.Doc, at["description"], k.Name)
		require.Equal(t, k.Default != "", at["default"] != nil, k.Name)
		require.True(t, at["type"] != nil || at["anyOf"] != nil, k.Name)
	}
}

func TestResumeKeepsWhatIsFixed(t *testing.T) {
	load := func(args ...string) *Config {
		c, err := Load(Request{Args: append([]string{"model.name=llama/2-7b", "data.paths=x"}, args...)})
		require.NoError(t, err)
		return c
	}
	saved := load().Flat()
	changes, err := load().Resume(saved)
	require.NoError(t, err)
	require.Empty(t, changes)

	changes, err = load("optimizer.lr=1e-5", "plan.tp=2").Resume(saved)
	require.NoError(t, err)
	require.Equal(t, []Change{{"optimizer.lr", "0.0003", "1e-05", Free}, {"plan.tp", "1", "2", Replan}},
		changes)

	_, err = load("data.seq_len=128", "train.seed=7", "plan.tp=2",
		"model.overrides.num_hidden_layers=2").Resume(saved)
	require.EqualError(t, err, strings.Join([]string{
		"data.seq_len=128: data.seq_len: is 128, the checkpoint was made with 2048; set it back, or " +
			"start a new run in another checkpoint.dir",
		"train.seed=7: train.seed: is 7, the checkpoint was made with 1234; set it back, or start a new " +
			"run in another checkpoint.dir",
		"model.overrides.num_hidden_layers=2: model.overrides.num_hidden_layers: is 2, the checkpoint " +
			"was made with 32; set it back, or start a new run in another checkpoint.dir",
	}, "\n"))

	delete(saved, "train.seed") // written by a version that did not have the key
	saved["train.gone"] = "1"
	changes, err = load("train.seed=7").Resume(saved)
	require.NoError(t, err)
	require.Equal(t, []Change{{"train.gone", "1", "", Free}}, changes)
}

func TestSplitArgs(t *testing.T) {
	own := map[string]bool{"dry-run": false, "o": true, "output": true}
	file, mine, rest := SplitArgs(strings.Fields("run.yaml --dry-run plan.tp=2 -o json --output=x "+
		"--seq-length 5"), own)
	require.Equal(t, "run.yaml", file)
	require.Equal(t, []string{"--dry-run", "-o", "json", "--output=x"}, mine)
	require.Equal(t, []string{"plan.tp=2", "--seq-length", "5"}, rest)
	file, _, rest = SplitArgs([]string{"--seq-length", "5"}, own)
	require.Empty(t, file)
	require.Len(t, rest, 2)
	file, _, _ = SplitArgs([]string{"a=b"}, own)
	require.Empty(t, file)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("lr=3e-4.yaml", nil, 0o600))
	for arg, want := range map[string]string{"lr=3e-4.yaml": "lr=3e-4.yaml", // it is there
		"runs/lr=1.yaml": "runs/lr=1.yaml", // no key has a slash
		"lr=5e-4.yaml":   "", "train.steps=4": "", "++model.x=1": ""} {
		file, _, rest = SplitArgs([]string{arg, "plan.tp=2"}, own)
		require.Equal(t, want, file, arg)
		require.Contains(t, rest, "plan.tp=2")
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "7": 7, "1KiB": 1024, "1.5MiB": 1572864, "80GB": 80e9,
		" 2 TiB ": 2 << 40, "5B": 5} {
		b, err := ParseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, b, text)
		again, err := ParseBytes(b.String())
		require.NoError(t, err)
		require.Equal(t, b, again)
	}
	for _, text := range []string{"", "x", "-1", "1PiB", "NaN", "9e30", "GiB"} {
		_, err := ParseBytes(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "16GiB", Bytes(16<<30).String())
}

func TestEditDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"abc", "abc"}: 0, {"abc", "acb"}: 1,
		{"abc", "ab"}: 1, {"kitten", "sitting"}: 3, {"ca", "abc"}: 3} {
		require.Equal(t, want, source.EditDistance(pair[0], pair[1]), pair)
		require.Equal(t, want, source.EditDistance(pair[1], pair[0]), pair)
	}
}

// TestValuesSurviveWriting holds formatValue to being read back the same, for strings that YAML reads
// as something else.
func TestValuesSurviveWriting(t *testing.T) {
	for _, s := range []string{"", "a b", "true", "1", "1e5", "null", "~", "*x", "&x", "a: b", "a #b", "# b",
		"[x]", "{x}", "é\n\t\"'", "\x1b[2J", "- a", "yes", "2024-01-01", ",", "a,b", "!x", "|", ">"} {
		node, err := source.ParseValue(formatString(s))
		require.NoError(t, err, "%q", s)
		var got string
		why, _ := setValue(reflect.ValueOf(&got).Elem(), node)
		require.Empty(t, why, "%q", s)
		require.Equal(t, s, got)
		list, err := source.ParseValue(formatValue(reflect.ValueOf([]string{s, "x"})))
		require.NoError(t, err, "%q", s)
		require.Len(t, list.Content, 2, "%q", s)
	}
}
