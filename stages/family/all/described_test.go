package all

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/decoders"
)

// reed is a description of a user's own; its golden data are among those of families.
func reed(t *testing.T) string {
	text, err := os.ReadFile("../testdata/reed/description.yaml")
	require.NoError(t, err)
	return string(text)
}

// TestDescribedFaults: what a description says that cannot be is refused at its line, and nothing is entered.
func TestDescribedFaults(t *testing.T) {
	whole := reed(t)
	for _, c := range []struct{ from, to, line, why string }{
		{"model_type: reed", "model_type: Reed", ":3:", "want a name of one's own"},
		{"model_type: reed", "model_type: llama", ":3:", "llama is a family that lfactor has"},
		{"like: llama", "like: lama", ":4:", `like: "lama" is no other described family`},
		{"like: llama", "like: reed", ":4:", `like: "reed" is no other described family`},
		{"config:", "loong: [{class: X}]\nconfig:", ":5:", "classes of LoongForge are of its own families"},
		{"  class:", "  klass:", ":6:", `"config.klass" is no key of a description`},
		{"sinks: true", "sink: true", ":18:", `"layers.attention.sink" is no key`},
		{"sinks: true", "sinks: 3", ":18:", "cannot unmarshal"},
		{"mlps: [plain]", "mlps: [plane]", ":16:", `layers.mlps: "plane" is no kind: one of experts, gated, plain`},
		{"mixers: [sliding_attention, s", "mixers: [windowed, s", ":15:", `"windowed" is no kind`},
		{"sliding_window, layer_types]", "layer_types]", ":15:", "layers.mixers needs sliding_window among config.optional"},
		{"mlps: [plain]", "experts: {normalize: 1}", ":16:", "layers.experts needs num_experts among config.optional"},
		{"mlps: [plain]", "experts: {dense: some}", ":16:", "layers.experts.dense: want first, steps or interval"},
		{"scale: sqrt(hidden_size)", "scale: sqrt(hidden)", ":19:", `"sqrt(hidden)" is no number and no key of numbers`},
		{"scale: 1/sqrt(hidden_size)", "scale: 1/act", ":20:", `"1/act" is no number`},
		{"  flat: .sinks", "  further_tokens: behind", ":23:", "want behind_last or beside"},
		{"  flat: .sinks", "  joined: [{tensor: x, parts: [o_proj]}]", ":23:", `"o_proj" is no part`},
		{"\nlayers:", "\nrules: [windows]\nlayers:", ":12:", `"windows" is no rule`},
		{"\nlayers:", "\nlayers: [", "", "is no YAML"},
		{"hidden_size: 64", "hidden_size: big", "", `hidden_size: "big" is text`},
	} {
		text := strings.Replace(whole, c.from, c.to, 1)
		require.NotEqual(t, whole, text, c.from)
		file := filepath.Join(t.TempDir(), "mine.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := configs.Load(configs.Request{Args: []string{"model.description=" + file, "data.paths=[/nowhere]",
			"data.tokenizer=/nowhere"}})
		require.ErrorContains(t, err, "mine.yaml"+c.line, c.to)
		require.ErrorContains(t, err, c.why, c.to)
	}
	_, err := configs.Load(configs.Request{Args: []string{"model.description=/nowhere/mine.yaml", "data.paths=[x]"}})
	require.ErrorContains(t, err, "model.description")
	_, err = configs.Load(configs.Request{File: "run.yaml", Text: []byte("model:\n  description: |\n    model_type: 3\n    x: 4\n"),
		Args: []string{"data.paths=[x]"}})
	require.ErrorContains(t, err, `run.yaml:2: model.description: line 2 of the text: "x" is no key`)
}

// TestDescribedFirst: of several faults the same is told first each time, and a model without a class exports none.
func TestDescribedFirst(t *testing.T) {
	text := strings.NewReplacer("\n  fixed:", "\n  most: {mist: 1}\n  usual: {usul: 1}\n  alias: {a: alius}\n  fixed:").Replace(reed(t))
	file := filepath.Join(t.TempDir(), "mine.yaml")
	load := func(text string) (*configs.Config, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return configs.Load(configs.Request{Args: []string{"model.description=" + file, "data.paths=[/nowhere]",
			"data.tokenizer=/nowhere"}})
	}
	for range 20 {
		_, err := load(text)
		require.ErrorContains(t, err, `config.alias: "alius" is no key of model.overrides`)
	}
	text = strings.NewReplacer("model_type: reed", "model_type: unclassed", "  class: ReedForCausalLM\n", "").Replace(reed(t))
	c, err := load(text)
	require.NoError(t, err)
	require.NotContains(t, string(c.Model.HFConfig("float32")), "architectures")
}

