package configs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/hf"
)

// testKeys are a part of this package's tests.
type testKeys struct {
	N int   `key:"test_n" default:"7" min:"1" class:"fixed" doc:"A number."`
	L []int `key:"test_l" class:"fixed" doc:"A list."`
}

var testPart = Declare("test", Rules[testKeys]{
	Check: func(_ Model, k testKeys, at Report) {
		if k.N == 13 {
			at("test_n", "is 13", "")
		}
	}})

// value is what a model says of one of its keys, as YAML.
func value(m Model, key string) string {
	return formatValue(table().byName[overrides+"."+key].field(nil, &m))
}

// set gives a model that shares its parts with no other another value of a key.
func set(m *Model, key, text string) {
	mustSet(table().byName[overrides+"."+key].field(nil, m), key, text)
}

// TestUnregistered: a program that imports this package alone is told what to import.
func TestUnregistered(t *testing.T) {
	table() // of all families
	all := hf.Families()
	defer hf.Replace(all)
	hf.Replace(nil)
	const why = `import _ "github.com/lfactor/lfactor/stages/family/all"`
	_, err := Load(Request{Args: []string{"model.name=llama/3.2-3b", "data.paths=x"}})
	require.ErrorContains(t, err, why)
	_, err = Compose(Request{File: "configs/models/llama/3.2-3b.yaml"})
	require.ErrorContains(t, err, why)
	_, err = ReadModel("../stages/family/testdata/qwen3")
	require.ErrorContains(t, err, why)
	_, err = Published("llama/3.2-3b")
	require.ErrorContains(t, err, why)
}

// TestPart: a part has its keys' defaults in a model that was read from nothing; what is set in one model
// is not set in a copy of it that was made before; keys of parts are read, checked and refused like others.
func TestPart(t *testing.T) {
	var a Model
	require.Equal(t, testKeys{N: 7}, testPart.Of(a))
	testPart.Set(&a, testKeys{N: 8})
	b := a
	testPart.Set(&b, testKeys{N: 9, L: []int{1}})
	require.Equal(t, []int{8, 9}, []int{testPart.Of(a).N, testPart.Of(b).N})
	require.NotEqual(t, a, b)
	testPart.Set(&a, testKeys{N: 9, L: []int{1}})
	require.Equal(t, a, b)
	for text, why := range map[string]string{
		"0":   "run.yaml:3: model.overrides.test_n: 0, want at least 1",
		"two": `run.yaml:3: model.overrides.test_n: "two", want an integer`,
		"13":  "run.yaml:3: model.overrides.test_n: is 13",
		"8":   "run.yaml:3: model.overrides.test_n: 8, but llama has 7; change model_type or test_n",
	} {
		_, err := Load(Request{File: "run.yaml", Text: []byte("model:\n  overrides:\n    test_n: " + text +
			"\n  name: llama/3.2-3b\ndata:\n  paths: x\n")})
		require.ErrorContains(t, err, why)
	}
	require.PanicsWithValue(t, "configs: part late declared after a configuration was read",
		func() { Declare("late", Rules[struct{}]{}) })
	require.PanicsWithValue(t, "configs: part test declared twice",
		func() { Declare("test", Rules[testKeys]{}) })
}

// TestBiasesOfFlags: Megatron's biases of query, key and value alone are refused for a family that has one
// behind attention with them, and taken for one that has not.
func TestBiasesOfFlags(t *testing.T) {
	load := func(args ...string) (*Config, error) { return Load(Request{Args: append(args, "data.paths=x")}) }
	_, err := load("--model-name", "llama3-8b", "--add-qkv-bias")
	require.ErrorContains(t, err, "llama has biases of query, key and value only with one behind attention")
	c, err := load("--model-name", "llama3-8b", "model.overrides.attention_bias=true")
	require.NoError(t, err)
	require.True(t, c.Model.AttentionBias)
	_, err = load("--model-name", "qwen2.5-7b", "--add-qkv-bias")
	require.NoError(t, err)
}
