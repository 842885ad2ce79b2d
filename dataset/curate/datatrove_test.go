package curate

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/words"
)

// golden is the folder of bench/golden/curate.py's files: the small set, or the one that LFACTOR_CURATE names.
func golden() string {
	if dir := os.Getenv("LFACTOR_CURATE"); dir != "" {
		return dir
	}
	return "testdata"
}

// lines reads JSON lines from a compressed golden file.
func lines[T any](t *testing.T, name string) (out []T) {
	t.Helper()
	f, err := os.Open(filepath.Join(golden(), name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(z)
	for {
		l, err := in.ReadBytes('\n')
		if len(l) > 0 {
			var v T
			if err := json.Unmarshal(l, &v); err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// open opens a step with settings changed by change.
func open(t *testing.T, name string, change func(Settings)) Step {
	t.Helper()
	k, ok := Find(name)
	if !ok {
		t.Fatal(name)
	}
	s := k.Settings()
	if change != nil {
		change(s)
	}
	step, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	return step
}

// Verdicts and texts are Datatrove's.
func TestDatatroveVerdicts(t *testing.T) {
	docs := lines[struct{ Text string }](t, "documents.jsonl.gz")
	want := lines[map[string][2]*string](t, "verdicts.jsonl.gz")
	desk := NewDesk()
	fired := map[string]int{}
	for _, name := range []string{"gopher_quality", "gopher_repetition", "c4_quality", "c4_paragraphs",
		"fineweb_quality", "pii"} {
		s := open(t, name, nil)
		same := 0
		for i, d := range docs {
			v := want[i][name]
			reason, text := *v[0], d.Text
			if reason == "< 3 paragraphs" { // reasons are words here
				reason = "too_few_paragraphs"
			}
			if v[1] != nil {
				text = *v[1]
			}
			doc := Doc{Text: d.Text}
			have := s.Do(desk, &doc)
			fired[name+" "+have]++
			if have != reason || have == "" && doc.Text != text {
				t.Errorf("document %d: %s: %q, want %q; %.200q, want %.200q", i, name, have, reason,
					doc.Text, text)
				continue
			}
			same++
		}
		t.Logf("%s: %d of %d verdicts are equal", name, same, len(docs))
	}
	for _, k := range slices.Sorted(maps.Keys(fired)) {
		t.Log(k, fired[k])
	}
}

type dedupGolden struct {
	Marks        [][2]string
	Contaminated []int
	MinHash      []struct {
		Remove     []uint32
		Clusters   [][2]uint32
		Signatures [][]uint64
		Config     struct {
			NGrams    int    `json:"n_grams"`
			Buckets   int    `json:"num_buckets"`
			Hashes    int    `json:"hashes_per_bucket"`
			Seed      int64  `json:"seed"`
			Hash      string `json:"hash_fc"`
			Precision int    `json:"precision"`
		}
	}
}

// Signatures, clusters and the documents that go are Datatrove's.
func TestDatatroveMinHash(t *testing.T) {
	docs := lines[struct{ Text string }](t, "documents.jsonl.gz")
	g := lines[dedupGolden](t, "dedup.json.gz")[0]
	desk := NewDesk()
	for _, m := range g.MinHash {
		c := m.Config
		s := open(t, "minhash_dedup", func(s Settings) {
			*s.(*minHash) = minHash{NGrams: c.NGrams, Buckets: c.Buckets, Hashes: c.Hashes, Seed: c.Seed,
				Hash:      c.Hash,
				Precision: c.Precision}
		}).(*minHash)
		for i, want := range m.Signatures {
			text := docs[i].Text
			have := s.signature(NewDesk().Words(words.Simplify(text)))
			if (have == nil) != (want == nil) || have != nil && !slices.Equal(have[:c.Hashes], want) {
				t.Errorf("%+v: document %d: signature %v, want %v", c, i, have, want)
			}
		}
		keys := make([][]record, c.Buckets)
		for i, d := range docs {
			s.Sign(desk, &Doc{Text: d.Text}, func(b int, _ uint32, key []byte) {
				keys[b] = append(keys[b], record{bytes.Clone(key), uint32(i)})
			})
		}
		remove, clusters := resolve(t, keys, int64(len(docs)))
		if !slices.Equal(remove, m.Remove) {
			t.Errorf("%+v: %d documents go, want %d: %v, want %v", c, len(remove), len(m.Remove), remove,
				m.Remove)
		}
		for _, p := range m.Clusters {
			if clusters.Root(p[0]) != clusters.Root(m.Clusters[firstOf(m.Clusters, p[1])][0]) {
				t.Errorf("%+v: document %d is in another cluster", c, p[0])
			}
		}
		t.Logf("%+v: %d of %d documents go, as Datatrove's", c, len(remove), len(docs))
	}
}

// firstOf is the first document of a cluster.
func firstOf(list [][2]uint32, cluster uint32) int {
	return slices.IndexFunc(list, func(p [2]uint32) bool { return p[1] == cluster })
}

type record struct {
	key []byte
	doc uint32
}

// resolve finds clusters in memory.
func resolve(t *testing.T, keys [][]record, n int64) (remove []uint32, c *Clusters) {
	c, err := NewClusters(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range keys {
		slices.SortFunc(list, func(a, b record) int {
			return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.doc, b.doc))
		})
		for i := 1; i < len(list); i++ {
			if bytes.Equal(list[i].key, list[i-1].key) {
				c.Join(list[i-1].doc, list[i].doc)
			}
		}
	}
	for i := range uint32(n) {
		if c.Root(i) != i {
			remove = append(remove, i)
		}
	}
	return remove, c
}

// Documents that share n-grams with questions and answers are Datatrove's.
func TestDatatroveDecontamination(t *testing.T) {
	docs := lines[struct{ Text string }](t, "documents.jsonl.gz")
	g := lines[dedupGolden](t, "dedup.json.gz")[0]
	path := filepath.Join(t.TempDir(), "marks.jsonl")
	var b bytes.Buffer
	for _, m := range g.Marks {
		line, err := json.Marshal(map[string]string{"query": m[0], "text": m[1]})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, "decontaminate", func(s Settings) { s.(*decontaminate).Against = []string{path} })
	var have []int
	desk := NewDesk()
	for i, d := range docs {
		if s.Do(desk, &Doc{Text: d.Text}) != "" {
			have = append(have, i)
		}
	}
	if !slices.Equal(have, g.Contaminated) || len(have) == 0 {
		t.Errorf("documents %v are contaminated, want %v", have, g.Contaminated)
	}
	t.Logf("%d of %d documents go", len(have), len(docs))
}

// The pieces of a sequence are equal where their hashes are: the rule that the repetition filter leans on.
func TestRepeats(t *testing.T) {
	text := strings.Repeat("abc abd ", 20) + "\x00\x00a"
	var r repeats
	r.over(len(text), func(i int) uint64 { return uint64(text[i]) })
	for n := 1; n < 12; n++ {
		seen := map[uint64]string{}
		for i := 0; i+n <= len(text); i++ {
			h := r.hash(i, i+n)
			if was, ok := seen[h]; ok != slices.Contains(slices.Collect(maps.Values(seen)), text[i:i+n]) ||
				ok && was != text[i:i+n] {
				t.Fatalf("%q and %q", was, text[i:i+n])
			}
			seen[h] = text[i : i+n]
		}
	}
}
