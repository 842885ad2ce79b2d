package trained

import (
	"context"
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// Recall says how often a query's own text is among the nearest of all.
type Recall struct {
	Queries int             `json:"queries"`
	Texts   int             `json:"texts"`  // different ones that are searched
	At      map[int]float64 `json:"recall"` // share of queries whose own text is among so many nearest
	Mean    float64         `json:"mrr"`    // mean of 1/rank
	Skipped []string        `json:"skipped,omitempty"`
}

// RecallAt are the numbers of nearest texts.
var RecallAt = []int{1, 5, 10}

// MeasureRecall embeds the queries and texts of files of the format similar, and ranks for each query all positives and
// negatives of them, equal ones as one, by the cosine. A text as near as the query's own is before it.
func (m *Trained) MeasureRecall(ctx context.Context, path string, show func(done, all int)) (*Recall, error) {
	e, err := m.NewEmbedder()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	src, err := dataset.Open(path, dataset.Options{Format: "similar"})
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it is only read
	s := &search{e: e, known: map[string]int{}}
	out := &Recall{At: map[int]float64{}}
	for i := range src.Len() {
		if err := ctx.Err(); err != nil {
			return nil, exit.With(err, exit.Interrupted)
		}
		show(int(i), int(src.Len()))
		d, err := src.Read(i)
		var bad *dataset.BadSample
		if errors.As(err, &bad) {
			out.Skipped = append(out.Skipped, bad.Error())
			continue
		}
		if err == nil {
			err = s.add(&d)
		}
		if err != nil {
			return nil, fmt.Errorf("record %d of %s: %w", i, path, err)
		}
	}
	if len(s.queries) == 0 {
		return nil, exit.Usagef("%s has no usable queries", path)
	}
	s.rank(out)
	return out, nil
}

// search is queries and the texts that are searched.
type search struct {
	e       *Embedder
	known   map[string]int
	texts   [][]float64
	queries [][]float64
	own     []int
}

func (s *search) add(d *dataset.Document) error {
	r, err := format.ParseSimilar(d)
	if err != nil {
		return err
	}
	q, err := s.e.Embed(r.Query)
	if err != nil {
		return err
	}
	s.queries, s.own = append(s.queries, q), append(s.own, 0)
	for i, text := range append([]string{r.Positive}, r.Negatives...) {
		k, ok := s.known[text]
		if !ok {
			v, err := s.e.Embed(text)
			if err != nil {
				return err
			}
			k = len(s.texts)
			s.known[text], s.texts = k, append(s.texts, v)
		}
		if i == 0 {
			s.own[len(s.own)-1] = k
		}
	}
	return nil
}

func (s *search) rank(out *Recall) {
	out.Queries, out.Texts = len(s.queries), len(s.texts)
	for i, q := range s.queries {
		rank, own := 1, cosine(q, s.texts[s.own[i]])
		for k, t := range s.texts {
			if k != s.own[i] && !(cosine(q, t) < own) {
				rank++
			}
		}
		out.Mean += 1 / float64(rank) / float64(out.Queries)
		for _, n := range RecallAt {
			if rank <= n {
				out.At[n] += 1 / float64(out.Queries)
			} else {
				out.At[n] += 0
			}
		}
	}
}

// cosine of vectors of length 1.
func cosine(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
