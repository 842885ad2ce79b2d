package configs

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Like is the published model of the same shape: family, widths and depths of decoder and encoder. The
// embeddings may differ. Of several the one is taken whose name in LoongForge is hint, which may be a
// file's. ok is false if there is none.
func (m Model) Like(hint string) (name string, like Model, ok bool) {
	shape := func(m Model) string {
		v := m.Vision
		if v.None() {
			v = Vision{}
		}
		return fmt.Sprint(m.ModelType, m.Text, m.Hidden, m.Layers, m.Heads, m.KVHeads, m.HeadDim,
			m.Intermediate, m.MTPLayers, v.Kind, v.Depth, v.Hidden, v.Inter, v.Heads, v.Patch, v.Merge)
	}
	named := hint
	letters := strings.NewReplacer("_", "", "-", "", ".", "")
	hint = letters.Replace(strings.TrimSuffix(filepath.Base(hint), filepath.Ext(hint)))
	want, best := shape(m), -1
	for _, n := range Models() {
		p, err := Published(n)
		if err != nil {
			panic(fmt.Sprintf("configs: %s: %v", path.Join("models", n), err)) // a test loads them all
		}
		if shape(p) != want {
			continue
		}
		score := 0
		for _, same := range []bool{slices.ContainsFunc(p.Names, func(n string) bool {
			return letters.Replace(n) == hint
		}) || n == named, p.Identity() == m.Identity(), p.Vocab == m.Vocab, p.RopeTheta == m.RopeTheta,
			p.MaxPositions == m.MaxPositions} {
			score *= 2
			if same {
				score++
			}
		}
		if score > best {
			name, like, best = n, p, score
		}
	}
	return name, like, best >= 0
}

// Differences says in lines why a model of so many parameters has not as many as the published one of its shape.
func (m Model) Differences(count int64, like Model) []string {
	var out []string
	rest := count - int64(like.Parameters)
	tables := map[bool]int64{true: 1, false: 2}
	table := int64(like.Vocab) * int64(m.Hidden)
	switch {
	case like.TieEmbeddings && !m.TieEmbeddings:
		rest -= table
		out = append(out, fmt.Sprintf("%+d: the head has a weight of its own here "+
			"(untie_embeddings_and_output_weights: true); the published model's is the embedding's, "+
			"tied: %d × %d", table, like.Vocab, m.Hidden))
	case !like.TieEmbeddings && m.TieEmbeddings:
		rest += table
		out = append(out, fmt.Sprintf("%+d: the head's weight is the embedding's here, tied; the "+
			"published model's is its own: %d × %d", -table, like.Vocab, m.Hidden))
	}
	if rows := int64(m.Vocab - like.Vocab); rows != 0 {
		n := rows * int64(m.Hidden) * tables[m.TieEmbeddings]
		rest -= n
		out = append(out, fmt.Sprintf("%+d: the vocabulary has %d rows here, %d as published: %+d × %d in %s", n,
			m.Vocab, like.Vocab, rows, m.Hidden,
			map[bool]string{true: "one table", false: "embedding and head"}[m.TieEmbeddings]))
	}
	if rest != 0 {
		out = append(out, fmt.Sprintf("%+d: biases, norms or positions, which the keys set otherwise", rest))
	}
	return out
}
