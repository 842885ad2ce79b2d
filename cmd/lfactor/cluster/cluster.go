// Package cluster is the verb of that name: it parses, calls and prints.
package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/agent"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Command is lfactor cluster: many hosts, or many agents on one.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "Make hosts into a cluster that runs training jobs, and look after it",
		Long: "`lfactor cluster up` makes a cluster; `lfactor train run.yaml --cluster NAME` runs on it. " +
			"Without a name, commands mean the cluster that was made last."}
	c.AddCommand(up(), down(), status(), token(), users(), join(), add(), apply(), check(), drain(),
		remove(), replace(), logs(),
		backup(), restore(), manifest(), alive(), headCommand(), agentCommand(), confinedCommand(), installCommand(),
		uninstallCommand())
	return c
}

// named is the cluster that the first argument names, or the current one.
func named(args []string) (*user.Cluster, error) {
	if len(args) == 0 {
		return user.Open("")
	}
	return user.Open(args[0])
}

func say(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }

func down() *cobra.Command {
	c := &cobra.Command{Use: "down [CLUSTER]", Short: "End a cluster: its jobs, agents and head, and all " +
		"files of it", Args: cobra.MaximumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := named(args)
		if err != nil {
			return err
		}
		if err := deploy.Down(c.Context(), cl, say); err != nil {
			return err
		}
		return cli.Emit(c, map[string]any{"down": cl.Name},
			func(w io.Writer) { fmt.Fprintf(w, "cluster %s is down; nothing of it is left\n", cl.Name) })
	}
	return c
}

func status() *cobra.Command {
	c := &cobra.Command{Use: "status [CLUSTER]", Short: "Show the hosts and jobs of a cluster",
		Args: cobra.MaximumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := named(args)
		if err != nil {
			return err
		}
		client, err := cl.Client()
		if err != nil {
			return err
		}
		var s head.Status
		if err := client.Do(c.Context(), "GET", "/v1/status", nil, &s); err != nil {
			return err
		}
		return cli.Emit(c, s, func(w io.Writer) { printStatus(w, cl.Name, s) })
	}
	return c
}

func printStatus(w io.Writer, name string, s head.Status) {
	w = cli.Visible(w, "")
	fmt.Fprintf(w, "cluster %s  head %s (pid %d, up %v, lfactor %s)\n", name, s.Head, s.Pid,
		time.Since(s.Up).Round(time.Second), s.Version)
	for _, x := range s.Heads {
		fmt.Fprintf(w, "head %s  %s  %s since %v\n", x.Name, x.Addr, x.State, time.Since(x.Since).Round(time.Second))
	}
	printLost(w, s.Heads)
	t := cli.TextTable("host", "state", "since", "address", "cores", "memory", "disk free", "clock", "job",
		"processes")
	t.SetOutputMirror(w)
	for _, h := range s.Hosts {
		t.AppendRow([]any{h.Name, h.State, time.Since(h.Since).Round(time.Second), h.Addr, h.Cores,
			gib(h.Memory), gib(h.Disk),
			h.Skew.Round(time.Millisecond), h.Job, strings.Trim(fmt.Sprint(h.Procs), "[]")})
	}
	t.Render()
	for _, j := range s.Jobs {
		if j.State != head.Ended {
			fmt.Fprintln(w, jobLine(j))
		}
	}
}

// printLost says what it means that heads are away, and what to do.
func printLost(w io.Writer, heads []head.SeatState) {
	away := 0
	for _, x := range heads {
		if x.State == "away" {
			away++
		}
	}
	n := len(heads)
	if away == 0 {
		return
	}
	fmt.Fprintf(w, "! %d of %d heads are there: the cluster can lose %d more. One whose host or directory is "+
		"lost is replaced by `lfactor cluster replace HEAD`\n", n-away, n, n-away-n/2-1)
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// jobLine is a job in one line.
func jobLine(j head.Job) string {
	line := fmt.Sprintf("job %s  %s  %s", j.ID, j.State, j.Spec.Name)
	if len(j.Hosts) > 0 {
		line += "  on " + strings.Join(j.Hosts, ", ")
	}
	if j.State == head.Running {
		line += j.Narrow() + j.Holdup()
	}
	if j.Epoch > 0 && j.State == head.Running {
		line += fmt.Sprintf("  epoch %d", j.Epoch)
	}
	if j.Restarts > 0 {
		line += fmt.Sprintf("  started again %d×", j.Restarts)
	}
	if j.Why != "" {
		line += "  " + j.Why
	}
	return line
}

// headCommand is what `up` starts; people do not. It becomes lfactor-head, which alone has the store.
func headCommand() *cobra.Command {
	return &cobra.Command{Use: "head", Short: "Run a cluster's head", Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			program, err := deploy.HeadProgram(self)
			if err != nil {
				return err
			}
			command := append([]string{program, "--program", self, "--program-version", cli.Version()}, args...)
			return syscall.Exec(program, command, os.Environ())
		}}
}

// confinedCommand is how an agent begins a job of a submitter: it holds itself to what its first argument says, and
// becomes the command line that follows.
func confinedCommand() *cobra.Command {
	return &cobra.Command{Use: agent.ConfinedWord, Short: "Begin a program that is held to directories", Hidden: true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			var c machine.Confinement
			if len(args) < 2 {
				return exit.Usagef("cluster %s: agents start it", agent.ConfinedWord)
			}
			if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
				return exit.Usagef("cluster %s: %w", agent.ConfinedWord, err)
			}
			return c.Exec(args[1:], os.Environ())
		}}
}

// agentCommand is what `up` and `join` start.
func agentCommand() *cobra.Command {
	c := &cobra.Command{Use: "agent", Short: "Run the agent of a host", Args: cobra.NoArgs, Hidden: true}
	dir := c.Flags().String("dir", "", "the agent's directory")
	addr := c.Flags().String("addr", "127.0.0.1", "address of this host for edges")
	heads := c.Flags().StringSlice("head", nil, "addresses of the head")
	ports := c.Flags().String("ports", "", "ports that may be used, as 7400-7499; any by default")
	notice := c.Flags().String("notice", "", "what says that this host is taken back, instead of "+agent.EnvNotice)
	local := c.Flags().StringArray("head-dir", nil, "address and directory of a head that is on this machine")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(*heads) == 0 {
			return exit.Usagef("cluster agent: --head is wanted")
		}
		o, err := agentOptions()
		if err != nil {
			return err
		}
		if o.Ports, err = deploy.ParsePorts(*ports); err != nil {
			return exit.With(err, exit.Usage)
		}
		for _, text := range *local {
			l, err := control.ParseLocalHead(text)
			if err != nil {
				return exit.Usagef("cluster agent: --head-dir: %w", err)
			}
			o.Local = append(o.Local, l)
		}
		o.Dir, o.Head, o.Addr, o.Notice = *dir, *heads, *addr, cmp.Or(*notice, o.Notice)
		signal.Ignore(syscall.SIGHUP, syscall.SIGINT) // it outlives the terminal it was started from
		return agent.Run(c.Context(), o)
	}
	return c
}
