// Package runs is the verb of that name: it parses, calls and prints.
package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// Row is a run in the list.
type Row struct {
	Dir    string     `json:"dir"`
	Name   string     `json:"name"` // that of its marks, or log.name
	Record run.Record `json:"record"`
	Marks  run.Marks  `json:"marks"`
	Step   int64      `json:"step"`
	Loss   float64    `json:"loss"`
}

// Command is lfactor runs: the runs below a folder, and what is said of them.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "runs", Short: "List runs; name, tag, note, archive and delete them", Args: cobra.NoArgs,
		Long: "Runs are the folders below --root that a run has written (log.dir), those of earlier runs among them. RUN is such a folder, " +
			"or a run's name where no two have it.\nMarks lie in marks.json of the folder: a run never changes them, and they move with its records.",
		Example: "  lfactor runs --tag baseline\n  lfactor runs mark runs/latest --name first --tag baseline --note \"rate too high\"\n  lfactor runs delete first"}
	root := c.PersistentFlags().String("root", "runs", "folder below which runs lie")
	all := c.Flags().Bool("all", false, "archived ones too")
	tags := c.Flags().StringSlice("tag", nil, "with all of these tags alone")
	c.RunE = func(c *cobra.Command, _ []string) error {
		rows, err := List(*root)
		rows = slices.DeleteFunc(rows, func(r Row) bool {
			return r.Marks.Archived && !*all || slices.ContainsFunc(*tags, func(t string) bool { return !slices.Contains(r.Marks.Tags, t) })
		})
		if err != nil {
			return err
		}
		return cli.Emit(c, rows, func(io.Writer) {
			t := cli.TextTable("folder", "name", "status", "started", "step", "loss", "tags", "note")
			for _, r := range rows {
				t.AppendRow([]any{r.Dir, r.Name, r.Record.Status + map[bool]string{true: ", archived"}[r.Marks.Archived],
					r.Record.Started.Local().Format("2006-01-02 15:04"), r.Step, fmt.Sprintf("%.4g", r.Loss), strings.Join(r.Marks.Tags, " "), r.Marks.Note})
			}
			t.Render()
		})
	}
	c.AddCommand(mark(root), remove(root))
	return c
}

func mark(root *string) *cobra.Command {
	c := &cobra.Command{Use: "mark RUN", Short: "Name, tag, note or archive a run", Args: cobra.ExactArgs(1),
		Long: "What is not given stays as it is; an empty --name or --note takes it away. An archived run is left out of lists; nothing of it is moved."}
	var to run.Marks
	f := c.Flags()
	f.StringVar(&to.Name, "name", "", "what it is called, in place of log.name")
	f.StringVar(&to.Note, "note", "", "what is to be remembered of it")
	f.StringSliceVar(&to.Tags, "tag", nil, "tags that are added")
	untag := f.StringSlice("untag", nil, "tags that are taken away")
	f.BoolVar(&to.Archived, "archive", false, "archive it; --archive=false brings it back")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir, err := find(*root, args[0])
		if err != nil {
			return err
		}
		m, err := run.Mark(dir, func(m *run.Marks) {
			was := *m
			m.Tags = slices.DeleteFunc(append(m.Tags, to.Tags...), func(t string) bool { return slices.Contains(*untag, t) })
			m.Name, m.Note, m.Archived = to.Name, to.Note, to.Archived
			if !f.Changed("name") {
				m.Name = was.Name
			}
			if !f.Changed("note") {
				m.Note = was.Note
			}
			if !f.Changed("archive") {
				m.Archived = was.Archived
			}
		})
		if err != nil {
			return err
		}
		return cli.Emit(c, m, func(w io.Writer) {
			fmt.Fprintf(w, "%s: name %q, note %q, tags %v, archived %v\n", dir, m.Name, m.Note, m.Tags, m.Archived)
		})
	}
	return c
}

func remove(root *string) *cobra.Command {
	return &cobra.Command{Use: "delete RUN", Short: "Remove the records of a run that is not under way", Args: cobra.ExactArgs(1),
		Long: "Checkpoints and the records of earlier runs that lie in its folder stay, and are listed. There is no way back: --archive of lfactor runs mark hides a run.",
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := find(*root, args[0])
			if err != nil {
				return err
			}
			left, err := run.Delete(dir)
			if err != nil {
				return err
			}
			return cli.Emit(c, map[string]any{"dir": dir, "left": left}, func(w io.Writer) {
				fmt.Fprintf(w, "removed the records in %s; what else lies there stays: %v\n", dir, left)
			})
		}}
}

// List has the runs below a folder, the newest first. The marks of one that cannot be read are an error behind the others.
func List(root string) (out []Row, err error) {
	err = filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(file) != run.RecordName {
			return err
		}
		r := Row{Dir: filepath.Dir(file)}
		r.Record = run.ReadRecord(r.Dir)
		r.Marks, err = run.Mark(r.Dir, nil)
		r.Name = cmp.Or(r.Marks.Name, r.Record.Name)
		if r.Record.Status == run.Running && host.ProcessOf(r.Dir, 0) == 0 {
			r.Record.Status = "killed"
		}
		text, _ := os.ReadFile(filepath.Join(r.Dir, "metrics.jsonl")) // there is none before the first step
		var last run.Metrics
		if json.Unmarshal(text[bytes.LastIndexByte(bytes.TrimSpace(text), '\n')+1:], &last) == nil {
			r.Step, r.Loss = last.Step, float64(last.Loss)
		}
		out = append(out, r)
		return err
	})
	slices.SortStableFunc(out, func(a, b Row) int { return b.Record.Started.Compare(a.Record.Started) })
	if err != nil {
		err = exit.With(fmt.Errorf("--root: %w; runs lie below it, and the first one makes it", err), exit.Corrupt)
	}
	return out, err
}

// find is the folder of a run: itself, or the one below root that has the name.
func find(root, name string) (string, error) {
	if i, err := os.Stat(name); err == nil && i.IsDir() {
		return name, nil
	}
	rows, err := List(root)
	var dirs []string
	for _, r := range rows {
		if r.Name == name {
			dirs = append(dirs, r.Dir)
		}
	}
	if err != nil || len(dirs) == 1 {
		return strings.Join(dirs, ""), err
	}
	return "", exit.With(fmt.Errorf("%s: no folder, and the name of %d runs below %s: %v; lfactor runs lists them", name, len(dirs), root, dirs), exit.Corrupt)
}
