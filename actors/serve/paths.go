package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"slices"

	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/sample"
)

// reading has f answer a request, unless it gives an error.
func reading[T any](s *Server, f func(w http.ResponseWriter, r *http.Request, b *T) error) http.HandlerFunc {
	return s.guarded(func(w http.ResponseWriter, r *http.Request) {
		var b T
		err := s.read(w, r, &b)
		if err == nil {
			err = f(w, r, &b)
		}
		if err != nil {
			s.fail(w, s.refusal(err))
		}
	})
}

// handled answers with what f makes of a request.
func handled[T any](s *Server, f func(ctx context.Context, b *T) (any, error)) http.HandlerFunc {
	return reading(s, func(w http.ResponseWriter, r *http.Request, b *T) error {
		ctx, cancel := context.WithTimeout(r.Context(), s.o.Deadline)
		defer cancel()
		came(ctx)
		v, err := f(ctx, b)
		if err == nil {
			answer(w, http.StatusOK, v)
		}
		return err
	})
}

// beside declares paths that draw no answers.
func (s *Server) beside() {
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"version": "lfactor"})
	})
	s.mux.HandleFunc("/ping", s.health)
	s.mux.HandleFunc("POST /tokenize", handled(s, s.tokenize))
	s.mux.HandleFunc("POST /detokenize", handled(s, s.detokenize))
	s.mux.HandleFunc("POST /v1/embeddings", handled(s, s.embeddings))
	s.mux.HandleFunc("POST /v1/load_lora_adapter", s.lora(s.loadLora, "added"))
	s.mux.HandleFunc("POST /v1/unload_lora_adapter", s.lora(s.unloadLora, "removed"))
	s.mux.HandleFunc("POST /v1/messages", talks(s, newMessages, (*messagesBody).chat))
	s.mux.HandleFunc("POST /v1/messages/count_tokens", handled(s, s.countTokens))
	s.mux.HandleFunc("POST /v1/responses", talks(s, newResponses, (*responsesBody).chat))
	for path, f := range map[string]http.HandlerFunc{"score": handled(s, s.score), "rerank": handled(s, s.rerank)} {
		for _, before := range []string{"/", "/v1/", "/v2/"} { // as vLLM and the services that it stands in for have them
			s.mux.HandleFunc("POST "+before+path, f)
		}
	}
}

// tokenizeBody asks for the tokens of a text or of a conversation.
type tokenizeBody struct {
	chatBody
	Prompt *string `json:"prompt"`
	Texts  *bool   `json:"return_token_strs"`
}

func (s *Server) tokenize(_ context.Context, b *tokenizeBody) (any, error) {
	err := s.named(or(b.Model, s.o.Name))
	var ids []int32
	if err == nil && b.Prompt != nil {
		ids, err = s.tok.TryEncode(*b.Prompt, or(b.AddSpecial, true))
	} else if err == nil {
		var t *tools
		if t, err = s.offered(&b.chatBody); err == nil {
			ids, err = s.conversation(&b.chatBody, t, &asked{}, &chatForm{role: "assistant"})
		}
	}
	v := map[string]any{"count": len(ids), "max_model_len": s.context, "tokens": ids, "token_strs": nil}
	if or(b.Texts, false) {
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i], _ = s.tok.Token(id)
		}
		v["token_strs"] = texts
	}
	return v, err
}

// countTokens counts the prompt of a request in Anthropic's form.
func (s *Server) countTokens(ctx context.Context, b *messagesBody) (any, error) {
	b.Max = new(or(b.Max, 1)) // of no answer
	c, err := b.chat(nil)
	if err != nil {
		return nil, err
	}
	t := &tokenizeBody{chatBody: *c}
	v, err := s.tokenize(ctx, t)
	if err != nil {
		return nil, err
	}
	return map[string]any{"input_tokens": v.(map[string]any)["count"]}, nil
}

