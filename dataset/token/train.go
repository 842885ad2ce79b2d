package token

import (
	"bytes"
	"container/heap"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// TrainConfig says what tokenizer to train.
type TrainConfig struct {
	// ids in all: 256 bytes, merges, special tokens; fewer where the text has no more pairs
	VocabSize int
	Special   []string // special tokens; they take the last ids, in this order
	MinCount  int      // pairs seen less often are not merged; 0 means 2
}

// Train learns a byte-level BPE tokenizer from texts and returns its tokenizer.json, cut into pieces as Llama 3 does.
// The most frequent pair is merged first; among equals the one with the smaller left id, then right id.
// The result depends on the texts and the config only. Memory grows with the number of distinct pieces.
func Train(cfg TrainConfig, texts iter.Seq[string]) ([]byte, error) {
	room := cfg.VocabSize - 256 - len(cfg.Special)
	if room < 0 || cfg.VocabSize > idMax {
		return nil, fmt.Errorf("train tokenizer: vocabulary of %d; it must hold 256 bytes and %d "+
			"special tokens, and at most %d ids", cfg.VocabSize, len(cfg.Special), idMax)
	}
	for i, special := range cfg.Special {
		if special == "" || slices.Contains(cfg.Special[:i], special) {
			return nil, fmt.Errorf("train tokenizer: the special token %q is named twice, or empty", special)
		}
	}
	if cfg.MinCount == 0 {
		cfg.MinCount = 2
	}
	t := newTrainer(countPieces(texts))
	for len(t.symbols) < 256+room {
		if !t.mergeBest(cfg.MinCount) {
			break
		}
	}
	return t.write(cfg.Special)
}

// countPieces counts the pre-tokenizer's pieces.
func countPieces(texts iter.Seq[string]) map[string]int {
	counts := map[string]int{}
	scan := knownScanners[regexLlama3]
	for text := range texts {
		text = lossyUTF8([]byte(text))
		for from := 0; from < len(text); {
			end := scan(text, from)
			counts[text[from:end]]++
			from = end
		}
	}
	return counts
}

// trainer holds the distinct pieces as symbols, and where each pair of neighbours occurs.
type trainer struct {
	words   [][]int32
	counts  []int
	pairs   map[uint64]*pairStat
	queue   pairQueue
	symbols [][]byte // bytes of each id
	// ids of the merged symbols: two merges may give the same bytes, and then the same id
	byBytes map[string]int32
	done    map[uint64]bool // pairs in merges
	merges  [][2]int32
}

// pairStat is how often a pair occurs and in which words; words may be listed that have lost the pair since.
type pairStat struct {
	key   uint64
	count int
	words []int32
}

// pairQueue is a heap of counts as they were when pushed; an entry that no longer agrees is pushed again.
type pairQueue []pairEntry

type pairEntry struct {
	key   uint64
	count int
}

func (q pairQueue) Len() int      { return len(q) }
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q pairQueue) Less(i, j int) bool {
	return q[i].count > q[j].count || q[i].count == q[j].count && q[i].key < q[j].key
}
func (q *pairQueue) Push(x any) { *q = append(*q, x.(pairEntry)) }
func (q *pairQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// newTrainer prepares the training of merges on pieces with their counts. Pieces are sorted first,
// so that the result does not depend on the order of a map.
func newTrainer(pieces map[string]int) *trainer {
	var symbols [][]byte
	var ids [256]int32
	for b := range 256 {
		symbols, ids[b] = append(symbols, []byte{byte(b)}), int32(b)
	}
	return trainerOf(pieces, symbols, ids)
}

// trainerOf is newTrainer that begins with given symbols, of which ids are those of bytes.
func trainerOf(pieces map[string]int, symbols [][]byte, ids [256]int32) *trainer {
	t := &trainer{pairs: map[uint64]*pairStat{}, byBytes: map[string]int32{}, done: map[uint64]bool{}, symbols: symbols}
	for _, p := range slices.Sorted(maps.Keys(pieces)) {
		word := make([]int32, len(p))
		for i := range len(p) {
			word[i] = ids[p[i]]
		}
		t.words = append(t.words, word)
		t.counts = append(t.counts, pieces[p])
	}
	for w, word := range t.words {
		for i := range len(word) - 1 {
			t.change(pairKey(word[i], word[i+1]), t.counts[w], int32(w))
		}
	}
	for key, p := range t.pairs {
		t.queue = append(t.queue, pairEntry{key, p.count})
	}
	heap.Init(&t.queue)
	return t
}

// change adds n occurrences of a pair in word w; n is negative where they vanish.
func (t *trainer) change(key uint64, n int, w int32) {
	p := t.pairs[key]
	if p == nil {
		p = &pairStat{key: key}
		t.pairs[key] = p
	}
	p.count += n
	if n > 0 && (len(p.words) == 0 || p.words[len(p.words)-1] != w) {
		p.words = append(p.words, w)
	}
}

// mergeBest makes a new symbol of the most frequent pair; it returns false when no pair is frequent enough.
func (t *trainer) mergeBest(minCount int) bool {
	for t.queue.Len() > 0 {
		top := heap.Pop(&t.queue).(pairEntry)
		p := t.pairs[top.key]
		if p == nil || p.count < minCount {
			continue
		}
		if p.count != top.count {
			heap.Push(&t.queue, pairEntry{top.key, p.count})
			continue
		}
		t.merge(p)
		return true
	}
	return false
}

// merge replaces the pair in every word that has it.
func (t *trainer) merge(p *pairStat) {
	a, b := int32(p.key>>32), int32(uint32(p.key))
	id := t.symbol(slices.Concat(t.symbols[a], t.symbols[b]))
	if !t.done[p.key] {
		t.done[p.key] = true
		t.merges = append(t.merges, [2]int32{a, b})
	}
	fresh := map[uint64]bool{}
	for _, w := range p.words {
		t.mergeWord(w, a, b, id, fresh)
	}
	delete(t.pairs, p.key)
	for key := range fresh {
		if s := t.pairs[key]; s != nil && s.count > 0 {
			heap.Push(&t.queue, pairEntry{key, s.count})
		}
	}
}

// symbol returns the id of bytes, a new one where they are not a symbol yet.
func (t *trainer) symbol(b []byte) int32 {
	id, ok := t.byBytes[string(b)]
	if !ok {
		id = int32(len(t.symbols))
		t.byBytes[string(b)] = id
		t.symbols = append(t.symbols, b)
	}
	return id
}

// mergeWord replaces the pair in one word and notes in fresh the pairs that came into being.
func (t *trainer) mergeWord(w, a, b, id int32, fresh map[uint64]bool) {
	word, n := t.words[w], t.counts[w]
	out := word[:0]
	for i := 0; i < len(word); i++ {
		if i+1 >= len(word) || word[i] != a || word[i+1] != b {
			out = append(out, word[i])
			continue
		}
		if len(out) > 0 {
			left := out[len(out)-1]
			t.change(pairKey(left, a), -n, w)
			t.change(pairKey(left, id), n, w)
			fresh[pairKey(left, id)] = true
		}
		if i+2 < len(word) {
			right := word[i+2]
			t.change(pairKey(b, right), -n, w)
			t.change(pairKey(id, right), n, w)
			fresh[pairKey(id, right)] = true
		}
		out = append(out, id)
		i++
	}
	t.words[w] = out
}

// write renders the tokenizer as tokenizer.json.
func (t *trainer) write(special []string) ([]byte, error) {
	vocab := make(map[string]int32, len(t.symbols))
	for id, b := range t.symbols {
		vocab[alphabetOf(b)] = int32(id)
	}
	if len(vocab) != len(t.symbols) {
		panic(fmt.Sprintf("token: training made %d symbols of %d different byte strings", len(t.symbols), len(vocab)))
	}
	tokens := make([]addedToken, len(special))
	for i, s := range special {
		tokens[i] = addedToken{ID: int32(len(vocab) + i), Content: s, Special: true}
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	split := map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regexLlama3},
		"behavior": "Isolated", "invert": false}
	cut := map[string]any{"type": "Sequence", "pretokenizers": []any{split, level}}
	return encodeFile(cut, level, vocab, t.pairNames(), tokens)
}

// pairNames are the merged pairs in the alphabet of files.
func (t *trainer) pairNames() [][2]string {
	pairs := make([][2]string, len(t.merges))
	for i, m := range t.merges {
		pairs[i] = [2]string{alphabetOf(t.symbols[m[0]]), alphabetOf(t.symbols[m[1]])}
	}
	return pairs
}

// encodeFile writes the sections in the order the Python library does.
func encodeFile(cut, level map[string]any, vocab map[string]int32, merges [][2]string,
	tokens []addedToken) ([]byte, error) {
	type object = map[string]any
	doc := struct {
		Version       string       `json:"version"`
		Truncation    *int         `json:"truncation"`
		Padding       *int         `json:"padding"`
		Added         []addedToken `json:"added_tokens"`
		Normalizer    *int         `json:"normalizer"`
		PreTokenizer  object       `json:"pre_tokenizer"`
		PostProcessor object       `json:"post_processor"`
		Decoder       object       `json:"decoder"`
		Model         object       `json:"model"`
	}{Version: "1.0", Added: tokens, PreTokenizer: cut, PostProcessor: level, Decoder: level, Model: object{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges}}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return out.Bytes(), err
}
