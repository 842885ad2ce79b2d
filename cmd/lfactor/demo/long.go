package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// A needle is a colour, an animal and a number that stand once somewhere in a long text of other words; at its end they
// are asked for. Texts are short at first and as long as they can be at last.

const (
	longTokens  = 8192 // of the texts that are asked about
	longShort   = 1024 // of the rows that models learn from first
	longLast    = 20   // steps with rows of longTokens
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

// longModels are a hybrid of linear and full attention, and one whose layers all see a window only.
var longModels = []values{
	{"name": "hybrid", "model": "qwen/3.5-0.8b", "layers": "layer_types: [linear_attention, full_attention], " +
		"linear_num_key_heads: 4, linear_num_value_heads: 4, linear_key_head_dim: 16, linear_value_head_dim: 16"},
	{"name": "window", "model": "qwen/3-0.6b", "layers": "layer_types: [sliding_attention, sliding_attention], " +
		"sliding_window: 256"},
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

// longData writes conversations about needles, rows of so many tokens a step: the first have so many words, and later
// ones more and more, up to a whole row.
func longData(path string, steps, row, first int, growth float64) error {
	var text bytes.Buffer
	w, r := json.NewEncoder(&text), rand.New(rand.NewPCG(uint64(row), 4))
	const others = 24 // tokens that are not words of the text, at most
	for step := range steps + 1 {
		x := float64(step) / float64(steps)
		words := min(float64(row-2*others), float64(first)*math.Pow(growth, x*x))
		for left := row - others; left >= int(words)+others; {
			n := int(words * math.Exp(-r.Float64()/2))
			text, answer := needle(r, n)
			if err := w.Encode(map[string]any{"messages": []turn{{"user", text}, {"assistant", " " + answer}}}); err != nil {
				return err
			}
			left -= n + others
		}
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// longTokenizer writes a tokenizer that has a token for each word.
func (s *session) longTokenizer() (vocab int, end int32, err error) {
	words := append(slices.Clone(haystack), strings.Fields(needleWords+" : ; user assistant")...)
	words = append(words, slices.Concat(secrets...)...)
	texts := slices.Repeat(words, 50)
	for i := range texts {
		texts[i] = " " + texts[i]
	}
	ids, err := s.tokenizer("tokenizer", "long/tokenizer", token.TrainConfig{VocabSize: 768,
		Special: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}}, texts)
	return int(ids["vocab"]), ids["<|im_end|>"], err
}

// long trains both models to find needles, asks them for others, and draws the memory that chunks take.
func (s *session) long() error {
	if err := s.clear("hybrid", "window", "tokenizer"); err != nil {
		return err
	}
	vocab, end, err := s.longTokenizer()
	if err != nil {
		return err
	}
	last, asked := min(longLast, s.steps), min(longAsked, s.steps)
	if err := errors.Join(longData(s.in("short.jsonl"), s.steps, longShort, 8, 120),
		longData(s.in("long.jsonl"), last, longTokens, 2000, 5)); err != nil {
		return err
	}
	result := map[string]any{"asked": asked, "tokens": longTokens}
	for _, v := range longModels {
		name := v["name"].(string)
		dir, load := "", ""
		for _, part := range []values{
			{"data": "short.jsonl", "init": "random", "tokens": longShort, "steps": s.steps, "rate": 1e-2},
			{"data": "long.jsonl", "init": "auto", "tokens": longTokens, "steps": last, "rate": 2e-3}} {
			for key, x := range v {
				part[key] = x
			}
			part["vocab"], part["end"], part["load"] = vocab, end, load
			cfg, err := s.train("long.yaml", part, run.Options{})
			if err != nil {
				return err
			}
			dir = cfg.Run.Checkpoint.Dir
			load = fmt.Sprintf(", load: %q, load_optimizer: false, load_rng: false", dir)
		}
		right, err := found(dir, s.in("tokenizer"), asked)
		if err != nil {
			return err
		}
		result[name] = right
		s.say("%s: finds %d of %d needles in texts of %d tokens\n", name, right, asked, longTokens)
	}
	peaks, err := s.chunkPeaks(longTokens)
	if err != nil {
		return err
	}
	picture := s.in("chunks.svg")
	if err := os.WriteFile(picture, []byte(drawChunks(peaks, longTokens)), 0o600); err != nil {
		return err
	}
	result["chunks"], result["files"] = peaks, map[string]string{"chunks": picture}
	s.end(result)
	least := peaks[len(peaks)-1]
	s.say("a sequence of %d tokens takes %s at once and %s in chunks of %d: %s\ndone in %v\n", longTokens,
		tensor.Bytes(peaks[0].Peak), tensor.Bytes(least.Peak), least.Chunk, picture, s.so(time.Second))
	return nil
}

// found asks a model for the needles of texts that it has not seen, none of which is as near to the end as windows
// reach, and counts those that it finds.
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

// chunkPeaks plans steps of one sequence in chunks of different sizes, for a model of full attention of the size of a
// small Qwen3 with layers computed again in the backward.
func (s *session) chunkPeaks(tokens int) (out []chunkPeak, err error) {
	for chunk := tokens; chunk >= tokens/32; chunk /= 2 {
		cfg, err := s.config("chunks.yaml", values{"tokens": tokens, "chunk": chunk})
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
		`font-size="12"><rect width="100%%" height="100%%" fill="#fff"/><text x="%g" y="20" font-size="14">peak memory `+
		`of a sequence of %d tokens by size of chunk</text><text x="%[3]g" y="38" fill="#555">light: activations, keys `+
		`and values; dark: weights, gradients, optimizer</text>`, 2*left+wide*float64(len(peaks)), top+height+50, left,
		tokens)
	bar := func(x float64, bytes int64, color string) float64 {
		h := height * float64(bytes) / most
		fmt.Fprintf(&b, `<rect x="%g" y="%.1f" width="%g" height="%.1f" fill="%s"/>`, x, top+height-h, wide-12, h, color)
		return top + height - h
	}
	for i, p := range peaks {
		x := left + wide*float64(i)
		y := bar(x, p.Peak, "#9cc3ea")
		bar(x, p.State, "#2060a0")
		fmt.Fprintf(&b, `<text x="%g" y="%.1f">%s</text><text x="%g" y="%g">%d</text>`, x, y-4, tensor.Bytes(p.Peak), x,
			top+height+18, p.Chunk)
	}
	return b.String() + "</svg>"
}
