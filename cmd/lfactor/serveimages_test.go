package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/serve"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/stages/sample"
	models "github.com/lfactor/lfactor/stages/trained"
)

// TestServeImages: chats with images, many at once, have the answers that the model gives about each by
// itself; images that are none, or lie elsewhere, are refused.
func TestServeImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shards := filepath.Join(dir, "shards")
	require.NoError(t, os.Mkdir(shards, 0o755))
	_, err := demo.WriteScenes(shards, 80)
	require.NoError(t, err)
	require.NoError(t, vlmRun(t, dir, 12))
	checkpoints, tokenizer := filepath.Join(dir, "checkpoints"), filepath.Join(dir, "tokenizer")
	m, err := models.Open(checkpoints, tokenizer)
	require.NoError(t, err)
	defer m.Close()
	refusesAdapters(t, m)
	s, err := serve.New(m, serve.Options{Name: "sees", Processor: tokenizer})
	require.NoError(t, err)
	defer s.Close()
	at := httptest.NewServer(s)
	defer at.Close()
	ask := func(url, text string, seed int) (string, error) {
		body := fmt.Sprintf(`{"model": "sees", "max_tokens": 9, "temperature": 1, "seed": %d, "messages": [{"role": "user", "content":
			[{"type": "image_url", "image_url": {"url": "%s"}}, {"type": "text", "text": %q}]}]}`, seed, url, text)
		r, err := http.Post(at.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		defer r.Body.Close() //nolint:errcheck // it is only read
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return "", err
		}
		var v struct {
			Choices []struct{ Message struct{ Content string } }
			Error   struct{ Message string }
		}
		if err := json.Unmarshal(b, &v); err != nil || len(v.Choices) == 0 {
			return v.Error.Message, err
		}
		return strings.Join(strings.Fields(v.Choices[0].Message.Content), " "), nil
	}
	quiz, done, err := models.OpenQuiz(tokenizer, checkpoints)
	require.NoError(t, err)
	defer done()
	var all sync.WaitGroup
	r := rand.New(rand.NewPCG(1, 2))
	texts := map[string]bool{}
	var mu sync.Mutex
	for i, scene := range demo.Scenes(true)[:8] {
		png, k := scene.Png(r), demo.SceneQuestions[i%4]
		want, err := quiz.Answer(k.Text, png, sample.Params{Max: 9, Temperature: 1, Seed: uint64(i)})
		require.NoError(t, err)
		all.Go(func() {
			got, err := ask("data:image/png;base64,"+base64.StdEncoding.EncodeToString(png), k.Text, i)
			mu.Lock()
			defer mu.Unlock()
			require.NoError(t, err)
			require.Equal(t, want, got)
			texts[got] = true
		})
	}
	all.Wait()
	require.Greater(t, len(texts), 1, "answers are not all the same")
	for url, want := range map[string]string{pngOf(9000, 9000) + `"}}, {"type": "image_url", "image_url": {"url": "` +
		pngOf(3000, 4000): "the request's images have more than 89478485 pixels together",
		pngOf(10000, 10000): "over the limit", "http://127.0.0.1/a.png": "nothing is fetched here",
		"data:image/png;base64,???": "no base64", "data:image/png;base64,aGVsbG8=": "image 1"} {
		got, err := ask(url, "what?", 1)
		require.NoError(t, err)
		require.Contains(t, got, want)
	}
}

// pngOf is the address of a PNG of so many pixels, of which there is the header alone.
func pngOf(w, h uint32) string {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR")
	b = append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, w), h), 1, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[12:]))
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(append(b, make([]byte, 1<<14)...))
}

// refusesAdapters: a server of a model that sees trains no adapters.
func refusesAdapters(t *testing.T, m *models.Trained) {
	t.Helper()
	_, err := serve.New(m, serve.Options{Name: "sees", Train: &serve.TrainOptions{Adapters: 1, Rank: 2,
		Alpha: 2, Targets: []string{"q_proj"}, Rows: 16}})
	require.ErrorContains(t, err, "adapters of models that see are not served")
}
