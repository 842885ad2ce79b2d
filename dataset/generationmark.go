package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/topology/machine"
)

// GenerationMarkName is the file beside a run's ledger that names the generation that the run waits for. The
// ledger alone does not tell: a generation without a usable sample gives no step.
const GenerationMarkName = "awaited.json"

// generationMark is the file's content.
type generationMark struct {
	Generation int64 `json:"generation"`
}

// WriteGenerationMark says in a run's folder which generation it waits for.
func WriteGenerationMark(dir string, gen int64) error {
	b, err := json.Marshal(generationMark{gen})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return machine.ReplaceBytes(filepath.Join(dir, GenerationMarkName), 0o644, append(b, '\n'))
}

// ReadGenerationMark returns the generation that the run of a folder waits for, or has waited for last; -1
// where it has never waited.
func ReadGenerationMark(dir string) (int64, error) {
	path := filepath.Join(dir, GenerationMarkName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return -1, nil
	}
	a := generationMark{-1}
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err == nil && a.Generation < 0 {
		err = errors.New("it names no generation")
	}
	if err != nil {
		return -1, fmt.Errorf("%s: %w; remove it", path, err)
	}
	return a.Generation, nil
}

// ForgetGenerationMark removes what an earlier run of the folder has waited for.
func ForgetGenerationMark(dir string) error {
	if err := os.Remove(filepath.Join(dir, GenerationMarkName)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
