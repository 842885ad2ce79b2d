package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
)

// scoreBody asks how alike texts are, by any of vLLM's names for them.
type scoreBody struct {
	pooled
	Text1     json.RawMessage `json:"text_1"`
	Text2     json.RawMessage `json:"text_2"`
	Data1     json.RawMessage `json:"data_1"`
	Data2     json.RawMessage `json:"data_2"`
	Queries   json.RawMessage `json:"queries"`
	Documents json.RawMessage `json:"documents"`
	Items     json.RawMessage `json:"items"`
}

// scorePairs are the names by which vLLM reads what is compared.
var scorePairs = [][2]string{{"text_1", "text_2"}, {"data_1", "data_2"}, {"queries", "documents"}, {"queries", "items"}}

// score answers with the cosine of the vectors of two texts, of one with each of several, or of pairs, as vLLM does
// for models that embed.
func (s *Server) score(ctx context.Context, b *scoreBody) (any, error) {
	given := map[string]json.RawMessage{}
	for field, texts := range map[string]json.RawMessage{"text_1": b.Text1, "text_2": b.Text2, "data_1": b.Data1, "data_2": b.Data2,
		"queries": b.Queries, "documents": b.Documents, "items": b.Items} {
		if texts != nil {
			given[field] = texts
		}
	}
	pair := scorePairs[0]
	for _, p := range scorePairs {
		if given[p[0]] != nil && given[p[1]] != nil {
			pair = p
			break
		}
	}
	for _, field := range slices.Sorted(maps.Keys(given)) {
		if field != pair[0] && field != pair[1] {
			return nil, bad(field, "%s goes with no other: the texts are text_1 and text_2, data_1 and data_2, queries and documents, "+
				"or queries and items", field)
		}
	}
	left, right, tokens, err := s.compared(ctx, &b.pooled, pair[0], given[pair[0]], pair[1], given[pair[1]])
	if err != nil {
		return nil, err
	}
	if len(left) != 1 && len(left) != len(right) {
		return nil, bad(pair[0], "%s has %d texts and %s %d: one for all, or as many", pair[0], len(left), pair[1], len(right))
	}
	data := []any{}
	for i, v := range right {
		data = append(data, map[string]any{"index": i, "object": "score", "score": cosine(left[min(i, len(left)-1)], v)})
	}
	return map[string]any{"id": or(b.RequestID, s.identity("score")), "object": "list", "created": s.now().Unix(), "model": s.o.Name,
		"data": data, "usage": map[string]any{"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}}, nil
}

// rerankBody asks which documents are most like a query.
type rerankBody struct {
	pooled
	Query     json.RawMessage `json:"query"`
	Documents json.RawMessage `json:"documents"`
	Top       *int            `json:"top_n"`
}

func (s *Server) rerank(ctx context.Context, b *rerankBody) (any, error) {
	if top := or(b.Top, 0); top < 0 {
		return nil, bad("top_n", "is %d, and 0 or more", top)
	}
	left, right, tokens, err := s.compared(ctx, &b.pooled, "query", b.Query, "documents", b.Documents)
	if err != nil {
		return nil, err
	}
	if len(left) != 1 {
		return nil, bad("query", "is %d texts, and one", len(left))
	}
	type result struct {
		Index    int            `json:"index"`
		Document map[string]any `json:"document"`
		Score    float64        `json:"relevance_score"`
	}
	all, texts := make([]result, len(right)), textsOf(b.Documents)
	for i, v := range right {
		all[i] = result{i, map[string]any{"text": texts[i]}, cosine(left[0], v)}
	}
	slices.SortStableFunc(all, func(a, b result) int { return cmp.Compare(b.Score, a.Score) })
	if n := or(b.Top, 0); n > 0 {
		all = all[:min(n, len(all))]
	}
	return map[string]any{"id": or(b.RequestID, s.identity("rerank")), "model": s.o.Name, "results": all,
		"usage": map[string]any{"prompt_tokens": tokens, "total_tokens": tokens}}, nil
}

// compared are the vectors of the texts of two fields.
func (s *Server) compared(ctx context.Context, b *pooled, one string, a json.RawMessage, other string, c json.RawMessage) (
	left, right [][]float64, tokens int, err error) {
	for _, side := range []struct {
		field string
		texts json.RawMessage
		out   *[][]float64
	}{{one, a, &left}, {other, c, &right}} {
		if len(textsOf(side.texts)) == 0 {
			return nil, nil, 0, bad(side.field, "%s is a text, or a list of texts", side.field)
		}
		v, n, err := s.vectors(ctx, b, side.field, side.texts)
		if err != nil {
			return nil, nil, 0, err
		}
		*side.out, tokens = v, tokens+n
	}
	return left, right, tokens, nil
}

// textsOf are a text or several, none where it is something else.
func textsOf(raw json.RawMessage) (all []string) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	return all
}

// cosine is that of two vectors of length 1.
func cosine(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
