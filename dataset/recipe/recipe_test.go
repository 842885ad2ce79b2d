package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/dataset"
	_ "github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/topology/machine"
)

// write writes a file into a folder.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// corpus writes n documents, of which some are copies of others, exact or nearly, and some are short.
func corpus(t *testing.T, dir, name string, n int, seed uint64) string {
	rnd := rand.New(rand.NewPCG(seed, 1))
	words := strings.Fields("the of and to with that have be house river tree stone light water " +
		"music paper glass wood iron")
	var texts []string
	var b strings.Builder
	for i := range n {
		var text string
		switch k := rnd.IntN(10); {
		case k < 2 && len(texts) > 0:
			text = texts[rnd.IntN(len(texts))]
		case k < 4 && len(texts) > 0:
			text = texts[rnd.IntN(len(texts))] + " " + words[rnd.IntN(len(words))]
		default:
			for range 5 + rnd.IntN(80) {
				text += words[rnd.IntN(len(words))] + []string{" ", " ", " ", ". ", "\n"}[rnd.IntN(5)]
			}
		}
		texts = append(texts, text)
		line, err := json.Marshal(map[string]any{"text": text, "id": i,
			"meta": map[string]string{"a": "ü\"{}"}})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return write(t, dir, name, b.String())
}

// load reads a recipe from text.
func load(t *testing.T, dir, text string) (*Recipe, error) {
	t.Helper()
	return Load(write(t, dir, "recipe.yaml", text))
}

const sixSteps = `output: %s
workers: %d
memory: 1MiB
inputs:
  - {name: a, path: %q}
  - {name: b, path: %q}
steps:
  - {step: pii}
  - {step: length, min_words: 12}
  - {step: exact_dedup}
  - {step: sample, inputs: {b: 0.8}}
  - {name: near, step: minhash_dedup, n_grams: 2}
  - {step: paragraph_dedup}
outputs:
  - {documents: 500}
  - {name: short, from: exact_dedup, format: parquet, documents: 700}
`

// files reads all files of an output that are not of one run alone.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".lock" {
			return err
		}
		b, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same compares the files of two outputs.
func same(t *testing.T, what string, have, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] != want[name] {
			t.Errorf("%s: %s is not the same: %d bytes, want %d", what, name, len(have[name]),
				len(want[name]))
		}
	}
	if len(have) != len(want) {
		t.Errorf("%s: %d files, want %d", what, len(have), len(want))
	}
}

// run loads and carries out a recipe in a folder.
func run(t *testing.T, dir, name string, workers int, a, b string) (*Report, map[string]string) {
	t.Helper()
	out := filepath.Join(dir, name)
	r, err := load(t, dir, fmt.Sprintf(sixSteps, out, workers, a, b))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Run(context.Background(), r, nil, dataset.Remote{})
	if err != nil {
		t.Fatal(err)
	}
	return rep, files(t, out)
}

// Six steps, three of them with state: the numbers add up, what is left has no copies, the ledger has the
// rest, and the bytes are the same for any number of workers and when all of it is done elsewhere.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	a, b := corpus(t, dir, "a.jsonl", 3000, 1), corpus(t, dir, "b.jsonl", 1500, 2)
	rep, want := run(t, dir, "one", 1, a, b)
	total := int64(0)
	for _, in := range rep.Inputs {
		total += in.Documents
	}
	if total != 4500 {
		t.Errorf("%d documents were read", total)
	}
	in := total
	for _, s := range rep.Steps {
		if s.In != in {
			t.Errorf("%s: %d documents came, want %d", s.Name, s.In, in)
		}
		gone := int64(0)
		for _, n := range s.Dropped {
			gone += n
		}
		if in = s.In - gone; in != s.Out {
			t.Errorf("%s: %d documents left, want %d", s.Name, s.Out, in)
		}
		if gone == 0 && s.Name != "pii" && s.Name != "paragraph_dedup" {
			t.Errorf("%s: nothing was dropped", s.Name)
		}
	}
	texts := map[string]bool{}
	n := int64(0)
	for name, text := range want {
		if strings.HasPrefix(name, "/data-") {
			for l := range strings.Lines(text) {
				var d struct {
					Text string
					ID   *int
					Meta map[string]string
				}
				if err := json.Unmarshal([]byte(l), &d); err != nil || d.ID == nil ||
					d.Meta["a"] != "ü\"{}" {
					t.Fatalf("%s: %q: %v", name, l, err)
				}
				if n++; texts[d.Text] {
					t.Errorf("twice: %q", d.Text)
				}
				texts[d.Text] = true
			}
		}
	}
	if n != rep.Outputs[0].Documents || n != in {
		t.Errorf("%d documents were written, want %d and %d", n, rep.Outputs[0].Documents, in)
	}
	gone := int64(0)
	for l := range strings.Lines(want["/"+LedgerName]) {
		var d Drop
		if err := json.Unmarshal([]byte(l), &d); err != nil {
			t.Fatal(err)
		}
		if d.Reason != "changed" {
			gone++
		}
		if strings.Contains(d.Reason, "duplicate") && d.Reason != "duplicate_paragraphs" && d.Of == nil {
			t.Errorf("%+v says not of what", d)
		}
	}
	if gone != total-in {
		t.Errorf("the ledger has %d documents, want %d", gone, total-in)
	}
	_, have := run(t, dir, "four", 4, a, b)
	sameRun(t, "four workers", have, want)
}

