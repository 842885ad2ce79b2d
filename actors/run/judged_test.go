package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJudged: a loss over single answers begins at one half, since the policy is the reference, and learns; a
// pipeline gives the same bits; records that cannot be used are set aside with the reason, and data of the
// wrong kind is refused.
func TestJudged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pairs := writePairs(t, dir, false)
	path := filepath.Join(dir, "judged.jsonl")
	var lines []string
	for i := range 24 {
		word, label := colours[i%4], "true"
		if i%3 == 0 {
			word, label = colours[(i+1)%4], "false"
		}
		lines = append(lines, `{"prompt": "`+colours[i%4]+` disc", "completion": " `+word+`", "label": `+label+`}`)
	}
	good := lines
	lines = append(lines, `{"prompt": "red", "completion": "", "label": true}`,
		`{"prompt": "", "completion": " red", "label": true}`, `{"prompt": "red", "completion": " red", "label": 1}`,
		`{"prompt": "red", "completion": null, "label": true}`)
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	args := []string{"objective.kind=kto", "data.paths=[" + path + "]", "train.micro_batch=2"}
	want, log := pairsRun(t, dir, args...)
	require.InDelta(t, 0.5, want[0], 1e-6)
	require.Less(t, want[11], 0.47)
	piped, _ := pairsRun(t, dir, append(args, "plan.pp=2")...)
	require.Equal(t, want, piped)
	text, err := os.ReadFile(filepath.Join(log, "quarantine.jsonl"))
	require.NoError(t, err)
	for _, why := range []string{"its answer is empty", "its prompt is empty",
		`its \"label\" is neither true nor false`, `it has no \"completion\"`} {
		require.Contains(t, string(text), why)
	}
	require.NoError(t, os.WriteFile(path, []byte(good[0]+"\n"), 0o644))
	require.ErrorContains(t, pairsFault(t, dir, args...), "no document gives any tokens")
	require.ErrorContains(t, pairsFault(t, dir, "objective.kind=kto", "data.paths=["+pairs+"]"),
		"the data holds pairs, and kto learns from others")
	require.ErrorContains(t, pairsFault(t, dir, "objective.kind=dpo", "data.paths=["+path+"]"),
		"the data holds judged, and dpo learns from others")
}
