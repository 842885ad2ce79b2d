package serve

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/stages/sample"
)

// body is what completions and chats have in common.
type body struct {
	Model      *string            `json:"model"`
	N          *int               `json:"n"`
	Max        *int               `json:"max_tokens"`
	Temp       *float64           `json:"temperature"`
	TopP       *float64           `json:"top_p"`
	Stop       json.RawMessage    `json:"stop"`
	Seed       *int64             `json:"seed"`
	Bias       map[string]float64 `json:"logit_bias"`
	Frequency  *float64           `json:"frequency_penalty"`
	Presence   *float64           `json:"presence_penalty"`
	Stream     *bool              `json:"stream"`
	StreamWith *struct {
		Usage *bool `json:"include_usage"`
		Each  *bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`

	// as vLLM has them
	TopK       *int     `json:"top_k"`
	MinP       *float64 `json:"min_p"`
	Repetition *float64 `json:"repetition_penalty"`
	StopIDs    []int32  `json:"stop_token_ids"`
	IgnoreEOS  *bool    `json:"ignore_eos"`
	IDs        *bool    `json:"return_token_ids"`
	Least      *int     `json:"min_tokens"`
	WithStop   *bool    `json:"include_stop_str_in_output"`
	Skip       *bool    `json:"skip_special_tokens"`
	Only       []int32  `json:"allowed_token_ids"`
	Bad        []string `json:"bad_words"`
	PromptTop  *int     `json:"prompt_logprobs"`
	Echo       *bool    `json:"echo"`
	Truncate   *int     `json:"truncate_prompt_tokens"`
	Side       *string  `json:"truncation_side"`
	AddSpecial *bool    `json:"add_special_tokens"`
	ByID       *bool    `json:"return_tokens_as_token_ids"`
	RequestID  *string  `json:"request_id"`
	Salt       *string  `json:"cache_salt"`
	formatBody
}

// completionBody is a request for completions.
type completionBody struct {
	body
	Prompt   json.RawMessage `json:"prompt"`
	LogProbs *int            `json:"logprobs"`
	BestOf   *int            `json:"best_of"`
	Suffix   *string         `json:"suffix"`
}

// chatBody is a request for an answer in a conversation.
type chatBody struct {
	body
	Messages    []json.RawMessage          `json:"messages"`
	MaxNew      *int                       `json:"max_completion_tokens"`
	LogProbs    *bool                      `json:"logprobs"`
	TopLogProbs *int                       `json:"top_logprobs"`
	Tools       []json.RawMessage          `json:"tools"`
	Choice      json.RawMessage            `json:"tool_choice"`
	Parallel    *bool                      `json:"parallel_tool_calls"`
	Variables   map[string]json.RawMessage `json:"chat_template_kwargs"`
	AddPrompt   *bool                      `json:"add_generation_prompt"`
	Continue    *bool                      `json:"continue_final_message"`
	Documents   []map[string]string        `json:"documents"`
	Effort      *string                    `json:"reasoning_effort"`
	PromptText  *bool                      `json:"return_prompt_text"`
	Thoughts    *bool                      `json:"include_reasoning"`
}

// read decodes a request; what nobody knows is refused, since it would have no effect.
func (s *Server) read(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := s.body(w, r)
	if err != nil {
		w.Header().Set("Connection", "close") // the rest is not waited for
		return err
	}
	return parsed(b, v)
}

func or[T any](p *T, usual T) T {
	if p == nil {
		return usual
	}
	return *p
}

// answersMost bounds the answers of one request.
const answersMost = 128

// params is how the tokens of a request are drawn; most is the new tokens where the request does not say.
func (s *Server) params(b *body, most int) (p sample.Params, stops []string, n int, err error) {
	if b.Model == nil {
		return p, nil, 0, bad("model", "the request names no model; %q is served", s.o.Name)
	}
	if err := s.named(*b.Model); err != nil {
		return p, nil, 0, err
	}
	if b.StreamWith != nil && !or(b.Stream, false) {
		return p, nil, 0, bad("stream_options", "stream_options is for answers with stream: true")
	}
	n = or(b.N, 1)
	u := sample.Params{Temperature: 1, TopP: 1, Repetition: 1}
	s.m.Usual(&u, func(string) bool { return false })
	p = sample.Params{Temperature: or(b.Temp, u.Temperature), TopP: or(b.TopP, u.TopP), TopK: max(0, or(b.TopK, u.TopK)),
		MinP: or(b.MinP, u.MinP), Repetition: or(b.Repetition, u.Repetition), Frequency: or(b.Frequency, 0), Presence: or(b.Presence, 0),
		Max: or(b.Max, most), Seed: uint64(or(b.Seed, s.now().UnixNano())), Stop: b.StopIDs, Least: or(b.Least, 0), Only: b.Only}
	if !or(b.IgnoreEOS, false) {
		p.Stop = append(p.Stop, s.m.Stops()...)
	}
	if p.TopP == 0 {
		return p, nil, 0, bad("top_p", "top_p is 0, which leaves nothing")
	}
	if stops, err = stopTexts(b.Stop); err != nil {
		return p, nil, 0, err
	}
	if p.Bias, err = biases(b.Bias); err != nil {
		return p, nil, 0, err
	}
	switch {
	case n < 1 || n > answersMost:
		err = bad("n", "n is %d, and not from 1 to %d", n, answersMost)
	case p.Max < 0:
		err = bad("max_tokens", "max_tokens is %d, and not 0 or more", p.Max)
	case p.Temperature > 2:
		err = bad("temperature", "temperature is %g, and not from 0 to 2", p.Temperature)
	case math.Abs(p.Frequency) > 2 || math.Abs(p.Presence) > 2:
		err = bad("frequency_penalty", "frequency_penalty is %g and presence_penalty %g, and not both from -2 to 2",
			p.Frequency, p.Presence)
	default:
		if fault := p.Check(); fault != nil {
			name, _, _ := strings.Cut(fault.Error(), " ") // of the field, with which it begins
			err = bad(name, "%v", fault)
		}
	}
	return p, stops, n, err
}

// biases are those of tokens by their numbers, which JSON has as texts. Whether there is such a token the engine says.
func biases(given map[string]float64) (map[int32]float64, error) {
	out := map[int32]float64{}
	for text, bias := range given {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != text {
			return nil, bad("logit_bias", "%.40q is no token's number", text)
		}
		if !(bias >= -100 && bias <= 100) {
			return nil, bad("logit_bias", "%q: %g is no bias from -100 to 100", text, bias)
		}
		out[int32(id)] = bias
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// stopsMost bounds the texts that end an answer, and stopBytes each of them.
const stopsMost, stopBytes = 16, 1024

// stopTexts reads a text or a list of them.
func stopTexts(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	list, ok := as[[]string](raw)
	if one, single := as[string](raw); single {
		list, ok = []string{one}, true
	}
	if !ok {
		return nil, bad("stop", "stop is no text and no list of texts")
	}
	if len(list) > stopsMost {
		return nil, bad("stop", "stop has %d texts, more than %d", len(list), stopsMost)
	}
	for _, t := range list {
		if t == "" || len(t) > stopBytes {
			return nil, bad("stop", "a stop has %d bytes, and not from 1 to %d", len(t), stopBytes)
		}
	}
	return list, nil
}

// as reads a value of one type, if it is that.
func as[T any](raw json.RawMessage) (v T, ok bool) {
	ok = json.Unmarshal(raw, &v) == nil
	return v, ok
}

// prompts reads a text, texts, ids or lists of ids, and gives what texts there are.
func (s *Server) prompts(field string, raw json.RawMessage, special bool) (lists [][]int32, texts []string, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil, bad(field, "the request has no %s", field)
	} else if text, ok := as[string](raw); ok {
		texts = []string{text}
	} else if list, ok := as[[]string](raw); ok {
		texts = list
	} else if ids, ok := as[[]int32](raw); ok {
		lists = [][]int32{ids}
	} else if many, ok := as[[][]int32](raw); ok {
		lists = many
	} else {
		return nil, nil, bad(field, "%s is no text, no list of token ids, and no list of these", field)
	}
	if n := len(lists) + len(texts); n == 0 || n > answersMost {
		return nil, nil, bad(field, "there are %d prompts, and not from 1 to %d", n, answersMost)
	}
	for _, t := range texts {
		ids, err := s.tok.TryEncode(t, special)
		if err != nil {
			return nil, nil, bad(field, "%v", err)
		}
		lists = append(lists, ids)
	}
	return lists, texts, nil
}
