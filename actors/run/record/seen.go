package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/host"
)

// Seen is the first tensor, of those that both runs have written down (log.tensors), whose statistics
// differ: in the order of steps, and within a rank's step in that of its arithmetic.
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

// seenKey tells a tensor of a rank's file from the others.
func seenKey(s *host.Statistics) string {
	micro := -1
	if s.Micro != nil {
		micro = *s.Micro
	}
	return fmt.Sprint(s.Step, " ", s.Name, " ", micro, " ", s.Chunk)
}

// seenAlike reports whether nothing tells two tensors apart.
func seenAlike(s, o *host.Statistics) bool {
	return s.Min == o.Min && s.Max == o.Max && s.Mean == o.Mean && s.RMS == o.RMS && s.Zeros == o.Zeros &&
		s.Nonfinite == o.Nonfinite && s.Least == o.Least && slices.Equal(s.Histogram, o.Histogram)
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
		at := map[string]*host.Statistics{}
		for i := range second {
			at[seenKey(&second[i])] = &second[i]
		}
		for i := range first {
			x := &first[i]
			y := at[seenKey(x)]
			if y == nil {
				continue
			}
			c.SeenSteps = max(c.SeenSteps, x.Step)
			if !seenAlike(x, y) && (c.Seen == nil || x.Step < c.Seen.Step) {
				c.Seen = &Seen{Step: x.Step, Rank: x.Rank, Tensor: x.Name, Micro: x.Micro, RMS: [2]float64{x.RMS, y.RMS},
					Max: [2]float64{x.Max, y.Max}, Bad: [2]int{x.Nonfinite, y.Nonfinite}}
			}
		}
	}
	return nil
}

// statisticsOf reads a rank's lines; of a step that was taken again the last ones count.
func statisticsOf(file string) ([]host.Statistics, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read only
	var out []host.Statistics
	at := map[string]int{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for n := 1; in.Scan(); n++ {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		var s host.Statistics
		if err := json.Unmarshal(in.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if i, again := at[seenKey(&s)]; again {
			out[i] = s
			continue
		}
		at[seenKey(&s)] = len(out)
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(x, y host.Statistics) int { return int(x.Step - y.Step) })
	return out, in.Err()
}
