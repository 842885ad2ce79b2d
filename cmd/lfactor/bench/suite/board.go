package suite

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"strings"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"figure":  Figure,
	"percent": func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) },
	"wide":    func(x float64) string { return fmt.Sprintf("%.1f", 100*min(1, x)) },
	"day":     func(date string) string { day, _, _ := strings.Cut(date, "T"); return day },
	"flops":   func(x float64) string { return fmt.Sprintf("%.0f GFLOP/s", x/1e9) },
	"gb":      func(x float64) string { return fmt.Sprintf("%.1f GB/s", x/1e9) },
	"gib":     func(x int64) string { return fmt.Sprintf("%.1f GiB", float64(x)/(1<<30)) },
}).Parse(pageText))

// Figure writes a value with three or four digits that count.
func Figure(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Board reads the reports of a leaderboard, of which each line is one, the oldest first; a file that is not
// there has none.
func Board(path string) (out []*Report, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	line := 0
	for l := range bytes.Lines(text) {
		line++
		var r Report
		if err := json.Unmarshal(l, &r); err != nil || r.Date == "" {
			return nil, fmt.Errorf("%s:%d: no report of the suite (%w)", path, line, errors.Join(err, errNothing))
		}
		out = append(out, &r)
	}
	return out, nil
}

// Enter writes a report behind those of a leaderboard, and returns all. What is there is read first: a file
// that is none is not written to.
func Enter(path string, r *Report) ([]*Report, error) {
	all, err := Board(path)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(append(text, '\n'))
	return append(all, r), errors.Join(err, f.Close())
}

// entry is a report of a leaderboard, with its results in the order of the page's columns.
type entry struct {
	*Report
	Cells []cell
	Now   bool
}

type cell struct {
	Text string
	Best bool // of all reports
	Why  string
}

// Page is a report with all of its leaderboard, as HTML.
func Page(r *Report, all []*Report, threads int) ([]byte, error) {
	tasks := Tasks(threads)
	best := map[string]float64{}
	for _, e := range all {
		for _, x := range e.Results {
			t := find(tasks, x.Task)
			if b, ok := best[x.Task]; x.Passed && t != nil && (!ok || t.Less && x.Median < b || !t.Less && x.Median > b) {
				best[x.Task] = x.Median
			}
		}
	}
	var entries []entry
	for _, e := range all {
		row := entry{Report: e, Now: e == r}
		for _, t := range tasks {
			c := cell{Text: "–"}
			for _, x := range e.Results {
				if x.Task == t.Name && x.Passed {
					c = cell{Text: Figure(x.Median), Best: x.Median == best[t.Name]}
				} else if x.Task == t.Name {
					c = cell{Text: "failed", Why: x.Why}
				}
			}
			row.Cells = append(row.Cells, c)
		}
		entries = append([]entry{row}, entries...) // the newest first
	}
	var b bytes.Buffer
	err := page.Execute(&b, map[string]any{"Report": r, "Tasks": tasks, "Entries": entries, "Rows": rows(r, tasks)})
	return b.Bytes(), err
}

// row is a result beside its task.
type row struct {
	Result
	Task Task
}

func rows(r *Report, tasks []Task) (out []row) {
	for _, x := range r.Results {
		if t := find(tasks, x.Task); t != nil {
			out = append(out, row{x, *t})
		}
	}
	return out
}

func find(tasks []Task, name string) *Task {
	for i := range tasks {
		if tasks[i].Name == name {
			return &tasks[i]
		}
	}
	return nil
}
