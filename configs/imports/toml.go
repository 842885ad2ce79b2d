package imports

import (
	"errors"
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

// readTOML reads a file. What is no TOML is an error with its line.
func readTOML(text []byte) (map[string]any, error) {
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		var where *toml.DecodeError
		if errors.As(err, &where) {
			line, _ := where.Position() // the text of the error shows the column
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		return nil, err
	}
	return tree, nil
}

// flatten puts a table's keys into out behind a prefix, those of its tables with a dot.
func flatten(out map[string]any, prefix string, table map[string]any) {
	for key, v := range table {
		if below, ok := v.(map[string]any); ok && len(below) > 0 {
			flatten(out, prefix+key+".", below)
		} else {
			out[prefix+key] = v
		}
	}
}
