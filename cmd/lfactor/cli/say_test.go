package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
)

// TestSay: an error is a line for people, without what Go calls the system's calls, and an object with its exit code and
// the faults of a configuration for scripts.
func TestSay(t *testing.T) {
	_, none := os.ReadFile(filepath.Join(t.TempDir(), "none"))
	var text strings.Builder
	Say(&text, fmt.Errorf("data: %w", none), "text")
	require.Regexp(t, `^error: data: \S*none: no such file or directory\n$`, text.String())

	_, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte("model: {name: llama/3.2-1b}\ntrain: {stps: 3}\n")})
	require.Error(t, err)
	for _, form := range []string{"json", "jsonl"} {
		text.Reset()
		Say(&text, errors.Join(err), form)
		var got struct {
			Error  string
			Code   int
			Faults []fault
		}
		require.NoError(t, json.Unmarshal([]byte(text.String()), &got))
		require.Equal(t, 1, strings.Count(text.String(), "\n"))
		require.Equal(t, exit.Usage, got.Code)
		require.Contains(t, got.Faults, fault{File: "run.yaml", Line: 2, Key: "train.stps", Why: "unknown key", Try: `did you mean "steps"?`})
	}
	require.Equal(t, "jsonl", FormOf("text", []string{"run.yaml", "-o", "jsonl"}))
	require.Equal(t, "json", FormOf("json", []string{"run.yaml"}))
}

// TestOnProcessor: a verb that does not read the device of the environment says so.
func TestOnProcessor(t *testing.T) {
	for v, want := range map[string]string{"": "", "cpu": "", "nonsense": "LFACTOR_DEVICE=nonsense has no effect: lfactor sample"} {
		t.Setenv("LFACTOR_DEVICE", v)
		var said strings.Builder
		c := &cobra.Command{Use: "sample", Run: func(*cobra.Command, []string) {}}
		c.SetErr(&said)
		c.SetArgs(nil)
		OnProcessor(c)
		require.NoError(t, c.Execute())
		require.Contains(t, said.String(), want)
		require.Equal(t, want == "", said.String() == "")
	}
}
