package fasttext

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Marks that fastText puts into and around words.
const (
	eos         = "</s>"
	bow         = "<"
	eow         = ">"
	labelPrefix = "__label__"
)

// Score is a label, without "__label__", and its probability.
type Score struct {
	Label string
	P     float32
}

// Predict returns the scores of the labels, the highest first, as fastText's predict does with k = -1: of the first
// line of the text. A text of which nothing is known has none, and a hierarchical softmax leaves out those under 1e-5.
func (m *Model) Predict(text string) []Score {
	rows := m.line(text)
	if len(rows) == 0 {
		return nil
	}
	hidden := make([]float32, m.dim)
	for _, r := range rows {
		m.input.addTo(hidden, r)
	}
	by := float32(1 / float64(len(rows)))
	for i := range hidden {
		hidden[i] *= by
	}
	out := make([]Score, 0, len(m.labels))
	for i, p := range m.scores(hidden) {
		if p >= 0 {
			out = append(out, Score{strings.TrimPrefix(m.labels[i], labelPrefix), p})
		}
	}
	slices.SortStableFunc(out, func(a, b Score) int { return cmp.Compare(b.P, a.P) })
	return out
}

// scores returns the probability of each label, -1 for one that is too small for fastText to look at.
func (m *Model) scores(hidden []float32) []float32 {
	p := make([]float32, len(m.labels))
	if m.loss == lossHS {
		for i := range p {
			p[i] = -1
		}
		m.descend(hidden, len(m.tree)-1, 0, p)
		return p
	}
	for i := range p {
		p[i] = m.output.dot(hidden, int32(i))
	}
	if m.loss == lossOVA || m.loss == lossNS {
		for i, x := range p {
			p[i] = sigmoid(x)
		}
	} else {
		softmax(p)
	}
	for i, v := range p { // fastText's logarithm is of a bit more, and its scores are powers of that
		p[i] = exp(logOf(float64(v)))
	}
	return p
}

// softmax makes probabilities of scores.
func softmax(p []float32) {
	top := slices.Max(p)
	var sum float32
	for i, x := range p {
		p[i] = exp(x - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

// logOf is fastText's std_log.
func logOf(x float64) float32 { return float32(math.Log(float64(float32(x)) + 1e-5)) }

// fastText's table of the sigmoid.
const (
	sigmoidSize = 512
	sigmoidMax  = 8
)

// sigmoid is fastText's, in steps.
func sigmoid(x float32) float32 {
	switch {
	case x < -sigmoidMax:
		return 0
	case x > sigmoidMax:
		return 1
	}
	i := int64((x + sigmoidMax) * sigmoidSize / sigmoidMax / 2)
	at := float32(i*2*sigmoidMax)/sigmoidSize - sigmoidMax
	return float32(1 / (1 + math.Exp(float64(-at))))
}

// node of the tree of a hierarchical softmax.
type node struct {
	left, right int // -1 in leaves
	count       int64
}

// huffman builds the tree over labels by their counts, as fastText does.
func huffman(counts []int64) []node {
	n := len(counts)
	tree := make([]node, 2*n-1)
	for i := range tree {
		tree[i] = node{-1, -1, 1e15}
		if i < n {
			tree[i].count = counts[i]
		}
	}
	leaf, inner := n-1, n
	for i := n; i < len(tree); i++ {
		var pick [2]int
		for j := range pick {
			if leaf >= 0 && tree[leaf].count < tree[inner].count {
				pick[j] = leaf
				leaf--
			} else {
				pick[j] = inner
				inner++
			}
		}
		tree[i] = node{pick[0], pick[1], tree[pick[0]].count + tree[pick[1]].count}
	}
	return tree
}

// descend sets the probabilities of the labels under a node, whose logarithm so far is score.
func (m *Model) descend(hidden []float32, at int, score float32, p []float32) {
	t := m.tree[at]
	if score < logOf(0) {
		return
	}
	if t.left < 0 {
		p[at] = exp(score)
		return
	}
	f := float64(m.output.dot(hidden, int32(at-len(m.labels))))
	f = float64(float32(1 / (1 + math.Exp(-f))))
	m.descend(hidden, t.left, score+logOf(1-f), p)
	m.descend(hidden, t.right, score+logOf(f), p)
}

// line returns the rows of the input that the words of a text's first line have.
func (m *Model) line(text string) (rows []int32) {
	var hashes []int32
	add := func(w string) {
		id, known := m.words[w]
		if !known && strings.HasPrefix(w, labelPrefix) || known && int(id) >= m.nwords {
			return
		}
		switch {
		case !known && w != eos:
			rows = m.letters(bow+w+eow, rows)
		case known && m.maxn > 0:
			rows = append(rows, m.subwords[id]...)
		case known:
			rows = append(rows, id)
		}
		hashes = append(hashes, int32(hash(w)))
	}
	text, _, _ = strings.Cut(text, "\n")
	for w := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r == ' ' || r >= '\t' && r <= '\r' || r == 0
	}) {
		add(w)
		if w == eos {
			return m.phrases(rows, hashes)
		}
	}
	add(eos)
	return m.phrases(rows, hashes)
}

// phrases appends the rows of n-grams of words.
func (m *Model) phrases(rows, hashes []int32) []int32 {
	for i := range hashes {
		h := uint64(hashes[i])
		for j := i + 1; j < len(hashes) && j < i+m.ngrams; j++ {
			h = h*116049371 + uint64(hashes[j])
			rows = m.push(rows, int32(h%uint64(m.bucket)))
		}
	}
	return rows
}

// letters appends the rows of a word's n-grams of letters.
func (m *Model) letters(word string, rows []int32) []int32 {
	inside := func(i int) bool { return i < len(word) && word[i]&0xc0 == 0x80 }
	for i := range len(word) {
		if inside(i) {
			continue
		}
		for j, n := i, 1; j < len(word) && n <= m.maxn; n++ {
			for j++; inside(j); j++ {
			}
			if n >= m.minn && (n != 1 || i != 0 && j != len(word)) {
				rows = m.push(rows, int32(hash(word[i:j])%uint32(m.bucket)))
			}
		}
	}
	return rows
}

// push appends the row of an n-gram, if the model has kept it.
func (m *Model) push(rows []int32, id int32) []int32 {
	if m.isPruned {
		kept, ok := m.pruned[id]
		if !ok {
			return rows
		}
		id = kept
	}
	return append(rows, int32(m.nwords)+id)
}

// hash is fastText's, FNV-1a with signed bytes.
func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(int32(int8(s[i])))) * 16777619
	}
	return h
}
