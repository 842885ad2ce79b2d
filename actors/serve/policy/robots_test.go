package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

var long = flag.Bool("long", false, "run the long tier as well")

// tiny is a small policy of Pi0.5's kind, and tinyRun a run that trains it.
const (
	tiny = `model_type: pi05
hidden_size: 16
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 1
head_dim: 4
intermediate_size: 24
vocab_size: 8
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 4
expert_hidden_size: 12
expert_intermediate_size: 20
chunk_size: 4
views: 1
view_size: 8
view_patch: 4
view_hidden_size: 12
view_intermediate_size: 18
view_heads: 2
view_layers: 1
`
	tinyRun = `
model: {file: %q}
data: {paths: [%q], tokenizer: %q, seq_len: 4, split: [1, 0, 0]}
train: {steps: 2, global_batch: 4}
optimizer: {lr: 1.0e-3}
plan: {threads: 1}
checkpoint: {dir: %q, interval: 2}
log: {dir: %q}
`
)

// words is a tokenizer of the words of tiny.
const words = `{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
	"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "Task": 1, ":": 2, "red": 3, "disc": 4, "State": 5}}}`

// trains trains tiny for two steps, and opens it.
func trains(t testing.TB) *trained.Trained {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	var all []recordings.RobotEpisode
	for i := range 3 {
		e := recordings.RobotEpisode{Task: "red disc"}
		for k := range 5 {
			img := image.NewRGBA(image.Rect(0, 0, 8, 8))
			img.Set(k, i, color.RGBA{255, 0, 0, 255})
			var b bytes.Buffer
			require.NoError(t, png.Encode(&b, img))
			e.Frames = append(e.Frames, recordings.RobotStep{Images: [][]byte{b.Bytes()},
				State:  []float32{float32(k), float32(i)},
				Action: []float32{float32(i - k), float32(k), 1}})
		}
		all = append(all, e)
	}
	require.NoError(t, recordings.WriteRobot(in("set"), recordings.RobotTop(10, 8), all))
	require.NoError(t, os.MkdirAll(in("words"), 0o755))
	require.NoError(t, os.WriteFile(in("words/tokenizer.json"), []byte(words), 0o644))
	settings, err := json.Marshal(map[string]any{"tokenizer_class": "PreTrainedTokenizerFast"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("words/tokenizer_config.json"), settings, 0o644))
	require.NoError(t, os.WriteFile(in("tiny.yaml"), []byte(tiny), 0o644))
	text := fmt.Sprintf(tinyRun, in("tiny.yaml"), in("set"), in("words"), in("saved"), in("log"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text)})
	require.NoError(t, err)
	require.NoError(t, run.Train(t.Context(), cfg, run.Options{}))
	m, err := trained.Open(in("saved"), "")
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// glance is what the tiny policy reads, of a state and with a lit pixel.
func glance(x float32, more ...Pair) []Pair {
	p := Array{DType: "|u1", Shape: []int{8, 8, 3}, Data: make([]byte, 192)}
	p.Data[17] = 200
	return append([]Pair{{"observation/state", FloatsOf([]float32{x, 1}, 2)}, {"observation/images/top", p},
		{"prompt", "red disc"}}, more...)
}

// TestServedActs: a served policy gives the actions that it gives when it is asked directly, whoever else
// asks, and a joined chunk begins with the actions that are still carried out.
func TestServedActs(t *testing.T) {
	m := trains(t)
	s, err := New(m, Options{Replicas: 2, Horizon: 3})
	require.NoError(t, err)
	defer s.Close()
	h := httptest.NewServer(s)
	defer h.Close()
	url := "ws" + strings.TrimPrefix(h.URL, "http")
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	view := media.NewImage(8, 8)
	clear(view.Pix)
	view.Pix[17] = 200
	var all sync.WaitGroup
	for i := range 6 {
		r := dial(t, url)
		all.Go(func() {
			for k := range 5 {
				r.send(Pack(nil, glance(float32(i), Pair{"seed", k})))
				got, _, fault := r.answer()
				if fault != "" || len(got) != 12 {
					t.Errorf("robot %d: %q, %v", i, fault, got)
				}
			}
		})
	}
	all.Wait()
	want, err := actor.Act([]policies.Seen{{Task: "red disc", State: []float64{3, 1},
		Views: []*media.Image{view},
		Seed:  8}})
	require.NoError(t, err)
	r := dial(t, url)
	first, _, fault := r.infer(glance(3, Pair{"seed", 8}))
	require.Empty(t, fault)
	for k, a := range want[0] {
		require.InDeltaSlice(t, a, first[3*k:3*k+3], 1e-4)
	}
	free, _, _ := r.infer(glance(3, Pair{"seed", 9}))
	r.infer(glance(3, Pair{"seed", 8}))
	joined, _, fault := r.infer(glance(3, Pair{"seed", 9}, Pair{"real_time_chunking", []Pair{{"executed", 1},
		{"delay", 2}}}))
	require.Empty(t, fault)
	far := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += (a[i] - b[i]) * (a[i] - b[i])
		}
		return sum
	}
	require.Less(t, far(joined[:6], first[3:9]), 0.05*far(free[:6], first[3:9]))
	require.InDeltaSlice(t, free[9:], joined[9:], 0.5) // behind the horizon it is drawn along, not held
}

