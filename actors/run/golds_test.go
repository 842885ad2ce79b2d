package run

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestGolds: before answers are drawn reward.column is held to the data: by a fault of the configuration that says
// what the records have where none can be judged, by a note where some cannot.
func TestGolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"),
		[]byte(pairsModel+"eos_token_id: 1\n"), 0o644))
	wordTokenizer(t, dir, 1)
	run := func(kind string, golds ...string) (string, error) {
		path := filepath.Join(t.TempDir(), "prompts.jsonl")
		var lines strings.Builder
		for i := range 16 {
			fmt.Fprintf(&lines, `{"prompt": "%s %s", %s}`+"\n", colours[i%4], colours[i/4], golds[i%len(golds)])
		}
		require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o644))
		text := fmt.Sprintf(`
model: {file: %q}
data: {paths: [%q], tokenizer: %q, seq_len: 12, kind: prompts, quarantine: 1000}
objective: {kind: grpo}
rollout: {group: 2, max_tokens: 4}
reward: {kind: %s}
train: {steps: 1, global_batch: 8, micro_batch: 8}
log: {dir: %q}
`, filepath.Join(dir, "model.yaml"), path, dir, kind, filepath.Join(t.TempDir(), "log"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text)})
		require.NoError(t, err)
		var said bytes.Buffer
		err = Train(context.Background(), cfg, Options{Progress: &said})
		return said.String(), err
	}
	for _, kind := range []string{"math", "exact", "schema"} {
		_, err := run(kind, `"solution": "4"`)
		require.ErrorContains(t, err, `no column "answer"`, kind)
		require.ErrorContains(t, err, `beside the prompt it has ["solution"]`, kind)
		require.ErrorContains(t, err, "reward.column", kind)
	}
	_, err := run("math", `"answer": null`)
	require.ErrorContains(t, err, "column answer of the record is null")
	_, err = run("math", `"answer": "\\boxed{\\frac{1}{2}"`)
	require.ErrorContains(t, err, "its braces do not match")
	said, err := run("math", `"answer": "\\frac{1}{2}"`, `"answer": " "`)
	require.NoError(t, err)
	require.Contains(t, said, "of the first 16 records of")
	require.Contains(t, said, "8 cannot be judged")
}
