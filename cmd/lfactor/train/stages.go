package train

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// staged is a file of stages.
type staged struct {
	Run    string  `yaml:"run"` // settings that all stages have
	Dir    string  `yaml:"dir"` // gets a folder a stage
	Stages []stage `yaml:"stages"`
}

// stage is a run that begins from what the one before has exported.
type stage struct {
	Name string   `yaml:"name"`
	Set  []string `yaml:"set"` // key=value, over the settings of all; ~key takes one away
}

// Stages is lfactor stages: training in stages as one job.
func Stages() *cobra.Command {
	c := &cobra.Command{
		Use:   "stages FILE.yaml [key=value ...]",
		Short: "Train in stages, each from what the one before has exported; the same command goes on where it stopped",
		Long: "Train in stages, as vision-language models are: FILE names a run file (run), a folder (dir) and stages, each " +
			"with a name and\nthe settings that it has over those of the run file (set). A stage begins from what the one " +
			"before has exported to\ndir/NAME/export (checkpoint.load), saves to dir/NAME/checkpoints and logs to dir/NAME/run; " +
			"settings that say otherwise are\nrefused. key=value is for all stages, but model.init and " +
			"checkpoint.load for the first alone.\nRepeating the command goes on: stages that are over stay as they " +
			"are, and are refused where they began from something\nelse than the file says now; remove a stage's " +
			"folder to train it again. dir/stages.jsonl has the switches from one to the\nnext, and so has the log " +
			"of each stage. docs/examples/onevision has LLaVA-OneVision-1.5's three.",
		Example: "  lfactor stages docs/examples/onevision/stages.yaml plan.dp=8",
		Args:    cobra.MinimumNArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := readStages(args[0])
		if err != nil {
			return exit.With(fmt.Errorf("%s: %w", args[0], err), exit.Usage)
		}
		for _, a := range args[1:] {
			if !sets(a) {
				return exit.Usagef("stages: %s: want key=value", a)
			}
		}
		return s.train(c, args[1:])
	}
	return c
}

// sets reports whether an argument is key=value, or ~key, which takes one away.
func sets(arg string) bool {
	return strings.HasPrefix(arg, "~") || !strings.HasPrefix(arg, "-") && strings.Contains(arg, "=")
}

var stageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// readStages reads a file of stages; its paths are relative to the directory of the command, as a run file's are.
func readStages(name string) (s staged, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); errors.Is(err, io.EOF) {
		return s, errors.New("is empty: want run, a run file; dir, a folder; and stages, a list")
	} else if err != nil {
		return s, err
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return s, errors.New("has more than one document: remove what follows ---")
	}
	if s.Run == "" || s.Dir == "" || len(s.Stages) == 0 {
		return s, errors.New("want run, a run file; dir, a folder; and stages, a list")
	}
	seen := map[string]bool{logName: true} // folded: some systems' names have no case
	for i, x := range s.Stages {
		if !stageName.MatchString(x.Name) || seen[strings.ToLower(x.Name)] {
			return s, fmt.Errorf("stages[%d].name %q: want a name of its own, but for case, of letters, digits and "+
				". _ -, and not %s", i, x.Name, logName)
		}
		seen[strings.ToLower(x.Name)] = true
		for _, a := range x.Set {
			if !sets(a) {
				return s, fmt.Errorf("stages[%d].set: %s: want key=value", i, a)
			}
		}
	}
	return s, nil
}

// args is the command line of lfactor train for a stage. What the stages themselves say comes first, so that
// settings that would say otherwise are seen (taken).
func (s *staged) args(n int, more []string) []string {
	args := []string{s.Run}
	for _, k := range s.own(n) {
		args = append(args, k.key+"="+k.value)
	}
	args = append(args, s.Stages[n].Set...)
	for _, a := range more {
		if n == 0 || !begins(a) { // those are of the first one alone
			args = append(args, a)
		}
	}
	return args
}

// begins reports whether an argument says what training starts from.
func begins(arg string) bool {
	key, _, _ := strings.Cut(strings.TrimLeft(arg, "+"), "=")
	return key == initKey || key == loadKey
}

func (s *staged) export(n int) string { return filepath.Join(s.Dir, s.Stages[n].Name, "export") }

// from is what a stage begins with.
func (s *staged) from(n int) string {
	if n == 0 {
		return "the run file's start"
	}
	return s.export(n - 1)
}

// train runs the stages that are not over, and says at the end what they have come to.
func (s *staged) train(c *cobra.Command, more []string) error {
	form, err := cli.Output(c)
	if err != nil {
		return err
	}
	all := []record{}
	err = s.each(c, more, form, func(r record) {
		switch all = append(all, r); {
		case form == "text" && r.finished != nil:
			r.print(c.OutOrStdout())
		case form == "jsonl" && run.Leads():
			_ = cli.EmitAs(c.OutOrStdout(), "json", r, nil) // whoever reads may have gone
		}
	})
	if err != nil || form != "json" {
		return err
	}
	return cli.EmitAs(c.OutOrStdout(), form, all, nil)
}

// record is what -o json says of a stage; finished is nil where this call has not trained it.
type record struct {
	Stage  string `json:"stage"`
	Over   bool   `json:"over"` // before this call
	From   string `json:"from"`
	Export string `json:"export"`
	*finished
}

// each trains the stages that are not over one after the other.
func (s *staged) each(c *cobra.Command, more []string, form string, over func(record)) error {
	if err := s.check(more); err != nil { // a fault of the last one is said before the first one trains
		return err
	}
	states, err := s.states(more)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	for n, x := range s.Stages {
		text := fmt.Sprintf("%d of %d: %s, from %s", n+1, len(s.Stages), x.Name, s.from(n))
		r := record{Stage: x.Name, Over: states[n].over, From: s.from(n), Export: s.export(n)}
		if r.Over {
			fmt.Fprintf(c.ErrOrStderr(), "stage   %s: over%s\n", text, states[n].but)
		} else if r.finished, err = s.stage(c, n, more, form, text, states[n]); err != nil {
			return err
		}
		over(r)
	}
	return nil
}

// stage trains one.
func (s *staged) stage(c *cobra.Command, n int, more []string, form, text string, is state) (*finished, error) {
	name := s.Stages[n].Name
	set, err := s.settings(n, more)
	if err != nil {
		return nil, err
	}
	if !is.begun { // the folder first: a stage has begun where both are there
		if err := os.MkdirAll(filepath.Join(s.Dir, name), 0o755); err != nil {
			return nil, err
		}
		if err := s.note(turn{Time: time.Now(), Stage: name, Kind: "begin", From: s.from(n), Set: set}); err != nil {
			return nil, err
		}
	}
	f, _, err := trained(c, append(s.args(n, more), "-o", form), text)
	if err != nil {
		return nil, fmt.Errorf("stage %s, from %s: %w", name, s.from(n), err)
	}
	if c.Context().Err() != nil { // it has saved, and goes on another time
		return nil, run.ErrStopped
	}
	if _, err := os.Stat(filepath.Join(s.export(n), "config.json")); err != nil {
		return nil, fmt.Errorf("stage %s has left no export: %w", name, err)
	}
	return f, s.note(turn{Time: time.Now(), Stage: name, Kind: "end", From: "", Set: set})
}
