package cluster

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
)

// apply makes a cluster have the hosts that a file has.
func apply() *cobra.Command {
	c := &cobra.Command{Use: "apply hosts.yaml",
		Short: "Make the cluster have the hosts of a file: add, take in " +
			"again, remove",
		Long: "Hosts of the file that are no members are added, those that are away are taken in again, and " +
			"members that\nwere added by ssh and are not in the file are removed. Where all is as written " +
			"nothing is done. The heads\nstay where they are; a cluster that is not there is made by " +
			"`lfactor cluster up`.", Args: cobra.ExactArgs(1)}
	name := clusterFlag(c)
	ssh := sshFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		h, err := deploy.ReadHosts(args[0])
		if err != nil {
			return err
		}
		if *name == "" {
			*name = h.Name
		}
		cl, err := user.Open(*name)
		if err != nil {
			return err
		}
		u := &deploy.Up{Name: cl.Name, Say: say, SSHCommand: cl.SSHCommand}
		if *ssh != "" {
			u.SSHCommand = strings.Fields(*ssh)
		}
		done, err := u.Apply(c.Context(), cl, h.Hosts)
		if err != nil {
			return err
		}
		return cli.Emit(c, done, func(w io.Writer) {
			for _, x := range done {
				fmt.Fprintf(w, "%s %s\n", x.Do, x.Host)
			}
			if len(done) == 0 {
				fmt.Fprintf(w, "cluster %s has the hosts of %s\n", cl.Name, args[0])
			}
		})
	}
	return c
}
