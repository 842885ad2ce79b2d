package cluster

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// clusterFlag names a cluster where arguments name hosts or files.
func clusterFlag(c *cobra.Command) *string {
	return c.Flags().String("cluster", "", "name of the cluster; the one that was made last by default")
}

// drain takes no new process to a host.
func drain() *cobra.Command {
	c := &cobra.Command{Use: "drain HOST", Short: "Take no new process to a host, and move those it has",
		Long: "A job that has processes on the host makes its step durable and starts again without the " +
			"host.",
		Args: cobra.ExactArgs(1)}
	name := clusterFlag(c)
	back := c.Flags().Bool("back", false, "let the host take processes again")
	c.RunE = func(c *cobra.Command, args []string) error {
		path := "/v1/hosts/" + url.PathEscape(args[0]) + "/drain"
		if *back {
			path += "?back=1"
		}
		var m head.Member
		if err := ask(c, *name, "POST", path, &m); err != nil {
			return err
		}
		return cli.Emit(c, m, func(w io.Writer) {
			if *back {
				fmt.Fprintf(w, "host %s takes processes again\n", m.Name)
			} else {
				fmt.Fprintf(w, "host %s takes no new process; `lfactor cluster status` shows what it still "+
					"has\n", m.Name)
			}
		})
	}
	return c
}

// remove ends a host's membership.
func remove() *cobra.Command {
	c := &cobra.Command{Use: "remove HOST", Short: "End a host's membership: its processes end, and its " +
		"certificate is revoked",
		Args: cobra.ExactArgs(1)}
	name := clusterFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var m head.Member
		if err := ask(c, *name, "DELETE", "/v1/hosts/"+url.PathEscape(args[0]), &m); err != nil {
			return err
		}
		cl, err := user.Open(*name)
		if err != nil {
			return err
		}
		deploy.Forget(cl, m.Name)
		if err := cl.Save(cl.Path()); err != nil {
			return err
		}
		return cli.Emit(c, m, func(w io.Writer) { fmt.Fprintf(w, "host %s is removed\n", m.Name) })
	}
	return c
}

// replace puts a new head in the place of a lost one.
func replace() *cobra.Command {
	c := &cobra.Command{Use: "replace HEAD", Short: "Put a new head in the place of one whose host or " +
		"directory is lost",
		Long: "The new head has the name and the addresses of the lost one, on the same host or on one that " +
			"has taken its place. It gets the state from the others, which have to be a majority, and " +
			"votes when it has all of it. What is left in the directory of the lost one is removed.",
		Args: cobra.ExactArgs(1)}
	name := clusterFlag(c)
	ssh := sshFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := user.Open(*name)
		if err != nil {
			return err
		}
		u := &deploy.Up{Name: cl.Name, Say: say, SSHCommand: cl.SSHCommand}
		if *ssh != "" {
			u.SSHCommand = strings.Fields(*ssh)
		}
		if err := u.Replace(c.Context(), cl, args[0]); err != nil {
			return err
		}
		return cli.Emit(c, map[string]any{"replaced": args[0]}, func(w io.Writer) {
			fmt.Fprintf(w, "head %s is there again, with what the other heads know\n", args[0])
		})
	}
	return c
}

// ask sends the head of a cluster a request.
func ask(c *cobra.Command, name, method, path string, out any) error {
	cl, err := user.Open(name)
	if err != nil {
		return err
	}
	client, err := cl.Client()
	if err != nil {
		return err
	}
	return client.Do(c.Context(), method, path, nil, out)
}

// backup writes the cluster's state to a file.
func backup() *cobra.Command {
	c := &cobra.Command{Use: "backup FILE", Short: "Write the cluster's state to a file: members, jobs, " +
		"events, tokens",
		Long: "The file has no keys: keep the head's directory as well if the head's host may be " +
			"lost.", Args: cobra.ExactArgs(1)}
	name := clusterFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := user.Open(*name)
		if err != nil {
			return err
		}
		client, err := cl.Client()
		if err != nil {
			return err
		}
		body, err := client.Open(c.Context(), "GET", "/v1/backup", nil)
		if err != nil {
			return err
		}
		defer body.Close()
		n, err := deploy.SaveBackup(body, args[0])
		if err != nil {
			return err
		}
		return cli.Emit(c, map[string]any{"file": args[0], "bytes": n}, func(w io.Writer) {
			fmt.Fprintf(w, "%s: the state of cluster %s, %d bytes\n", args[0], cl.Name, n)
		})
	}
	return c
}

// restore puts a backup in the place of the cluster's state.
func restore() *cobra.Command {
	c := &cobra.Command{Use: "restore FILE", Short: "Put a backup in the place of the cluster's state; " +
		"its heads start anew with it",
		Args: cobra.ExactArgs(1)}
	name := clusterFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := user.Open(*name)
		if err != nil {
			return err
		}
		if err := deploy.Restore(c.Context(), cl, args[0]); err != nil {
			return err
		}
		return cli.Emit(c, map[string]any{"restored": cl.Name}, func(w io.Writer) {
			fmt.Fprintf(w, "cluster %s has the state of %s; its heads serve it\n", cl.Name, args[0])
		})
	}
	return c
}

// logs prints what the head or a host's agent has written.
func logs() *cobra.Command {
	c := &cobra.Command{Use: "logs [HOST | HEAD]",
		Short: "Print what a head, or the agent of a host on this " +
			"machine, has written",
		Args: cobra.MaximumNArgs(1)}
	name := clusterFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := user.Open(*name)
		if err != nil {
			return err
		}
		dir := cl.Head.Dir
		if len(args) == 1 {
			dir = ""
			for _, h := range append(cl.Seats(), cl.Hosts...) {
				if h.Name == args[0] {
					dir = h.Dir
				}
			}
		}
		file := filepath.Join(dir, "log")
		if dir == "" || !machine.Exists(file) {
			return exit.Usagef("cluster %s has no log of %v on this machine", cl.Name, args)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return cli.Emit(c, map[string]string{"log": string(text)},
			func(w io.Writer) { _, _ = w.Write(text) }) // Emit says what could not be printed
	}
	return c
}