type detokenizeBody struct {
	Model  *string `json:"model"`
	Tokens []int32 `json:"tokens"`
}

func (s *Server) detokenize(_ context.Context, b *detokenizeBody) (any, error) {
	for _, id := range b.Tokens {
		if id < 0 || int(id) >= s.m.Model.Spec.Vocab {
			return nil, bad("tokens", "%d is no token's number", id)
		}
	}
	return map[string]any{"prompt": s.tok.Decode(b.Tokens, false)}, s.named(or(b.Model, s.o.Name))
}

// pooled are the fields of all requests for vectors.
type pooled struct {
	Model      *string `json:"model"`
	Truncate   *int    `json:"truncate_prompt_tokens"`
	Side       *string `json:"truncation_side"`
	AddSpecial *bool   `json:"add_special_tokens"`
	RequestID  *string `json:"request_id"`
	Salt       *string `json:"cache_salt"`
}

type embeddingBody struct {
	pooled
	Input      json.RawMessage `json:"input"`
	Format     *string         `json:"encoding_format"`
	Dimensions *int            `json:"dimensions"`
}

// vectors are what the model makes of the texts of a field: the state behind the last token, of length 1, as vLLM
// pools it for models that write.
func (s *Server) vectors(ctx context.Context, b *pooled, field string, texts json.RawMessage) (out [][]float64, tokens int, err error) {
	if err = s.named(or(b.Model, s.o.Name)); err != nil {
		return nil, 0, err
	}
	if s.tenants != nil || s.m.Model.Vision != nil {
		return nil, 0, bad("model", "vectors are of models of text alone that are served without --train")
	}
	prompts, _, err := s.prompts(field, texts, or(b.AddSpecial, true))
	for i := 0; i < len(prompts) && err == nil; i++ {
		ids, fault := s.truncate(prompts[i], &asked{b: &body{Truncate: b.Truncate, Side: b.Side}})
		if err = fault; err == nil && (len(ids) == 0 || len(ids) > s.context || slices.ContainsFunc(ids, func(id int32) bool {
			return id < 0 || int(id) >= s.m.Model.Spec.Vocab
		})) {
			err = bad(field, "text %d has %d tokens, and is to have 1 to %d of the model's", i, len(ids), s.context)
		}
		if err != nil {
			break
		}
		positions := make([]int32, len(ids))
		for k := range positions {
			positions[k] = int32(k)
		}
		var x []float32
		late := s.do(ctx, func(e *sample.Engine) {
			x, err = e.Generator().AllStates(ids, positions, []int32{0, int32(len(ids))})
		})
		if err = cmp.Or(late, err); err == nil {
			out, tokens = append(out, objective.Pool(x, len(x)/len(ids), objective.PoolLast)), tokens+len(ids)
		}
	}
	return out, tokens, err
}

func (s *Server) embeddings(ctx context.Context, b *embeddingBody) (any, error) {
	form := or(b.Format, "float")
	if form != "float" && form != "base64" {
		return nil, bad("encoding_format", "encoding_format is %.40q, and neither float nor base64", form)
	}
	if n := or(b.Dimensions, s.m.Model.Spec.Hidden); n != s.m.Model.Spec.Hidden {
		return nil, bad("dimensions", "dimensions is %d, and vectors have %d numbers", n, s.m.Model.Spec.Hidden)
	}
	all, tokens, err := s.vectors(ctx, &b.pooled, "input", b.Input)
	data := []any{}
	for i, v := range all {
		var x any = v
		if form == "base64" {
			var raw []byte
			for _, f := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(f)))
			}
			x = base64.StdEncoding.EncodeToString(raw)
		}
		data = append(data, map[string]any{"index": i, "object": "embedding", "embedding": x})
	}
	return map[string]any{"id": s.identity("embd"), "object": "list", "created": s.now().Unix(), "model": s.o.Name,
		"data": data, "usage": map[string]any{"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}}, err
}
