package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// A needle is a colour, an animal and a number that stand once somewhere in a long text of other words; at
// its end they are asked for. Texts are short at first and as long as they can be at last.

const (
	longTokens  = 8192 // of the texts that are asked about
	longShort   = 1024 // of the rows that models learn from first
	longSteps   = 300  // with those
	longLast    = 20   // with rows of longTokens
	longAsked   = 20
	needleWords = "what is the key ?"
)

// haystack are the words of all texts.
var haystack = strings.Fields("grass is green the sky blue sun yellow here we go there and back again one " +
	"river runs under old stone bridge while birds sing over quiet fields of corn at noon today")

// secrets are the words of needles, of which each has one of each kind.
var secrets = [][]string{strings.Fields("red white black pink brown grey gold silver purple orange"),
	strings.Fields("fox owl bear wolf hare crow toad mole lynx seal"),
	strings.Fields("two three four five six seven eight nine ten twelve")}

// longConfig is the run file of both models, which differ in name and in how layers see, and of both parts
// of their training: short texts, and from the checkpoint of those long ones.
const longConfig = `
model:
  name: %s
  init: %s
  overrides: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
    head_dim: 32, intermediate_size: 128, vocab_size: %d, max_position_embeddings: 16384,
    eos_token_id: [%d], bos_token_id: -1, initializer_range: 0.15, %s}
data: {kind: chat, paths: [%q], tokenizer: %q, seq_len: %d, shuffle: false, pack: sequential}
train: {phase: sft, steps: %d, global_batch: 1, log_interval: %d, seed: 5, loss_average: token}
optimizer: {lr: %g, min_lr: 5.0e-4, beta2: 0.98, weight_decay: 0.01}
schedule: {kind: cosine, warmup_steps: %d}
plan: {threads: 0}
checkpoint: {dir: %q, keep: 1%s}
log: {dir: %q}
`

// longModels are a hybrid of linear and full attention, and one whose layers all see a window only.
var longModels = []struct{ name, model, layers string }{
	{"hybrid", "qwen/3.5-0.8b", "layer_types: [linear_attention, full_attention], linear_num_key_heads: 4, " +
		"linear_num_value_heads: 4, linear_key_head_dim: 16, linear_value_head_dim: 16"},
	{"window", "qwen/3-0.6b", "layer_types: [sliding_attention, sliding_attention], sliding_window: 256"},
}

// needle is a text with a needle, and what is asked for.
func needle(r *rand.Rand, words int) (text, answer string) {
	var key []string
	for _, kind := range secrets {
		key = append(key, kind[r.IntN(len(kind))])
	}
	answer = strings.Join(key, " ")
	at := r.IntN(max(1, words*3/4)) // farther from the end than windows reach, in long texts
	var b strings.Builder
	for i := range words {
		if i == at {
			fmt.Fprintf(&b, " key : %s ;", answer)
		}
		b.WriteString(" " + haystack[r.IntN(len(haystack))])
	}
	return b.String() + " " + needleWords, answer
}

// longData writes conversations about needles, rows of so many tokens a step: the first have eight words,
// and later ones more and more, up to a whole row.
func longData(path string, steps, row, first int, growth float64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w, r := bufio.NewWriter(f), rand.New(rand.NewPCG(uint64(row), 4))
	const others = 24 // tokens that are not words of the text, at most
	for step := range steps + 1 {
		x := float64(step) / float64(steps)
		words := min(float64(row-2*others), float64(first)*math.Pow(growth, x*x))
		for left := row - others; left >= int(words)+others; {
			n := int(words * math.Exp(-r.Float64()/2))
			text, answer := needle(r, n)
			line, err := json.Marshal(map[string]any{"messages": []turn{{"user", text},
				{"assistant", " " + answer}}})
			if err != nil {
				return err
			}
			w.Write(append(line, '\n')) // the error stays until Flush
			left -= n + others
		}
	}
	return w.Flush()
}

