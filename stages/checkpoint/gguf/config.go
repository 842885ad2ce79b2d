package gguf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// config is what the metadata says of the model.
type config struct {
	layers, heads, kvHeads, headDim, hidden, mlp, context int
	eps, theta                                            float64
	window                                                int
	attnCap, logitCap                                     float64
	scaling                                               map[string]any // rope_scaling, nil for none
	experts, used, expertMLP                              int            // of a mixture
	tied                                                  bool           // the embedding is the head
}

// number is a whole number of the metadata below the architecture's name, at least 1.
func (m *Model) number(key string, usual int) (int, error) {
	key = m.family.arch + "." + key
	switch v := m.File.Meta[key].(type) {
	case nil:
		if usual >= 0 {
			return usual, nil
		}
		return 0, m.fault("", checkpoint.Missing, "%s is not there", key)
	case int64:
		if v >= 1 && v < 1<<31 {
			return int(v), nil
		}
		return 0, m.fault("", checkpoint.Malformed, "%s is %d", key, v)
	case []int64:
		same := len(v) > 0 && v[0] >= 1 && v[0] < 1<<31
		for _, x := range v {
			same = same && x == v[0]
		}
		if same {
			return int(v[0]), nil
		}
		return 0, m.fault("", checkpoint.Malformed, "%s differs from layer to layer, which is not read", key)
	}
	return 0, m.fault("", checkpoint.Malformed, "%s is no whole number", key)
}

// real is a number of the metadata below the architecture's name.
func (m *Model) real(key string, usual float64) (float64, error) {
	key = m.family.arch + "." + key
	switch v := m.File.Meta[key].(type) {
	case nil:
		return usual, nil
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, nil
		}
	}
	return 0, m.fault("", checkpoint.Malformed, "%s is no finite number", key)
}

// readConfig reads what the tensors' names and the configuration need.
func (m *Model) readConfig() (err error) {
	c := &m.config
	for _, x := range []struct {
		key   string
		to    *int
		usual func() int
	}{
		{"block_count", &c.layers, nil}, {"embedding_length", &c.hidden, nil},
		{"feed_forward_length", &c.mlp, nil}, {"context_length", &c.context, nil},
		{"attention.head_count", &c.heads, nil},
		{"attention.head_count_kv", &c.kvHeads, func() int { return c.heads }},
		{"attention.key_length", &c.headDim, func() int { return c.hidden / c.heads }},
		{"attention.sliding_window", &c.window, func() int { return 0 }},
	} {
		usual := -1
		if x.usual != nil {
			usual = x.usual()
		}
		if *x.to, err = m.number(x.key, usual); err != nil {
			return err
		}
	}
	if err := m.readExperts(); err != nil {
		return err
	}
	for key, same := range map[string]int{"attention.value_length": c.headDim, "rope.dimension_count": c.headDim} {
		if n, err := m.number(key, same); err != nil || n != same {
			return m.fault("", checkpoint.Malformed, "%s.%s is %d, only the heads' length %d is read", m.family.arch,
				key, n, same)
		}
	}
	for key, to := range map[string]*float64{"attention.layer_norm_rms_epsilon": &c.eps, "rope.freq_base": &c.theta,
		"attn_logit_softcapping": &c.attnCap, "final_logit_softcapping": &c.logitCap} {
		if *to, err = m.real(key, 0); err != nil {
			return err
		}
	}
	if c.eps <= 0 {
		return m.fault("", checkpoint.Missing, "%s.attention.layer_norm_rms_epsilon is not there", m.family.arch)
	}
	if c.theta == 0 {
		c.theta = 10000
	}
	c.eps, c.theta = short(c.eps), short(c.theta)
	return m.readScaling()
}

// point is a number that is written with a point: transformers refuses 30 where it wants a float.
type point float64

