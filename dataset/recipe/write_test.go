package recipe

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/dataset"
)

// What a recipe without steps writes in any format is read again as the documents that went in, in their order.
func TestWriters(t *testing.T) {
	dir := t.TempDir()
	a := corpus(t, dir, "a.jsonl", 230, 3)
	in, err := dataset.Open(a, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, w := range Writers() {
		for _, how := range append([]string{""}, w.Compress...) {
			out := filepath.Join(dir, w.Name+how)
			r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [%s]\noutputs: [{format: %s, compress: %q, documents: 100}]\n",
				out, a, w.Name, how))
			if err != nil {
				t.Fatal(err)
			}
			rep, err := Run(context.Background(), r, nil, dataset.Remote{})
			if err != nil || len(rep.Outputs[0].Files) != 3 {
				t.Fatalf("%s: %+v: %v", w.Name, rep, err)
			}
			path := filepath.Join(out, "data-*"+w.Ext(how))
			if w.Finish != nil {
				path = out
			}
			s, err := dataset.Open(path, dataset.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if s.Len() != in.Len() {
				t.Errorf("%s %s: %d documents, want %d", w.Name, how, s.Len(), in.Len())
			}
			for i := range s.Len() {
				have, err := s.Read(i)
				want, bad := in.Read(i)
				if b, ok := have.Part("txt"); ok {
					have.Text = string(b)
				}
				if err != nil || bad != nil || have.Text != want.Text {
					t.Fatalf("%s %s: document %d: %q, want %q: %v %v", w.Name, how, i, have.Text, want.Text,
						err, bad)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	_, err = load(t, dir, "output: x\ninputs: ["+a+"]\noutputs: [{format: mds}, {name: b}]\n")
	if err == nil || !strings.Contains(err.Error(),
		"outputs[0].format: mds has an index of all files of the folder") {
		t.Error(err)
	}
}
