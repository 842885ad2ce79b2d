package maths

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	long    = flag.Bool("long", false, "draw pairs of every form and hold them to math-verify")
	rewrite = flag.Bool("rewrite", false,
		"with -long, write the sample of the pairs that the ordinary tests read")
)

// pair is a gold and an answer, and whether math-verify 0.9 has them equal.
type pair struct {
	Form   string `json:"form"`
	Gold   string `json:"gold"`
	Answer string `json:"answer"`
	Equal  bool   `json:"equal"`
}

// boxed is an answer as models write it, or the text behind ! as it stands.
func boxed(s string) string {
	if strings.HasPrefix(s, "!") {
		return s[1:]
	}
	return `$\boxed{` + s + `}$`
}

const sample = "testdata/verify.jsonl"

// TestMathVerify: of drawn pairs of every form at least 99 of 100 are compared as math-verify compares them,
// a third to a half of which are equal; forms in which it is wrong are named in the table. It wants Python
// with math-verify, named by LFACTOR_PYTHON or python3.
func TestMathVerify(t *testing.T) {
	if !*long {
		t.Skip("200 pairs of each form are held to math-verify with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import math_verify").Run(); err != nil {
		t.Skipf("%s cannot import math_verify (%v): nothing is compared", python, err)
	}
	all := drawn(200)
	var in, said bytes.Buffer
	w := json.NewEncoder(&in)
	for i := range all {
		require.NoError(t, w.Encode(pair{Gold: boxed(all[i].Gold), Answer: boxed(all[i].Answer)}))
	}
	run := exec.Command(python, "bench/golden/mathverify.py")
	run.Dir, run.Stdin, run.Stderr = "../../..", &in, &said
	out, err := run.Output()
	require.NoError(t, err, said.String())
	lines := bufio.NewScanner(bytes.NewReader(out))
	for i := range all {
		require.True(t, lines.Scan())
		all[i].Equal = lines.Text() == "true"
	}
	agree(t, all, 0.99, true)
	if *rewrite {
		write(t, all)
	}
}

// drawn are n pairs of every form.
func drawn(n int) (out []pair) {
	d := &draw{Rand: rand.New(rand.NewPCG(58, 7))}
	for _, f := range forms {
		for i := range n {
			d.equal = i%50 < 20
			gold, answer := f.pair(d)
			out = append(out, pair{Form: f.name, Gold: gold, Answer: answer})
		}
	}
	return out
}

// agree holds every form's share of agreement, and lists what differs.
func agree(t *testing.T, all []pair, least float64, shares bool) {
	for _, f := range forms {
		n, same, equal := 0, 0, 0
		for _, p := range all {
			if p.Form != f.name {
				continue
			}
			n++
			if p.Equal {
				equal++
			}
			gold, err := Read(boxed(p.Gold))
			if got := err == nil && gold.Is(boxed(p.Answer)); got == p.Equal {
				same++
			} else if f.ours == "" {
				t.Logf("%s: %s against %s is %t here (%v), %t by math-verify", p.Form, p.Answer,
					p.Gold, got, err, p.Equal)
			}
		}
		if f.ours != "" {
			t.Logf("%s: %d of %d agree: %s", f.name, same, n, f.ours)
			continue
		}
		if shares {
			t.Logf("%s: %d of %d agree, %d equal", f.name, same, n, equal)
			assert.GreaterOrEqual(t, 3*equal, n, f.name)
			assert.LessOrEqual(t, equal, n/2, f.name)
		}
		assert.GreaterOrEqual(t, float64(same), least*float64(n), f.name)
	}
}

func write(t *testing.T, all []pair) {
	var out bytes.Buffer
	w := json.NewEncoder(&out)
	w.SetEscapeHTML(false)
	for i, p := range all {
		if i%25 == 0 {
			require.NoError(t, w.Encode(p))
		}
	}
	require.NoError(t, os.WriteFile(sample, out.Bytes(), 0o600))
}

// TestSample: what math-verify says of eight pairs of each form, without Python.
func TestSample(t *testing.T) {
	text, err := os.ReadFile(sample)
	require.NoError(t, err)
	var all []pair
	for line := range strings.Lines(string(text)) {
		var p pair
		require.NoError(t, json.Unmarshal([]byte(line), &p))
		all = append(all, p)
	}
	require.Len(t, all, 8*len(forms))
	agree(t, all, 1, false)
}
