// Package clitest runs the command as users do, for tests: it builds lfactor once for a test binary, writes
// a tiny run, and reads what a run has left.
package clitest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// Long runs the fault tier in full; without it a few kills of each kind are tried.
var Long = flag.Bool("long", false, "run the fault tier in full")

// Sample is the first n of the cases of a grid, and all of them with -long; what is left out is said. Cases
// that fail for reasons of their own stand first.
func Sample[T any](t *testing.T, n int, cases []T) []T {
	t.Helper()
	if *Long || n >= len(cases) {
		return cases
	}
	t.Logf("%d of %d cases: add -long", n, len(cases))
	return cases[:n]
}

func binary() string { return filepath.Join(os.TempDir(), fmt.Sprintf("lfactor-test-%d", os.Getpid())) }

// Main is the TestMain of a package that runs the command: it removes the binary at the end. The processes
// that tests start hold some MiB and live for seconds, a tenth of which would be the collection of garbage.
func Main(m *testing.M) {
	flag.Parse()
	if os.Getenv("LFACTOR_PROGRESS_EVERY") == "" { // what is printed does not depend on how busy the machine is
		os.Setenv("LFACTOR_PROGRESS_EVERY", "1h")
	}
	if os.Getenv("GOGC") == "" {
		os.Setenv("GOGC", "400")
	}
	code := m.Run()
	_ = os.Remove(binary())           // a package whose tests ran nothing has none
	_ = os.Remove(binary() + "-head") // as above
	if tiny.dir != "" {
		_ = os.RemoveAll(tiny.dir) // what stays lies in the system's folder for temporary files
	}
	os.Exit(code)
}

var building sync.Mutex // one test builds, the others wait

// Built builds lfactor once for all tests of a package, and returns the binary's path. Unlike go build, go
// run keeps what it has linked, so that the next package gets the same binary at once.
func Built(t *testing.T) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if path := binary(); machine.Exists(path) {
		return path
	}
	build(t, "github.com/lfactor/lfactor/cmd/lfactor", binary())
	return binary()
}

// BuiltHead is Built, with the program beside it that serves as the head of a cluster.
func BuiltHead(t *testing.T) string {
	t.Helper()
	path := Built(t)
	building.Lock()
	defer building.Unlock()
	if !machine.Exists(path + "-head") {
		build(t, "github.com/lfactor/lfactor/cmd/lfactor-head", path+"-head")
	}
	return path
}

// InstallBoth puts both programs where a test has a host's: lfactor at path, and the other beside it.
func InstallBoth(t *testing.T, path string) {
	t.Helper()
	from := BuiltHead(t)
	for _, end := range []string{"", "-head"} {
		text, err := os.ReadFile(from + end)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+end, text, 0o755))
	}
}

// program is the one that a command line needs: those that may start a head need both.
func program(t *testing.T, args []string) string {
	t.Helper()
	if slices.Contains(args, "cluster") || slices.Contains(args, "--cluster") {
		return BuiltHead(t)
	}
	return Built(t)
}

func build(t *testing.T, program, path string) {
	t.Helper()
	out, err := exec.Command("go", "run", "-exec", "cp", program, path).CombinedOutput()
	require.NoError(t, err, string(out))
}

// tiny is what every TinyRun begins as, written once; Main removes it.
var tiny struct {
	sync.Once
	dir string
	err error
}

// TinyRun writes a corpus, a tokenizer and a run file, run.yaml, to a new directory.
func TinyRun(t *testing.T) string {
	t.Helper()
	tiny.Do(func() { tiny.dir, tiny.err = writeTiny() })
	require.NoError(t, tiny.err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(tiny.dir)))
	return dir
}

func writeTiny() (string, error) {
	dir, err := os.MkdirTemp("", "lfactor-tiny-")
	if err != nil {
		return "", err
	}
	if _, err := demo.GoSources(filepath.Join(dir, "text"), 60); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "text", "*.txt"))
	if err != nil {
		return "", err
	}
	if err := demo.TrainTokenizer(filepath.Join(dir, "tok"), files[:20], 400); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(TinyYAML), 0o644)
}