// TestDescribedRecord: a record of a run has the description's text, which gives the same model where the file is not,
// and a changed description is another architecture.
func TestDescribedRecord(t *testing.T) {
	load := func(text string) *configs.Config {
		c, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text)})
		require.NoError(t, err)
		return c
	}
	const rest = ", overrides: {num_hidden_layers: 3}}\ndata: {paths: [/nowhere], tokenizer: /nowhere}\n"
	c := load("model: {description: ../testdata/reed/description.yaml" + rest)
	again := load(string(c.YAML()))
	require.Equal(t, reed(t), again.Model.Description)
	require.Equal(t, c.Model.Identity(), again.Model.Identity())
	m, err := family.Build(again.Model, 8)
	require.NoError(t, err)
	require.Equal(t, []string{"sliding_attention", "sliding_attention", "full_attention"}, m.Spec.Mixers)
	require.True(t, m.Spec.NoRope(2))
	require.False(t, m.Spec.NoRope(1))
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(reed(t), "sqrt(hidden_size)", "2", 1)), 0o600))
	other := load("model: {description: " + file + rest)
	require.NotEqual(t, c.Model.Identity(), other.Model.Identity())
	m, err = family.Build(again.Model, 8) // the family by its name is the other one now
	require.NoError(t, err)
	require.Equal(t, 8.0, m.Spec.EmbedScale)
	m, err = family.Build(other.Model, 8)
	require.NoError(t, err)
	require.Equal(t, 2.0, m.Spec.EmbedScale)
}

// TestDescribedPage: the page of descriptions has the one that is tested, and names every key that one may have.
func TestDescribedPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/descriptions.md")
	require.NoError(t, err)
	require.Contains(t, string(page), reed(t))
	for _, key := range keysOf(reflect.TypeFor[decoders.Description](), "") {
		if !strings.HasPrefix(key, "loong") { // of lfactor's own families
			require.True(t, strings.Contains(string(page), key[strings.LastIndexByte(key, '.')+1:]), key)
		}
	}
}

// TestDescribedDrawn: descriptions with lines that are lost, doubled, taken from other families or altered are refused or
// give a model; none ends the program.
func TestDescribedDrawn(t *testing.T) {
	files, err := filepath.Glob("../decoders/described/*.yaml")
	require.NoError(t, err)
	var lines []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, l := range strings.Split(string(text), "\n") {
			if !strings.HasPrefix(l, "#") && !strings.HasPrefix(l, "model_type") {
				lines = append(lines, l)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	built, refused := 0, 0
	for i := range 600 {
		text := strings.Split(reed(t), "\n")
		if i%2 == 0 { // another family under a name of one's own
			other, err := os.ReadFile(files[rng.IntN(len(files))])
			require.NoError(t, err)
			text = strings.Split(regexp.MustCompile(`(?m)^model_type: .*`).ReplaceAllString(string(other), "model_type: mine"), "\n")
		}
		for range rng.IntN(4) {
			at, line := rng.IntN(len(text)), lines[rng.IntN(len(lines))]
			switch rng.IntN(4) {
			case 0:
				text = slices.Delete(text, at, at+1)
			case 1:
				text = slices.Insert(text, at, line)
			case 2:
				text[at] = line
			default:
				text[at] = strings.NewReplacer("1", "0", "true", "false", ": 4", ": -1", "layer", "bare").Replace(text[at])
			}
		}
		file := filepath.Join(t.TempDir(), "mine.yaml")
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(text, "\n")), 0o600))
		c, err := configs.Load(configs.Request{Args: []string{"model.description=" + file, "data.paths=[/nowhere]", "data.seq_len=8",
			"data.tokenizer=/nowhere", "model.overrides.num_hidden_layers=2", "model.overrides.vocab_size=32"}})
		if err == nil {
			var m *family.Model
			if m, err = family.Build(c.Model, 8); err == nil {
				built++
				for _, p := range m.Params(nil) {
					m.Source(p.Name)
				}
				continue
			}
		}
		refused++
	}
	t.Logf("%d models, %d refused", built, refused)
	require.Greater(t, built, 100)
	require.Greater(t, refused, 100)
}

// keysOf are all keys of a description, dotted.
func keysOf(t reflect.Type, at string) (all []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if name := t.Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			all = append(all, at+name)
			all = append(all, keysOf(t.Field(i).Type, at+name+".")...)
		}
	}
	return all
}
