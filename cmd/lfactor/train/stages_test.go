package train

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStagesOfDocs: files of stages that pages show are read.
func TestStagesOfDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains("\n"+block[1], "\nstages:") {
				continue
			}
			shown++
			file := filepath.Join(t.TempDir(), "stages.yaml")
			require.NoError(t, os.WriteFile(file, []byte(block[1]), 0o644))
			_, err := readStages(file)
			require.NoError(t, err, page)
		}
	}
	require.NotZero(t, shown)
}
