package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run whose data goes through filters learns what a run of the cleaned data learns: the same tokens, and
// the same losses where the order is that of the files. Its report says what was left out.
func TestFilters(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	var all, kept strings.Builder
	for i := range 60 {
		text := strings.Repeat(fmt.Sprintf("word %d mail me@here.org ", i), 1+i%7)
		fmt.Fprintf(&all, "{\"text\": %q}\n", text)
		if i%7 > 2 {
			fmt.Fprintf(&kept, "{\"text\": %q}\n", strings.ReplaceAll(text, "me@here.org", "x@y.z"))
		}
	}
	for name, text := range map[string]string{"all.jsonl": all.String(), "kept.jsonl": kept.String(),
		"filters.yaml": "steps:\n- {step: pii, email_replacement: [x@y.z]}\n- {step: length, min_words: 13}\n",
		"state.yaml":   "steps:\n- length\n- exact_dedup\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	same := []string{"data.shuffle=false", "data.split=[100,0,0]", "train.steps=6", "data.kind=auto"}
	lint := func(args ...string) string {
		code, out := runIn(t, dir, nil, append([]string{"data", "lint", "--config", "run.yaml"}, append(args,
			same...)...)...)
		require.Zero(t, code, out)
		return out
	}
	with, without := lint("data.paths=[all.jsonl]", "data.filters=filters.yaml"),
		lint("data.paths=[kept.jsonl]")
	require.Contains(t, with, "27 documents are left out: length: too_few_words\n")
	tokens := func(out string) string {
		_, out, _ = strings.Cut("\n"+out, "too_few_words")
		return strings.Fields(out)[0]
	}
	require.Equal(t, tokens(with), strings.Fields(without)[0])
	losses := func(args ...string) string {
		code, out := runIn(t, dir, nil, append(append([]string{"train", "run.yaml"}, same...), args...)...)
		require.Zero(t, code, out)
		var list []string
		for _, f := range strings.Split(out, "\n") {
			if i := strings.Index(f, "loss "); i >= 0 {
				list = append(list, strings.Fields(f[i:])[1])
			}
		}
		require.NotEmpty(t, list, out)
		return strings.Join(list, " ")
	}
	require.Equal(t, losses("data.paths=[kept.jsonl]", "checkpoint.dir=a"),
		losses("data.paths=[all.jsonl]", "data.filters=filters.yaml", "checkpoint.dir=b"))
	code, out := runIn(t, dir, nil, append([]string{"train", "run.yaml", "data.filters=state.yaml",
		"checkpoint.dir=c"}, same...)...)
	require.NotZero(t, code)
	require.Contains(t, out, "state.yaml:3: steps[1]: exact_dedup has to see all documents before it decides; make the data "+
		"clean with `lfactor data run` first")
	require.Contains(t, out, "state.yaml:2: steps[0].min_chars: no bound is given")
}
