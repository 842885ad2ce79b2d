package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	clusters "github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
)

// OnCluster queues the job that spec makes on a cluster and shows what it writes, as if it ran here; with
// detach it only tells its number, in a form.
func OnCluster(c *cobra.Command, cluster string, detach bool, form string,
	spec func(client *control.Client) (*control.Spec, error)) error {
	cl, err := clusters.Open(cluster)
	if err != nil {
		return err
	}
	client, err := cl.Client()
	if err != nil {
		return err
	}
	s, err := spec(client)
	if err != nil {
		return err
	}
	var j head.Job
	if err := client.Do(c.Context(), "POST", "/v1/jobs", s, &j); err != nil {
		return err
	}
	if detach {
		fmt.Fprintf(os.Stderr, "job %s runs on cluster %s: `lfactor attach %s` shows it, `lfactor "+
			"stop %s` ends it\n", j.ID, cl.Name, j.ID, j.ID)
		return EmitAs(c.OutOrStdout(), form, j, func(w io.Writer) { fmt.Fprintln(w, j.ID) })
	}
	return Attach(c.Context(), client, j.ID, c.OutOrStdout(), os.Stderr, true)
}

// JobSpec is a command line as a job in this directory, with the text of the files that it names; "" stands for none.
func JobSpec(args []string, files ...string) (*control.Spec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	s := &control.Spec{Args: args, Dir: dir, Files: map[string][]byte{}}
	if u, err := user.Current(); err == nil {
		s.User = u.Username
	}
	for _, name := range files {
		if name == "" {
			continue
		}
		if s.Files[name], err = os.ReadFile(name); err != nil {
			return nil, err
		}
	}
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "LFACTOR_") && !strings.HasPrefix(e, clusters.EnvHome+"=") {
			s.Env = append(s.Env, e)
		}
	}
	return s, nil
}

// HostsUp is how many hosts of a cluster are connected; none is an error.
func HostsUp(ctx context.Context, client *control.Client) (n int, err error) {
	var now head.Status
	if err := client.Do(ctx, "GET", "/v1/status", nil, &now); err != nil {
		return 0, err
	}
	for _, h := range now.Hosts {
		if h.State == "ready" || h.State == "busy" {
			n++
		}
	}
	if n == 0 {
		return 0, exit.With(fmt.Errorf("no host of the cluster is connected; `lfactor cluster status` "+
			"shows them"), exit.Unreachable)
	}
	return n, nil
}

// WithoutCluster are the words of a command line but those that chose the cluster.
func WithoutCluster(mine []string) (out []string) {
	for i := 0; i < len(mine); i++ {
		name, _, inline := strings.Cut(strings.TrimLeft(mine[i], "-"), "=")
		switch {
		case (name == "cluster" || name == "hosts") && !inline:
			i++
		case name == "cluster", name == "hosts", name == "detach":
		default:
			out = append(out, mine[i])
		}
	}
	return out
}
