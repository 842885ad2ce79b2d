package cluster

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/agent"
	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

func token() *cobra.Command {
	c := &cobra.Command{Use: "token [CLUSTER]", Short: "Print a token with which one host may join within " +
		"ten minutes", Args: cobra.MaximumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := named(args)
		if err != nil {
			return err
		}
		client, err := cl.Client()
		if err != nil {
			return err
		}
		var t struct {
			Token string    `json:"token"`
			Until time.Time `json:"until"`
		}
		if err := client.Do(c.Context(), "POST", "/v1/tokens", nil, &t); err != nil {
			return err
		}
		return cli.Emit(c, t, func(w io.Writer) { fmt.Fprintln(w, t.Token) })
	}
	return c
}

func join() *cobra.Command {
	c := &cobra.Command{Use: "join TOKEN | --slurm [-- COMMAND…] | --kubernetes [-- COMMAND…]",
		Short: "Let this host take part in a " +
			"cluster until this command ends",
		Long: "join makes this host a member of the cluster that `lfactor cluster token` was asked on, and " +
			"runs its agent until it gets\nSIGTERM or the cluster ends. The token is \"-\" to be read from " +
			"stdin, where `ps` does not show it.\n\n" +
			"`srun lfactor cluster join --slurm -- train run.yaml` makes a cluster of the hosts of an " +
			"allocation of Slurm's,\nruns `lfactor train run.yaml` on it, and takes it down. It wants one " +
			"task a host; docs/cluster.md has a script."}
	name := c.Flags().String("name", "", "name of this host in the cluster; its own by default")
	addr := c.Flags().String("addr", "", "address that other hosts reach this one by; by default that on "+
		"the way to the head")
	slurm := c.Flags().Bool("slurm", false, "make a cluster of the tasks that srun has started")
	kubernetes := c.Flags().Bool("kubernetes", false,
		"make a cluster of the pods of a job that cluster manifest describes")
	meet := c.Flags().String("meet", "",
		"with --slurm and --kubernetes: directory that all hosts see; by default that of sbatch, or the volume")
	margin := c.Flags().Duration("margin", time.Minute, "with --slurm: how long before the allocation ends "+
		"the run is asked to save and end")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *slurm || *kubernetes {
			g, err := gang(*slurm, *kubernetes)
			if err != nil {
				return err
			}
			return joinGang(c, g, args, *addr, *meet, *margin)
		}
		if len(args) != 1 {
			return exit.Usagef("cluster join: want a token, --slurm or --kubernetes")
		}
		text := args[0]
		if text == "-" {
			in, err := io.ReadAll(io.LimitReader(c.InOrStdin(), 1<<12))
			if err != nil {
				return err
			}
			text = string(in)
		}
		t, err := trust.ParseToken(text)
		if err != nil {
			return exit.With(err, exit.Usage)
		}
		o, err := agentOptions()
		if err != nil {
			return err
		}
		h, heads, err := deploy.Join(c.Context(), t, *name, *addr, o.Binary)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "joined as %s, address %s; this host takes part until this command ends\n",
			h.Name, h.Addr)
		o.Dir, o.Head, o.Addr = h.Dir, heads, h.Addr
		if err := agent.Run(c.Context(), o); err != nil {
			return err
		}
		return cli.Emit(c, h, func(io.Writer) {})
	}
	return c
}

// gang reads what the launcher of this task says of it.
func gang(slurm, kubernetes bool) (deploy.Gang, error) {
	switch {
	case slurm && kubernetes:
		return deploy.Gang{}, exit.Usagef("--slurm and --kubernetes: one of them has started this task")
	case slurm:
		return deploy.ReadSlurm(os.Getenv, deploy.AskSlurm)
	}
	return deploy.ReadKubernetes(os.Getenv)
}

// agentOptions are those of an agent of this binary.
func agentOptions() (o agent.Options, err error) {
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	o = agent.Options{Command: []string{self}, Version: cli.Version(), Log: os.Stderr, Notice: os.Getenv(agent.EnvNotice)}
	if at := o.Notice; !deploy.GoodNotice(at) {
		return o, exit.Usagef("%s=%.64s: want an http address, or the absolute path of a file", agent.EnvNotice, at)
	}
	o.Binary, err = machine.HashFile(self)
	return o, err
}
