package recipe

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Standing is how far a recipe is, as its output folder shows it.
type Standing struct {
	Done   bool    `json:"done"`
	Blocks []int   `json:"blocks"`           // that are made, of each stage that has begun
	Report *Report `json:"report,omitempty"` // of one that is done
}

// Is reports whether a folder is a recipe's output.
func Is(dir string) bool {
	_, err := os.Stat(statePathOf(dir))
	return err == nil
}

// reportMost bounds what is read of a report.
const reportMost = 64 << 20

// Look says how far the recipe is whose output a folder is.
func Look(dir string) (*Standing, error) {
	text, err := os.ReadFile(statePathOf(dir))
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", statePathOf(dir), err)
	}
	p := &Standing{Done: s.Done, Blocks: []int{}}
	for stage := 0; ; stage++ {
		made, _ := filepath.Glob(filepath.Join(dir, workDir, fmt.Sprintf("stage-%02d", stage), "*", "*.block")) // the pattern is right
		if len(made) == 0 {
			break
		}
		p.Blocks = append(p.Blocks, len(made))
	}
	if !s.Done {
		return p, nil
	}
	f, err := os.Open(filepath.Join(dir, reportName))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	p.Report = &Report{}
	if err := json.NewDecoder(io.LimitReader(f, reportMost)).Decode(p.Report); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return p, nil
}
