package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/agent"
	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// manifest is lfactor cluster manifest: a run as a job of Kubernetes.
func manifest() *cobra.Command {
	c := &cobra.Command{Use: "manifest run.yaml [key=value...]",
		Short: "Write a run as a job of Kubernetes: one pod a host",
		Long: "Prints a service account without rights, a config map with the run file and an indexed job, whose first pod " +
			"leads, for\n`kubectl apply -f -`. Data, checkpoints and the run's folder have to lie on the volume of --claim, " +
			"which all pods mount.",
		Example: "  lfactor cluster manifest run.yaml --image registry.example/lfactor:1.2 --hosts 4 --gpus 8 --claim data | " +
			"kubectl apply -f -",
		Args: cobra.MinimumNArgs(1)}
	var m deploy.Manifest
	f := c.Flags()
	f.StringVar(&m.Name, "name", "lfactor", "name of the job")
	f.StringVar(&m.Namespace, "namespace", "", "namespace; by default kubectl's")
	f.StringVar(&m.Image, "image", "", "image that has lfactor in its path")
	f.IntVar(&m.Hosts, "hosts", 1, "pods")
	f.StringVar(&m.CPU, "cpu", "", "processors of a pod, as 8")
	f.StringVar(&m.Memory, "memory", "", "memory of a pod, as 64Gi")
	f.IntVar(&m.GPUs, "gpus", 0, "nvidia.com/gpu of a pod")
	f.StringVar(&m.Claim, "claim", "", "PersistentVolumeClaim that all pods write, with data and checkpoints")
	f.StringVar(&m.Mount, "mount", "/data", "where pods have it; the working directory of the run")
	f.StringVar(&m.Secret, "secret", "", "secret whose keys become the environment, as keys of object stores")
	f.IntVar(&m.Retries, "retries", 10, "pods of each host that may fail before the job does")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := configs.Load(configs.Request{File: args[0], Args: args[1:], Getenv: os.Getenv})
		if err != nil {
			return err
		}
		m.Run = cfg.YAML()
		text, err := m.Write()
		if err != nil {
			return err
		}
		return cli.Emit(c, struct {
			Manifest string `json:"manifest"`
		}{string(text)}, func(w io.Writer) { _, err = w.Write(text) })
	}
	return c
}

// alive is what a pod's probe asks: whether the agents of this host answer.
func alive() *cobra.Command {
	return &cobra.Command{Use: "alive", Short: "Report whether this host's agents answer", Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			root, err := user.Root()
			if err != nil {
				return err
			}
			found, err := filepath.Glob(filepath.Join(root, "agents", "*", agent.AliveSocket+"-0.sock"))
			if err != nil {
				return err
			}
			var all []agent.Alive
			for _, path := range found {
				a, err := askAlive(path)
				if err != nil {
					return exit.With(fmt.Errorf("the agent of %s does not answer: %w", filepath.Dir(path),
						err), exit.Unreachable)
				}
				all = append(all, a)
			}
			return cli.Emit(c, all, func(w io.Writer) {
				for _, a := range all {
					fmt.Fprintf(w, "%s has %d processes\n", a.Host, a.Processes)
				}
			})
		}}
}

func askAlive(path string) (a agent.Alive, err error) {
	c, err := net.DialTimeout("unix", path, machine.AnswerWithin)
	if err != nil {
		return a, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(machine.AnswerWithin)); err != nil {
		return a, err
	}
	return a, json.NewDecoder(io.LimitReader(c, 1<<16)).Decode(&a)
}
