package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Seen is the first tensor, of those that both runs have written down (log.tensors), whose statistics differ: in the
// order of steps, and within a rank's step in that of its arithmetic.
type Seen struct {
	Step   int64      `json:"step"`
	Rank   int        `json:"rank"`
	Tensor string     `json:"tensor"`
	Micro  *int       `json:"microbatch,omitempty"`
	RMS    [2]float64 `json:"rms"`
	Max    [2]float64 `json:"max"`
	Bad    [2]int     `json:"nonfinite"`
}

// String is one line for people.
func (s Seen) String() string {
	of := ""
	if s.Micro != nil {
		of = fmt.Sprintf(" of microbatch %d", *s.Micro)
	}
	return fmt.Sprintf("step %d, rank %d: %s%s, root mean square %.9g and %.9g, greatest %.9g and %.9g, not finite %d and %d",
		s.Step, s.Rank, s.Tensor, of, s.RMS[0], s.RMS[1], s.Max[0], s.Max[1], s.Bad[0], s.Bad[1])
}

// statistics are a line of the statistics of tensors.
type statistics struct {
	Step             int64
	Rank             int
	Tensor           string
	Micro            *int `json:"microbatch"`
	Chunk            int
	Min, Max, Mean   float64
	RMS              float64
	Zeros, Nonfinite int
	Histogram        []int
}

func (s *statistics) key() string {
	micro := -1
	if s.Micro != nil {
		micro = *s.Micro
	}
	return fmt.Sprint(s.Step, " ", s.Tensor, " ", micro, " ", s.Chunk)
}

func (s *statistics) same(o *statistics) bool {
	return s.Min == o.Min && s.Max == o.Max && s.Mean == o.Mean && s.RMS == o.RMS && s.Zeros == o.Zeros &&
		s.Nonfinite == o.Nonfinite && slices.Equal(s.Histogram, o.Histogram)
}

// seen looks for the first tensor that both runs have written down and that differs, in files of the same rank.
func (c *Comparison) seen(a, b string) error {
	files, err := filepath.Glob(filepath.Join(a, "tensors", "rank-*.jsonl"))
	if err != nil {
		return err
	}
	for _, file := range files { // in order of ranks
		first, err := statisticsOf(file)
		if err != nil {
			return err
		}
		second, err := statisticsOf(filepath.Join(b, "tensors", filepath.Base(file)))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		at := map[string]*statistics{}
		for i := range second {
			at[second[i].key()] = &second[i]
		}
		for i := range first {
			x := &first[i]
			y := at[x.key()]
			if y == nil {
				continue
			}
			c.SeenSteps = max(c.SeenSteps, x.Step)
			if !x.same(y) && (c.Seen == nil || x.Step < c.Seen.Step) {
				c.Seen = &Seen{Step: x.Step, Rank: x.Rank, Tensor: x.Tensor, Micro: x.Micro, RMS: [2]float64{x.RMS, y.RMS},
					Max: [2]float64{x.Max, y.Max}, Bad: [2]int{x.Nonfinite, y.Nonfinite}}
			}
		}
	}
	return nil
}

// statisticsOf reads a rank's lines; of a step that was taken again the last ones count.
func statisticsOf(file string) ([]statistics, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read only
	var out []statistics
	at := map[string]int{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for n := 1; in.Scan(); n++ {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		var s statistics
		if err := json.Unmarshal(in.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if i, again := at[s.key()]; again {
			out[i] = s
			continue
		}
		at[s.key()] = len(out)
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(x, y statistics) int { return int(x.Step - y.Step) })
	return out, in.Err()
}