// TestOnTime: robots that ask at 10 Hz have their actions within 100 ms, while one client sends garbage,
// one stalls within messages and one sends what is no observation and never reads. The long tier does so for a minute.
func TestOnTime(t *testing.T) {
	m := trains(t)
	s, err := New(m, Options{Slow: time.Second})
	require.NoError(t, err)
	defer s.Close()
	h := httptest.NewServer(s)
	defer h.Close()
	url := "ws" + strings.TrimPrefix(h.URL, "http")
	span := 2 * time.Second
	if *long {
		span = time.Minute
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var bad, good sync.WaitGroup
	for _, do := range nuisances {
		bad.Go(func() { nuisance(ctx, url, do) })
	}
	var late, asked, failed atomic.Int64
	for i := range 8 {
		r := dial(t, url)
		good.Go(func() {
			ticks := time.NewTicker(100 * time.Millisecond)
			defer ticks.Stop()
			for ctx.Err() == nil {
				began := time.Now()
				got, _, fault := r.infer(glance(float32(i)))
				asked.Add(1)
				if fault != "" || len(got) != 12 {
					failed.Add(1)
				}
				if time.Since(began) > 100*time.Millisecond {
					late.Add(1)
				}
				select {
				case <-ctx.Done():
				case <-ticks.C:
				}
			}
		})
	}
	<-time.After(span)
	require.Eventually(t, func() bool { return asked.Load() >= 8 && s.Summary().Dropped > 0 }, 4*time.Minute,
		time.Millisecond, "how many ask and are dropped in that time depends on who else uses the machine")
	cancel()
	good.Wait()
	bad.Wait()
	sum := s.Summary()
	t.Logf("%d observations of 8 robots at 10 Hz in %v, %d of them later than 100 ms; %v", asked.Load(),
		span,
		late.Load(), sum)
	require.Zero(t, failed.Load())
	if *long {
		require.Greater(t, asked.Load(), int64(8*span/(200*time.Millisecond)))
		require.Zero(t, late.Load())
	}
}

// nuisances are what robots' neighbours do: garbage, a message that never comes to its end, and observations
// that are none.
var nuisances = []func(ctx context.Context, c *websocket.Conn) error{
	func(ctx context.Context, c *websocket.Conn) error {
		return c.Write(ctx, websocket.MessageBinary, bytes.Repeat([]byte("\x93garbage"), 999))
	},
	func(ctx context.Context, c *websocket.Conn) error {
		w, err := c.Writer(ctx, websocket.MessageBinary)
		if err == nil {
			_, err = w.Write(make([]byte, 10000)) // more than is held back
		}
		if err == nil {
			_, _, err = c.Read(ctx) // the rest never comes
		}
		return err
	},
	func(ctx context.Context, c *websocket.Conn) error {
		return c.Write(ctx, websocket.MessageBinary, Pack(nil, "no observation"))
	},
}

// nuisance connects again and again, and does what it may not.
func nuisance(ctx context.Context, url string, do func(ctx context.Context, c *websocket.Conn) error) {
	for ctx.Err() == nil {
		c, _, err := websocket.Dial(ctx, url, nil)
		if err != nil {
			continue
		}
		if _, _, err = c.Read(ctx); err == nil {
			for k := 0; k < 50 && do(ctx, c) == nil; k++ {
			}
		}
		_ = c.CloseNow() // it is a nuisance's
	}
}
