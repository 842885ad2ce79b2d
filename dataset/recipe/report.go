package recipe

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/curate"
)

// Report is what a recipe has done. It is the same whoever did it, and however often it was cut off.
type Report struct {
	Recipe  string         `json:"recipe"` // the file's name
	Inputs  []InputReport  `json:"inputs"`
	Steps   []StepReport   `json:"steps"`
	Outputs []OutputReport `json:"outputs"`
	// Examples are the first documents of each step and reason that the ledger has.
	Examples []Drop `json:"examples"`
}

// InputReport is what was read.
type InputReport struct {
	Name       string `json:"name"`
	Files      int    `json:"files"`
	Documents  int64  `json:"documents"`
	Bytes      int64  `json:"bytes"` // of texts
	Unreadable int64  `json:"unreadable"`
}

// StepReport is what a step has let through.
type StepReport struct {
	Name    string           `json:"name"`
	Step    string           `json:"step"`
	From    []string         `json:"from"`
	In      int64            `json:"in"`
	Bytes   int64            `json:"bytes"`
	Out     int64            `json:"out"`
	Dropped map[string]int64 `json:"dropped,omitempty"` // by reason
}

// OutputReport is what was written.
type OutputReport struct {
	Name      string   `json:"name"`
	From      []string `json:"from"`
	Format    string   `json:"format"`
	Files     []string `json:"files"`
	Documents int64    `json:"documents"`
	Bytes     int64    `json:"bytes"` // of texts
	// Dropped are documents that the format cannot hold, by reason.
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// LeftOut is how many files, beside texts and columns, the samples of its inputs have that the format
	// does not keep.
	LeftOut int64 `json:"left_out,omitempty"`
	// Note says what the format makes of the types of columns.
	Note string `json:"note,omitempty"`
}

// examplesMax is how many documents of a reason the report shows.
const examplesMax = 5

// missing is an error where a step has dropped all that it saw for files that are not there: a wrong
// folder, not bad documents.
func (r *Report) missing(output string) error {
	for _, s := range r.Steps {
		if s.In == 0 || s.Dropped[curate.MissingImage] < s.In {
			continue
		}
		example := ""
		for _, d := range r.Examples {
			if d.Step == s.Name && d.Reason == curate.MissingImage {
				example = ", as " + d.Detail
			}
		}
		return fmt.Errorf("step %q: of %d documents none has its image: the files are not there%s; set folder to "+
			"where their paths begin, remove %s and start again", s.Name, s.In, example, output)
	}
	for _, o := range r.Outputs {
		if o.Documents > 0 || o.Dropped[unwritable] == 0 {
			continue
		}
		i := slices.IndexFunc(r.Examples, func(d Drop) bool { return d.Step == "output "+o.Name && d.Reason == unwritable })
		return fmt.Errorf("output %q: none of %d documents can be written as %s, as %s; remove %s and write "+
			"another format, or mend them", o.Name, o.Dropped[unwritable], o.Format, r.Examples[i].Detail, output)
	}
	return nil
}

// report adds up what the blocks have counted.
func (f *flow) report() (*Report, error) {
	total := map[string]*Counts{}
	r := &Report{Recipe: filepath.Base(f.file)}
	shown := map[string]int{}
	for at, s := range f.stages {
		o := OutputReport{}
		for u := range f.units[at] {
			b, err := openBlock(f.blockPath(at, u))
			if err != nil {
				return nil, err
			}
			for name, c := range b.head.Counts {
				if total[name] == nil {
					total[name] = &Counts{}
				}
				total[name].add(c)
			}
			o.Documents += int64(b.head.Docs)
			o.Bytes += b.head.Bytes
			if err := b.close(); err != nil {
				return nil, err
			}
		}
		if err := f.ledger(at, func(d Drop) {
			if key := d.Step + "\n" + d.Reason; shown[key] < examplesMax {
				shown[key]++
				r.Examples = append(r.Examples, d)
			}
		}); err != nil {
			return nil, err
		}
		if s.output >= 0 {
			r.Outputs = append(r.Outputs, f.outputReport(s.output, o))
		}
	}
	f.inputsAndSteps(r, total)
	return r, nil
}

// outputReport completes what is said of an output.
func (f *flow) outputReport(i int, o OutputReport) OutputReport {
	out := &f.Outputs[i]
	o.Name, o.From, o.Format, o.Note = out.Name, out.From, out.Format, f.note(out)
	for k := range out.parts(o.Documents) {
		o.Files = append(o.Files, out.partName(k))
	}
	return o
}

// inputsAndSteps enters what was counted by name.
func (f *flow) inputsAndSteps(r *Report, total map[string]*Counts) {
	of := func(name string) *Counts {
		if c := total[name]; c != nil {
			return c
		}
		return &Counts{}
	}
	for _, in := range f.inputs {
		c := of(in.Name)
		r.Inputs = append(r.Inputs, InputReport{Name: in.Name, Files: len(in.files), Documents: c.In, Bytes: c.Bytes,
			Unreadable: c.Dropped[unreadable]})
	}
	for _, s := range f.Steps {
		c := of(s.Name)
		r.Steps = append(r.Steps, StepReport{Name: s.Name, Step: s.Kind, From: s.From, In: c.In, Bytes: c.Bytes,
			Out: c.In - c.Gone(), Dropped: c.Dropped})
	}
	for i := range r.Outputs {
		o := &f.Outputs[f.outputOf(i)]
		r.Outputs[i].Dropped = of(o.counted()).Dropped
		for in := range f.sources(o.From) {
			if !o.writer.Files {
				r.Outputs[i].LeftOut += of(in).Files
			}
		}
	}
}

// sources are the inputs that documents of these names come from.
func (f *flow) sources(names []string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		at, ok := f.find(n)
		switch {
		case !ok:
		case at.input:
			out[n] = true
		default:
			maps.Copy(out, f.sources(f.Steps[at.at].From))
		}
	}
	return out
}

// The report's files.
const (
	reportName = "report.json"
	pageName   = "report.html"
)

// write writes the report's files.
func (r *Report) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	put := func(name, content string) error {
		return writeAtomic(filepath.Join(dir, name), func(f *os.File) error {
			_, err := f.WriteString(content)
			return err
		})
	}
	var page strings.Builder
	if err := r.Page(&page); err != nil {
		return err
	}
	return errors.Join(put(reportName, string(text)+"\n"), put(pageName, page.String()))
}

// readReport reads the report of a recipe that is done.
func readReport(dir string) (*Report, error) {
	text, err := os.ReadFile(filepath.Join(dir, reportName))
	if err != nil {
		return nil, err
	}
	r := &Report{}
	return r, json.Unmarshal(text, r)
}
