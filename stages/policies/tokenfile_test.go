package policies

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scribeText is a file as it is written.
const scribeText = `{"policy": {"Tokens": "bins", "Horizon": 2, "ViewSize": 16, "Cameras": ["a"]}, "robots": [{"name": "set",
 "scale": {"State": {"Mid": [0], "By": [1]}, "Action": {"Mid": [0, 1], "By": [2, 3]}}, "numbers": [1, 2], "cameras": ["a"]}]}`

// TestScribeFile: what a folder says of a policy that writes is read, and what is damaged is refused with its file.
func TestScribeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, scribeName)
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	write(scribeText)
	f, err := readTokenPolicy(dir)
	require.NoError(t, err)
	require.Equal(t, []float64{2, 3}, f.Robots[0].Scale.Action.By)
	for from, to := range map[string]string{`"bins"`: `"words"`, `"Horizon": 2`: `"Horizon": 0`, `[2, 3]`: `[2]`,
		`"By": [1]`: `"By": [0]`, `"numbers": [1, 2]`: `"numbers": [1, 0]`, `{"policy"`: `["policy"`,
		`"ViewSize": 16`: `"ViewSize": 100000`} {
		require.Contains(t, scribeText, from)
		write(strings.Replace(scribeText, from, to, 1))
		_, err := readTokenPolicy(dir)
		require.ErrorContains(t, err, path+": ", to)
		require.ErrorContains(t, err, "export the run again")
	}
	cfg, err := tokenPolicyConfig(t.TempDir(), "") // a model that is no policy
	require.NoError(t, err)
	require.Nil(t, cfg)
}
