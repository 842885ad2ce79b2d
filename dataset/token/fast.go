package token

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// FAST makes tokens of chunks of a robot's actions (arXiv:2501.09747): the cosine transform of each number
// over time, rounded, lowest frequencies first, as a text whose pieces are a byte-level BPE's. It is the
// processor that was published as physical-intelligence/fast, whose files it reads and writes.
type FAST struct {
	Scale float64 // of coefficients before they are rounded; 10 as published
	Least int     // coefficient that the first character stands for; -354 as published
	Vocab int     // tokens at most; 2048 as published
	tok   *Tokenizer
	file  []byte // tokenizer.json
}

// The files of the processor.
const (
	fastConfig    = "processor_config.json"
	fastTokenizer = "tokenizer.json"
)

// fastFile are the keys of processor_config.json that are read.
type fastFile struct {
	Class string   `json:"processor_class"`
	Scale *float64 `json:"scale"`
	Vocab *int     `json:"vocab_size"`
	Least *int     `json:"min_token"`
}

// OpenFAST reads processor_config.json and tokenizer.json in dir.
func OpenFAST(dir string) (*FAST, error) {
	b, err := os.ReadFile(filepath.Join(dir, fastConfig))
	if err != nil {
		return nil, err
	}
	var c fastFile
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", fastConfig, err)
	}
	if c.Scale == nil || c.Least == nil || c.Vocab == nil || !(*c.Scale > 0) || math.IsInf(*c.Scale, 0) {
		return nil, fmt.Errorf("%s: want scale above 0, min_token and vocab_size", fastConfig)
	}
	f := &FAST{Scale: *c.Scale, Least: *c.Least, Vocab: *c.Vocab}
	if f.file, err = os.ReadFile(filepath.Join(dir, fastTokenizer)); err != nil {
		return nil, err
	}
	if f.tok, err = Parse(f.file); err != nil {
		return nil, fmt.Errorf("%s: %w", fastTokenizer, err)
	}
	return f, nil
}

// Fingerprint changes with the tokens of a chunk.
func (f *FAST) Fingerprint() string {
	return fmt.Sprintf("fast %g %d %x", f.Scale, f.Least, sha256.Sum256(f.file))
}

// FreeForFAST says why FAST's files are not written to a folder: it has files, and not those of such a
// tokenizer. A tokenizer of FAST that is there is written over.
func FreeForFAST(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || len(entries) == 0 {
		return err
	}
	var c fastFile
	b, err := os.ReadFile(filepath.Join(dir, fastConfig))
	if err != nil || json.Unmarshal(b, &c) != nil || c.Scale == nil || c.Least == nil || c.Vocab == nil {
		return fmt.Errorf("%s has files, and no %s of a tokenizer of actions: name a new folder, or empty it", dir,
			fastConfig)
	}
	return nil
}

