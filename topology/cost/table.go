package cost

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
)

const rowsMax = 1 << 20

// ReadMeasured reads a table of steps in vTrain's columns; others are passed over. Errors are *configs.Error
// values that name line and column. The time may be missing where timed is false.
func ReadMeasured(file, text string, timed bool) ([]Measured, error) {
	in := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return nil, &configs.Error{File: file, Line: 1, Why: "has no line of column names"}
	}
	var one Measured
	fields := map[string]*int{"# GPUs": &one.GPUs, "global batch": &one.Batch, "micro batch": &one.Micro,
		"hidden size": &one.Hidden, "attention heads": &one.Heads, "# layers": &one.Layers, "sequence length": &one.Seq,
		"tensor parallelism": &one.TP, "data parallelism": &one.DP, "pipeline parallelism": &one.PP}
	const timeColumn = "iteration time (ms)"
	names, seen := make([]string, len(head)), map[string]bool{}
	for i, h := range head {
		names[i] = strings.TrimSpace(h)
		seen[names[i]] = true
	}
	var faults []error
	for _, name := range []string{"# GPUs", "global batch", "micro batch", "hidden size", "attention heads", "# layers",
		"sequence length", "tensor parallelism", "data parallelism", "pipeline parallelism", timeColumn} {
		if !seen[name] && (name != timeColumn || timed) {
			faults = append(faults, &configs.Error{File: file, Line: 1, Key: name, Why: "the column is missing"})
		}
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	var out []Measured
	for {
		cells, err := in.Read()
		if cells == nil && err != nil {
			break
		}
		line, _ := in.FieldPos(0)
		fault := func(key, why string) error {
			return &configs.Error{File: file, Line: line, Key: key, Why: why}
		}
		if err != nil {
			return nil, fault("", err.Error())
		}
		one = Measured{}
		for i, c := range cells {
			v, err := strconv.ParseFloat(strings.TrimSpace(c), 64)
			to := fields[names[i]]
			switch {
			case to == nil && names[i] != timeColumn || names[i] == timeColumn && !timed && c == "":
			case err != nil || math.IsNaN(v) || v <= 0 || v > 1e12 || to != nil && v != math.Trunc(v):
				return nil, fault(names[i], fmt.Sprintf("%q is no such number", c))
			case to != nil:
				*to = int(v)
			default:
				one.Seconds = v / 1e3
			}
		}
		if col, why := one.Check(); why != "" {
			return nil, fault(col, why)
		}
		if out = append(out, one); len(out) > rowsMax {
			return nil, fault("", fmt.Sprintf("more than %d rows", rowsMax))
		}
	}
	if len(out) == 0 {
		return nil, &configs.Error{File: file, Why: "has no rows"}
	}
	return out, nil
}
