package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/configs"
)

// infoStages are rows of a LLaMA-Factory's data set by its stage, and the same in a form that needs no entry.
var infoStages = []struct {
	stage, entry string
	row, plain   func(i int) any
}{
	{"sft", `"columns": {"prompt": "ask", "query": "more", "response": "say", "system": "rules"}`,
		func(i int) any {
			return map[string]any{"ask": infoWord(i), "more": "x", "say": infoWord(i + 1), "rules": "func"}
		},
		func(i int) any {
			return map[string]any{"messages": said3("func", infoWord(i)+"\nx", infoWord(i+1))}
		}},
	{"sft", `"formatting": "sharegpt", "columns": {"messages": "talk"}, ` +
		`"tags": {"role_tag": "who", "content_tag": "what", "user_tag": "Q", "assistant_tag": "A", "system_tag": "S"}`,
		func(i int) any {
			return map[string]any{"talk": []any{map[string]any{"who": "S", "what": "func"},
				map[string]any{"who": "Q", "what": infoWord(i)}, map[string]any{"who": "A", "what": infoWord(i + 1)}}}
		},
		func(i int) any { return map[string]any{"messages": said3("func", infoWord(i), infoWord(i+1))} }},
	{"dpo", `"ranking": true, "columns": {"prompt": "instruction", "chosen": "good", "rejected": "bad"}`,
		func(i int) any {
			return map[string]any{"instruction": infoWord(i), "good": infoWord(i + 1), "bad": infoWord(i + 2)}
		},
		func(i int) any {
			return map[string]any{"prompt": said3("", infoWord(i), "")[1:2], "chosen": said3("", "", infoWord(i+1))[2:],
				"rejected": said3("", "", infoWord(i+2))[2:]}
		}},
	{"kto", `"formatting": "sharegpt", "columns": {"messages": "messages", "kto_tag": "good"}, ` +
		`"tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}`,
		func(i int) any {
			return map[string]any{"messages": said3("", infoWord(i), infoWord(i+1))[1:], "good": i%2 == 0}
		},
		func(i int) any {
			return map[string]any{"prompt": said3("", infoWord(i), "")[1:2],
				"completion": said3("", "", infoWord(i+1))[2:], "label": i%2 == 0}
		}},
}

func infoWord(i int) string { return []string{"return", "package", "if err", "for range"}[i%4] }

func said3(system, user, assistant string) []any {
	return []any{map[string]any{"role": "system", "content": system}, map[string]any{"role": "user", "content": user},
		map[string]any{"role": "assistant", "content": assistant}}
}

// infoLines writes rows of a data set.
func infoLines(t *testing.T, path string, row func(i int) any) {
	t.Helper()
	var b strings.Builder
	for i := range 12 {
		line, err := json.Marshal(row(i))
		require.NoError(t, err)
		b.Write(append(line, '\n'))
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
}

// infoLosses trains by a run file.
func infoLosses(t *testing.T, file string, args ...string) (losses []float64) {
	t.Helper()
	cfg, err := configs.Load(configs.Request{File: file, Args: append(args,
		"log.dir="+filepath.Join(t.TempDir(), "log"), "train.epochs=0", "train.steps=3",
		"data.template=qwen", "optimizer.lr=0.01", "checkpoint.interval=0",
		"checkpoint.dir="+t.TempDir(), "checkpoint.save_hf=false")})
	require.NoError(t, err)
	require.NoError(t, run.Train(context.Background(), cfg, run.Options{Step: func(m run.Metrics) {
		losses = append(losses, m.Loss)
	}}))
	return losses
}

// TestDatasetInfoTrains: a file of LLaMA-Factory's whose data sets are names of its dataset_info.json, of a file or of a
// folder, trains on them as on the same texts in forms that need no entry: the losses are the same bits.
func TestDatasetInfoTrains(t *testing.T) {
	t.Parallel()
	dir := clitest.TinyRun(t)
	in := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	require.NoError(t, os.WriteFile(in("tok", "config.json"), []byte(`{"architectures":["LlamaForCausalLM"],
"model_type":"llama","hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
"head_dim":8,"intermediate_size":64,"vocab_size":401,"max_position_embeddings":512,
"rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu"}`), 0o600))
	for k, c := range infoStages {
		source := []string{"rows.jsonl", "folder"}[k%2]
		require.NoError(t, os.RemoveAll(in("data")))
		infoLines(t, in("data", strings.Replace(source, "folder", "folder/rows.jsonl", 1)), c.row)
		infoLines(t, in("plain.jsonl"), c.plain)
		info := fmt.Sprintf(`{"mine": {"file_name": %q, %s}, "other": {"hf_hub_url": "a/b"}}`, source, c.entry)
		require.NoError(t, os.WriteFile(in("data", "dataset_info.json"), []byte(info), 0o600))
		require.NoError(t, os.MkdirAll(in("examples", "lora"), 0o755))
		asked := fmt.Sprintf("model_name_or_path: %s\ntrain_from_scratch: true\nstage: %s\ndataset: mine\n"+
			"finetuning_type: full\ncutoff_len: 200\nper_device_train_batch_size: 4\ntemplate: qwen\n"+
			"output_dir: o\n", in("tok"), c.stage)
		require.NoError(t, os.WriteFile(in("examples", "lora", "a.yaml"), []byte(asked), 0o600))
		file := in(fmt.Sprintf("run%d.yaml", k))
		_, err := simOutput(t, "config", "import", in("examples", "lora", "a.yaml"), "--out", file)
		require.NoError(t, err, c.stage)
		theirs := infoLosses(t, file)
		kind := map[string]string{"sft": "chat", "dpo": "preference", "kto": "kto"}[c.stage]
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text = regexp.MustCompile(`(?m)^  dataset.*\n`).ReplaceAll(text, nil)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		ours := infoLosses(t, file, "data.kind="+kind, "data.paths=["+in("plain.jsonl")+"]")
		require.Len(t, theirs, 3)
		require.Equal(t, ours, theirs, "%s %s", c.stage, c.entry)
	}
}