// sameRun compares outputs of recipes that differ in the folder and the workers.
func sameRun(t *testing.T, what string, have, want map[string]string) {
	t.Helper()
	delete(have, "/.recipe.json") // it has the recipe's hash
	delete(want, "/.recipe.json")
	same(t, what, have, want)
}

// A run that is cut off after any number of its files goes on to the same bytes. What was under way leaves
// files of other names, which are in nobody's way.
func TestCutOff(t *testing.T) {
	dir := t.TempDir()
	a, b := corpus(t, dir, "a.jsonl", 2500, 1), corpus(t, dir, "b.jsonl", 300, 2)
	_, want := run(t, dir, "whole", 2, a, b)
	out := filepath.Join(dir, "cut")
	for k := 0; k < 40; k++ {
		r, err := load(t, dir, fmt.Sprintf(sixSteps, out, 2, a, b))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		seen := 0
		_, err = Run(ctx, r, func(string, int64, int64) {
			if seen++; seen > k/4 {
				stop()
			}
		}, dataset.Remote{})
		stop()
		if err == nil {
			break
		}
		if err := os.WriteFile(filepath.Join(out, workDir, fmt.Sprintf(".part-%d", k)), []byte("half"),
			0o600); err != nil {
			t.Fatal(err)
		}
		write(t, out, fmt.Sprintf(".part-%d", k), "half") // beside the outputs too
	}
	_, have := run(t, dir, "cut", 2, a, b)
	sameRun(t, "cut off", have, want)
	if _, err := os.Stat(filepath.Join(out, workDir)); err == nil {
		t.Error("the work is still there")
	}
	_, again := run(t, dir, "cut", 2, a, b)
	sameRun(t, "done again", again, want)
}

// More keys than memory has room for are sorted on disk, in several passes if need be.
func TestSorter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, roomMin - 1, roomMin, 3*roomMin + 5, (mergeRuns + 3) * roomMin} {
		s := newSorter(20, 0, t.TempDir())
		var want [][]byte
		for range n {
			r := make([]byte, 20)
			for i := range r {
				r[i] = byte(rnd.IntN(3))
			}
			want = append(want, r)
			if err := s.add(r); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(want, bytes.Compare)
		i := 0
		if err := s.sorted(func(r []byte) error {
			if !bytes.Equal(r, want[i]) {
				return fmt.Errorf("%d of %d: %x, want %x", i, n, r, want[i])
			}
			i++
			return nil
		}); err != nil || i != n {
			t.Errorf("%d records: %d came: %v", n, i, err)
		}
		if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
			t.Errorf("%d runs are left, %v", len(left), err)
		}
	}
}

