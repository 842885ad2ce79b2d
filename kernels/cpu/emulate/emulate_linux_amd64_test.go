package emulate

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
)

// build builds the emulator, or skips the test where programs cannot be built or traced.
func build(t *testing.T) string {
	look(t, "../..")
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to build programs with")
	}
	out := filepath.Join(t.TempDir(), "emulate")
	goTool(t, "test", "-c", "-o", out, ".")
	if msg, err := exec.Command(out, "/bin/sh", "-c", "exit 0").CombinedOutput(); err != nil {
		require.Contains(t, string(msg), "is not permitted")
		t.Skipf("programs cannot be traced here: %s", msg)
	}
	return out
}

// look makes a kept result of "go test" void when a file under dir changes: programs that a test builds are
// no part of it, but files that it looks at are.
func look(t *testing.T, dir string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			_, err = os.Stat(path)
		}
		return err
	}))
}

// command is a program that must not hang for ever.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	const longest = 30 * time.Minute // a thread that the tracer forgets waits for ever; beside other programs it takes minutes
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, name, args...)
}

func goTool(t *testing.T, args ...string) {
	msg, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "go %v: %s", args, msg)
}

// Threads have tiles of their own; children are emulated; signals, faults and the exit status are those of
// the program; a use of AMX that a processor refuses is not passed over.
func TestPrograms(t *testing.T) {
	if slices.Contains(cpu.Levels(), "amx") {
		t.Skip("the processor has AMX: it configures tiles itself, and the emulator never hears of them")
	}
	emulate := build(t)
	tiles := filepath.Join(t.TempDir(), "tiles")
	goTool(t, "build", "-o", tiles, "./testdata/tiles")
	for _, c := range []struct {
		mode   string
		status int
		out    string
	}{
		{"threads", 0, "^$"},
		{"child", 0, "^$"},
		{"exec", 0, "^$"},
		{"signals", 7, "^$"},
		{"undefined", 2, "SIGILL: illegal instruction"},
		{"killed", 128 + 9, "^$"},
		{"refused", failed, `^emulate: thread \d+ at 0x[0-9a-f]+, TILESTORED: #UD: tile 0 is used, but none is configured\n$`},
		{"fault", failed, `TILELOADD: #PF: no memory to read at 0x0\n$`},
	} {
		t.Run(c.mode, func(t *testing.T) {
			run := command(t, emulate, tiles, c.mode)
			out, _ := run.CombinedOutput()
			require.Equal(t, c.status, run.ProcessState.ExitCode(), "%s", out)
			require.Regexp(t, regexp.MustCompile(c.out), string(out))
		})
	}
	out, err := exec.Command(emulate, "/nowhere/program").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "/nowhere/program")
}

// levelTests is what of kernels/cpu's tests runs on tiles: every operation against the definition, products
// that are written past the caches, attention over several blocks of keys.
const levelTests = "^(TestConformance|TestLargeProducts|TestLongSequencesBackward)$/^(amx|)$"

// TestLevelAMX runs tests of kernels/cpu at level amx.
func TestLevelAMX(t *testing.T) {
	levels := cpu.Levels()
	if slices.Contains(levels, "amx") {
		t.Skip("the processor has AMX: the tests of kernels/cpu cover it")
	}
	if !slices.Contains(levels, "avx512bf16") {
		t.Skip("the processor lacks AVX512_BF16, which level amx needs beside tiles")
	}
	if testing.Short() {
		t.Skip("takes some 15 s")
	}
	emulate := build(t)
	tests := filepath.Join(t.TempDir(), "cpu.test")
	goTool(t, "test", "-c", "-o", tests, "github.com/lfactor/lfactor/kernels/cpu")
	run := command(t, emulate, "-count", tests, "-test.v", "-test.run", levelTests)
	run.Env = append(run.Environ(), "LFACTOR_CPU=amx")
	msg, err := run.CombinedOutput()
	out := string(msg)
	require.NoError(t, err, "%s", failures(out))
	for _, name := range []string{"TestConformance/amx/reference", "TestConformance/amx/epilogues",
		"TestLargeProducts", "TestLongSequencesBackward"} {
		require.Contains(t, out, "--- PASS: "+name+" ", "it did not run")
	}
	count := regexp.MustCompile(`emulate: \d+ AMX instructions \((\d+) TDPBF16PS\)`).FindStringSubmatch(out)
	require.NotNil(t, count, "%s", failures(out))
	products, err := strconv.Atoi(count[1])
	require.NoError(t, err)
	require.Greater(t, products, 100000, "the products did not run on tiles")
	t.Log(out[strings.LastIndex(out, "emulate: "):])
}

// failures is what remains of the output of tests without those that passed.
func failures(out string) string {
	var l []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "=== ") && !strings.Contains(line, "--- PASS: ") {
			l = append(l, line)
		}
	}
	return strings.Join(l[max(0, len(l)-60):], "")
}
