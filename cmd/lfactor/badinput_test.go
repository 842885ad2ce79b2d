package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBadInput: every kind of bad input ends with its exit code and a message that names place and remedy;
// nothing crashes and nothing is left half-written.
//
//lfvet:long a table of cases
func TestBadInput(t *testing.T) {
	t.Parallel()
	base := tinyRun(t)
	code, out := runIn(t, base, nil, "train", "run.yaml", "-q", "train.steps=4", "checkpoint.save_hf=true",
		"checkpoint.save_hf_path=hf")
	require.Zero(t, code, out)
	for name, c := range map[string]struct {
		code int
		says []string
		args []string
		mar  func(t *testing.T, dir string) // breaks something first
	}{
		"unknown key": {2, []string{"plan.ppp", "did you mean"}, []string{"plan.ppp=2"}, nil},
		"unknown flag": {2, []string{"--tensor-model-paralel-size"},
			[]string{"--tensor-model-paralel-size", "2"}, nil},
		"wrong type": {2, []string{"train.steps", "ten"}, []string{"train.steps=ten"}, nil},
		"run file": {2, []string{"run.yaml:", "recomput"}, nil,
			edit("run.yaml", "threads: 1", "recomput: full")},
		"heads":        {2, []string{"plan.tp", "try"}, []string{"plan.tp=3"}, nil},
		"layers":       {2, []string{"plan.pp", "try"}, []string{"plan.pp=3"}, nil},
		"batch":        {2, []string{"train.global_batch", "try"}, []string{"train.global_batch=9"}, nil},
		"vocabulary":   {2, []string{"vocab_size", "rows"}, []string{"model.overrides.vocab_size=300"}, nil},
		"does not fit": {3, []string{"rank 0", "budget", "try"}, []string{"plan.memory=100KiB"}, nil},
		"fixed key": {2, []string{"train.seed", "checkpoint was made with"},
			[]string{"train.steps=6", "train.seed=9"}, nil},
		"other data": {2, []string{"data"}, []string{"train.steps=6"}, func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "text", "new.txt"), []byte("x"), 0o644))
		}},
		"truncated weights": {6, []string{"model.safetensors"}, []string{"checkpoint.dir=c2"},
			all(fromHF, truncateFile("hf/model.safetensors", 1000))},
		"missing tensor": {6, []string{"q_norm", "missing"}, []string{"checkpoint.dir=c2"},
			all(fromHF, edit("hf/config.json", `"llama"`, `"qwen3"`))},
		"data budget": {4, []string{"bad.jsonl at byte", "budget", "not JSON"},
			[]string{"data.kind=jsonl", "data.paths=[bad.jsonl]", "data.quarantine=3", "checkpoint.dir=c2"},
			badJSONL},
		"schedule": {2, []string{"zigzag"}, []string{"plan.schedule=zigzag"}, nil},
		"nothing usable": {4, []string{"no document gives any tokens"},
			[]string{"data.kind=jsonl", "data.paths=[none.jsonl]", "checkpoint.dir=c2"},
			func(t *testing.T, dir string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "none.jsonl"),
					[]byte("not json\nnor this\n"), 0o644))
			}},
		"texts without a text": {4, []string{"no document gives any tokens that are learnt", "none has a label"},
			[]string{"data.kind=jsonl", "data.paths=[none.jsonl]", "train.steps=1", "checkpoint.dir=c2"},
			func(t *testing.T, dir string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "none.jsonl"),
					[]byte(strings.Repeat(`{"text": ""}`+"\n", 40)), 0o644))
			}},
		"no validation": {2, []string{"data.split", "leaves no document"},
			[]string{"data.kind=jsonl", "data.paths=[three.jsonl]", "data.split=[98, 1, 1]", "train.eval_interval=1",
				"checkpoint.dir=c2"},
			func(t *testing.T, dir string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "three.jsonl"),
					[]byte(strings.Repeat(`{"text": "words of it"}`+"\n", 3)), 0o644))
			}},
		"nothing set aside": {2, []string{"train.eval_interval", "there is no validation data", "data.split a second share"},
			[]string{"train.eval_interval=5", "data.split=[1, 0, 0]", "data.valid=[]", "checkpoint.dir=c2"}, nil},
		"an empty set": {4, []string{"data.valid", "none.jsonl", "no document gives any tokens", "the file is empty"},
			[]string{"data.valid=[none.jsonl]", "data.kind=auto", "train.eval_interval=5", "checkpoint.dir=c2"}, lay("none.jsonl", "")},
		"an empty set beside others": {2, []string{"data.valid", "none.jsonl is empty"},
			[]string{"data.paths=[pairs.jsonl]", "data.kind=auto", "data.valid=[none.jsonl]", "train.eval_interval=5",
				"checkpoint.dir=c2"},
			all(lay("none.jsonl", " \n"), lay("pairs.jsonl", `{"messages": [{"role": "user", "content": "a"}, `+
				`{"role": "assistant", "content": "b"}]}`+"\n"))},
		"pattern": {2, []string{"lora.targets", "matches nothing"},
			[]string{"lora.rank=2", "lora.targets=['*.q_pro']", "checkpoint.dir=c2"}, nil},
		"nothing trained": {2, []string{"freeze", "nothing is left"},
			[]string{"freeze=['*']", "checkpoint.dir=c2"}, nil},
		"random and load": {2, []string{"checkpoint.load", "random"},
			[]string{"checkpoint.load=hf", "checkpoint.dir=c2"}, nil},
		"no weights": {2, []string{"safetensors", "model.init"}, []string{"checkpoint.dir=c2"},
			all(fromHF, func(t *testing.T, dir string) {
				require.NoError(t, os.Remove(filepath.Join(dir, "hf", "model.safetensors")))
			})},
		"diverges": {1, []string{"step", "not finite"}, []string{"optimizer.lr=1e30",
			"optimizer.clip_grad=0", "train.steps=6", "checkpoint.dir=c3"}, nil},
		"device": {2, []string{"cuda"}, []string{"device=cuda"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(base)))
			if c.mar != nil {
				c.mar(t, dir)
			}
			code, out := runIn(t, dir, nil, append([]string{"train", "run.yaml"}, c.args...)...)
			require.Equal(t, c.code, code, out)
			for _, s := range c.says {
				require.Contains(t, out, s)
			}
			require.NotContains(t, out, "goroutine", "a bare stack")
			require.NotRegexp(t, "data of step .*data of step", out, "the step is said once")
			require.NoFileExists(t, filepath.Join(dir, "c2", "latest"))
		})
	}
}

// lay writes a file.
func lay(name, text string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// badJSONL writes a file in which every other line is not JSON.
func badJSONL(t *testing.T, dir string) {
	var b strings.Builder
	for range 200 {
		b.WriteString("{\"text\": \"func main() { println(1) }\"}\nnot json\n")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.jsonl"), []byte(b.String()), 0o644))
}

// fromHF makes the run start from the directory that the first run exported.
func fromHF(t *testing.T, dir string) {
	edit("run.yaml", "  name: llama/3.2-1b\n  init: random\n  overrides:", "  path: hf\n  #")(t, dir)
}

func all(fs ...func(t *testing.T, dir string)) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		for _, f := range fs {
			f(t, dir)
		}
	}
}

func edit(file, from, to string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), from)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644))
	}
}

func truncateFile(file string, size int64) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) { require.NoError(t, os.Truncate(filepath.Join(dir, file), size)) }
}
