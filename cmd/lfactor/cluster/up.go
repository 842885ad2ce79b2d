package cluster

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// up makes a cluster, on this machine or on hosts that ssh reaches.
func up() *cobra.Command {
	c := &cobra.Command{Use: "up [hosts.yaml | --hosts A,B,C | --local N]", Short: "Bring a cluster up",
		Long: "up hosts.yaml brings up an agent on each host of the file, by ssh, and the head on the " +
			"first:\n\n" +
			"  name: lab\n  hosts:\n    - ssh: gpu1            # what ssh is given; its configuration, " +
			"agent and jump hosts count\n" +
			"    - ssh: me@gpu2\n      name: second         # by default the host's\n" +
			"      addr: 10.0.0.2       # where other hosts reach it; by default where ssh does\n" +
			"      ports: 7400-7499     # that may be used; by default any\n" +
			"      notice: /run/reclaimed  # file, or address of a cloud's, that says that it is taken back\n" +
			"  notice: http://…     # the same for all hosts that have none; by default LFACTOR_NOTICE there\n" +
			"  heads: [gpu1, second, gpu3]  # an odd number; most of them have to be there; by default the " +
			"first host\n\n" +
			"Nothing has to be installed on the hosts, and nothing is left on them after `cluster down`.\n" +
			"up --local N brings up a head and N agents on this machine, each a process of its own; with " +
			"--heads 3, three heads.",
		Args: cobra.MaximumNArgs(1)}
	name := c.Flags().String("name", "", "name of the cluster; by default that of hosts.yaml, or local")
	local := c.Flags().Int("local", 0, "how many agents to start on this machine")
	addr := c.Flags().String("addr", "127.0.0.1",
		"with --local: address of this machine that hosts reach which join later")
	list := c.Flags().StringSlice("hosts", nil, "hosts as ssh is given them, instead of hosts.yaml")
	heads := c.Flags().StringSlice("heads", nil, "hosts that get a head each, an odd number of them; by default "+
		"the first. With --local: how many")
	wait := c.Flags().Duration("wait", 30*time.Second, "how long hosts may take to join, once their agents run")
	ssh := sshFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		h, err := wanted(args, *list, *local)
		if err != nil {
			return err
		}
		if len(*heads) == 0 {
			*heads = h.Heads
		}
		if *heads, err = headNames(*heads, *local > 0); err != nil {
			return err
		}
		u := &deploy.Up{Name: *name, Say: say, SSHCommand: strings.Fields(*ssh), Heads: *heads, Wait: *wait}
		if u.Name == "" {
			if u.Name = h.Name; u.Name == "" {
				u.Name = "local"
			}
		}
		began := time.Now()
		var made *user.Cluster
		where := "on this machine"
		if *local > 0 {
			made, err = u.Local(c.Context(), *local, *addr)
		} else {
			where = "with the head on " + h.Hosts[0].Name
			if len(*heads) > 0 {
				where = "with a head on " + strings.Join(*heads, ", ")
			}
			made, err = u.SSH(c.Context(), h.Hosts)
		}
		if err != nil {
			return err
		}
		return cli.Emit(c, made, func(w io.Writer) {
			fmt.Fprintf(w, "cluster %s is up with %d agents %s, in %v\n", made.Name, len(made.Hosts), where,
				time.Since(began).Round(10*time.Millisecond))
			fmt.Fprintf(w, "next:  lfactor train run.yaml --cluster %[1]s\n       lfactor cluster "+
				"status %[1]s\n       lfactor cluster down %[1]s\n", made.Name)
		})
	}
	return c
}

// headNames are the names of the heads that are asked for: on this machine their number may be given.
func headNames(asked []string, local bool) ([]string, error) {
	names := asked
	if n, err := strconv.Atoi(strings.Join(asked, ",")); err == nil && local {
		if names = nil; n < 1 || n > headsMost {
			return nil, exit.Usagef("cluster up: --heads %d: want from 1 to %d", n, headsMost)
		}
		for i := range n {
			names = append(names, "head"+strconv.Itoa(i+1))
		}
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] || !deploy.GoodName(n) {
			return nil, exit.Usagef("cluster up: --heads: %q is there twice, or is not a name: name each host once, "+
				"for heads of one host are lost together", n)
		}
		seen[n] = true
	}
	switch n := len(names); {
	case n > headsMost:
		return nil, exit.Usagef("cluster up: --heads: %d are more than %d: each change waits for most of them", n,
			headsMost)
	case n > 0 && n%2 == 0:
		return nil, exit.Usagef("cluster up: --heads: %d is an even number (%s): %d heads can lose %d, as %d can; "+
			"give one less or one more", n, strings.Join(names, ", "), n, (n-1)/2, n-1)
	}
	if local && len(names) == 1 {
		return nil, nil
	}
	return names, nil
}