// TinyYAML is the run file of TinyRun.
const TinyYAML = `
model:
  name: llama/3.2-1b
  init: random
  overrides: {hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, intermediate_size: 64, vocab_size: 401, max_position_embeddings: 64, rope_scaling: none}
data: {kind: text, paths: [text], tokenizer: tok, seq_len: 32, split: [90, 10, 0]}
train: {steps: 24, global_batch: 8, micro_batch: 2}
optimizer: {lr: 1.0e-3}
plan: {pp: 2, dp: 2, threads: 1}
checkpoint: {dir: ckpt, interval: 2, keep: 3}
log: {dir: run}
`

// WiderArgs make the steps of TinyRun take some 50 ms.
var WiderArgs = []string{"model.overrides.hidden_size=96", "model.overrides.intermediate_size=256",
	"model.overrides.head_dim=24", "train.global_batch=32", "train.micro_batch=4",
	"train.steps=100000", "checkpoint.interval=0", "schedule.decay_steps=1000"}

// RunIn runs lfactor in a directory, with more environment, and returns its exit code and all of its output.
func RunIn(t *testing.T, dir string, env []string, args ...string) (int, string) {
	t.Helper()
	c := exec.Command(program(t, args), args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err == nil {
		return 0, string(out)
	}
	x, ok := err.(*exec.ExitError)
	require.True(t, ok, err)
	return x.ExitCode(), string(out)
}

// Streams runs lfactor in a directory with some input, and returns its exit code, stdout and stderr.
func Streams(t *testing.T, dir, stdin string, args ...string) (int, string, string) {
	t.Helper()
	c := exec.Command(program(t, args), args...)
	c.Dir, c.Stdin = dir, strings.NewReader(stdin)
	return streamsOf(t, c)
}

// StreamsEnv is Streams without input and with more environment.
func StreamsEnv(t *testing.T, dir string, env []string, args ...string) (int, string, string) {
	t.Helper()
	c := exec.Command(program(t, args), args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	return streamsOf(t, c)
}

func streamsOf(t *testing.T, c *exec.Cmd) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if x, ok := err.(*exec.ExitError); ok {
		return x.ExitCode(), out.String(), errs.String()
	}
	require.NoError(t, err)
	return 0, out.String(), errs.String()
}

// State is what an interrupted run must have in common with one that never was.
type State struct {
	Hash   map[string]string // of each tensor of the newest checkpoint
	Ledger [][]int64         // the samples of each step
}

// StateOf reads the state of a run that has done so many steps.
func StateOf(t *testing.T, dir string, steps int64) (s State) {
	t.Helper()
	r, err := checkpoint.Open(filepath.Join(dir, "ckpt"))
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, r.Verify())
	require.Equal(t, steps, r.Step())
	s.Hash = map[string]string{}
	for _, kind := range r.Kinds() {
		src := r.Kind(kind)
		for _, i := range src.Tensors() {
			raw := make([]byte, i.Bytes)
			ranges := make([][2]int, len(i.Shape))
			for k, n := range i.Shape {
				ranges[k] = [2]int{0, n}
			}
			require.NoError(t, src.ReadRanges(i.Name, ranges, raw))
			s.Hash[kind+" "+i.Name] = HashOf(raw)
		}
	}
	l, err := dataset.OpenLedger(filepath.Join(dir, "run", "samples.ledger"))
	require.NoError(t, err)
	defer l.Close()
	for step := int64(1); step <= steps; step++ {
		ids, _, err := l.Blame(step)
		require.NoError(t, err)
		s.Ledger = append(s.Ledger, ids)
	}
	return s
}

// HashOf is the SHA-256 of bytes in hexadecimal digits.
func HashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Metrics reads a run's metrics.jsonl.
func Metrics(t *testing.T, dir string) (out []run.Metrics) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "run", "metrics.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var m run.Metrics
		require.NoError(t, json.Unmarshal(s.Bytes(), &m))
		out = append(out, m)
	}
	return
}