// Save writes the files that OpenFAST reads to a folder that is FreeForFAST. The published folder has the
// code of its class beside them. Of a tokenizer that is there the configuration goes first, so that files of
// two never make one: where this is cut off between both the folder cannot be opened.
func (f *FAST) Save(dir string) error {
	if err := FreeForFAST(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(fastFile{"UniversalActionProcessor", &f.Scale, &f.Vocab, &f.Least}, "", "  ")
	if err != nil {
		return err
	}
	beside, err := os.MkdirTemp(dir, ".new")
	if err != nil {
		return err
	}
	defer os.RemoveAll(beside) //nolint:errcheck // it has no more than what was not written
	for name, b := range map[string][]byte{fastConfig: append(b, '\n'), fastTokenizer: f.file} {
		if err := os.WriteFile(filepath.Join(beside, name), b, 0o644); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, fastConfig)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, name := range []string{fastTokenizer, fastConfig} {
		if err := os.Rename(filepath.Join(beside, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// VocabSize is the number of tokens.
func (f *FAST) VocabSize() int { return f.tok.VocabSize() }

// rounded are the coefficients of a chunk [time numbers], all numbers' lowest frequency first.
func rounded(chunk [][]float64, scale float64) ([]int, error) {
	if len(chunk) == 0 || len(chunk[0]) == 0 {
		return nil, errors.New("a chunk without actions")
	}
	n, w := len(chunk), len(chunk[0])
	out := make([]int, 0, n*w)
	for k := range n {
		for i := range w {
			sum := 0.0
			for t, a := range chunk {
				if len(a) != w {
					return nil, fmt.Errorf("action %d has %d numbers, and the first %d", t, len(a), w)
				}
				sum += a[i] * math.Cos(math.Pi*float64((2*t+1)*k%(4*n))/float64(2*n))
			}
			c := math.RoundToEven(sum * unit(k, n) * scale)
			if !(math.Abs(c) < utf8.MaxRune) {
				return nil, fmt.Errorf("a coefficient of number %d is %g: actions are to lie about -1 to 1", i, c)
			}
			out = append(out, int(c))
		}
	}
	return out, nil
}

// unit makes the transform of n numbers orthonormal.
func unit(k, n int) float64 {
	if k == 0 {
		return math.Sqrt(1 / float64(n))
	}
	return math.Sqrt(2 / float64(n))
}

// Encode gives the tokens of a chunk [time numbers]. Coefficients below the least one are taken for it.
func (f *FAST) Encode(chunk [][]float64) ([]int32, error) {
	cs, err := rounded(chunk, f.Scale)
	if err != nil {
		return nil, err
	}
	text := make([]rune, len(cs))
	for i, c := range cs {
		text[i] = rune(max(c-f.Least, 0))
		if !utf8.ValidRune(text[i]) {
			return nil, fmt.Errorf("coefficient %d stands for no character", c)
		}
	}
	return f.tok.TryEncode(string(text), false)
}

// ErrChunk says that tokens are of no chunk of the shape that is wanted: a policy's answer may be so.
var ErrChunk = errors.New("the tokens are of no chunk of this shape")

// Decode gives the chunk [time width] of tokens. With ErrChunk it is zeros, as the published processor has it.
func (f *FAST) Decode(ids []int32, time, width int) ([][]float64, error) {
	out := make([][]float64, time)
	for t := range out {
		out[t] = make([]float64, width)
	}
	text := []rune(f.tok.Decode(ids, false))
	if len(text) != time*width {
		return out, fmt.Errorf("%w: %d coefficients, want %d times %d", ErrChunk, len(text), time, width)
	}
	for t := range out {
		for i := range width {
			sum := 0.0
			for k := range time {
				c := float64(int(text[k*width+i])+f.Least) / f.Scale
				sum += c * unit(k, time) * math.Cos(math.Pi*float64((2*t+1)*k%(4*time))/float64(2*time))
			}
			out[t][i] = sum
		}
	}
	return out, nil
}

// FitFAST learns the tokens of chunks, vocab of them at most: every coefficient between the least and the
// largest, and then pairs, the most frequent first.
func FitFAST(chunks [][][]float64, scale float64, vocab int) (*FAST, error) {
	least, most := math.MaxInt, math.MinInt
	var all [][]int
	for i, c := range chunks {
		cs, err := rounded(c, scale)
		if err != nil {
			return nil, fmt.Errorf("chunk %d: %w", i, err)
		}
		least, most, all = min(least, slices.Min(cs)), max(most, slices.Max(cs)), append(all, cs)
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("there are no chunks to learn tokens of")
	case most-least > vocab:
		return nil, fmt.Errorf("a vocabulary of %d has no room for coefficients from %d to %d; take a larger one, or a "+
			"smaller scale than %g", vocab, least, most, scale)
	}
	pieces := map[string]int{}
	for _, cs := range all {
		text := make([]rune, len(cs))
		for i, c := range cs {
			text[i] = rune(c - least)
		}
		s := string(text)
		for from := 0; from < len(s); {
			end := scanGPT2(s, from)
			pieces[s[from:end]]++
			from = end
		}
	}
	f := &FAST{Scale: scale, Least: least, Vocab: vocab}
	var err error
	if f.file, err = fastTrained(pieces, most-least+1, vocab); err != nil {
		return nil, err
	}
	f.tok, err = Parse(f.file)
	return f, err
}

// fastTrained learns pairs of pieces and writes tokenizer.json. The first tokens are, in the order of
// characters, those of the first n code points and those of bytes that occur: code points that stand for no
// byte are there, as in the published trainer, and never met.
func fastTrained(pieces map[string]int, n, vocab int) ([]byte, error) {
	base := map[string]int{} // the byte of each character, -1 for none
	for c := range n {
		base[string(rune(c))] = -1
	}
	occurs := [256]bool{}
	for p := range pieces {
		for i := range len(p) {
			occurs[p[i]] = true
		}
	}
	for b := range 256 {
		name := alphabetOf([]byte{byte(b)})
		if _, listed := base[name]; listed || occurs[b] {
			base[name] = b
		}
	}
	names := make([]string, 0, len(base))
	for name := range base { // sorted below
		names = append(names, name)
	}
	slices.Sort(names) // by code points: UTF-8 keeps their order
	var symbols [][]byte
	var ids [256]int32
	for id, name := range names {
		if b := base[name]; b >= 0 {
			ids[b] = int32(id)
			symbols = append(symbols, []byte{byte(b)})
		} else {
			symbols = append(symbols, nil)
		}
	}
	t := trainerOf(pieces, symbols, ids)
	for len(t.symbols) < vocab {
		if !t.mergeBest(2) {
			break
		}
	}
	words := map[string]int32{}
	for id, b := range t.symbols {
		name := alphabetOf(b)
		if id < len(names) {
			name = names[id]
		}
		words[name] = int32(id)
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return encodeFile(level, level, words, t.pairNames(), []addedToken{})
}