// headsMost is how many heads a cluster may have.
const headsMost = 7

func sshFlag(c *cobra.Command) *string {
	return c.Flags().String("ssh", "", "what to run for ssh, with options, as \"ssh -F file\"")
}

// wanted is what hosts the command line asks for: it has to name them in one way.
func wanted(args, list []string, local int) (h deploy.HostsFile, err error) {
	ways := len(args)
	if len(list) > 0 {
		ways++
	}
	if local != 0 {
		ways++
	}
	switch {
	case ways != 1:
		return h, exit.Usagef("cluster up: want one of hosts.yaml, --hosts A,B,C and --local N")
	case local < 0 || local > 256:
		return h, exit.Usagef("cluster up: --local wants a number of agents from 1 to 256")
	case len(args) == 1:
		return deploy.ReadHosts(args[0])
	}
	for _, a := range list {
		h.Hosts = append(h.Hosts, deploy.Entry{SSH: a})
	}
	if local == 0 {
		if err := h.Check(); err != nil {
			return h, exit.Usagef("cluster up: --hosts: %w", err)
		}
	}
	return h, nil
}

// add takes one more host in by ssh.
func add() *cobra.Command {
	c := &cobra.Command{Use: "add HOST", Short: "Take one more host in, by ssh", Args: cobra.ExactArgs(1),
		Long: "HOST is what ssh is given. A host without ssh takes part by `lfactor cluster join`."}
	name := clusterFlag(c)
	e := deploy.Entry{}
	c.Flags().StringVar(&e.Name, "name", "", "name of the host in the cluster; by default its own")
	c.Flags().StringVar(&e.Addr, "addr", "", "address that other hosts reach it by; by default where ssh does")
	c.Flags().StringVar(&e.Ports, "ports", "", "ports that may be used there, as 7400-7499; any by default")
	c.Flags().StringVar(&e.Notice, "notice", "", "file or address that says that the host is taken back")
	ssh := sshFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := user.Open(*name)
		if err != nil {
			return err
		}
		e.SSH = args[0]
		h := deploy.HostsFile{Hosts: []deploy.Entry{e}}
		if err := h.Check(); err != nil {
			return exit.Usagef("cluster add: %w", err)
		}
		u := &deploy.Up{Name: cl.Name, Say: say, SSHCommand: cl.SSHCommand}
		if *ssh != "" {
			u.SSHCommand = strings.Fields(*ssh)
		}
		made, err := u.Add(c.Context(), cl, h.Hosts[0])
		if err != nil {
			return err
		}
		return cli.Emit(c, made, func(w io.Writer) {
			fmt.Fprintf(w, "host %s takes part in cluster %s\n", made.Name, cl.Name)
		})
	}
	return c
}

// check measures the ways between the hosts of a cluster.
func check() *cobra.Command {
	c := &cobra.Command{Use: "check [CLUSTER]",
		Short: "Measure the way between every pair of hosts, both ways", Args: cobra.MaximumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := named(args)
		if err != nil {
			return err
		}
		client, err := cl.Client()
		if err != nil {
			return err
		}
		links, err := deploy.Check(c.Context(), client)
		if err != nil {
			return err
		}
		if err := cli.Emit(c, links, func(w io.Writer) {
			t := cli.TextTable("from", "to", "round trip", "rate", "fault")
			t.SetOutputMirror(w)
			for _, l := range links {
				t.AppendRow([]any{l.From, l.To, l.RTT.Round(time.Microsecond),
					fmt.Sprintf("%.2f GB/s", l.Rate/1e9), l.Fault})
			}
			t.Render()
		}); err != nil {
			return err
		}
		return deploy.Report(links, say)
	}
	return c
}

// installCommand is what `up` runs on a host.
func installCommand() *cobra.Command {
	return &cobra.Command{Use: "install", Short: "Install what stdin says, and start it", Args: cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return deploy.Receive(c.InOrStdin(), self)
		}}
}

// uninstallCommand is what `down` runs on a host.
func uninstallCommand() *cobra.Command {
	return &cobra.Command{Use: "uninstall DIR...", Short: "End what works in directories, and remove them",
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return deploy.Uninstall(args) }}
}
