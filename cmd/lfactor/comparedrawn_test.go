package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// writeDrawn writes texts, or as the answers of conversations, in one form, and returns what data.paths names.
func writeDrawn(t *testing.T, dir, form string, chat bool, texts []string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "texts"), 0o755))
	var lines strings.Builder
	for i, s := range texts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "texts", fmt.Sprintf("%02d.txt", i)), []byte(s), 0o644))
		row := map[string]any{"text": s}
		if chat {
			row = map[string]any{"messages": []map[string]string{{"role": "user", "content": fmt.Sprint("say ", i)},
				{"role": "assistant", "content": s}}}
		}
		b, err := json.Marshal(row)
		require.NoError(t, err)
		lines.Write(append(b, '\n'))
	}
	path := filepath.Join(dir, "rows.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o644))
	switch form {
	case "jsonl":
		return path
	case "folder":
		return filepath.Join(dir, "texts")
	}
	if chat {
		return arrowTalks(t, filepath.Join(dir, "rows.arrow"), lines.String())
	}
	code, out := runIn(t, dir, nil, "data", "reshard", path, "--to", "other", "--as", form)
	require.Zero(t, code, out)
	written, err := filepath.Glob(filepath.Join(dir, "other", "*."+form))
	require.NoError(t, err)
	require.Len(t, written, 1, out)
	return written[0]
}

// arrowTalks writes lines of conversations as a file of Arrow.
func arrowTalks(t *testing.T, path, lines string) string {
	t.Helper()
	turn := arrow.StructOf(arrow.Field{Name: "role", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "content", Type: arrow.BinaryTypes.String})
	schema := arrow.NewSchema([]arrow.Field{{Name: "messages", Type: arrow.ListOf(turn)}}, nil)
	list := "[" + strings.ReplaceAll(strings.TrimSpace(lines), "\n", ",") + "]"
	rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(list))
	require.NoError(t, err)
	defer rows.Release()
	f, err := os.Create(path)
	require.NoError(t, err)
	w, err := ipc.NewFileWriter(f, ipc.WithSchema(schema))
	require.NoError(t, err)
	require.NoError(t, w.Write(rows))
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	return path
}

// changed is texts with one letter another, two rows in each other's place, or as they are.
func changed(r *rand.Rand, texts []string, how string) []string {
	out := slices.Clone(texts)
	switch i := r.IntN(len(out)); how {
	case "a letter":
		at := r.IntN(len(out[i]))
		for out[i][at] < 'a' || out[i][at] > 'y' {
			at = (at + 1) % len(out[i])
		}
		out[i] = out[i][:at] + string(out[i][at]+1) + out[i][at+1:]
	case "two rows":
		j := (i + 1 + r.IntN(len(out)-1)) % len(out)
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// TestCompareDrawn: two runs over the same texts, which lie in two folders and in two forms, have the same samples
// and losses; with one letter of them another, or two rows in each other's place, they part. With -long more is drawn.
func TestCompareDrawn(t *testing.T) {
	t.Parallel()
	dir, r, draws, counts := tinyRun(t), rand.New(rand.NewPCG(1, 2)), 6, map[string]int{}
	if *clitest.Long {
		draws = 90
	}
	template := filepath.Join(dir, "short.jinja")
	require.NoError(t, os.WriteFile(template, []byte("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }} {% else %}"+
		"{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}"), 0o644))
	files, err := filepath.Glob(filepath.Join(dir, "text", "*.txt"))
	require.NoError(t, err)
	for n := range draws {
		chat, forms := n%2 == 1, []string{"jsonl", "arrow", "parquet", "folder"}
		if chat {
			forms = forms[:2]
		}
		how := []string{"nothing", "a letter", "two rows"}[n/2%3]
		var texts []string
		for i := range 8 { // which four steps read, all of them
			b, err := os.ReadFile(files[(n*8+i)%len(files)])
			require.NoError(t, err)
			texts = append(texts, fmt.Sprint(i, string(b[:min(40, len(b))])))
		}
		var runs [2]string
		var in [2]string
		for k, list := range [][]string{texts, changed(r, texts, how)} {
			in[k] = forms[r.IntN(len(forms))]
			runs[k] = fmt.Sprintf("run-%d-%d", n, k)
			path := writeDrawn(t, filepath.Join(dir, fmt.Sprintf("data-%d-%d", n, k)), in[k], chat, list)
			args := []string{"train", "run.yaml", "-q", "log.dir=" + runs[k], "data.paths=['" + path + "']", "data.split=[100, 0, 0]",
				"train.steps=4", "data.seq_len=64", "plan.pp=1", "plan.dp=1", "checkpoint.interval=0", "checkpoint.dir=" + runs[k] + "/ckpt"}
			kind := map[string]string{"jsonl": "jsonl", "parquet": "parquet", "arrow": "arrow", "folder": "text"}[in[k]]
			if chat {
				kind, args = "chat", append(args, "data.template="+template)
			}
			args = append(args, "data.kind="+kind)
			code, out := runIn(t, dir, nil, args...)
			require.Zero(t, code, out)
		}
		what := fmt.Sprintf("draw %d: chat %v, %s as %v", n, chat, how, in)
		_, out, said := streams(t, dir, "", "compare", runs[0], runs[1], "-o", "json")
		var c record.Comparison
		require.NoError(t, json.Unmarshal([]byte(out), &c), "%s: %s %s", what, out, said)
		require.EqualValues(t, 4, c.Steps, what)
		require.Equal(t, how == "nothing", c.Samples == 0, "%s: samples part at step %d", what, c.Samples)
		require.Equal(t, how == "nothing", c.Loss == 0, "%s: losses part at step %d", what, c.Loss)
		counts[fmt.Sprintf("%s, %s to %s", how, in[0], in[1])]++
	}
	t.Log(counts)
}
