package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/lfactor/lfactor/dataset/setup"
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
	Set  []string `yaml:"set"` // key=value, over the settings of all
}

// Stages is lfactor stages: training in stages as one job.
func Stages() *cobra.Command {
	c := &cobra.Command{
		Use:   "stages FILE.yaml [key=value ...]",
		Short: "Train in stages, each from what the one before has exported; the same command goes on where it stopped",
		Long: "Train in stages, as vision-language models are: FILE names a run file (run), a folder (dir) and stages, each " +
			"with a name and\nthe settings that it has over those of the run file (set). A stage begins from what the one " +
			"before has exported to\ndir/NAME/export (checkpoint.load), saves to dir/NAME/checkpoints and logs to dir/NAME/run. " +
			"key=value is for all stages.\nRepeating the command goes on: stages that are over stay as they are. " +
			"dir/stages.jsonl has the switches from one to the\nnext, and so has the log of each stage. docs/examples/onevision " +
			"has LLaVA-OneVision-1.5's three.",
		Example: "  lfactor stages docs/examples/onevision/stages.yaml plan.dp=8",
		Args:    cobra.MinimumNArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := readStages(args[0])
		if err != nil {
			return exit.With(fmt.Errorf("%s: %w", args[0], err), exit.Usage)
		}
		for _, a := range args[1:] {
			if strings.HasPrefix(a, "-") || !strings.Contains(a, "=") {
				return exit.Usagef("stages: %s: want key=value", a)
			}
		}
		return s.train(c, args[1:])
	}
	return c
}

var stageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// readStages reads a file of stages; its paths are relative to the directory of the command, as a run
// file's are.
func readStages(name string) (s staged, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		return s, err
	}
	if s.Run == "" || s.Dir == "" || len(s.Stages) == 0 {
		return s, errors.New("want run, a run file; dir, a folder; and stages, a list")
	}
	seen := map[string]bool{}
	for i, x := range s.Stages {
		if !stageName.MatchString(x.Name) || seen[x.Name] {
			return s, fmt.Errorf("stages[%d].name %q: want a name of its own of letters, digits and . _ -",
				i, x.Name)
		}
		seen[x.Name] = true
	}
	return s, nil
}

// args is the command line of lfactor train for a stage.
func (s *staged) args(n int, more []string) []string {
	in := func(name string) string { return filepath.Join(s.Dir, s.Stages[n].Name, name) }
	args := append([]string{s.Run}, s.Stages[n].Set...)
	args = append(args, "checkpoint.dir="+in("checkpoints"), "checkpoint.save_hf=true",
		"checkpoint.save_hf_path="+in("export"), "log.dir="+in("run"))
	args = append(args, more...)
	if n > 0 { // whatever the first one begins with
		args = append(args, "model.init=load", "checkpoint.load="+s.export(n-1))
	}
	return args
}

func (s *staged) export(n int) string { return filepath.Join(s.Dir, s.Stages[n].Name, "export") }

// turn is a line of stages.jsonl.
type turn struct {
	Time  time.Time `json:"time"`
	Stage string    `json:"stage"`
	Kind  string    `json:"kind"` // begin or end
	From  string    `json:"from,omitempty"`
}

// train runs the stages that are not over, and says at the end what they have come to.
func (s *staged) train(c *cobra.Command, more []string) error {
	form, err := cli.Output(c)
	if err != nil {
		return err
	}
	all := []finished{}
	if err := s.each(c, more, form, func(f finished) {
		if all = append(all, f); form == "text" {
			f.print(c.OutOrStdout())
		}
	}); err != nil || form != "json" {
		return err
	}
	return cli.EmitAs(c.OutOrStdout(), form, all, nil)
}

// each trains the stages that are not over one after the other.
func (s *staged) each(c *cobra.Command, more []string, form string, over func(finished)) error {
	for n := range s.Stages { // a fault of the last one is said before the first one trains
		if _, err := setup.Config(s.Run, "", s.args(n, more)[1:], n == 0); err != nil {
			return fmt.Errorf("stage %s: %w", s.Stages[n].Name, err)
		}
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	done, begun, err := s.turns()
	if err != nil {
		return exit.With(err, exit.Corrupt)
	}
	for n, x := range s.Stages {
		from := "the run file's start"
		if n > 0 {
			from = s.export(n - 1)
		}
		text := fmt.Sprintf("%d of %d: %s, from %s", n+1, len(s.Stages), x.Name, from)
		if done[x.Name] {
			fmt.Fprintf(c.ErrOrStderr(), "stage   %s: over\n", text)
			continue
		}
		if !begun[x.Name] {
			if err := s.note(turn{time.Now(), x.Name, "begin", from}); err != nil {
				return err
			}
		}
		f, _, err := trained(c, append(s.args(n, more), "-o", form), text)
		if err != nil {
			return err
		}
		if c.Context().Err() != nil { // it has saved, and goes on another time
			return run.ErrStopped
		}
		if _, err := os.Stat(filepath.Join(s.export(n), "config.json")); err != nil {
			return fmt.Errorf("stage %s has left no export: %w", x.Name, err)
		}
		if err := s.note(turn{time.Now(), x.Name, "end", ""}); err != nil {
			return err
		}
		if f != nil {
			over(*f)
		}
	}
	return nil
}

func (s *staged) log() string { return filepath.Join(s.Dir, "stages.jsonl") }

// turns are the stages that are over, and those that have begun. A line that a crash has cut is as if it
// were not there.
func (s *staged) turns() (done, begun map[string]bool, err error) {
	done, begun = map[string]bool{}, map[string]bool{}
	text, err := os.ReadFile(s.log())
	if errors.Is(err, os.ErrNotExist) {
		return done, begun, nil
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		var t turn
		if json.Unmarshal(line, &t) != nil {
			continue
		}
		begun[t.Stage] = true
		done[t.Stage] = done[t.Stage] || t.Kind == "end"
	}
	return done, begun, err
}

// note appends a line, which is on disk when it returns.
func (s *staged) note(t turn) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return appendLine(s.log(), text)
}

// appendLine appends a line, behind a break where a crash has left none.
func appendLine(name string, line []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	i, err := f.Stat()
	if err == nil && i.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, i.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte("\n"), line...)
		}
	}
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
