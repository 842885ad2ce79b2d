// Package stream gives the batches of a run's data to other trainers over HTTP, as Arrow IPC streams:
// `lfactor data serve`. A batch is asked for by a token, which says where it stands, and a share, rank of n.
// So a client that comes back with its last token goes on exactly, and clients may be another number from
// one step to the next: the step's samples stay the same.
package stream

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/lfactor/lfactor/dataset"
)

// Source is batches and their form.
type Source struct {
	dataset.Batches
	SeqLen, MicroBatch, GlobalBatch int
}

// Server serves a source. Steps are made once for all clients; the last stepsMax are kept for those behind.
type Server struct {
	src   Source
	mu    sync.Mutex
	steps []made // in the order in which they were made
}

// stepsMax bounds the steps that are kept.
const stepsMax = 16

// made is a step that was made.
type made struct {
	token, next string
	step        int64
	batches     []dataset.Batch
}

// NewServer serves a source from now on; nobody else may use it.
func NewServer(src Source) *Server { return &Server{src: src} }

// Token writes a position as clients keep it.
func Token(p dataset.Position) string {
	b, err := json.Marshal(p)
	if err != nil {
		panic("stream: a position is no JSON: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken reads a token; "" is the start.
func parseToken(s string) (p dataset.Position, err error) {
	if s == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, errors.New("the token is damaged: take one that a batch came with, or none for the start")
	}
	return p, nil
}

// ServeHTTP answers GET / with the form of the batches as JSON, and GET /batch?token=…&rank=…&of=… with an Arrow IPC
// stream of one record batch, a row of it a row of the batch; its schema's metadata has the token of the next step.
// 400 is a request that can never be answered, 404 a place that there is not, 410 the end of the data.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
	case r.URL.Path == "/":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"seq_len": s.src.SeqLen, "rows": s.src.GlobalBatch,
			"microbatch": s.src.MicroBatch}) // a client that went away hears nothing
	case r.URL.Path == "/batch":
		s.batch(w, r)
	default:
		http.Error(w, "there is / and /batch", http.StatusNotFound)
	}
}

// batch answers a request for a share of a step.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) {
	rank, of, err := s.share(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m, err := s.step(r.URL.Query().Get("token"))
	var bad *badToken
	switch {
	case errors.Is(err, io.EOF):
		http.Error(w, "the data is used up", http.StatusGone)
		return
	case errors.As(err, &bad):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.apache.arrow.stream")
	w.Header().Set("X-Next-Token", m.next)
	_ = write(w, m, dataset.Share(m.batches, rank, of), s.src.SeqLen) // a client that went away asks again
}

// share reads which part of a step is asked for.
func (s *Server) share(r *http.Request) (rank, of int, err error) {
	number := func(name string, otherwise int) int {
		text := r.URL.Query().Get(name)
		if text == "" {
			return otherwise
		}
		n, bad := strconv.Atoi(text)
		if bad != nil {
			err = fmt.Errorf("%s=%q is no number", name, text)
		}
		return n
	}
	rank, of = number("rank", 0), number("of", 1)
	n := s.src.GlobalBatch / s.src.MicroBatch
	switch {
	case err != nil:
	case of < 1 || n%of != 0:
		err = fmt.Errorf("of=%d: a step has %d microbatches, which so many ranks do not share evenly; change "+
			"train.global_batch or train.micro_batch", of, n)
	case rank < 0 || rank >= of:
		err = fmt.Errorf("rank=%d is none of the ranks 0 to %d", rank, of-1)
	}
	return rank, of, err
}

// badToken is a token that cannot be one of this data.
type badToken struct{ error }

// step makes the step that begins at a token, unless it is one of those that are kept.
func (s *Server) step(token string) (made, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.steps {
		if m.token == token {
			return m, nil
		}
	}
	p, err := parseToken(token)
	if err != nil {
		return made{}, &badToken{err}
	}
	if token == "" || token != Token(s.src.Position()) {
		if err := s.src.Seek(p); err != nil {
			return made{}, &badToken{err}
		}
	}
	m := made{token: token, step: p.Step}
	if m.batches, err = s.src.Step(p.Step); err != nil {
		return made{}, err
	}
	m.next = Token(s.src.Position())
	if s.steps = append(s.steps, m); len(s.steps) > stepsMax {
		s.steps = s.steps[1:]
	}
	return m, nil
}

// write writes rows as an Arrow IPC stream. Columns: tokens, labels and positions, int32 [seq_len] each;
// starts, where segments of the row begin; samples, the sample of each segment, -1 for padding.
func write(w io.Writer, m made, batches []dataset.Batch, seqLen int) error {
	pool := memory.NewGoAllocator()
	row := arrow.FixedSizeListOf(int32(seqLen), arrow.PrimitiveTypes.Int32)
	meta := arrow.NewMetadata([]string{"next_token", "step"}, []string{m.next, strconv.FormatInt(m.step, 10)})
	schema := arrow.NewSchema([]arrow.Field{{Name: "tokens", Type: row}, {Name: "labels", Type: row},
		{Name: "positions", Type: row}, {Name: "starts", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)},
		{Name: "samples", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)}}, &meta)
	b := array.NewRecordBuilder(pool, schema)
	defer b.Release()
	for i := range batches {
		appendRows(b, &batches[i])
	}
	rec := b.NewRecord()
	defer rec.Release()
	out := ipc.NewWriter(w, ipc.WithSchema(schema), ipc.WithAllocator(pool))
	return errors.Join(out.Write(rec), out.Close())
}

// appendRows appends the rows of a microbatch.
func appendRows(b *array.RecordBuilder, m *dataset.Batch) {
	starts, samples := b.Field(3).(*array.ListBuilder), b.Field(4).(*array.ListBuilder)
	at := 0
	for r := range m.Rows {
		from, to := r*m.SeqLen, (r+1)*m.SeqLen
		for i, list := range [][]int32{m.Tokens, m.Labels, m.Positions} {
			f := b.Field(i).(*array.FixedSizeListBuilder)
			f.Append(true)
			f.ValueBuilder().(*array.Int32Builder).AppendValues(list[from:to], nil)
		}
		starts.Append(true)
		samples.Append(true)
		for ; at < len(m.SampleIDs) && int(m.CuSeqlens[at]) < to; at++ {
			starts.ValueBuilder().(*array.Int32Builder).Append(m.CuSeqlens[at] - int32(from))
			samples.ValueBuilder().(*array.Int64Builder).Append(m.SampleIDs[at])
		}
	}
}
