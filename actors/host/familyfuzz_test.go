package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestFamilyFuzz: of random configurations of each family that transformers builds, and of those in which one
// key alone is not as in the golden model, each is either computed as there, or refused with its reason. It
// wants Python with transformers, named by LFACTOR_PYTHON or python3; LFACTOR_FUZZ names cases of
// bench/golden/family_layers.py in place of all, and with -v each refusal is told. transformers then computes the
// same from each config.json that an export writes.
func TestFamilyFuzz(t *testing.T) {
	if !*long {
		t.Skip("40 random configurations a family are held to transformers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import torch, transformers").Run(); err != nil {
		t.Skipf("%s cannot import torch and transformers (%v): no configuration is compared", python, err)
	}
	dir := t.TempDir()
	args := append([]string{"bench/golden/family_fuzz.py", dir, "40"},
		strings.Fields(os.Getenv("LFACTOR_FUZZ"))...)
	run := exec.Command(python, args...)
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	cases, err := os.ReadDir(dir)
	require.NoError(t, err)
	same, refused, told := 0, 0, 0
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) {
			why, err := fuzzed(t, filepath.Join(dir, c.Name()))
			if run, _ := configs.Load(configs.Request{Args: []string{"model.path=" + filepath.Join(dir, c.Name()), "data.paths=x"}}); err != nil &&
				run != nil && strings.Contains(strings.Join(run.Notices, " "), " is not read: ") {
				told++
				t.Logf("noted %s: %v", c.Name(), err)
				return
			}
			require.NoError(t, err)
			if why == "" {
				same++
				return
			}
			refused++
			t.Logf("refused %s: %s", c.Name(), why)
		})
	}
	read := exec.Command(python, "bench/golden/family_fuzz.py", "--read", dir)
	read.Dir = "../.."
	out, err = read.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	t.Logf("%d of %d configurations computed as transformers does, %d refused, %d noted", same, len(cases), refused, told)
	require.Greater(t, same, len(cases)/2)
}

// TestDayZero tells of each model that bench/golden/dayzero.py has made, in the folder LFACTOR_DAYZERO, whether it is
// computed as transformers does, or refused.
func TestDayZero(t *testing.T) {
	dir := os.Getenv("LFACTOR_DAYZERO")
	if dir == "" {
		t.Skip("bench/golden/dayzero.py runs it")
	}
	cases, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) {
			path := filepath.Join(dir, c.Name())
			if _, err := os.Stat(filepath.Join(path, "golden.json")); err != nil {
				if _, err := configs.ReadModel(path); err != nil {
					t.Logf("dayzero %s refused %s", c.Name(), strings.ReplaceAll(strings.Split(err.Error(), "\n")[0], path, ""))
					return
				}
				t.Logf("dayzero %s open", c.Name())
				return
			}
			why, err := fuzzed(t, path)
			switch {
			case err != nil:
				t.Errorf("dayzero %s wrong %v", c.Name(), err)
			case why != "":
				t.Logf("dayzero %s refused %s", c.Name(), why)
			default:
				t.Logf("dayzero %s verified", c.Name())
			}
		})
	}
}

// fuzzed compares one configuration; why is the reason of a refusal.
func fuzzed(t *testing.T, dir string) (why string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	c, err := configs.ReadModel(dir)
	if err != nil {
		lines := strings.Split(err.Error(), "\n")
		sort.Strings(lines)
		return strings.ReplaceAll(lines[0], dir, ""), nil
	}
	g := openGoldenAt(t, dir)
	loss, _ := g.forward(cpu.New(1), tensor.F32, false)
	_, logits := g.forward(cpu.New(1), tensor.F32, true)
	_, want := g.read("logits")
	if e := relative(logits, want); len(logits) != len(want) || !(e < 1e-4) {
		return "", fmt.Errorf("logits differ by %.1e, loss %.7f, transformers has %.7f", e, loss, g.Loss)
	}
	written := filepath.Join(dir, "written") // what an export without a source directory says of the model
	if err := os.Mkdir(written, 0o755); err != nil {
		return "", err
	}
	return "", os.WriteFile(filepath.Join(written, "config.json"), c.HFConfig("float32"), 0o644)
}
