package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/configs/exit"
)

// carriedOut runs a command line in this process, and gives its exit code and what it wrote.
func carriedOut(t *testing.T, args ...string) (int, string) {
	t.Helper()
	c := root()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := cli.Execute(t.Context(), c)
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	return cli.ExitCode(err), out.String()
}

// TestEveryVerb: each command has help with a line of what it does and how it is used, which takes no exit code but 0; and a flag
// that it does not have is a wrong command line, code 2.
func TestEveryVerb(t *testing.T) {
	all := leaves(root(), "")
	require.Greater(t, len(all), 50)
	for _, verb := range all {
		if verb == "cluster head" || verb == "cluster confined" {
			continue // it is another program, and how an agent starts a job
		}
		words := strings.Fields(verb)
		code, out := carriedOut(t, append(slices.Clone(words), "--help")...)
		require.Zero(t, code, "%s: %s", verb, out)
		require.Contains(t, out, "Usage:", verb)
		code, out = carriedOut(t, append(slices.Clone(words), "--no-such-flag")...)
		require.Equal(t, exit.Usage, code, "%s: %s", verb, out)
	}
}

// TestExitTable: docs/json.md and the help have the codes, and no other.
func TestExitTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/json.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "| code | meaning |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var want []string
	_, help := carriedOut(t, "--help")
	for _, c := range exit.Codes() {
		want = append(want, fmt.Sprintf("| %d | %s |", c.Code, c.Doc))
		require.Contains(t, help, fmt.Sprintf("  %-4d %s\n", c.Code, c.Doc))
	}
	require.Equal(t, strings.Join(want, "\n"), strings.TrimSpace(table))
}

// TestProgress: what takes long says what it does, how far it is, and when it will be done; each other command says that it is
// at work. Lines come every two seconds; here, at once.
func TestProgress(t *testing.T) {
	t.Parallel()
	for _, verb := range leaves(root(), "") { // who says it in its own way
		c, _, err := root().Find(strings.Fields(verb))
		require.NoError(t, err)
		own := slices.Contains(
			[]string{"attach", "cluster", "demo", "events", "logs", "sample", "serve", "stages", "train", "ui"},
			strings.Fields(verb)[0],
		)
		require.Equal(t, own, cli.OwnsProgress(c), verb)
	}
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=4")
	require.Zero(t, code, out)
	cases := []struct{ args, want string }{
		{
			"bench kernels --only rmsnorm --rounds 3 --precision fp32",
			`timing rmsnorm.* of \d+ \(\d+ %\)  [\d.e+]+/s  eta \d+s`,
		},
		{"bench step --steps 2 --layers 1 --hidden 64 --intermediate 64 --vocab 64 --seq 64 --batch 1",
			`training steps  2 of 3 \(66 %\)`},
		{
			"sim run.yaml --seeds 9 --cluster cpu",
			`simulating seeds, each twice  [1-8] of 9 \(\d+ %\)  [\d.e+]+/s  eta \d+s`,
		},
		{"sim run.yaml --cluster cpu", `lfactor sim  after \d+s`},
		{"plan run.yaml --hosts 1x4", ` of \d+ \(\d+ %\)`},
		{"plan run.yaml --max-length --hosts 1x1", ` after \d+s`},
		{"ckpt convert ckpt hf", `reading  after \d+s`},
		{"ckpt verify ckpt", `lfactor ckpt verify  after \d+s`},
		{"config check run.yaml", `lfactor config check  after \d+s`},
		{"compare run run", `lfactor compare  after \d+s`},
	}
	if *clitest.Long {
		cases = append(cases, []struct{ args, want string }{
			{"bench plan --runs 1", `run 1 of 1: tracing stages of plans  \d+ of 8000 .* eta`},
			{"bench sim --runs 1", `simulating a step of 1024 ranks  1 of 2`},
			{"sim encoder --microbatches 4", `simulating layouts at scale: .* 1 of \d+`},
		}...)
	} else {
		t.Log("bench plan, bench sim and sim encoder: add -long")
	}
	for _, c := range cases {
		code, _, errs := clitest.StreamsEnv(
			t,
			dir,
			[]string{"LFACTOR_PROGRESS_EVERY=1ms"},
			strings.Fields(c.args)...)
		require.Zero(t, code, "%s: %s", c.args, errs)
		require.Regexp(t, c.want, errs, c.args)
	}
}
