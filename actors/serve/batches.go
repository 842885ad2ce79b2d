package serve

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// Bounds of batches: bytes of a file and requests of a batch, as OpenAI has them; batches under way; requests of a batch
// that are asked at once; how long a batch may take; and errors of lines that are told.
const (
	batchFileMost  = 200 << 20
	batchLinesMost = 50_000
	batchesMost    = 64
	batchAtOnce    = 16
	batchWindow    = 24 * time.Hour
	batchTold      = 20
	batchFiles     = 10_000 // of the folder, those of outcomes among them
)

// batchPaths are those that a batch may ask.
var batchPaths = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

// batch is one as OpenAI's API shows it, and as it lies in the folder of batches.
type batch struct {
	ID       string          `json:"id"`
	Object   string          `json:"object"`
	Endpoint string          `json:"endpoint"`
	Errors   *batchErrors    `json:"errors"`
	Input    string          `json:"input_file_id"`
	Window   string          `json:"completion_window"`
	Status   string          `json:"status"`
	Output   *string         `json:"output_file_id"`
	Failed   *string         `json:"error_file_id"`
	Created  int64           `json:"created_at"`
	Began    int64           `json:"in_progress_at"`
	Expires  int64           `json:"expires_at"`
	Counts   batchCounts     `json:"request_counts"`
	Metadata json.RawMessage `json:"metadata"`
	Over     int64           `json:"over_at"` // when it ended in its status
	cancel   context.CancelFunc
}

type batchCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

type batchErrors struct {
	Object string       `json:"object"`
	Data   []batchError `json:"data"`
}

type batchError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param"`
	Line    int    `json:"line"`
}

// batchFile is a file as OpenAI's API shows it.
type batchFile struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Bytes   int64  `json:"bytes"`
	Created int64  `json:"created_at"`
	Name    string `json:"filename"`
	Purpose string `json:"purpose"`
}

// batchLine is a request of a batch.
type batchLine struct {
	CustomID string          `json:"custom_id"`
	Method   string          `json:"method"`
	URL      string          `json:"url"`
	Body     json.RawMessage `json:"body"`
}

// batches are those of a server, in a folder: of each file and each batch a description, NAME.json, and of a file its
// lines, NAME.jsonl. A server that begins goes on with those that are not over.
type batches struct {
	s     *Server
	dir   string
	over  context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup
	mu    sync.Mutex
	all   map[string]*batch

	release func() // gives the folder back
}

// newBatches opens the folder.
func newBatches(s *Server, dir string) (*batches, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--batches: %w", err)
	}
	release, err := machine.LockDir("--batches", dir)
	if err != nil {
		return nil, err
	}
	b := &batches{s: s, dir: dir, all: map[string]*batch{}, release: release}
	b.over, b.end = context.WithCancel(context.Background())
	if err := b.known(); err != nil {
		release()
		return nil, err
	}
	return b, nil
}

// known reads the batches of the folder.
func (b *batches) known() error {
	names, err := filepath.Glob(filepath.Join(b.dir, "batch-*.json"))
	for _, name := range names {
		x := &batch{}
		if err := readJSON(name, x); err != nil || x.ID+".json" != filepath.Base(name) {
			return fmt.Errorf("--batches: %s is no batch of that name: %w", name, cmp.Or(err, errors.New("it has another id")))
		}
		b.all[x.ID] = x
	}
	return err
}

func readJSON(name string, v any) error {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	return err
}

// paths declares those of files and batches.
func (b *batches) paths() {
	if b == nil {
		return
	}
	m := b.s.mux
	m.HandleFunc("POST /v1/files", b.answers(b.upload))
	m.HandleFunc("GET /v1/files", b.answers(b.files))
	m.HandleFunc("GET /v1/files/{id}", b.answers(func(r *http.Request) (any, error) { return b.file(r.PathValue("id")) }))
	m.HandleFunc("DELETE /v1/files/{id}", b.answers(b.remove))
	m.HandleFunc("GET /v1/files/{id}/content", b.s.guarded(b.content))
	m.HandleFunc("POST /v1/batches", b.answers(b.create))
	m.HandleFunc("GET /v1/batches", b.answers(b.list))
	m.HandleFunc("GET /v1/batches/{id}", b.answers(func(r *http.Request) (any, error) { return b.shown(r.PathValue("id")) }))
	m.HandleFunc("POST /v1/batches/{id}/cancel", b.answers(b.stop))
	for _, x := range b.all {
		if x.under() {
			b.start(x)
		}
	}
}

func (b *batches) answers(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return b.s.guarded(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			b.s.fail(w, err)
			return
		}
		answer(w, http.StatusOK, v)
	})
}

// close has batches under way end; a server that begins in the folder goes on with them.
func (b *batches) close() {
	if b != nil {
		b.end()
		b.tasks.Wait()
		b.release()
	}
}

func (x *batch) under() bool { return x.Status == "in_progress" || x.Status == "cancelling" }

