package data

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/fleet"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
)

// spreadFlags are those of a job that may run on a cluster.
type spreadFlags struct {
	cluster string
	hosts   int
	detach  bool
}

// spreads lets a verb run on a cluster. Files are those that its arguments name and that go with the job.
func spreads(c *cobra.Command, files func(args []string) []string) {
	s := &spreadFlags{}
	f := c.Flags()
	f.StringVar(&s.cluster, "cluster", "", "share the input out over the hosts of a cluster, which find it at the "+
		"same path; \"current\" is the one made last")
	f.IntVar(&s.hosts, "hosts", 0, "hosts of the cluster; 0 is as many as there are")
	f.BoolVar(&s.detach, "detach", false, "leave the job to the cluster and end")
	here := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case s.hosts < 0:
			return exit.Usagef("--hosts %d: want a number of hosts", s.hosts)
		case s.cluster != "":
			return s.submit(c, files(args))
		case s.hosts > 0 || s.detach:
			return exit.Usagef("--hosts and --detach want --cluster")
		}
		return here(c, args)
	}
}

// submit hands the job to a cluster.
func (s *spreadFlags) submit(c *cobra.Command, files []string) error {
	form, err := cli.Output(c)
	if err != nil {
		return err
	}
	return cli.OnCluster(c, s.cluster, s.detach, form, func(client *control.Client) (*control.Spec, error) {
		spec, err := cli.JobSpec(cli.WithoutCluster(os.Args[1:]), files...)
		if err != nil {
			return nil, err
		}
		spec.Name = "data " + c.Name()
		if spec.Procs = s.hosts; s.hosts == 0 {
			spec.Procs, err = cli.HostsUp(c.Context(), client)
		}
		spec.Hosts = s.hosts
		return spec, err
	})
}

// everywhere carries out a job whose items are made by all processes that it has on a cluster, where it is on one.
// A process that does not lead makes items until the job ends. Open makes ready what makes items; done closes it.
func everywhere(c *cobra.Command, output string, open func() (work dataset.Work, done func(), err error),
	job func(dataset.Remote) error) error {
	f, err := fleet.FromEnv()
	switch {
	case err != nil:
		return err
	case f == nil:
		return job(dataset.Remote{})
	}
	work, done, err := open()
	if err != nil {
		return err
	}
	defer done()
	if !f.Leads() {
		return f.Help(c.Context(), work)
	}
	say := func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }
	hosts, end, err := f.Spread(c.Context(), work, say)
	if err != nil {
		return err
	}
	defer end()
	say(fmt.Sprintf("%s is written on %s", filepath.Clean(output), f.Host()))
	return job(hosts)
}
