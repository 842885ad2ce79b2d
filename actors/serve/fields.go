package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// noted are fields that change no answer here, and why. Clients may send them in any request.
var noted = map[string]string{
	"user":                   "who asks changes no answer",
	"metadata":               "is the client's own",
	"store":                  "nothing is kept",
	"safety_identifier":      "who asks changes no answer",
	"prompt_cache_key":       "prompts that begin alike share their pages by what they are",
	"prompt_cache_options":   "prompts that begin alike share their pages by what they are",
	"prompt_cache_retention": "a page is kept until it is needed",
	"service_tier":           "there is one",
	"session_id":             "there is one engine, which finds pages of any session",
	"stream_interval":        "tokens are sent as they come",
	"mm_payload":             "images are not sent back",
	"return_mm_kwargs":       "images are not sent back",
	"length_penalty":         "is of beams, which are refused",
	"padding":                "texts are computed without any",
	"spaces_between_special_tokens": "the tokenizer's decoder says where spaces are, as fast tokenizers do for " +
		"vLLM",
}

// refused are fields that would have an effect in vLLM and have none here, and why. Their values that mean
// nothing, as clients send them who fill all fields in, are passed over.
var refused = map[string]string{
	"background":                  "an answer is what the request waits for",
	"max_tool_calls":              "tools are the client's, which calls them itself",
	"previous_response_id":        "nothing is kept: input is to have the whole conversation",
	"previous_input_messages":     "nothing is kept: input is to have the whole conversation",
	"enable_response_messages":    "messages are not sent back",
	"use_beam_search":             "answers are drawn, and no beams are searched; n asks for several",
	"watermarking":                "answers have no watermark",
	"thinking_token_budget":       "thoughts are bounded by max_tokens with the answer",
	"logprob_token_ids":           "log-probabilities are those of what is drawn and of the likeliest tokens",
	"prompt_embeds":               "a prompt is text or tokens",
	"media_io_kwargs":             "the model's processor says how images are read",
	"mm_processor_kwargs":         "the model's processor says how images are read",
	"priority":                    "requests are answered in their order",
	"return_weight_versions":      "weights have no versions here",
	"routed_experts_prompt_start": "which experts computed a token is not told",
	"return_token_offsets":        "where tokens lie in the prompt's text is not told",
	"kv_transfer_params":          "keys and values come from no other server",
	"ec_transfer_params":          "images are read here and by no other server",
	"vllm_xargs":                  "there are no plug-ins to read them",
	"repetition_detection":        "what repeats is not looked for; see repetition_penalty",
	"embed_dtype":                 "vectors are float32",
	"endianness":                  "vectors are little-endian",
	"use_activation":              "vectors are of length 1",
	"chat_template":               "the template is the model's own, which the operator has chosen",
}

// idle are the values of fields that ask for nothing.
var idle = []string{"null", "false", "0", `""`, "[]", "{}"}

// faulty is an error at a field.
type faulty struct {
	field string
	err   error
}

func (f faulty) Error() string { return f.err.Error() }

// spare takes a field that no request has as its own: it is noted, or refused with the reason.
func spare(name string, raw json.RawMessage) error {
	if noted[name] != "" {
		return nil
	}
	if refused[name] == "" {
		return faulty{name, fmt.Errorf("unknown field %q", name)}
	}
	if slices.Contains(idle, string(raw)) {
		return nil
	}
	return faulty{name, fmt.Errorf("%s has no effect here: %s", name, refused[name])}
}

// parsed decodes a request whose fields that act are those of v.
func parsed(text []byte, v any) error {
	err := strictly(text, v, spare)
	if err == nil {
		return nil
	}
	var at faulty
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		for _, part := range strings.Split(kind.Field, ".") { // among the names of embedded structs
			if at.field == "" && fieldOf(reflect.TypeOf(v).Elem(), part) != nil {
				at.field = part
			}
		}
		err = fmt.Errorf("%s has %s where the value is to be %v", at.field, kind.Value, kind.Type.Kind())
	} else {
		errors.As(err, &at)
	}
	return bad(at.field, "the request is not understood: %v", err)
}
