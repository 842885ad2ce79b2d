// Package ui is the verb of that name: it parses, calls and prints.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/serve"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/dashboard"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// Command is lfactor ui: runs in a browser.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "ui [RUN ...]",
		Short: "Show runs in a browser: curves, actors, timeline, what they wait for",
		Long: "RUN is a run directory (log.dir), by default runs/latest; several are compared. They may be under way, have " +
			"ended, or not have begun. A file that lfactor sim --trace has written is a run too: schedules side by side.\n" +
			"The page is served on this machine's loopback alone, to whoever has the link that is " +
			"printed, which works once; another is printed then.\nFrom another machine: ssh -L 8265:127.0.0.1:8265 HOST, and " +
			"lfactor ui --port 8265 there. With --cluster NAME and no RUN the page has a cluster: its hosts, its " +
			"jobs and their runs, as far as your certificate of it lets you look. docs/dashboard.md has the pages " +
			"and keys.",
	}
	f := c.Flags()
	port := f.Int("port", 0, "port to listen at on 127.0.0.1; 0 takes a free one")
	hosts := f.StringSlice("host", nil,
		"another name, host:port, under which browsers reach the page, as through a tunnel with another port")
	admin := f.Bool("admin", false, "print a link that may stop runs, too")
	begin := f.String("start", "", "folder of run files, of which the admin link may start some, and resume runs that have ended")
	cluster := f.String("cluster", "cpu", "without RUN, a cluster whose hosts, jobs and runs are shown (current: "+
		"the one made last); with RUN, or where there is no such cluster, the machine on which the plan's step "+
		"is simulated: one that comes with lfactor, or a file")
	tell := forAgents(f)
	c.RunE = func(c *cobra.Command, args []string) error {
		if asked, err := tell(args); asked {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		if i, err := os.Stat(*begin); *begin != "" && (!*admin || err != nil || !i.IsDir()) {
			return exit.Usagef("ui: --start wants --admin, and a folder: %q", *begin)
		}
		o := dashboard.Options{Dirs: args, Hosts: *hosts, Program: program, Start: *begin}
		if len(args) == 0 && c.Flags().Changed("cluster") {
			shown, err := ofCluster(*cluster)
			if err != nil {
				return err
			}
			if shown != nil {
				defer os.RemoveAll(shown.Dir) //nolint:errcheck // it lies in the system's folder for temporary files
				o.Cluster, *cluster = shown, "cpu"
			}
		}
		if len(args) == 0 && o.Cluster == nil {
			o.Dirs = []string{cli.RunDir(nil)}
		}
		for _, dir := range args {
			if i, err := os.Stat(dir); err != nil || !i.IsDir() && filepath.Ext(dir) != ".json" {
				return exit.With(fmt.Errorf("%s: no such folder; name the folder that log.dir of a run names", dir),
					exit.Corrupt)
			}
		}
		m, err := rehearsal.Machine(*cluster)
		if err != nil {
			return err
		}
		o.Machine = m
		return Serve(c.Context(), *port, *admin, o, func(l Links) error {
			return cli.Emit(c, l, func(w io.Writer) { fmt.Fprint(w, l) })
		})
	}
	return c
}

// forAgents adds the flags by which an agent asks what a page is told of a run on its host; what it gives answers that.
func forAgents(f *pflag.FlagSet) func(args []string) (asked bool, err error) {
	name := f.String("tell", "", "print what a page is told of the run's checkpoints, samples or plan")
	step := f.Int64("step", 0, "of the samples that --tell prints, 0 for the newest")
	cobra.CheckErr(errors.Join(f.MarkHidden("tell"), f.MarkHidden("step")))
	return func(args []string) (bool, error) {
		if *name == "" {
			return false, nil
		}
		m, err := rehearsal.Machine("cpu")
		if err != nil {
			return true, err
		}
		return true, dashboard.Tell(cli.Out, cli.RunDir(args), *name, *step, m)
	}
}

// ofCluster is the user's cluster of a name, nil where there is none and the name is a machine's.
func ofCluster(name string) (*dashboard.Cluster, error) {
	cl, err := user.Open(name)
	if err != nil {
		if _, machine := rehearsal.Machine(name); machine == nil {
			return nil, nil
		}
		return nil, err
	}
	client, err := cl.Client()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lfactor-ui-")
	if err != nil {
		return nil, err
	}
	return &dashboard.Cluster{Name: cl.Name, Client: client, Dir: dir}, nil
}

// Links are addresses of the page; each begins one session.
type Links struct {
	View  string `json:"view,omitempty"`
	Admin string `json:"admin,omitempty"` // may stop runs
}

// String has a line a link.
func (l Links) String() string {
	text := ""
	if l.View != "" {
		text += "dashboard  " + l.View + "\n"
	}
	if l.Admin != "" {
		text += "admin      " + l.Admin + "\n"
	}
	return text
}

// Serve shows runs on a port of 127.0.0.1 until the context ends. Links are given out at the beginning, and
// another when one has been used.
func Serve(ctx context.Context, port int, admin bool, o dashboard.Options, give func(Links) error) error {
	l, err := cli.Listen(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "--port, of which 0 takes a free one")
	if err != nil {
		return err
	}
	var s *dashboard.Server
	o.Used = func(role dashboard.Role) {
		next := Links{View: s.Link(role)}
		if role == dashboard.Admin {
			next = Links{Admin: next.View}
		}
		_ = give(next) // who reads may have gone; the session goes on
	}
	if admin {
		o.Stop, o.Talk = stop, openModel
	}
	s = dashboard.New(l.Addr().(*net.TCPAddr).Port, o)
	first := Links{View: s.Link(dashboard.Viewer)}
	if admin {
		first.Admin = s.Link(dashboard.Admin)
	}
	if err := give(first); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
}

// talked is a model that people talk to, with its weights.
type talked struct {
	*serve.Server
	model *trained.Trained
}

// Close implements dashboard.Talked.
func (t talked) Close() {
	t.Server.Close()
	t.model.Close()
}

// openModel serves the newest model of a folder of checkpoints, a few answers at a time.
func openModel(dir string) (dashboard.Talked, error) {
	m, err := trained.Open(dir, "")
	if err != nil {
		return nil, err
	}
	s, err := serve.New(m, serve.Options{Name: filepath.Base(filepath.Clean(dir)), DType: tensor.F32, Queue: 8, Reasoning: "auto",
		Engine: sample.EngineOptions{Pages: 256, Rows: 64, Running: 4, Ahead: 4}})
	if err != nil {
		m.Close()
		return nil, err
	}
	return talked{s, m}, nil
}

// stop asks the process that leads a run to save its state and end.
func stop(dir string) error {
	pid := dashboard.Process(dir)
	if pid == 0 {
		return fmt.Errorf("%s: the process of the run is not known on this system", dir)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(syscall.SIGTERM)
}
