package token

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// rankFile makes of byte strings with ranks what tokenizer.json would hold: tiktoken's model. The id of a
// string is its rank, shifted by what comes before. pattern cuts texts.
func rankFile(ranks map[string]int32, shift int32, pattern string, special []addedToken,
	normalize string) (*file, error) {
	f := &file{AddedTokens: special, Model: modelFile{Type: "BPE", IgnoreMerges: true,
		Vocab: map[string]int32{}, Ranks: map[string]int32{}}}
	for s, rank := range ranks {
		token := alphabetOf([]byte(s))
		f.Model.Vocab[token], f.Model.Ranks[token] = rank+shift, rank
	}
	// ids in front of the ranks are part of the vocabulary; those behind follow it
	for _, a := range special {
		if a.ID < shift {
			f.Model.Vocab[a.Content] = a.ID
		}
	}
	quoted, err := json.Marshal(pattern)
	if err != nil {
		return nil, err
	}
	f.PreTokenizer = json.RawMessage(`{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(quoted) + `},"behavior":"Isolated"},` +
		`{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}`)
	f.Decoder = json.RawMessage(`{"type":"ByteLevel"}`)
	if normalize != "" {
		f.Normalizer = json.RawMessage(`{"type":"` + normalize + `"}`)
	}
	return f, f.check()
}

// parseRanks reads a tiktoken file: a line has a byte string in base64 and its rank.
func parseRanks(b []byte) (map[string]int32, error) {
	out := map[string]int32{}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		words := bytes.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 {
			return nil, fmt.Errorf("line %d is no byte string and rank", n)
		}
		s, err := base64.StdEncoding.DecodeString(string(words[0]))
		rank, err2 := strconv.ParseInt(string(words[1]), 10, 32)
		if err = errors.Join(err, err2); err != nil || rank < 0 || rank >= idMax || len(s) == 0 {
			return nil, fmt.Errorf("line %d is no byte string in base64 and rank: %w", n, err)
		}
		out[string(s)] = int32(rank)
	}
	if len(out) == 0 {
		return nil, errors.New("it has no ranks")
	}
	return out, nil
}

// behind lists special tokens whose ids follow the ranks.
func behind(ranks map[string]int32, names []string) (out []addedToken) {
	next := int32(0)
	for _, r := range ranks {
		next = max(next, r+1)
	}
	for i, n := range names {
		out = append(out, addedToken{ID: next + int32(i), Content: n, Special: true})
	}
	return out
}

// qwenFile reads the qwen.tiktoken of the first Qwen models (QWenTokenizer of their repositories).
func qwenFile(b []byte) (*file, error) {
	ranks, err := parseRanks(b)
	if err != nil {
		return nil, err
	}
	names := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	for i := range 205 {
		names = append(names, fmt.Sprintf("<|extra_%d|>", i))
	}
	return rankFile(ranks, 0, regexQwen2, behind(ranks, names), "NFC")
}

// llama3File reads the tokenizer.model of Meta's own Llama 3 checkpoints, which is a tiktoken file
// (llama3/tokenizer.py, with the names of 3.1 for the first of the reserved tokens).
func llama3File(b []byte) (*file, error) {
	ranks, err := parseRanks(b)
	if err != nil {
		return nil, err
	}
	names := []string{"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
		"<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>",
		"<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"}
	for i := 3; len(names) < 256; i++ {
		names = append(names, fmt.Sprintf("<|reserved_special_token_%d|>", i))
	}
	special := behind(ranks, names)
	f, err := rankFile(ranks, 0, regexLlama3, special, "")
	if err != nil {
		return nil, err
	}
	f.PostProcessor = bosTemplate("<|begin_of_text|>", special[0].ID)
	return f, nil
}

// bosTemplate is a post-processor that puts a token in front.
func bosTemplate(name string, id int32) json.RawMessage {
	quoted, _ := json.Marshal(name) // a string encodes
	return json.RawMessage(fmt.Sprintf(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":%s}},{"Sequence":{"id":"A"}}],"special_tokens":{%s:{"ids":[%d]}}}`, quoted, quoted, id))
}

// tekkenFile is Mistral's tekken.json.
type tekkenFile struct {
	Config struct {
		Pattern string `json:"pattern"`
		Size    int    `json:"default_vocab_size"`
		Special int    `json:"default_num_special_tokens"`
	} `json:"config"`
	Vocab []struct {
		Rank  int32  `json:"rank"`
		Bytes []byte `json:"token_bytes"`
	} `json:"vocab"`
	Special []struct {
		Rank int32  `json:"rank"`
		Text string `json:"token_str"`
	} `json:"special_tokens"`
}

// tekkenNames are the special tokens of files that name none (mistral_common, SpecialTokens of version 7).
var tekkenNames = []string{"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
	"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]",
	"[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"}

// parseTekken reads Mistral's tekken.json. Special tokens come first, so the ids of all others are
// shifted by their number.
func parseTekken(b []byte) (*file, error) {
	var t tekkenFile
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, err
	}
	n := t.Config.Special
	inner := t.Config.Size - n
	if n < 2 || n > idMax || inner <= 0 || inner > len(t.Vocab) || t.Config.Pattern == "" || len(t.Special) > n {
		return nil, fmt.Errorf("config: %d special tokens, a vocabulary of %d of %d tokens and the "+
			"pattern %q do not fit", n, t.Config.Size, len(t.Vocab), t.Config.Pattern)
	}
	special := make([]addedToken, n)
	for i := range special {
		special[i] = addedToken{ID: int32(i), Content: fmt.Sprintf("<SPECIAL_%d>", i), Special: true}
		if len(t.Special) == 0 && i < len(tekkenNames) {
			special[i].Content = tekkenNames[i]
		}
	}
	for _, s := range t.Special {
		if s.Rank < 0 || int(s.Rank) >= n {
			return nil, fmt.Errorf("special_tokens: %q has rank %d of %d", s.Text, s.Rank, n)
		}
		special[s.Rank].Content = s.Text
	}
	ranks := map[string]int32{}
	for _, v := range t.Vocab[:inner] {
		ranks[string(v.Bytes)] = v.Rank
	}
	f, err := rankFile(ranks, int32(n), t.Config.Pattern, special, "")
	if err != nil {
		return nil, err
	}
	f.PostProcessor = bosTemplate(special[1].Content, 1)
	return f, nil
}
