package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/dataset"
)

// Documents come in an order that a seed draws, each once, and in as many files as are asked for;
// the same seed gives the same order whatever the files and the workers.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	a, b := corpus(t, dir, "a.jsonl", 700, 1), corpus(t, dir, "b.jsonl", 301, 2)
	lines := func(name, more string, files int) (list []string) {
		r, err := load(t, dir, fmt.Sprintf("output: %s\n%s\ninputs: [{paths: [%s, %s], shuffle: "+
			"7}]\noutputs: [{files: %d}]\n",
			filepath.Join(dir, name), more, a, b, files))
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Run(context.Background(), r, nil, dataset.Remote{})
		if err != nil || len(rep.Outputs[0].Files) != files {
			t.Fatal(rep, err)
		}
		for i, f := range rep.Outputs[0].Files {
			text, err := os.ReadFile(filepath.Join(dir, name, f))
			if err != nil {
				t.Fatal(err)
			}
			here := slices.Collect(strings.Lines(string(text)))
			if n := len(here); n < 1001/files || n > 1001/files+1 {
				t.Errorf("file %d of %d has %d documents", i, files, n)
			}
			list = append(list, here...)
		}
		return list
	}
	one := lines("one", "workers: 1", 4)
	if same := lines("two", "workers: 3", 7); !slices.Equal(one, same) {
		t.Error("another order")
	}
	var all []string
	for _, path := range []string{a, b} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Collect(strings.Lines(string(text)))...)
	}
	if slices.Equal(one, all) {
		t.Error("they are not shuffled")
	}
	key := func(l string) string { // columns may stand in another order
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(v)
	}
	for _, list := range [][]string{one, all} {
		for i := range list {
			list[i] = key(list[i])
		}
		slices.Sort(list)
	}
	if !slices.Equal(one, all) {
		t.Error("other documents")
	}
	_, err := load(t, dir, "output: x\ninputs: ["+a+"]\noutputs: [{files: 3, documents: 5}]\n")
	if err == nil || !strings.Contains(err.Error(), "outputs[0].files: documents says how many "+
		"files there are, too") {
		t.Error(err)
	}
}

// Blocks of documents in an order of their own have no more bytes than others, large documents among
// small ones or not; those of small documents are of one size.
func TestOrderBlocks(t *testing.T) {
	p := filepath.Join(t.TempDir(), "a.jsonl")
	var b bytes.Buffer
	for i := range 600 {
		n := 10
		if i >= 560 {
			n = 2 << 20
		}
		fmt.Fprintf(&b, "{\"text\": %q}\n", strings.Repeat("x", n))
	}
	if err := os.WriteFile(p, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	in := &opened{Input: Input{Name: "a", Shuffle: 7}}
	defer closeInputs([]*opened{in})
	if err := in.open(p); err != nil {
		t.Fatal(err)
	}
	in.shuffle(0)
	at := int64(0)
	for _, s := range in.blocks {
		if s.from != at || s.to <= at {
			t.Fatal(s, at)
		}
		large := 0
		for ; at < s.to; at++ {
			if _, n := in.at(s, at); n >= 560 {
				large++
			}
		}
		if large > 4 || s.to-s.from > blockDocs/4 {
			t.Errorf("%d large documents in a block of %d", large, s.to-s.from)
		}
	}
	if at != 600 || len(in.blocks) < 10 {
		t.Error(at, len(in.blocks))
	}
}