// What is wrong with a recipe is an error with its place, and nothing is written.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	a := corpus(t, dir, "a.jsonl", 10, 1)
	head := "output: " + filepath.Join(dir, "out") + "\ninputs: [" + a + "]\n"
	for _, c := range []struct{ text, want string }{
		{"inputs: [a]", "recipe.yaml:1: output: is not given"},
		{"output: x", "inputs: none is given"},
		{head + "step: []", `recipe.yaml:3: step: there is no such key; did you mean "steps"?`},
		{head + "steps: [gopher]", `steps[0].step: there is no step "gopher"; `},
		{head + "steps:\n- {step: pii, form: x}",
			`recipe.yaml:4: steps[0].form: there is no such key; did you mean "from"?`},
		{head + "steps:\n- {name: x, step: pii, from: [y]}\n- {name: y, step: length, min_chars: 1, from: x}",
			"recipe.yaml:4: steps[0].from: the steps wait for each other in a circle: x ← y ← x; " +
				"let one of them read an input"},
		{head + "steps: [pii, pii]", `steps[1].name: steps[0] has the name "pii" too`},
		{head + "steps: [pii]\noutputs: [{from: piii}]",
			`outputs[0].from: there is no input or step "piii"; did you mean "pii"?`},
		{head + "steps: [pii, exact_dedup]\noutputs: [{from: pii}]",
			`steps[1]: nothing is written of what "exact_dedup" lets through; name it in from of a step or an output`},
		{head + "outputs: [{}, {}]", `outputs[1].name: outputs[0] has the name "data" too; give it another name`},
		{head + "outputs: [{format: csv}]", `outputs[0].format: "csv" is not written; use one of arrow, jsonl, `},
		{head + "outputs: [{format: jsonl, compress: lzma}]",
			`jsonl is not compressed with "lzma" here; use one of ["gzip" "zstd"]`},
		{head + "memory: 5", `memory: "5" is no size of at least 1MiB`},
		{head + "outputs: [{name: ../x}]", `"../x" is no name of files`},
		{head + "steps:\n- {step: language, model: " + model + ", label_only: true}\n" +
			"- {name: again, step: language, model: " + model + "}",
			`steps "language" and "again" both write column "language"; give one of them another column, or leave it out`},
		{head + "steps:\n- {step: length, column: language_score, min: 1}\n- {step: language, model: " +
			model + "}",
			`it reads column "language_score", which "language" writes and which it does not stand behind; put it behind that step`},
	} {
		_, err := load(t, dir, c.text)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), c.want) {
			t.Errorf("%s\n%v, want %s", c.text, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("something was written")
	}
}

const model = "../fasttext/testdata/softmax.bin"

// A folder that holds something else is left alone, as is the work of another recipe, or of other inputs,
// and one that another process works in.
func TestOthersOutput(t *testing.T) {
	dir := t.TempDir()
	a := corpus(t, dir, "a.jsonl", 10, 1)
	out := filepath.Join(dir, "out")
	text := "output: " + out + "\ninputs: [" + a + "]\nsteps: [exact_dedup]\n"
	try := func(text, want string) {
		t.Helper()
		r, err := load(t, dir, text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Run(context.Background(), r, nil, dataset.Remote{}); err == nil && want != "" ||
			err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	mine := write(t, out, "mine.txt", "x")
	try(text, `"mine.txt" lies there, which no recipe has written; name a new folder`)
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	release, err := machine.LockDir("x", out) // as another process does that writes there
	if err != nil {
		t.Fatal(err)
	}
	try(text, "output of the recipe: "+out+" is in use by another run, process ")
	release()
	try(text, "")
	try(text, "")
	try(text+"workers: 3\n", "it holds the work of another recipe, or of this one before it was changed")
	corpus(t, dir, "a.jsonl", 11, 1)
	try(text, "the inputs are not those that its work was begun with")
}

// A source that shrinks while it is read is an error that names it, and not a shorter corpus.
func TestShrinks(t *testing.T) {
	dir := t.TempDir()
	a := corpus(t, dir, "a.jsonl", 40, 1)
	r, err := load(t, dir, "output: "+filepath.Join(dir, "out")+"\ninputs: ["+a+"]\nsteps: [exact_dedup]\n")
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	defer closeInputs(f.inputs)
	if err := os.Truncate(a, 500); err != nil {
		t.Fatal(err)
	}
	_, err = f.newWorker().make(context.Background(), 0, 0, nil)
	if err == nil || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(),
		"the file is shorter than when it was opened; put it back") {
		t.Errorf("%v, want an error about %s", err, a)
	}
}

// Documents that cannot be read are in the ledger and the report, until they are more than the recipe allows.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	a := write(t, dir, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n{\"text\": \"three\"}\nno\n")
	for allowed, want := range map[int]string{2: "", 1: "2 of 4 documents are bad"} {
		out := filepath.Join(dir, fmt.Sprint(allowed))
		r, err := load(t, dir, fmt.Sprintf("output: %s\nquarantine: %d\ninputs: [%s]\n", out, allowed, a))
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Run(context.Background(), r, nil, dataset.Remote{})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			continue
		}
		if err != nil || rep.Inputs[0].Unreadable != 2 || rep.Outputs[0].Documents != 2 {
			t.Errorf("%+v %v", rep, err)
		}
		if l := files(t, out)["/"+LedgerName]; !strings.Contains(l,
			`"reason":"unreadable","detail":"its \"text\" is not text"`) {
			t.Errorf("%s", l)
		}
	}
}