// longTokenizer writes a tokenizer that has a token for each word.
func longTokenizer(dir string) (vocab int, end int32, err error) {
	words := append(slices.Clone(haystack), strings.Fields(needleWords+" : ; user assistant")...)
	words = append(words, slices.Concat(secrets...)...)
	var texts []string
	for range 50 {
		for _, w := range words {
			texts = append(texts, " "+w)
		}
	}
	text, err := token.Train(token.TrainConfig{VocabSize: 768,
		Special: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}}, slices.Values(texts))
	if err != nil {
		return 0, 0, err
	}
	const template = `{% for message in messages %}<|im_start|>{{ message['role'] }}` +
		`{{ message['content'] }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}`
	tc, err := json.Marshal(map[string]any{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
		"pad_token": "<|endoftext|>", "chat_template": template})
	if err != nil {
		return 0, 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, 0, err
	}
	for name, b := range map[string][]byte{"tokenizer.json": text, "tokenizer_config.json": tc} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return 0, 0, err
		}
	}
	tok, _, err := trained.TokenizerAt(dir)
	if err != nil {
		return 0, 0, err
	}
	end, _ = tok.TokenID("<|im_end|>")
	return tok.VocabSize(), end, nil
}

// demoLong trains both models to find needles, asks them for others, and draws the memory that chunks take.
func demoLong(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"hybrid", "window", "tokenizer"} {
		if err := os.RemoveAll(in(sub)); err != nil {
			return err
		}
	}
	vocab, end, err := longTokenizer(in("tokenizer"))
	if err != nil {
		return err
	}
	last, asked := min(longLast, steps), min(longAsked, steps)
	if err := longData(in("short.jsonl"), steps, longShort, 8, 120); err != nil {
		return err
	}
	if err := longData(in("long.jsonl"), last, longTokens, 2000, 5); err != nil {
		return err
	}
	right := map[string]int{}
	for _, m := range longModels {
		config := func(init, data string, tokens, steps int, rate float64,
			load string) (*configs.Config, error) {
			text := fmt.Sprintf(longConfig, m.model, init, vocab, end, m.layers, in(data),
				in("tokenizer"), tokens,
				steps, max(1, steps/5), rate, max(1, steps/10),
				filepath.Join(in(m.name), "checkpoints", data), load,
				filepath.Join(in(m.name), data))
			return configs.Load(configs.Request{File: "demo --long", Text: []byte(text)})
		}
		short, err := config("random", "short.jsonl", longShort, steps, 1e-2, "")
		if err != nil {
			return err
		}
		long, err := config("auto", "long.jsonl", longTokens, last, 2e-3, fmt.Sprintf(
			", load: %q, load_optimizer: false, load_rng: false", short.Run.Checkpoint.Dir))
		if err != nil {
			return err
		}
		for _, cfg := range []*configs.Config{short, long} {
			cfg.Notices = nil
			if err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr}); err != nil {
				return err
			}
		}
		if right[m.name], err = found(long.Run.Checkpoint.Dir, in("tokenizer"), asked); err != nil {
			return err
		}
		fmt.Fprintf(show.out, "%s: finds %d of %d needles in texts of %d tokens\n", m.name, right[m.name],
			asked, longTokens)
	}
	peaks, err := chunkPeaks(longTokens)
	if err != nil {
		return err
	}
	picture := in("chunks.svg")
	if err := os.WriteFile(picture, []byte(drawChunks(peaks, longTokens)), 0o600); err != nil {
		return err
	}
	show.result = map[string]any{"steps": steps, "asked": asked, "tokens": longTokens,
		"hybrid": right["hybrid"], "window": right["window"], "seconds": time.Since(began).Seconds(),
		"chunks": peaks, "files": map[string]string{"chunks": picture}}
	fmt.Fprintf(show.out, "a sequence of %d tokens takes %s at once and %s in chunks of %d: %s\n", longTokens,
		tensor.Bytes(peaks[0].Peak), tensor.Bytes(peaks[len(peaks)-1].Peak), peaks[len(peaks)-1].Chunk,
		picture)
	fmt.Fprintf(show.out, "done in %v\n", time.Since(began).Round(time.Second))
	return nil
}

