// Package demo is the verb of that name. A demo has three parts: a recipe (run files and their companions in recipes/), a
// generator of its data, and a table of what the model has learnt.
package demo

import (
	"bufio"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// demos are tried in this order: the first whose flags are all given is shown. Its steps are enough to show what it
// claims; with fewer it says so, which is no failure.
var demos = []struct {
	flags, help string
	steps       int
	show        func(*session) error
}{
	{"rl cluster", "", 40, (*session).rlCluster},
	{"cluster", "train on a cluster of four agents instead, of which one is killed, and then the head; with --rl in " +
		"four processes, three of which draw answers and are killed", 60, (*session).cluster},
	{"moe", "train a mixture of experts, shared out over actors, beside a dense model instead", 250, (*session).moe},
	{"long", "train a hybrid of linear and full attention to find a needle in 8,192 tokens, beside a model of " +
		"windows, instead", 300, (*session).long},
	{"image", "train a model of diffusion that draws pictures of captions instead, with an encoder of captions that " +
		"learns with it", imageSteps, (*session).image},
	{"robot", "train a policy of a robot on recordings of a drawn world instead, and have it act there", 1500,
		(*session).robot},
	{"rl", "teach a small model addition instead: a little by texts, and the rest by rewards of answers that it draws",
		150, (*session).rl},
	{"video", "train a model of diffusion that draws clips of captions instead, in which a shape goes where it is told",
		2000, (*session).video},
	{"vlm", "train a vision-language model on drawn images instead, its encoder on an actor of its own", 600,
		(*session).vlm},
	{"", "", 600, (*session).text},
}

// Command is lfactor demo: training shown on this machine.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "demo", Args: cobra.NoArgs,
		Short: "Train a small language model on this machine's Go sources, as actors, in about a minute"}
	s := &session{name: "demo", began: time.Now()}
	c.Flags().StringVar(&s.dir, "dir", "lfactor-demo", "where to work; a finished demo there is started afresh")
	c.Flags().IntVar(&s.steps, "steps", 0,
		"training steps; 0 takes 600, 60 with --cluster, and 250 of each model with --moe")
	given := map[string]*bool{}
	for _, d := range demos {
		if d.help != "" {
			given[d.flags] = c.Flags().Bool(d.flags, false, d.help)
		}
	}
	c.MarkFlagsMutuallyExclusive("vlm", "cluster", "moe", "long", "image", "robot", "video")
	c.MarkFlagsMutuallyExclusive("vlm", "rl", "moe", "long", "image", "robot", "video")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if s.steps < 0 {
			return exit.Usagef("demo: --steps is not negative")
		}
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if s.ctx, s.out = c.Context(), c.OutOrStdout(); form != "text" {
			s.out = os.Stderr
		}
		for _, d := range demos {
			asked := true
			for _, flag := range strings.Fields(d.flags) {
				asked = asked && *given[flag]
			}
			if !asked {
				continue
			}
			if s.full = d.steps; s.steps == 0 {
				s.steps = d.steps
			}
			for _, flag := range strings.Fields(d.flags) {
				s.name += " --" + flag
			}
			if err := d.show(s); err != nil {
				return err
			}
			break
		}
		return cli.Emit(c, s.result, func(io.Writer) {})
	}
	return c
}

// session is a demo as it goes.
type session struct {
	ctx         context.Context
	name, dir   string // as "demo --moe", and where it works
	steps, full int    // those asked for, and those that are enough
	out         io.Writer
	began       time.Time
	result      map[string]any // for programs
}

// in is a path in the demo's folder.
func (s *session) in(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// say tells what is shown, and tell what goes on.
func (s *session) say(format string, args ...any)  { fmt.Fprintf(s.out, format, args...) }
func (s *session) tell(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }

// so is the time since the demo began.
func (s *session) so(digits time.Duration) time.Duration { return time.Since(s.began).Round(digits) }

// clear removes what a demo of before left in these folders.
func (s *session) clear(folders ...string) error {
	for _, sub := range folders {
		if err := os.RemoveAll(s.in(sub)); err != nil {
			return err
		}
	}
	return nil
}

//go:embed recipes
var recipes embed.FS

// values are those of a recipe's ${names}. Each has "dir" and "steps" besides, and of a number n "${n/20}" is the
// twentieth part, but one at least.
type values map[string]any

// recipe is a file of the recipes with values in it.
func (s *session) recipe(name string, v values) ([]byte, error) {
	text, err := recipes.ReadFile("recipes/" + name)
	return []byte(os.Expand(string(text), func(key string) string {
		name, part, divided := strings.Cut(key, "/")
		x, given := v[name]
		switch {
		case name == "dir":
			quoted := strconv.Quote(s.dir)
			return quoted[1 : len(quoted)-1]
		case !given && name == "steps":
			x = s.steps
		}
		if divided {
			n, _ := strconv.Atoi(part) // digits, as recipes are ours
			x = max(1, x.(int)/n)
		}
		return fmt.Sprint(x)
	})), err
}

// lay writes the files of a folder of the recipes into one of the demo's.
func (s *session) lay(folder, into string, v values) error {
	return fs.WalkDir(recipes, "recipes/"+folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		path = strings.TrimPrefix(path, "recipes/")
		text, err := s.recipe(path, v)
		if err != nil {
			return err
		}
		return write(s.in(into, strings.TrimPrefix(path, folder)), text)
	})
}

// write writes a file, and the folder that it is in.
func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// config is a run file of the recipes, and train carries it out.
func (s *session) config(recipe string, v values) (*configs.Config, error) {
	text, err := s.recipe(recipe, v)
	if err != nil {
		return nil, err
	}
	return s.load(text)
}

func (s *session) load(text []byte) (*configs.Config, error) {
	cfg, err := configs.Load(configs.Request{File: s.name, Text: text})
	if err == nil {
		cfg.Notices = nil
	}
	return cfg, err
}

func (s *session) train(recipe string, v values, o run.Options) (*configs.Config, error) {
	cfg, err := s.config(recipe, v)
	if err != nil {
		return nil, err
	}
	o.Progress = os.Stderr
	return cfg, run.Train(s.ctx, cfg, o)
}

// page writes a page of the recipes, which needs nothing else, into a file.
func (s *session) page(recipe, name string, data any) error {
	t, err := template.ParseFS(recipes, "recipes/"+recipe)
	if err != nil {
		return err
	}
	var fault error
	if err := machine.Create(name, func(w *bufio.Writer) { fault = t.Execute(w, data) }); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fault
}

// left names what a demo leaves behind.
func (s *session) left() map[string]string {
	return map[string]string{"curve": s.in("run", "loss.svg"), "metrics": s.in("run", "metrics.jsonl"),
		"trace": s.in("run", "trace.json"), "export": s.in("checkpoints", "release_hf_weights")}
}

// end keeps a result, with the steps and the time that it took.
func (s *session) end(result map[string]any) {
	result["steps"], result["seconds"] = s.steps, time.Since(s.began).Seconds()
	s.result = result
}

// over says how long all took, and holds a demo with all its steps to what it claims: a fault is none with fewer.
func (s *session) over(fault error) error {
	s.say("done in %v\n", s.so(time.Second))
	if s.steps < s.full {
		s.say("%d steps show less than %d do\n", s.steps, s.full)
		return nil
	}
	return fault
}
