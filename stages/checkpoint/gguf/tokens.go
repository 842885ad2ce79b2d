package gguf

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Kinds of tokens, which are SentencePiece's.
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenUnused  = 5
	tokenByte    = 6
)

const wordsUsual = `'s|'t|'re|'ve|'m|'ll|'d`

// cut is how text is cut before merges, under the names that llama.cpp has for it.
type cut struct {
	names  []string
	before string // the pre_tokenizer of tokenizer.json
	nfc    bool   // the text is normalized
	ignore bool   // a word that is a token is one, whatever merges say
	bos    bool   // texts begin with BOS unless the file says otherwise
}

// regexCut cuts by an expression, and writes bytes as letters.
func regexCut(regex string) string {
	r, err := json.Marshal(regex)
	if err != nil {
		panic(fmt.Sprintf("gguf: a text does not encode: %v", err))
	}
	return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(r) +
		`},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,` +
		`"use_regex":false}]}`
}

const byteLevel = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`

// tail is what the expressions of Llama 3 and Qwen 2 end with.
const tail = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

var cuts = []cut{
	{names: []string{"llama-bpe", "llama3", "llama-v3", "falcon3"}, ignore: true, bos: true,
		before: regexCut(`(?i:` + wordsUsual + `)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + tail)},
	{names: []string{"qwen2", "deepseek-r1-qwen"}, nfc: true,
		before: regexCut(`(?i:` + wordsUsual + `)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + tail)},
	{names: []string{"smollm", "starcoder", "refact", "command-r"},
		before: `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` +
			byteLevel + `]}`},
	{names: []string{"gpt-2", "gpt2", "phi-2", "olmo"}, before: byteLevel},
}

// cutNames are those that are read.
func cutNames() (names []string) {
	for _, c := range cuts {
		names = append(names, c.names...)
	}
	return names
}

// vocabulary is a file's.
type vocabulary struct {
	model  string
	tokens []string
	kinds  []int64
	scores []float64
	merges []string
}

// vocabulary reads and checks the tokens.
func (m *Model) vocabulary() (*vocabulary, error) {
	v, meta := &vocabulary{}, m.File.Meta
	const at = "tokenizer.ggml."
	v.model, _ = meta[at+"model"].(string) // refused below
	v.tokens, _ = meta[at+"tokens"].([]string)
	v.kinds, _ = meta[at+"token_type"].([]int64)
	v.scores, _ = meta[at+"scores"].([]float64)
	v.merges, _ = meta[at+"merges"].([]string)
	rows := m.infos["model.embed_tokens.weight"].Shape[0]
	switch {
	case v.model != "gpt2" && v.model != "llama":
		return nil, m.fault("", checkpoint.Malformed, "%smodel is %q, gpt2 and llama are read", at, v.model)
	case len(v.tokens) == 0 || len(v.tokens) > rows:
		return nil, m.fault("", checkpoint.Malformed, "%stokens has %d, the embedding %d", at, len(v.tokens), rows)
	case v.kinds == nil:
		v.kinds = slices.Repeat([]int64{tokenNormal}, len(v.tokens))
	case len(v.kinds) != len(v.tokens):
		return nil, m.fault("", checkpoint.Malformed, "%stoken_type has %d, there are %d tokens", at, len(v.kinds),
			len(v.tokens))
	}
	if v.model == "llama" && len(v.scores) != len(v.tokens) {
		return nil, m.fault("", checkpoint.Malformed, "%sscores has %d, there are %d tokens", at, len(v.scores),
			len(v.tokens))
	}
	if v.model == "gpt2" && len(v.merges) == 0 {
		return nil, m.fault("", checkpoint.Missing, "%smerges is not there", at)
	}
	seen := make(map[string]int, len(v.tokens))
	for i, t := range v.tokens {
		if old, twice := seen[t]; twice || t == "" {
			return nil, m.fault("", checkpoint.Malformed, "%stokens: %q of %d is empty or that of %d too",
				at, t, i, old)
		}
		seen[t] = i
	}
	for _, name := range []string{"bos", "eos", "padding", "unknown"} {
		if id, ok := m.id(name).(int64); ok && id >= int64(len(v.tokens)) {
			return nil, m.fault("", checkpoint.Malformed, "%s%s_token_id is %d of %d tokens", at, name, id,
				len(v.tokens))
		}
	}
	return v, nil
}

// Tokenizer makes the tokenizer's files, by name.
func (m *Model) Tokenizer() (map[string][]byte, error) {
	v, err := m.vocabulary()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	bos := true
	if v.model == "llama" {
		prefix, said := m.File.Meta["tokenizer.ggml.add_space_prefix"].(bool)
		files["tokenizer.model"] = v.sentencePiece(m, prefix || !said)
	} else {
		pre, _ := m.File.Meta["tokenizer.ggml.pre"].(string) // refused below
		i := slices.IndexFunc(cuts, func(c cut) bool { return slices.Contains(c.names, pre) })
		if i < 0 {
			return nil, m.fault("", checkpoint.Malformed,
				"tokenizer.ggml.pre is %q: how text is cut is not known; %v are", pre, cutNames())
		}
		bos = cuts[i].bos
		files["tokenizer.json"] = v.byteLevel(m, &cuts[i])
	}
	conf := m.tokenizerConfig(v)
	if said, ok := m.File.Meta["tokenizer.ggml.add_bos_token"].(bool); ok {
		bos = said
	}
	conf["add_bos_token"] = bos && conf["bos_token"] != nil
	conf["add_eos_token"] = m.File.Meta["tokenizer.ggml.add_eos_token"] == true
	files["tokenizer_config.json"] = marshal(conf)
	return files, nil
}

// tokenizerConfig names special tokens, and has the chat template.
func (m *Model) tokenizerConfig(v *vocabulary) map[string]any {
	conf := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
		"model_max_length": m.config.context}
	if v.model == "llama" {
		conf["tokenizer_class"], conf["legacy"] = "LlamaTokenizer", false
		if m.family.window {
			conf["tokenizer_class"] = "GemmaTokenizer"
		}
	}
	all := v.model == "llama" || m.File.Meta["tokenizer.ggml.token_type"] == nil // without kinds any may be special
	for name, key := range map[string]string{"bos": "bos_token", "eos": "eos_token", "padding": "pad_token",
		"unknown": "unk_token"} {
		// A token that is named here is special to transformers, wherever it stands in a text. To llama.cpp an
		// ordinary one stays ordinary, though it ends texts: config.json has its number.
		if id, ok := m.id(name).(int64); ok && (all || v.kinds[id] != tokenNormal) {
			conf[key] = v.tokens[id]
		}
	}
	if t, ok := m.File.Meta["tokenizer.chat_template"].(string); ok {
		conf["chat_template"] = t
	}
	return conf
}

// byteLevel makes a tokenizer.json of merges of bytes.
func (v *vocabulary) byteLevel(m *Model, c *cut) []byte {
	vocab, added := make(map[string]int, len(v.tokens)), []map[string]any{}
	for i, t := range v.tokens {
		if v.kinds[i] == tokenUnused { // it fills the embedding
			continue
		}
		if vocab[t] = i; v.kinds[i] == tokenControl || v.kinds[i] == tokenUser {
			added = append(added, map[string]any{"id": i, "content": t, "single_word": false, "lstrip": false,
				"rstrip": false, "normalized": false, "special": v.kinds[i] == tokenControl})
		}
	}
	out := map[string]any{"version": "1.0", "truncation": nil, "padding": nil,
		"added_tokens": added, "normalizer": nil, "pre_tokenizer": json.RawMessage(c.before),
		"decoder": json.RawMessage(byteLevel), "post_processor": json.RawMessage(
			`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true}`),
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": c.ignore,
			"vocab": vocab, "merges": v.merges}}
	if c.nfc {
		out["normalizer"] = map[string]string{"type": "NFC"}
	}
	add, said := m.File.Meta["tokenizer.ggml.add_bos_token"].(bool)
	if id, ok := m.id("bos").(int64); ok && (add || !said && c.bos) {
		bos := v.tokens[id]
		a, b := map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}},
			map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}}
		first := map[string]any{"SpecialToken": map[string]any{"id": bos, "type_id": 0}}
		out["post_processor"] = map[string]any{"type": "TemplateProcessing", "single": []any{first, a},
			"pair": []any{first, a, first, b}, "special_tokens": map[string]any{
				bos: map[string]any{"id": bos, "ids": []int64{id}, "tokens": []string{bos}}}}
	}
	return marshal(out)
}

// sentencePiece makes a tokenizer.model: ModelProto of sentencepiece_model.proto.
func (v *vocabulary) sentencePiece(m *Model, prefix bool) []byte {
	var out []byte
	bytes := false
	for i, t := range v.tokens {
		kind := v.kinds[i]
		if kind < tokenNormal || kind > tokenByte {
			kind = tokenNormal
		}
		bytes = bytes || kind == tokenByte
		var p []byte
		p = field(p, 1, []byte(t))
		p = binary.LittleEndian.AppendUint32(append(p, 2<<3|5), math.Float32bits(float32(v.scores[i])))
		out = field(out, 1, varint(p, 3, uint64(kind)))
	}
	var trainer []byte
	trainer = varint(trainer, 3, 2) // BPE
	if bytes {
		trainer = varint(trainer, 35, 1)
	}
	for _, x := range []struct {
		name   string
		number uint64
		usual  int64
	}{{"unknown", 40, 0}, {"bos", 41, 1}, {"eos", 42, 2}, {"padding", 43, -1}} {
		id, ok := m.id(x.name).(int64)
		if !ok {
			id = x.usual
		}
		trainer = varint(trainer, x.number, uint64(id))
	}
	out = field(out, 2, trainer)
	normal := field(nil, 1, []byte("identity"))
	normal = varint(normal, 3, map[bool]uint64{true: 1}[prefix])
	normal = varint(normal, 4, 0) // spaces stay as they are
	return field(out, 3, varint(normal, 5, 1))
}

// field appends a field of bytes of a protocol buffer.
func field(b []byte, number uint64, v []byte) []byte {
	b = binary.AppendUvarint(b, number<<3|2)
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// varint appends a number.
func varint(b []byte, number, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, number<<3), v)
}

// sortedTokens are the tokens of a vocabulary by id; there may be gaps, which are "".
func sortedTokens(vocab map[string]int64) ([]string, error) {
	most := int64(-1)
	for _, id := range vocab {
		most = max(most, id)
	}
	if most >= countMax {
		return nil, fmt.Errorf("id %d, limit %d", most, countMax)
	}
	out := make([]string, most+1)
	for t, id := range vocab {
		if id < 0 || out[id] != "" {
			return nil, fmt.Errorf("token %q has the id %d, which is taken or none", t, id)
		}
		out[id] = cmp.Or(t, " ")
	}
	return out, nil
}
