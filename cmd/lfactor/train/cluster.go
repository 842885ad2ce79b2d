package train

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	clusters "github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
)

// onCluster hands the run to a cluster and shows what it writes, as if it ran here.
func onCluster(c *cobra.Command, cfg *configs.Config, file string, mine, rest []string) error {
	cl, err := clusters.Open(cli.FlagValue(mine, "cluster"))
	if err != nil {
		return err
	}
	client, err := cl.Client()
	if err != nil {
		return err
	}
	spec, err := jobSpec(c.Context(), client, cfg, file, mine, rest)
	if err != nil {
		return err
	}
	var j head.Job
	if err := client.Do(c.Context(), "POST", "/v1/jobs", spec, &j); err != nil {
		return err
	}
	if slices.Contains(mine, "--detach") {
		fmt.Fprintf(os.Stderr, "job %s runs on cluster %s: `lfactor attach %s` shows it, `lfactor "+
			"cluster stop %s` ends it\n", j.ID, cl.Name, j.ID, j.ID)
		form, err := cli.Form(mine)
		if err != nil {
			return err
		}
		return cli.EmitAs(c.OutOrStdout(), form, j, func(w io.Writer) { fmt.Fprintln(w, j.ID) })
	}
	return cli.Attach(c.Context(), client, j.ID, c.OutOrStdout(), os.Stderr, true)
}

// jobSpec is this command line as a job: with the run file's text, in this directory, over as many
// processes as the plan says or the cluster has hosts.
func jobSpec(ctx context.Context, client *control.Client, cfg *configs.Config, file string, mine,
	rest []string) (*control.Spec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	s := &control.Spec{Log: absolute(dir, cfg.Run.Log.Dir), Dir: dir, Name: filepath.Base(file),
		Procs: cfg.Run.Plan.Procs,
		Files: map[string][]byte{}}
	for _, d := range []string{cfg.Run.Checkpoint.Dir, cfg.Run.Log.Dir} {
		if d != "" {
			s.Keep = append(s.Keep, absolute(dir, d))
		}
	}
	if u, err := user.Current(); err == nil {
		s.User = u.Username
	}
	for _, name := range []string{file, cli.FlagValue(mine, "plan")} {
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
	if n := cli.FlagValue(mine, "hosts"); n != "" {
		if s.Hosts, err = strconv.Atoi(n); err != nil || s.Hosts < 1 {
			return nil, exit.Usagef("train: --hosts %s: want a number of hosts", n)
		}
	}
	s.Args = []string{"train"}
	if file != "" {
		s.Args = append(s.Args, file)
	}
	if s.Procs == 1 {
		if s.Procs, err = spread(ctx, client, cfg.Run.Plan.Ranks()); err != nil {
			return nil, err
		}
		s.Args = append(s.Args, fmt.Sprintf("plan.procs=%d", s.Procs))
	}
	s.Args = append(append(s.Args, rest...), withoutCluster(mine)...)
	return s, nil
}

// absolute is a path as seen from a directory.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// spread is the number of processes for so many ranks: one a host, and as many ranks in each.
func spread(ctx context.Context, client *control.Client, ranks int) (int, error) {
	var now head.Status
	if err := client.Do(ctx, "GET", "/v1/status", nil, &now); err != nil {
		return 0, err
	}
	hosts := 0
	for _, h := range now.Hosts {
		if h.State == "ready" || h.State == "busy" {
			hosts++
		}
	}
	if hosts == 0 {
		return 0, exit.With(fmt.Errorf("no host of the cluster is connected; `lfactor cluster status` "+
			"shows them"), exit.Unreachable)
	}
	n := min(hosts, ranks)
	for ranks%n != 0 {
		n--
	}
	return n, nil
}

// withoutCluster are train's own flags but those that chose the cluster.
func withoutCluster(mine []string) (out []string) {
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