// at is a file of the folder. Ids are this server's, of letters, digits and one line below.
func (b *batches) at(id, end string) (string, error) {
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" || id == "" || len(id) > 64 {
		return "", fault{http.StatusNotFound, "invalid_request_error", fmt.Sprintf("there is no %.40q", id), "id", "not_found"}
	}
	return filepath.Join(b.dir, id+end), nil
}

func (b *batches) file(id string) (f batchFile, err error) {
	at, err := b.at(id, ".json")
	if err == nil && (!strings.HasPrefix(id, "file-") || readJSON(at, &f) != nil) {
		err = fault{http.StatusNotFound, "invalid_request_error", fmt.Sprintf("there is no file %.40q", id), "id", "not_found"}
	}
	return f, err
}

// keep writes the description of a file.
func (b *batches) keep(f batchFile) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return machine.ReplaceBytes(filepath.Join(b.dir, f.ID+".json"), 0o600, text)
}

// upload takes a file of requests: a form with purpose and file, as OpenAI's clients send it.
func (b *batches) upload(r *http.Request) (any, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, bad("file", "a file comes as multipart/form-data: %v", err)
	}
	f := batchFile{ID: b.s.identity("file"), Object: "file", Created: b.s.now().Unix()}
	at := filepath.Join(b.dir, f.ID+".jsonl")
	defer func() {
		if f.Bytes == 0 {
			_ = os.Remove(at) // nothing, or a part, of it came
		}
	}()
	if names, err := filepath.Glob(filepath.Join(b.dir, "file-*.json")); err != nil || len(names) >= batchFiles {
		return nil, fault{http.StatusInsufficientStorage, "invalid_request_error",
			fmt.Sprintf("%d files are kept, the most: DELETE /v1/files/ID makes room", len(names)), "file", "files_full"}
	}
	got := int64(0)
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, bad("file", "the form did not come: %v", err)
		}
		switch part.FormName() {
		case "purpose":
			text, err := io.ReadAll(io.LimitReader(part, 64))
			if f.Purpose = string(text); err != nil || f.Purpose != "batch" {
				return nil, bad("purpose", "is %q, and only batch is there", f.Purpose)
			}
		case "file":
			f.Name = filepath.Base(part.FileName())
			if got, err = write(at, io.LimitReader(part, batchFileMost+1)); err != nil {
				return nil, fmt.Errorf("--batches: %w", err)
			}
			if got > batchFileMost {
				return nil, tooLarge(batchFileMost)
			}
		default:
			return nil, bad(part.FormName(), "is no field of a file: purpose and file are")
		}
	}
	if got == 0 || f.Purpose == "" {
		return nil, bad("file", "the form has no purpose, or no file that is not empty")
	}
	f.Bytes = got
	return f, b.keep(f)
}

func write(at string, from io.Reader) (n int64, err error) {
	f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(f, from)
	return n, errors.Join(err, f.Close())
}

func (b *batches) files(*http.Request) (any, error) {
	names, err := filepath.Glob(filepath.Join(b.dir, "file-*.json"))
	all := []batchFile{}
	for _, name := range names {
		var f batchFile
		if readJSON(name, &f) == nil {
			all = append(all, f)
		}
	}
	return map[string]any{"object": "list", "data": all, "has_more": false}, err
}

func (b *batches) remove(r *http.Request) (any, error) {
	f, err := b.file(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.all {
		if x.under() && x.Input == f.ID {
			return nil, bad("id", "the batch %s reads it", x.ID)
		}
	}
	for _, end := range []string{".jsonl", ".json"} {
		if err := os.Remove(filepath.Join(b.dir, f.ID+end)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return map[string]any{"id": f.ID, "object": "file", "deleted": true}, nil
}

func (b *batches) content(w http.ResponseWriter, r *http.Request) {
	f, err := b.file(r.PathValue("id"))
	if err != nil {
		b.s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	http.ServeFile(w, r, filepath.Join(b.dir, f.ID+".jsonl"))
}

// shown is a batch as it is now.
func (b *batches) shown(id string) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.all[id]
	if x == nil {
		return nil, fault{http.StatusNotFound, "invalid_request_error", fmt.Sprintf("there is no batch %.40q", id), "id", "not_found"}
	}
	return x.view(), nil
}

// view is what clients see: with the time under the name of the status that it ended in.
func (x *batch) view() map[string]any {
	out := map[string]any{}
	text, err := json.Marshal(x)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(fmt.Sprintf("serve: a batch does not marshal: %v", err))
	}
	for _, status := range []string{"completed", "failed", "expired", "cancelled"} {
		if out[status+"_at"] = nil; x.Status == status {
			out[status+"_at"] = x.Over
		}
	}
	delete(out, "over_at")
	return out
}

func (b *batches) list(r *http.Request) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*batch, 0, len(b.all))
	for _, x := range b.all {
		all = append(all, x)
	}
	slices.SortFunc(all, func(x, y *batch) int { // the newest first; ids count
		return cmp.Or(cmp.Compare(y.Created, x.Created), cmp.Compare(len(y.ID), len(x.ID)), cmp.Compare(y.ID, x.ID))
	})
	if after := r.URL.Query().Get("after"); after != "" {
		at := slices.IndexFunc(all, func(x *batch) bool { return x.ID == after })
		all = all[at+1:]
	}
	limit, shown := 20, []any{}
	if text := r.URL.Query().Get("limit"); text != "" {
		if _, err := fmt.Sscan(text, &limit); err != nil || limit < 1 || limit > 100 {
			return nil, bad("limit", "is %.20q, and no number from 1 to 100", text)
		}
	}
	for _, x := range all[:min(limit, len(all))] {
		shown = append(shown, x.view())
	}
	return map[string]any{"object": "list", "data": shown, "has_more": len(all) > limit}, nil
}

