package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// uploaded sends a file of a batch, and gives its id.
func uploaded(t *testing.T, url, text string) string {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	require.NoError(t, form.WriteField("purpose", "batch"))
	part, err := form.CreateFormFile("file", "in.jsonl")
	require.NoError(t, err)
	_, err = io.WriteString(part, text)
	require.NoError(t, err)
	require.NoError(t, form.Close())
	r, err := http.Post(url+"/v1/files", form.FormDataContentType(), &b)
	require.NoError(t, err)
	defer r.Body.Close()
	var v map[string]any
	require.NoError(t, json.NewDecoder(r.Body).Decode(&v))
	require.Equal(t, http.StatusOK, r.StatusCode, "%v", v)
	return v["id"].(string)
}

func got(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

// ended waits for a batch to end, and shows it.
func ended(t *testing.T, url, id string) (v map[string]any) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, text := got(t, url+"/v1/batches/"+id)
		v = nil
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		return v["status"] != "in_progress" && v["status"] != "cancelling"
	}, time.Minute, 10*time.Millisecond)
	return v
}

func requests(n int, more string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id": "r%d", "method": "POST", "url": "/v1/completions", "body": {"model": "words", "prompt": "w%d", "max_tokens": 3, `+
			`"temperature": 0%s}}`+"\n", i, i, more)
	}
	return b.String()
}

// batchOf makes a batch of a file.
func batchOf(t *testing.T, url, id string) map[string]any {
	t.Helper()
	status, v := post(t, url+"/v1/batches", fmt.Sprintf(`{"input_file_id": %q, "endpoint": "/v1/completions", "completion_window": "24h",
		"metadata": {"k": "v"}}`, id))
	require.Equal(t, http.StatusOK, status, "%v", v)
	return v
}

// TestBatches: a batch's answers are those of single requests, each once, and a request that is refused lies in the file of
// errors.
func TestBatches(t *testing.T) {
	dir := t.TempDir()
	_, url := served(t, Options{Batches: dir})
	in := uploaded(t, url, requests(12, "")+`{"custom_id": "bad", "method": "POST", "url": "/v1/completions", "body": {"model": "words", "prompt": "w1", "top_p": 7}}`+"\n\n")
	x := batchOf(t, url, in)
	require.Equal(t, "v", at(x, "metadata", "k"))
	x = ended(t, url, x["id"].(string))
	require.Equal(t, []any{"completed", 13.0, 12.0, 1.0}, []any{x["status"], at(x, "request_counts", "total"),
		at(x, "request_counts", "completed"), at(x, "request_counts", "failed")})
	require.NotNil(t, x["completed_at"])
	answers := map[string]map[string]any{}
	_, text := got(t, url+"/v1/files/"+x["output_file_id"].(string)+"/content")
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var o map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &o))
		require.Nil(t, answers[o["custom_id"].(string)], "twice")
		answers[o["custom_id"].(string)] = o
	}
	require.Len(t, answers, 12)
	for i := range 12 {
		_, alone := post(t, url+"/v1/completions", fmt.Sprintf(`{"model": "words", "prompt": "w%d", "max_tokens": 3, "temperature": 0}`, i))
		require.Equal(t, at(alone, "choices", 0, "text"), at(answers[fmt.Sprint("r", i)], "response", "body", "choices", 0, "text"))
	}
	_, text = got(t, url+"/v1/files/"+x["error_file_id"].(string)+"/content")
	require.Contains(t, text, `"custom_id":"bad"`)
	require.Contains(t, text, "top_p")
}

// TestBatchesRefused: a file with broken lines is no batch, and neither is a request for another thing.
func TestBatchesRefused(t *testing.T) {
	dir := t.TempDir()
	_, url := served(t, Options{Batches: dir})
	_, err := newBatches(nil, dir)
	require.ErrorContains(t, err, "--batches: "+dir+" is in use by another")
	in := uploaded(t, url, requests(1, ""))
	for bad, why := range map[string]string{"{\n": "it is no request", requests(1, "") + requests(1, ""): "that of a line before", "\n": "has no line",
		strings.ReplaceAll(requests(1, ""), "/v1/completions", "/v1/other"): "and the batch POST /v1/completions"} {
		x := batchOf(t, url, uploaded(t, url, bad))
		require.Equal(t, "failed", x["status"])
		require.Contains(t, at(x, "errors", "data", 0, "message"), why)
	}
	for body, why := range map[string]string{`{"input_file_id": "file-../x", "endpoint": "/v1/completions", "completion_window": "24h"}`: "there is no file",
		`{"input_file_id": "` + in + `", "endpoint": "/v1/files", "completion_window": "24h"}`:      "none of /v1/chat",
		`{"input_file_id": "` + in + `", "endpoint": "/v1/completions", "completion_window": "1h"}`: "only 24h",
		`{"input_file_id": 7}`: "none of a batch",
		`{"input_file_id": "` + in + `", "endpoint": "/v1/completions", "completion_window": "24h"} {}`: "something follows it"} {
		status, v := post(t, url+"/v1/batches", body)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, at(v, "error", "message"), why)
	}
	status, _ := got(t, url+"/v1/files/..%2f..%2fetc/content")
	require.Equal(t, http.StatusNotFound, status)
}

// TestBatchesGoOn: a batch whose server ended in between, with an outcome that was cut off, has each outcome once; one that
// is cancelled says so.
func TestBatchesGoOn(t *testing.T) {
	dir := t.TempDir()
	s, url := served(t, Options{Batches: dir})
	x := batchOf(t, url, uploaded(t, url, requests(40, "")))
	s.batches.close()
	var saved batch
	require.NoError(t, readJSON(filepath.Join(dir, x["id"].(string)+".json"), &saved))
	if saved.Output != nil {
		f, err := os.OpenFile(filepath.Join(dir, *saved.Output+".jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString(`{"custom_id": "r39", "resp`)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	_, again := served(t, Options{Batches: dir})
	x = ended(t, again, x["id"].(string))
	require.Equal(t, []any{"completed", 40.0}, []any{x["status"], at(x, "request_counts", "completed")})
	_, text := got(t, again+"/v1/files/"+x["output_file_id"].(string)+"/content")
	require.Equal(t, 40, strings.Count(text, "\n"))
	for i := range 40 {
		require.Equal(t, 1, strings.Count(text, fmt.Sprintf(`"custom_id":"r%d"`, i)), "request %d", i)
	}

	// one is cancelled
	x = batchOf(t, again, uploaded(t, again, strings.ReplaceAll(requests(300, ""), `"max_tokens": 3`, `"max_tokens": 30`)))
	status, _ := post(t, again+"/v1/batches/"+x["id"].(string)+"/cancel", `{}`)
	require.Equal(t, http.StatusOK, status)
	x = ended(t, again, x["id"].(string))
	require.Equal(t, "cancelled", x["status"])
	require.NotNil(t, x["cancelled_at"])
	_, text = got(t, again+"/v1/batches?limit=1")
	var list map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	require.Equal(t, []any{x["id"], true}, []any{at(list, "data", 0, "id"), list["has_more"]})
}
