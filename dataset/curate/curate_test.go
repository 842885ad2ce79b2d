package curate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/configs/source"
)

// Each step says what it is and where its rules come from, and has settings that YAML can fill.
func TestRegistry(t *testing.T) {
	for _, k := range Kinds() {
		if k.Name == "" || k.Doc == "" || k.Source == "" || k.Settings == nil {
			t.Errorf("%+v says too little", k)
		}
		if a, b := k.Settings(), k.Settings(); a == b {
			t.Errorf("%s: two steps share their settings", k.Name)
		}
	}
}

// read opens a step as a recipe does.
func read(t *testing.T, name, text string) (Step, error) {
	t.Helper()
	n, err := source.ParseYAML("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	k, ok := Find(name)
	if !ok {
		t.Fatal(name)
	}
	r := &Reader{File: "r.yaml"}
	return r.Open(k, n, "steps[0]", "step"), r.Err()
}

// Faults of settings have a place and, where there is one, a remedy.
func TestFaults(t *testing.T) {
	model := filepath.Join("..", "fasttext", "testdata", "softmax.bin")
	wrong := filepath.Join(t.TempDir(), "wrong.bin")
	if err := os.WriteFile(wrong, []byte("PK\x03\x04 a pickle, or what else"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ step, text, want string }{
		{"gopher_quality", "min_doc_word: 3",
			`r.yaml:1: steps[0].min_doc_word: there is no such key; did you mean "min_doc_words"?`},
		{"gopher_quality", "step: x\nmin_doc_words: many",
			`r.yaml:2: steps[0].min_doc_words: "many" is no whole number`},
		{"gopher_quality", "stop_words: the",
			`r.yaml:1: steps[0].stop_words: "the" stands where a list is wanted; write it as [ … ]`},
		{"gopher_repetition", "top_n_grams: [[0, 0.2]]",
			`steps[0].top_n_grams: 0 is no number of words; give pairs like [2, 0.2]`},
		{"language", "languages: [en]", `steps[0].model: is not given; name a .bin or .ftz of fastText`},
		{"language", "step: language\nmodel: " + wrong, `r.yaml:2: steps[0].model: fastText classifier ` +
			wrong + `: it is not a fastText model`},
		{"language", "model: " + model + "\nlanguages: [tlh]",
			`r.yaml:2: steps[0].languages: the model knows no language "tlh"; it knows de, el, en, fr, zh`},
		{"classifier", "model: " + model +
			"\nkeep_labels: [{label: en, score: 0.5}]\nremove_labels: [{label: de, score: 1}]",
			`r.yaml:2: steps[0].keep_labels: remove_labels is given too`},
		{"minhash_dedup", "n_grams: 0", `steps[0].n_grams: 0 words make no n-gram; the usual number is 5`},
		{"minhash_dedup", "num_buckets: 100000",
			`steps[0].num_buckets: 100000 buckets of 8 hashes cannot be`},
		{"length", "{}", `steps[0].min_chars: no bound is given`},
		{"decontaminate", "against: [nothing.jsonl]", `steps[0].against: `},
		{"sample", "inputs: {web: 2}", `steps[0].inputs.web: 2 is not within 0 and 1`},
		{"pii", "email_replacement: []", `steps[0].email_replacement: the list is empty`},
	} {
		_, err := read(t, c.step, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: %v, want %s", c.step, c.text, err, c.want)
		}
	}
}

// What stands in a recipe takes effect, and nothing switches a rule off.
func TestSettings(t *testing.T) {
	model := filepath.Join("..", "fasttext", "testdata", "softmax.bin")
	for _, c := range []struct{ step, text, doc, reason, after string }{
		{"gopher_quality", "{min_doc_words: null, min_stop_words: 0}", "Cats like mice", "", ""},
		{"gopher_quality", "min_doc_words: 4", "Cats like mice", "gopher_short_doc", ""},
		{"language", "{model: " + model + ", languages: [en]}", "the of and", "", ""},
		{"language", "{model: " + model + ", languages: [en]}", "der die und", "language", ""},
		{"classifier", "{model: " + model + ", remove_labels: [{label: en, score: 0.5}]}", "the of and",
			"classifier", ""},
		{"classifier", "{model: " + model + ", remove_labels: [{label: en, score: 0.5}]}", "der die und", "",
			""},
		{"length", "{min_chars: 4}", "äöü", "too_short", ""},
		{"length", "{max_words: 2}", "a b c", "too_many_words", ""},
		{"length", "{column: n, min: 5}", "a", "no_n", ""},
		{"pii", "{}", "a@b.co 8.8.8.8 10.0.0.1", "", "email@example.com 22.214.171.124 10.0.0.1"},
		{"pii", "{remove_emails: false, only_remove_public_ips: false, ip_replacement: [x]}",
			"a@b.co 8.8.8.8 10.0.0.1 08.1.1.1", "",
			"a@b.co x x 08.1.1.1"},
		{"c4_quality", "{min_num_sentences: 1}", "No end\nAn end, it is [12].", "", "An end, it is ."},
	} {
		s, err := read(t, c.step, c.text)
		if err != nil {
			t.Errorf("%s: %v", c.step, err)
			continue
		}
		d := Doc{Text: c.doc}
		reason := s.Do(NewDesk(), &d)
		if reason != c.reason || c.after != "" && d.Text != c.after {
			t.Errorf("%s %s: %q: %q and %q, want %q and %q", c.step, c.text, c.doc, reason, d.Text, c.reason,
				c.after)
		}
	}
}

// A step that removes lines leaves the others, and drops a document of which nothing is left.
func TestParagraphs(t *testing.T) {
	s := open(t, "paragraph_dedup", nil).(Stateful)
	d := Doc{Text: "one\n\ntwo\nthree"}
	if r := s.Drop(&d, []uint32{0, 2}); r != "" || d.Text != "\nthree" {
		t.Errorf("%q %q", r, d.Text)
	}
	d = Doc{Text: "one\n\ntwo"}
	if r := s.Drop(&d, []uint32{0, 2}); r != "duplicate_paragraphs" {
		t.Errorf("%q", r)
	}
}

// A share of an input is drawn by the number alone, and close to what is asked for.
func TestSample(t *testing.T) {
	s, err := read(t, "sample", "{fraction: 0.25, inputs: {books: 1, web: 0}}")
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]int{}
	for i := range int64(20000) {
		for _, in := range []string{"other", "books", "web"} {
			if s.Do(nil, &Doc{Input: in, Number: i}) == "" {
				kept[in]++
			}
		}
	}
	if kept["books"] != 20000 || kept["web"] != 0 || kept["other"] < 4700 || kept["other"] > 5300 {
		t.Errorf("%v", kept)
	}
}
