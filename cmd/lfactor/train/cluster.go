package train

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/topology"
)

// onCluster hands the run to a cluster and shows what it writes, as if it ran here.
func onCluster(c *cobra.Command, cfg *configs.Config, file string, mine, rest []string) error {
	form, err := cli.Form(mine)
	if err != nil {
		return err
	}
	return cli.OnCluster(c, cli.FlagValue(mine, "cluster"), slices.Contains(mine, "--detach"), form,
		func(client *control.Client) (*control.Spec, error) {
			return jobSpec(c.Context(), client, cfg, file, mine, rest)
		})
}

// jobSpec is this command line as a job: with the run file's text, in this directory, over as many processes as the
// plan says or the cluster has hosts; of a run that draws its answers the one that trains and its samplers and judges.
func jobSpec(ctx context.Context, client *control.Client, cfg *configs.Config, file string, mine,
	rest []string) (*control.Spec, error) {
	s, err := cli.JobSpec(nil, file, cli.FlagValue(mine, "plan"))
	if err != nil {
		return nil, err
	}
	s.Log, s.Name, s.Procs = absolute(s.Dir, cfg.Run.Log.Dir), filepath.Base(file), cfg.Run.Plan.Procs
	s.Restarts, s.Window = cfg.Run.Train.Restarts, cfg.Run.Train.RestartWindow
	for _, d := range []string{cfg.Run.Checkpoint.Dir, cfg.Run.Log.Dir} {
		if d != "" {
			s.Keep = append(s.Keep, absolute(s.Dir, d))
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
	beside := 0
	switch l := fit.Loss(cfg); {
	case l != nil && l.Policy != nil: // one process trains, and each sampler and judge is another
		beside = cfg.Run.Rollout.Samplers + cfg.Run.Reward.Judges
		s.Procs = 1 + beside
	case s.Procs == 1:
		if s.Procs, err = spread(ctx, client, cfg.Run.Plan.Ranks()); err != nil {
			return nil, err
		}
		s.Args = append(s.Args, fmt.Sprintf("plan.procs=%d", s.Procs))
	}
	s.Talks = layout.MeshOf(&cfg.Run.Plan).Talks(s.Procs - beside)
	for k := range beside {
		s.Talks = append(s.Talks, topology.Talk{A: 0, B: k + 1, Weight: 1})
	}
	s.Args = append(append(s.Args, rest...), cli.WithoutCluster(mine)...)
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
	hosts, err := cli.HostsUp(ctx, client)
	if err != nil {
		return 0, err
	}
	n := min(hosts, ranks)
	for ranks%n != 0 {
		n--
	}
	return n, nil
}
