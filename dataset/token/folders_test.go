package token

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFoldersDrawn: of 400 random folders of tokenizers, in which tokens lie in tokenizer.json, in
// tokenizer_config.json, special_tokens_map.json and added_tokens.json with all their flags, each makes the ids
// of transformers' AutoTokenizer of 100 texts. It wants Python with transformers, named by LFACTOR_PYTHON or
// python3; LFACTOR_FUZZ is another seed than 1.
func TestFoldersDrawn(t *testing.T) {
	if !*long {
		t.Skip("400 random folders of tokenizers are held to transformers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers").Run(); err != nil {
		t.Skipf("%s cannot import transformers (%v): no folder is compared", python, err)
	}
	dir, seed := filepath.Join(t.TempDir(), "folders"), os.Getenv("LFACTOR_FUZZ")
	if seed == "" {
		seed = "1"
	}
	run := exec.Command(python, "bench/golden/token_folders.py", dir, "400", seed)
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	folders, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, folder := range folders {
		require.NoError(t, sameFolder(folder), filepath.Base(folder))
	}
}

// sameFolder compares a folder with what its want.json says.
func sameFolder(dir string) error {
	var want struct {
		Texts []string
		IDs   [][]int32
		Named map[string]string
		Error string
	}
	b, err := os.ReadFile(filepath.Join(dir, "want.json"))
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil || want.Error != "" {
		return err
	}
	tok, c, err := LoadDir(dir)
	if err != nil {
		return err
	}
	named := map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.PAD}
	if fmt.Sprint(named) != fmt.Sprint(want.Named) {
		return fmt.Errorf("special tokens %v, want %v", named, want.Named)
	}
	for i, text := range want.Texts {
		if ids := tok.Encode(text, false); !slices.Equal(ids, want.IDs[i]) {
			return fmt.Errorf("%q: %v, want %v", text, ids, want.IDs[i])
		}
	}
	return nil
}