// An input of which no document can be read is an error, whatever is allowed, and says which columns there are.
func TestNothingReadable(t *testing.T) {
	dir := t.TempDir()
	a := write(t, dir, "a.jsonl", "{\"body\": \"one\"}\n{\"body\": \"two\"}\n")
	r, err := load(t, dir, fmt.Sprintf("output: %s\nquarantine: 100\ninputs: [{name: in, path: %s, text_key: text, format: jsonl}]\n",
		filepath.Join(dir, "out"), a))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(context.Background(), r, nil, dataset.Remote{})
	if !errors.Is(err, dataset.ErrNoTokens) || !strings.Contains(err.Error(), `all 2 are unreadable`) ||
		!strings.Contains(err.Error(), `it has no key "text"; its keys are body`) {
		t.Errorf("%v", err)
	}
}

// Branches and joins: documents come in the order of "from", and those that go two ways are counted once.
func TestBranches(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "{\"text\": \"%s\"}\n", strings.Repeat("x", i))
	}
	a := write(t, dir, "a.jsonl", b.String())
	out := filepath.Join(dir, "out")
	r, err := load(t, dir, fmt.Sprintf(`output: %s
inputs: [{name: in, path: %s}]
steps:
  - {name: some, step: length, min_chars: 5}
  - {name: long, step: length, min_chars: 20, from: some}
  - {name: short, step: length, max_chars: 9, from: some}
outputs:
  - {name: both, from: [short, long]}
  - {name: long, from: long}
`, out, a))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Run(context.Background(), r, nil, dataset.Remote{})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Inputs[0].Documents != 30 || rep.Steps[0].In != 30 || rep.Steps[0].Out != 25 ||
		rep.Steps[1].In != 25 ||
		rep.Outputs[0].Documents != 15 || rep.Outputs[1].Documents != 10 {
		t.Errorf("%+v", rep)
	}
	f := files(t, out)
	var lengths []int
	for l := range strings.Lines(f["/both-00000.jsonl"]) {
		lengths = append(lengths, strings.Count(l, "x")-1)
	}
	if fmt.Sprint(lengths) != "[5 6 7 8 9 20 21 22 23 24 25 26 27 28 29]" {
		t.Errorf("%v", lengths)
	}
}

// A small clean corpus of the archives that are committed: pages and texts with where they come from,
// without the page that was gone, and without copies.
func TestArchives(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	r, err := load(t, dir, "output: "+out+`
inputs:
  - {name: pages, path: ../format/testdata/warc/small.warc.gz}
  - {name: texts, path: ../format/testdata/warc/small.warc.wet.gz}
steps:
  - {step: paragraph_dedup, min_chars: 8}
  - exact_dedup
  - {step: length, min_chars: 12}
`)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Run(context.Background(), r, nil, dataset.Remote{})
	if err != nil {
		t.Fatal(err)
	}
	text := files(t, out)["/data-00000.jsonl"]
	if rep.Inputs[0].Unreadable != 1 || rep.Inputs[1].Documents != 40 || !strings.HasPrefix(text,
		`{"text":"Stone & wood\nThe river runs past the house.\n`) ||
		!strings.Contains(text, `"url":"http://example.com/6","date":"2024-01-02T03:04:06Z"`) {
		t.Errorf("%+v\n%s", rep.Inputs, text)
	}
}
