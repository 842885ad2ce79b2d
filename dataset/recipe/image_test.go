package recipe

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/dataset"
)

// drawn is a PNG of a picture that a number tells, of a size, with a speck for some.
func drawn(t *testing.T, n, w, h int, speck bool) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, w, h))
	rnd := rand.New(rand.NewPCG(uint64(n), 1))
	var waves [6][6]float64
	for i := range waves {
		for k := range waves[i] {
			waves[i][k] = rnd.NormFloat64() * 20
		}
	}
	for y := range h {
		for x := range w {
			v := 128.0
			for i := range waves {
				for k := range waves[i] {
					v += waves[i][k] * math.Cos(math.Pi*float64(i)*(float64(x)+.5)/float64(w)) *
						math.Cos(math.Pi*float64(k)*(float64(y)+.5)/float64(h))
				}
			}
			m.SetGray(x, y, color.Gray{uint8(min(max(v, 0), 255))})
		}
	}
	if speck {
		for i := range 40 {
			m.Set(w/2+i%8, h/2+i/8, color.White)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Of pictures that come again in another size, or with a speck in them, one stays; others, and documents
// without a picture, stay as well, whatever the number of workers.
func TestImageDedup(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	const n = 12
	add := func(name string, b []byte) {
		doc := map[string]any{"text": name}
		if b != nil {
			doc["image"] = map[string]string{"bytes": base64.StdEncoding.EncodeToString(b)}
		}
		line, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	for i := range n {
		add(fmt.Sprintf("%d", i), drawn(t, i, 96, 96, false))
		add(fmt.Sprintf("%d again", i), drawn(t, i, 192, 192, false))
		add(fmt.Sprintf("%d speck", i), drawn(t, i, 192, 192, true))
		add("none", nil)
	}
	path := write(t, dir, "pictures.jsonl", lines.String())
	left := map[int][]string{}
	for _, workers := range []int{1, 3} {
		out := filepath.Join(dir, fmt.Sprint("out", workers))
		r, err := load(t, dir, fmt.Sprintf("output: %s\nworkers: %d\ninputs: [%s]\nsteps: [{step: image_dedup, distance: 6}]\n",
			out, workers, path))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Run(context.Background(), r, nil, dataset.Remote{}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, "data-00000.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(text)) {
			var d struct{ Text string }
			if err := json.Unmarshal([]byte(l), &d); err != nil {
				t.Fatal(err)
			}
			left[workers] = append(left[workers], d.Text)
		}
	}
	seen := map[string]int{}
	for _, name := range left[1] {
		seen[strings.Fields(name)[0]]++
	}
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("of picture %d %d are left: %v", i, seen[fmt.Sprint(i)], left[1])
		}
	}
	if seen["none"] != n || fmt.Sprint(left[1]) != fmt.Sprint(left[3]) {
		t.Errorf("%v, and %v with three workers", left[1], left[3])
	}
}

// Documents whose files are not there are in the ledger with the path; where all are, the folder is
// wrong, and the recipe fails.
func TestImagesMissing(t *testing.T) {
	for _, step := range []string{"{step: image_dedup}", "{step: image_size, min_side: 1}"} {
		dir := t.TempDir()
		write(t, dir, "there.png", string(drawn(t, 1, 20, 20, false)))
		docs := `{"text": "a", "image": "gone.png"}` + "\n" + `{"text": "b", "image": "away.png"}` + "\n"
		try := func(docs string) (*Report, string, error) {
			out := filepath.Join(dir, fmt.Sprint("out", len(docs)))
			path := write(t, dir, "docs.jsonl", docs)
			r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [%s]\nsteps: [%s]\n", out, path, step))
			if err != nil {
				t.Fatal(err)
			}
			rep, err := Run(context.Background(), r, nil, dataset.Remote{})
			return rep, out, err
		}
		_, _, err := try(docs)
		if err == nil || !strings.Contains(err.Error(),
			"of 2 documents none has its image: the files are not there, as "+
				filepath.ToSlash(dir)+"/") {
			t.Errorf("%s: %v", step, err)
		}
		rep, out, err := try(docs + `{"text": "c", "image": "there.png"}` + "\n")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, LedgerName))
		if err != nil {
			t.Fatal(err)
		}
		if rep.Outputs[0].Documents != 1 || strings.Count(string(text), `"reason":"missing_image"`) != 2 ||
			!strings.Contains(string(text), filepath.ToSlash(dir)+"/gone.png") {
			t.Errorf("%s: %+v\n%s", step, rep, text)
		}
	}
}

// Work does not go on, and is not taken for done, with another file that a step reads.
func TestReadChanged(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "docs.jsonl", `{"text": "one two three"}`+"\n")
	set := write(t, dir, "set.jsonl", `{"text": "four five six"}`+"\n")
	try := func() error {
		r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [%s]\nsteps: [{step: decontaminate, n_grams: 2, against: [%s]}]\n",
			filepath.Join(dir, "out"), path, set))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Run(context.Background(), r, nil, dataset.Remote{})
		return err
	}
	for range 2 {
		if err := try(); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "set.jsonl", `{"text": "four two three"}`+"\n")
	if err := try(); err == nil || !strings.Contains(err.Error(),
		"a model or file that steps read is not the one") {
		t.Error(err)
	}
}
