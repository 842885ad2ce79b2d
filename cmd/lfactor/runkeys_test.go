package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/configs"
)

// keyRun is a run in which some keys mean something: those of its sections, and of all where it has none.
type keyRun struct {
	name     string
	dir      func(t *testing.T) string
	args     string
	sections string
}

// drawnTwo is a run of two steps whose model draws its answers.
func drawnTwo(t *testing.T) string { return clitest.DrawnRun(t, 2) }

// pairsRun is a folder of DrawnRun with pairs of answers.
func pairsRun(t *testing.T) string {
	dir, pairs := drawnTwo(t), ""
	for i := range 40 {
		pairs += fmt.Sprintf("{\"prompt\": \"%d+%d=\", \"chosen\": \"%d\", \"rejected\": \"%d\"}\n", i%7, i%11, i%7+i%11, i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pairs.jsonl"), []byte(pairs), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(`
model: {file: model.yaml}
data: {paths: [pairs.jsonl], tokenizer: ., seq_len: 40, split: [1, 0, 0]}
objective: {kind: dpo}
train: {steps: 3, global_batch: 16, micro_batch: 8, seed: 5}
checkpoint: {dir: ckpt}
log: {dir: run}
`), 0o600))
	return dir
}

const (
	fewSteps  = "train.steps=3 train.eval_interval=2 train.eval_steps=1 checkpoint.interval=1"
	ofExperts = " model.name=qwen/3-30b-a3b model.overrides.num_experts=4 model.overrides.num_experts_per_tok=2 " +
		"model.overrides.moe_intermediate_size=16 plan.pp=1 "
)

// keyRuns are tried in this order.
var keyRuns = []keyRun{
	{"text", tinyRun, fewSteps, ""},
	{"text on one rank", tinyRun, fewSteps + " plan.pp=1 plan.dp=1 plan.threads=1", "plan train optimizer data"},
	{"halves", tinyRun, fewSteps + " train.precision=fp16", "train"},
	{"experts", tinyRun, fewSteps + ofExperts, "train plan optimizer"},
	{"adapters", tinyRun, fewSteps + " lora.rank=4", "lora optimizer freeze"},
	{"Muon", tinyRun, fewSteps + " optimizer.kind=muon", "optimizer"},
	{"SGD", tinyRun, fewSteps + " optimizer.kind=sgd", "optimizer"},
	{"Adafactor", tinyRun, fewSteps + " optimizer.kind=adafactor", "optimizer"},
	{"few bits of moments", tinyRun, fewSteps + " optimizer.moments=8bit", "optimizer"},
	{"WSD", tinyRun, "train.steps=12 schedule.kind=wsd schedule.warmup_steps=3 schedule.wsd_decay_steps=4", "schedule optimizer"},
	{"pairs", pairsRun, "", "objective train data"},
	{"drawn answers", drawnTwo, "", "rollout reward objective data train"},
	{"diffusion", diffusionRun, "train.steps=3", "diffusion data"},
}

// otherValues are values of a key that are not its default.
func otherValues(k configs.Key) (out []string) {
	for _, v := range k.OneOf {
		if v != k.Default {
			out = append(out, v)
		}
	}
	if len(out) > 0 {
		return out
	}
	switch x, err := strconv.ParseFloat(k.Default, 64); {
	case k.Type == "boolean":
		return []string{strconv.FormatBool(k.Default != "true")}
	case k.Type == "integer" || k.Type == "bytes":
		return []string{strconv.Itoa(int(x)*2 + 1), strconv.Itoa(max(int(x)/2, 1)), "2"}
	case k.Type == "number" && err == nil:
		return []string{fmt.Sprint(x/2 + 0.05), fmt.Sprint(2*x + 1)}
	case k.Type == "number":
		return []string{"0.5"}
	case strings.HasPrefix(k.Type, "list of"):
		return []string{"[other]", "[1]", "[1, 2]"}
	}
	return []string{"other"}
}

var figure = regexp.MustCompile(`[0-9][0-9.,:e+-]*( ?(ms|µs|s|m|h|k|M|[KMG]iB|[kMG]B|B|%))?\b|\(busiest: \w+\)`)

// signature is what a run did, without what a clock or the machine says: numbers of its steps, its files, its words.
func signature(t *testing.T, dir string, args ...string) (code int, sig map[string]int, out string) {
	t.Helper()
	for _, name := range []string{"run", "ckpt"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	code, out = runIn(t, dir, nil, append([]string{"train", "run.yaml"}, args...)...)
	sig = map[string]int{}
	for _, line := range strings.Split(out, "\n") {
		if !strings.HasPrefix(line, "eval") {
			line = figure.ReplaceAllString(line, "#")
		}
		sig["says "+line]++
	}
	text, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) != nil {
			continue
		}
		sig["metrics "+fmt.Sprint(i, m["step"], m["loss"], m["grad_norm"], m["lr"], m["eval_loss"], slices.Sorted(maps.Keys(m)))]++
	}
	_ = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error { // what cannot be read is not compared
		if err == nil && !info.IsDir() && filepath.Base(path) != "run.yaml" {
			name, _ := filepath.Rel(dir, path)
			sig["file "+figure.ReplaceAllString(name, "#")+fmt.Sprint(" ", info.Size()*int64(strings.Count(name, ".safetensors")))]++
		}
		return nil
	})
	return code, sig, out
}

// stable is what three runs of the same settings have in common; what parts is kept as -1.
func stable(t *testing.T, r keyRun, dir string) map[string]int {
	t.Helper()
	code, base, out := signature(t, dir, strings.Fields(r.args)...)
	require.Zero(t, code, "%s: %s", r.name, out)
	for range 2 {
		_, again, _ := signature(t, dir, strings.Fields(r.args)...)
		for k := range parts(base, again) {
			require.False(t, strings.HasPrefix(k, "metrics"), "%s is not repeated: %s", r.name, k)
			base[k] = -1
		}
	}
	return base
}

// parts are the entries in which a signature is not a base.
func parts(base, sig map[string]int) map[string]bool {
	out := map[string]bool{}
	for _, m := range []map[string]int{base, sig} {
		for k := range m {
			if base[k] >= 0 && base[k] != sig[k] {
				out[k] = true
			}
		}
	}
	return out
}

// proof tells what became of a key: whether some run moves with it, refuses it, or says something of it.
func proof(t *testing.T, k configs.Key, runs []keyRun, dirs []string, bases []map[string]int) string {
	section, _, _ := strings.Cut(k.Name, ".")
	best := "silent"
	for i, r := range runs {
		if r.sections != "" && !slices.Contains(strings.Fields(r.sections), section) {
			continue
		}
		for _, v := range otherValues(k) {
			code, sig, out := signature(t, dirs[i], append(strings.Fields(r.args), k.Name+"="+v)...)
			switch {
			case strings.Contains(out, k.Name) && code != 0:
				best = "refused"
				continue
			case strings.Contains(out, k.Name):
				best = "noted"
				continue
			case code != 0:
				return "moves"
			}
			if len(parts(bases[i], sig)) > 0 {
				return "moves"
			}
		}
	}
	return best
}

// TestRunKeys: each key of a run file moves what a run does in at least one of thirteen runs, or is refused or noted
// there. What none of them can show is in unmoved, with the reason.
func TestRunKeys(t *testing.T) {
	var keys []configs.Key
	for _, k := range configs.Keys() {
		if !strings.HasPrefix(k.Name, "model.") && (*clitest.Long || slices.Contains([]string{"train.seed",
			"optimizer.lr", "device_strict"}, k.Name)) {
			keys = append(keys, k)
		}
	}
	if only := os.Getenv("LFACTOR_KEYS"); only != "" {
		keys = slices.DeleteFunc(keys, func(k configs.Key) bool { return !slices.Contains(strings.Fields(only), k.Name) })
	}
	runs := keyRuns
	if !*clitest.Long {
		runs = runs[:1]
		t.Log("three keys in one run; all of them in all runs with -long")
	}
	var dirs []string
	var bases []map[string]int
	for _, r := range runs {
		dirs = append(dirs, r.dir(t))
		bases = append(bases, stable(t, r, dirs[len(dirs)-1]))
	}
	counts, silent := map[string]int{}, []string{}
	for _, k := range keys {
		what := proof(t, k, runs, dirs, bases)
		if counts[what]++; what == "silent" {
			silent = append(silent, k.Name)
		}
	}
	t.Logf("%d keys: %v", len(keys), counts)
	require.Empty(t, slices.DeleteFunc(silent, func(k string) bool { return unmoved[k] != "" }))
}

// unmoved are keys that no run here moves, with the reason.
var unmoved = map[string]string{
	"data.quarantine": ofFaults, "train.restarts": ofFaults, "train.restart_window": ofFaults, "log.stall": ofFaults, "data.readers": ofTime, "plan.threads": ofTime,
	"plan.overlap": ofTime, "plan.bucket_bytes": ofTime, "log.edges": ofTime, "plan.recompute": ofMemory, "plan.offload": ofMemory,
	"plan.offload_optimizer": ofMemory, "data.shuffle_shards": "it orders shards, and the data here has none",
	"data.fingerprint": "it stands in the ledger's positions", "log.name": "it stands in run.json",
	"checkpoint.interval": "saves that a run of three steps has not ended are put together",
}

const (
	ofFaults = "it matters when something fails"
	ofTime   = "the same bits in another time"
	ofMemory = "the same bits in other memory"
)
