package fasttext

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The scores are those of fastText's own library, by bench/golden/fasttext_models.py.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		m, err := Open(f)
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct {
			Text   string
			Scores map[string]float64
		}
		b, err := os.ReadFile(strings.TrimSuffix(f, ".bin") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &cases); err != nil {
			t.Fatal(err)
		}
		worst := 0.0
		for _, c := range cases {
			have := m.Predict(c.Text)
			if len(have) != len(c.Scores) {
				t.Errorf("%s: %q: %v, want %v", f, c.Text, have, c.Scores)
				continue
			}
			for _, s := range have {
				d := math.Abs(float64(s.P) - c.Scores[labelPrefix+s.Label])
				if worst = max(worst, d); d > 1e-5 {
					t.Errorf("%s: %q: %s %v, want %v", f, c.Text, s.Label, s.P,
						c.Scores[labelPrefix+s.Label])
				}
			}
		}
		t.Logf("%s: %d texts, the largest difference is %.1e", f, len(cases), worst)
	}
}

// Every cut of a file, and a file of another kind, is an error that says what is wrong.
func TestDamaged(t *testing.T) {
	for _, name := range []string{"softmax", "pruned"} {
		b, err := os.ReadFile("testdata/" + name + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.bin")
		for n := 0; n < len(b); n += 1 + n/50 {
			if err := os.WriteFile(path, b[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); err == nil {
				t.Fatalf("%s: the first %d of %d bytes are read", name, n, len(b))
			}
		}
		longer := append(append([]byte{}, b...), 0)
		if err := os.WriteFile(path, longer, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "follow its end") {
			t.Error(err)
		}
	}
	if _, err := Open("predict.go"); err == nil || !strings.Contains(err.Error(), "not a fastText model") {
		t.Error(err)
	}
}

// FuzzRead looks for sizes that a file says and nobody checks.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"softmax", "hs", "pruned"} {
		b, err := os.ReadFile("testdata/" + name + ".bin")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x.bin")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := Open(path); err == nil {
			m.Predict("the und naïve 你")
		}
	})
}