// MarshalJSON implements json.Marshaler.
func (p point) MarshalJSON() ([]byte, error) {
	text := strconv.FormatFloat(float64(p), 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return []byte(text), nil
}

// short is the decimal number with fewest digits that is a float32, such as 1e-05 for 9.999999747378752e-06.
func short(x float64) float64 {
	var y float64
	if err := json.Unmarshal([]byte(fmt.Sprint(float32(x))), &y); err != nil {
		return x
	}
	return y
}

// readScaling reads how rotary positions are stretched: by a rule in the metadata, or as Llama 3 does, by
// factors of frequencies in a tensor.
func (m *Model) readScaling() error {
	kind, _ := m.File.Meta[m.family.arch+".rope.scaling.type"].(string) // not there is none
	factor, err := m.real("rope.scaling.factor", 1)
	if err != nil {
		return err
	}
	switch kind {
	case "", "none":
	case "linear":
		m.config.scaling = map[string]any{"rope_type": "linear", "factor": point(short(factor))}
	case "yarn":
		context, err := m.number("rope.scaling.original_context_length", m.config.context)
		if err != nil {
			return err
		}
		m.config.scaling = map[string]any{"rope_type": "yarn", "factor": point(short(factor)),
			"original_max_position_embeddings": context}
	default:
		return m.fault("", checkpoint.Malformed, "%s.rope.scaling.type is %q, linear and yarn are read",
			m.family.arch, kind)
	}
	for i := range m.File.Tensors {
		if t := &m.File.Tensors[i]; t.Name == "rope_freqs.weight" {
			return m.readFactors(t)
		}
	}
	return nil
}

// llama3 are the constants of all published models that stretch positions as Llama 3.1 does.
var llama3 = stretch{low: 1, high: 4, context: 8192}

// readFactors finds the rule that factors of frequencies follow from.
func (m *Model) readFactors(t *Tensor) error {
	n := m.config.headDim / 2
	if t.Type != F32 || len(t.Shape) != 1 || t.Shape[0] != n || m.config.scaling != nil {
		return m.fault(t.Name, checkpoint.Misshapen, "%v %v, want F32 with a factor for each of %d frequencies, "+
			"and no rope.scaling beside them", t.Type, t.Shape, n)
	}
	raw := make([]byte, 4*n)
	if _, err := m.File.f.ReadAt(raw, t.Offset); err != nil {
		return m.fault(t.Name, checkpoint.Truncated, "at offset %d: %v", t.Offset, err)
	}
	got, s := make([]float64, n), llama3
	for i := range got {
		got[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		s.factor = max(s.factor, got[i])
	}
	for i, want := range s.factors(m.config.theta, m.config.headDim) {
		if !(math.Abs(got[i]-want) <= 1e-4*want) {
			return m.fault(t.Name, checkpoint.Malformed, "at offset %d: factor %d is %g; Llama 3's rule with "+
				"factor %g over %g positions says %g, and no other is known", t.Offset+int64(4*i), i, got[i], s.factor,
				s.context, want)
		}
	}
	m.config.scaling = map[string]any{"rope_type": "llama3", "factor": point(s.factor), "low_freq_factor": point(s.low),
		"high_freq_factor": point(s.high), "original_max_position_embeddings": int(s.context)}
	return nil
}

// stretch is Llama 3's rule: waves that are short beside the context stay, long ones become factor times as
// long, and those between lie between.
type stretch struct{ factor, low, high, context float64 }

// factors are those of all frequencies.
func (s stretch) factors(theta float64, dim int) []float64 {
	out := make([]float64, dim/2)
	for i := range out {
		wave := 2 * math.Pi * math.Pow(theta, float64(2*i)/float64(dim))
		switch between := (s.context/wave - s.low) / (s.high - s.low); {
		case wave < s.context/s.high:
			out[i] = 1
		case wave > s.context/s.low:
			out[i] = s.factor
		default:
			out[i] = 1 / ((1-between)/s.factor + between)
		}
	}
	return out
}

// queryScalar is what llama.cpp divides products of queries and keys of a Gemma by the root of.
func queryScalar(layers, hidden, heads, headDim int, arch string) int {
	if arch == "gemma2" && layers == 46 || arch == "gemma3" && layers == 62 { // the models of 27B
		return hidden / heads
	}
	return headDim
}

// Config is the model's config.json, for weights of a type, "" for what most of them are.
func (m *Model) Config(dtype checkpoint.DType) []byte {
	c, f := &m.config, m.family
	_, head := m.of["lm_head.weight"]
	_, bias := m.of["model.layers.0.self_attn.q_proj.bias"]
	out := map[string]any{"model_type": f.modelType, "architectures": []string{f.class}, "hidden_act": "silu",
		"hidden_size": c.hidden, "intermediate_size": c.mlp, "num_hidden_layers": c.layers,
		"num_attention_heads": c.heads, "num_key_value_heads": c.kvHeads, "head_dim": c.headDim,
		"max_position_embeddings": c.context, "rms_norm_eps": point(c.eps), "rope_theta": point(c.theta),
		"vocab_size": m.infos["model.embed_tokens.weight"].Shape[0], "tie_word_embeddings": !head,
		"torch_dtype": map[checkpoint.DType]string{checkpoint.F32: "float32", checkpoint.F16: "float16",
			checkpoint.BF16: "bfloat16"}[cmp.Or(dtype, m.infos["model.layers.0.self_attn.o_proj.weight"].DType)],
		"bos_token_id": m.id("bos"), "eos_token_id": m.id("eos")}
	if f.arch == "llama" {
		out["attention_bias"] = bias
	}
	m.describeExperts(out)
	if c.scaling != nil {
		out["rope_scaling"] = c.scaling
	}
	if f.window {
		delete(out, "hidden_act")
		out["hidden_activation"] = "gelu_pytorch_tanh"
		out["query_pre_attn_scalar"] = queryScalar(c.layers, c.hidden, c.heads, c.headDim, f.arch)
		if c.window > 0 {
			out["sliding_window"] = c.window
		}
	}
	if f.arch == "gemma2" {
		out["attn_logit_softcapping"], out["final_logit_softcapping"] = orNil(short(c.attnCap)),
			orNil(short(c.logitCap))
	}
	if f.arch == "gemma3" {
		out["rope_local_base_freq"] = point(10000)
	}
	return marshal(out)
}

// orNil is nil for 0.
func orNil(x float64) any {
	if x == 0 {
		return nil
	}
	return point(x)
}

// id is a special token's, nil for none.
func (m *Model) id(name string) any {
	if v, ok := m.File.Meta["tokenizer.ggml."+name+"_token_id"].(int64); ok && v >= 0 {
		return v
	}
	return nil
}

// marshal writes indented JSON with <, > and & as they are.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("gguf: numbers and texts do not encode: %v", err))
	}
	return b.Bytes()
}