// save writes a batch's description; the caller holds the lock.
func (b *batches) save(x *batch) error {
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return machine.ReplaceBytes(filepath.Join(b.dir, x.ID+".json"), 0o600, text)
}

// create begins a batch, or shows it failed with the lines that are at fault.
func (b *batches) create(r *http.Request) (any, error) {
	var in struct {
		Input    string          `json:"input_file_id"`
		Endpoint string          `json:"endpoint"`
		Window   string          `json:"completion_window"`
		Metadata json.RawMessage `json:"metadata"`
	}
	d := json.NewDecoder(io.LimitReader(r.Body, 1<<16))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, bad("", "the request is none of a batch: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, bad("", "the request is none of a batch: something follows it")
	}
	f, err := b.file(in.Input)
	switch {
	case err != nil:
		return nil, bad("input_file_id", "there is no file %.40q", in.Input)
	case !slices.Contains(batchPaths, in.Endpoint):
		return nil, bad("endpoint", "is %.40q, and none of %s", in.Endpoint, strings.Join(batchPaths, ", "))
	case in.Window != "24h":
		return nil, bad("completion_window", "is %.20q, and only 24h is there", in.Window)
	}
	now := b.s.now().Unix()
	x := &batch{ID: b.s.identity("batch"), Object: "batch", Endpoint: in.Endpoint, Input: f.ID, Window: in.Window,
		Status: "in_progress", Created: now, Began: now, Expires: now + int64(batchWindow/time.Second), Metadata: in.Metadata}
	if x.Metadata == nil {
		x.Metadata = json.RawMessage("null")
	}
	faults, err := b.read(x)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(faults) > 0 {
		x.Status, x.Over, x.Errors, x.Counts = "failed", now, &batchErrors{"list", faults}, batchCounts{}
	}
	under := 0
	for _, y := range b.all {
		if y.under() {
			under++
		}
	}
	if x.under() && under >= batchesMost {
		return nil, fault{http.StatusTooManyRequests, "rate_limit_error", fmt.Sprintf("%d batches are under way", under), "", "batches_full"}
	}
	if err := b.save(x); err != nil {
		return nil, err
	}
	if b.all[x.ID] = x; x.under() {
		b.start(x)
	}
	return x.view(), nil
}

// read counts a batch's requests, and says which lines are none.
func (b *batches) read(x *batch) (faults []batchError, err error) {
	seen := map[string]bool{}
	if err := b.lines(x.Input, func(line int, l *batchLine, err error) bool {
		x.Counts.Total++
		switch {
		case err != nil:
		case x.Counts.Total > batchLinesMost:
			err = fmt.Errorf("there are more than %d requests", batchLinesMost)
		case l.URL != x.Endpoint || l.Method != http.MethodPost:
			err = fmt.Errorf("it asks %.10q %.40q, and the batch POST %s", l.Method, l.URL, x.Endpoint)
		case l.CustomID == "" || seen[l.CustomID]:
			err = fmt.Errorf("its custom_id %.40q is none, or that of a line before", l.CustomID)
		}
		if l != nil {
			seen[l.CustomID] = true
		}
		if err != nil {
			faults = append(faults, batchError{"invalid_line", err.Error(), "input_file_id", line})
		}
		return len(faults) < batchTold
	}); err != nil {
		return nil, err
	}
	if x.Counts.Total == 0 {
		faults = append(faults, batchError{"empty_file", "the file has no line", "input_file_id", 0})
	}
	return faults, nil
}

// lines reads the requests of a file until f has enough.
func (b *batches) lines(id string, f func(line int, l *batchLine, err error) bool) error {
	file, err := os.Open(filepath.Join(b.dir, id+".jsonl"))
	if err != nil {
		return fmt.Errorf("--batches: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	in := bufio.NewScanner(file)
	in.Buffer(nil, int(b.s.o.Body)+1<<10)
	for line := 1; in.Scan(); line++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		l := &batchLine{}
		d := json.NewDecoder(bytes.NewReader(in.Bytes()))
		d.DisallowUnknownFields()
		err := d.Decode(l)
		if err != nil {
			l, err = nil, fmt.Errorf("it is no request: %v", err)
		}
		if !f(line, l, err) {
			return nil
		}
	}
	if err := in.Err(); err != nil {
		f(0, nil, fmt.Errorf("a line is longer than %d bytes: %w", b.s.o.Body, err))
	}
	return nil
}