// found asks a model for the needles of texts that it has not seen, none of which is as near to the end as
// windows reach, and counts those that it finds.
func found(checkpoints, tokenizer string, n int) (right int, err error) {
	m, err := trained.Open(checkpoints, tokenizer)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	r := rand.New(rand.NewPCG(9, 9))
	for range n {
		text, answer := needle(r, longTokens-64)
		c, err := m.NewChat()
		if err != nil {
			return 0, err
		}
		got, _, err := c.Say(text, sample.Params{Max: len(secrets) + 1}, io.Discard)
		c.Close()
		if err != nil {
			return 0, err
		}
		if strings.TrimSpace(got) == answer {
			right++
		}
	}
	return right, nil
}

// chunkPeak is the most memory that a step takes, as planned.
type chunkPeak struct {
	Chunk int   `json:"chunk"` // tokens
	State int64 `json:"state_bytes"`
	Peak  int64 `json:"peak_bytes"`
}

// chunkPeaks plans steps of one sequence in chunks of different sizes, for a model of full attention of the
// size of a small Qwen3 with layers computed again in the backward.
func chunkPeaks(tokens int) (out []chunkPeak, err error) {
	for chunk := tokens; chunk >= tokens/32; chunk /= 2 {
		text := fmt.Sprintf("model: {name: qwen/3-0.6b, init: random, overrides: {hidden_size: 256, "+
			"num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 1, head_dim: 64, "+
			"intermediate_size: 768, vocab_size: 4096}}\n"+
			"data: {kind: text, paths: [x], seq_len: %d}\ntrain: {steps: 1, global_batch: 1}\n"+
			"plan: {recompute: full, schedule: seq1f1b, chunk_size: %d, memory: 64GiB}\n", tokens, chunk)
		cfg, err := configs.Load(configs.Request{File: "demo --long", Text: []byte(text)})
		if err != nil {
			return nil, err
		}
		j, err := layout.FromConfig(cfg)
		if err != nil {
			return nil, err
		}
		l, err := layout.New(j)
		if err != nil {
			return nil, err
		}
		m := l.Memory(0)
		out = append(out, chunkPeak{chunk, m.Params + m.State + m.Grads, m.Total()})
	}
	return out, nil
}

// drawChunks draws peaks as bars, of which what the state takes is darker.
func drawChunks(peaks []chunkPeak, tokens int) string {
	const height, wide, left, top = 220.0, 70.0, 40.0, 60.0
	most := 0.0
	for _, p := range peaks {
		most = max(most, float64(p.Peak))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" `+
		`font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`, 2*left+wide*float64(len(peaks)),
		top+height+50)
	fmt.Fprintf(&b, `<text x="%g" y="20" font-size="14">peak memory of a sequence of %d tokens by size of `+
		`chunk</text>`, left, tokens)
	fmt.Fprintf(&b, `<text x="%g" y="38" fill="#555">light: activations, keys and values; dark: weights, `+
		`gradients, optimizer</text>`, left)
	for i, p := range peaks {
		x := left + wide*float64(i)
		for _, bar := range []struct {
			bytes int64
			color string
		}{{p.Peak, "#9cc3ea"}, {p.State, "#2060a0"}} {
			h := height * float64(bar.bytes) / most
			fmt.Fprintf(&b, `<rect x="%g" y="%.1f" width="%g" height="%.1f" fill="%s"/>`, x, top+height-h,
				wide-12,
				h, bar.color)
		}
		fmt.Fprintf(&b, `<text x="%g" y="%.1f">%s</text><text x="%g" y="%g">%d</text>`, x,
			top+height-height*float64(p.Peak)/most-4, tensor.Bytes(p.Peak), x, top+height+18, p.Chunk)
	}
	return b.String() + "</svg>"
}
