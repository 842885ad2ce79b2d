package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	clusters "github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// users are the commands about who may ask a cluster.
func users() *cobra.Command {
	c := &cobra.Command{Use: "user", Short: "Let others look at a cluster, or submit jobs to it"}
	c.AddCommand(addUser(), revokeUser(), listUsers())
	return c
}

func addUser() *cobra.Command {
	c := &cobra.Command{Use: "add NAME DIR",
		Short: "Make a user's certificate, in a new folder for that user",
		Long: "DIR is what the user puts to ~/.lfactor/clusters/CLUSTER: the cluster's heads, a key and a certificate " +
			"with a role.\nview may look, submit may start and stop jobs too, admin may do everything. Whoever has " +
			"the folder is the user. A certificate\nlives 90 days, and commands renew it when half of that is over.",
		Args: cobra.ExactArgs(2)}
	name := clusterFlag(c)
	role := c.Flags().String("role", string(trust.View), "what the user may do: view, submit or admin")
	dirs := c.Flags().StringSlice("dirs", nil,
		"with --role submit: directories of the hosts that the user's jobs may read and write; they reach no others")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := clusters.Open(*name)
		if err != nil {
			return err
		}
		if left, err := os.ReadDir(args[1]); err == nil && len(left) > 0 {
			return exit.Usagef("%s is not empty: name a new folder", args[1])
		}
		u, err := makeUser(c, cl, head.UserRequest{Name: args[0], Role: trust.Role(*role), Dirs: *dirs}, args[1])
		if err != nil {
			return err
		}
		return cli.Emit(c, u, func(w io.Writer) {
			fmt.Fprintf(w, "user %s may %s until %s; put %s to ~/.lfactor/clusters/%s of that user\n", u.Name, u.Role,
				u.Until.Format(time.DateOnly), args[1], cl.Name)
		})
	}
	return c
}

// madeUser is what `user add` prints.
type madeUser struct {
	Name  string     `json:"name"`
	Role  trust.Role `json:"role"`
	Dir   string     `json:"dir"`
	Until time.Time  `json:"until"`
}

// makeUser has a certificate made for a fresh key, which does not leave this machine.
func makeUser(c *cobra.Command, cl *clusters.Cluster, q head.UserRequest, dir string) (u madeUser, err error) {
	key, err := trust.NewKey()
	if err != nil {
		return u, err
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return u, err
	}
	client, err := cl.Client()
	if err != nil {
		return u, err
	}
	var a head.UserAnswer
	q.Key = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))
	if err := client.Do(c.Context(), "POST", "/v1/users", q, &a); err != nil {
		return u, err
	}
	cert, err := trust.DecodeCert(a.Cert)
	if err != nil {
		return u, err
	}
	ca, err := trust.DecodeCert(a.CA)
	if err != nil {
		return u, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return u, err
	}
	if err := trust.SaveIdentity(dir, ca, cert, key); err != nil {
		return u, err
	}
	theirs := &clusters.Cluster{Name: cl.Name, Heads: cl.Heads} // how its hosts are reached is the admin's
	if err := theirs.Save(dir); err != nil {
		return u, err
	}
	abs, err := filepath.Abs(dir)
	return madeUser{q.Name, q.Role, abs, cert.NotAfter}, err
}

func revokeUser() *cobra.Command {
	c := &cobra.Command{Use: "revoke NAME", Short: "End a user's rights: its certificates count no more",
		Args: cobra.ExactArgs(1)}
	name := clusterFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := ask(c, *name, "DELETE", "/v1/users/"+url.PathEscape(args[0]), &struct{}{}); err != nil {
			return err
		}
		return cli.Emit(c, map[string]string{"name": args[0]}, func(w io.Writer) {
			fmt.Fprintf(w, "user %s is removed\n", args[0])
		})
	}
	return c
}

func listUsers() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the users that `cluster user add` has made", Args: cobra.NoArgs}
	name := clusterFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		var all []head.User
		if err := ask(c, *name, "GET", "/v1/users", &all); err != nil {
			return err
		}
		return cli.Emit(c, all, func(w io.Writer) {
			for _, u := range all {
				fmt.Fprintf(w, "%s  %s  until %s  certificates %s\n", u.Name, u.Role, u.Until.Format(time.DateOnly),
					strings.Join(u.Serials, ", "))
			}
		})
	}
	return c
}
