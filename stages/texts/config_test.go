package texts

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/diffusers"
)

// refusals are files that are refused: a class, or none, its keys, and what is said.
const refusals = `
|[]|f:1: no JSON object
|{"a": 1} 2|more text behind
|{}|f: architectures: the file does not say
|{"architectures": ["CLIPModel"]}|f:1: architectures: "CLIPModel" is unknown; one of CLIPText
CLIPTextModel|"model_type": "t5"|f:2: model_type: "t5" is not that of CLIPTextModel; one of clip_text_model
CLIPTextModel|"hiden_size": 1|f:2: hiden_size: CLIPTextModel has no such key; did you mean "hidden_size"?
CLIPTextModel|"d_model": 1|d_model: CLIPTextModel has no such key
CLIPTextModel|"scalable_attention": true|scalable_attention: CLIPTextModel has no such key
CLIPTextModel|"hidden_size": "x"|f:2: hidden_size: "\"x\"" where an integer belongs
CLIPTextModel|"hidden_size": null|hidden_size: null where an integer belongs
CLIPTextModel|"eos_token_id": [1, 2]|eos_token_id: "[1, 2]" where an integer belongs
CLIPTextModel|"hidden_size": 8, "hidden_size": 8|hidden_size: the key is given twice; leave one
CLIPTextModel|"hidden_size": -8|hidden_size: -8 is out of range; set an integer from 1
CLIPTextModel|"hidden_size": 20|num_attention_heads: 8 heads do not share a hidden_size of 20
CLIPTextModel|"hidden_act": "geluu"|hidden_act: "geluu" is unknown; did you mean "gelu"?
CLIPTextModel|"layer_norm_eps": 0|layer_norm_eps: 0 is out of range
CLIPTextModel|"vocab_size": 9|eos_token_id: 49407 is outside of the vocabulary of 9
CLIPTextModelWithProjection|"projection_dim": 0|projection_dim: 0 is out of range
T5EncoderModel|"is_decoder": true|is_decoder: a decoder is no encoder
T5EncoderModel|"feed_forward_proj": "gelu-gated"|feed_forward_proj: "gelu-gated" is unknown
T5EncoderModel|"feed_forward_proj": "gated-gated-gelu"|feed_forward_proj: "gated-gated-gelu"
T5EncoderModel|"dense_act_fn": "gelu_new"|dense_act_fn: "gelu_new" is not that of feed_forward_proj, "relu"
T5EncoderModel|"is_gated_act": true|is_gated_act: true is not what feed_forward_proj "relu" says
UMT5EncoderModel|"relative_attention_max_distance": 8|relative_attention_max_distance: 8 is among
UMT5EncoderModel|"relative_attention_num_buckets": 3|relative_attention_num_buckets: 3 buckets are too few
UMT5EncoderModel|"layer_norm_epsilon": "1e-6"|layer_norm_epsilon: "\"1e-6\"" where a number belongs
UMT5EncoderModel|"d_model": 0, "d_kv": 0|d_kv: 0 is out of range
`

// What a file must not say is refused with its name, line and key.
func TestReadRefuses(t *testing.T) {
	for line := range strings.Lines(strings.TrimSpace(refusals)) {
		part := strings.Split(strings.TrimSpace(line), "|")
		text := part[1]
		if part[0] != "" {
			text = fmt.Sprintf("{\"architectures\": [%q],\n%s}", part[0], part[1])
		}
		_, err := Read("f", []byte(text))
		require.ErrorContains(t, err, part[2], text)
	}
}

// Keys that do nothing here are passed over and written again; dropout gives a note where it is not 0.
func TestIdle(t *testing.T) {
	m, err := Read("f", []byte("{\"architectures\": [\"UMT5EncoderModel\"],\"torch_dtype\": \"bfloat16\",\n"+
		"\"dropout_rate\": 0.1, \"classifier_dropout\": 0.0, \"scalable_attention\": true}"))
	require.NoError(t, err)
	require.Len(t, m.Notes, 1)
	require.Contains(t, m.Notes[0], "f:2: dropout_rate: 0.1 is not used")
	text := string(m.Config("float16"))
	require.Contains(t, text, `"scalable_attention": true`)
	require.Contains(t, text, `"dtype": "float16"`)
	require.NotContains(t, text, "torch_dtype")
}

// The first token may end captions.
func TestFirstEnds(t *testing.T) {
	at, err := sized(t, "CLIPTextModel", `"eos_token_id": 0`).pool([]int32{5, 0, 3, 0})
	require.NoError(t, err)
	require.Equal(t, 1, at)
}

// shows is all that a configuration has an effect on.
func shows(m *Model) string {
	tr := m.Record(grad.Options{}, 3, 1, Take{Norm: true, Pooled: m.Pooled > 0})
	s := fmt.Sprint(tr.Hash(), m.Vocab, m.Most)
	for _, p := range tr.Params {
		s += fmt.Sprint(p.Name, p.Shape)
	}
	if m.Pooled > 0 {
		at, err := m.pool([]int32{2, 49407, 3, 49406})
		s += fmt.Sprint(at, err)
	}
	return s
}

// Every key of every class that is not listed as idle changes what is recorded, or cannot be changed alone.
func TestKeysAct(t *testing.T) {
	for _, c := range Classes() {
		plain := c.fresh().model()
		for i, k := range diffusers.Fields(c.fresh()) {
			changed := c.fresh()
			switch v := diffusers.Fields(changed)[i].Value; v.Kind() {
			case reflect.Int:
				v.SetInt(2 * v.Int())
				if k.Name == "eos_token_id" {
					v.SetInt(49406)
				}
			case reflect.Float64:
				v.SetFloat(2 * v.Float())
			case reflect.String:
				v.SetString("gelu")
			case reflect.Bool:
				v.SetBool(true)
			case reflect.Pointer: // what follows from another key
				x := reflect.New(v.Type().Elem())
				v.Set(x)
				if f := (&faults{diffusers.New("config.json")}); x.Elem().Kind() == reflect.Bool {
					if changed.check(f); f.Err() == nil {
						x.Elem().SetBool(true)
					}
				}
			}
			f := &faults{diffusers.New("config.json")}
			if changed.check(f); f.Err() != nil {
				require.ErrorContains(t, f.Err(), k.Name, c.Name)
				continue
			}
			require.NotEqual(t, shows(plain), shows(changed.model()), "%s: %s", c.Name, k.Name)
		}
	}
}

// Reading never panics, and what it takes can be written and read again.
func FuzzRead(f *testing.F) {
	for _, c := range Classes() {
		for _, s := range c.Sizes {
			f.Add(fmt.Appendf(nil, `{"architectures": [%q], %s}`, c.Name, s.Config))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Read("f", text)
		if err != nil {
			return
		}
		if _, err := Read("g", m.Config("float32")); err != nil {
			t.Errorf("%v of %s", err, m.Config("float32"))
		}
	})
}

// Files with all keys that published ones have are read, and have the published numbers of parameters.
func TestPublished(t *testing.T) {
	claimed := map[int64]bool{}
	for _, c := range Classes() {
		for _, s := range c.Sizes {
			claimed[s.Params] = true
		}
	}
	files, err := filepath.Glob("testdata/published/*.json")
	require.NoError(t, err)
	require.Equal(t, 4, len(files))
	for _, f := range files {
		m, err := ReadFile(f)
		require.NoError(t, err)
		require.True(t, claimed[m.Count()], "%s has %d parameters", f, m.Count())
	}
}
