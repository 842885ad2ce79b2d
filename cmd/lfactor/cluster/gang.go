package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/agent"
	"github.com/lfactor/lfactor/actors/cluster/deploy"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// gangJoin makes a cluster of the hosts that a launcher has started this command on.
type gangJoin struct {
	deploy.Gang
	addr   string
	margin time.Duration
	self   string
}

// joinGang takes part in a cluster of the tasks of a step of Slurm or of a job of Kubernetes. The first task
// carries out the command of lfactor that args are, and with its end the cluster ends.
func joinGang(c *cobra.Command, g deploy.Gang, args []string, addr, meet string, margin time.Duration) (err error) {
	s := gangJoin{Gang: g, addr: addr, margin: margin}
	if meet != "" {
		s.Meet = meet
	}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if s.addr == "" {
		if s.addr, err = s.Addr(); err != nil {
			return err
		}
	}
	if s.Launcher == deploy.Slurm {
		// Slurm sends SIGTERM to every process of the step, and twice is a kill: only the first task acts on
		// it
		if err := os.Setenv(machine.EnvHoldTerm, "1"); err != nil {
			return err
		}
		if s.Task > 0 {
			signal.Ignore(syscall.SIGTERM)
		}
	}
	if s.Note != "" && s.Task == 0 {
		say("note: %s", s.Note)
	}
	if s.Task > 0 && s.Launcher == deploy.Kubernetes { // the pod alone is to go, or all are: its process moves or saves
		return s.follow(c.Context(), podGrace)
	}
	if s.Task > 0 {
		return s.follow(context.WithoutCancel(c.Context()), 0)
	}
	return s.lead(c.Context(), args)
}

// follow is what all tasks do but the first: they run an agent until the cluster ends.
func (s *gangJoin) follow(ctx context.Context, grace time.Duration) error {
	o, err := agentOptions()
	if err != nil {
		return err
	}
	h, heads, err := s.joined(ctx, o.Binary)
	if errors.Is(err, deploy.ErrDone) {
		say("%v: nothing is left to do", err)
		return nil
	}
	if err != nil {
		return err
	}
	o.Dir, o.Head, o.Addr, o.Leave = h.Dir, heads, h.Addr, grace
	if err = agent.Run(ctx, o); err == nil && s.Launcher == deploy.Kubernetes && !s.Done() {
		// else Kubernetes takes this one's index for done, and starts no other pod
		return exit.With(errors.New("this pod ends before the job is done"), exit.Interrupted)
	}
	return err
}

// podGrace is how long a pod that is asked to end waits for its processes: less than the manifest's
// terminationGracePeriodSeconds.
const podGrace = 110 * time.Second

// joined makes this host a member. A pod that was started again may find a token that it has used before: it
// waits for the next.
func (s *gangJoin) joined(ctx context.Context, binary string) (h user.Host, heads []string, err error) {
	for limit := time.Now().Add(s.Limit()); ; {
		t, err := s.Invited(ctx)
		if err != nil {
			return h, nil, err
		}
		h, heads, err = deploy.Join(ctx, t, s.Host, s.addr, binary)
		if err == nil || s.Launcher == deploy.Slurm || time.Now().After(limit) {
			return h, heads, err
		}
		say("! %v; asking again", err)
		if machine.Pause(ctx, 2*time.Second) != nil {
			return h, nil, ctx.Err()
		}
	}
}

// lead brings the cluster up, carries the command out on it, and takes the cluster down.
func (s *gangJoin) lead(ctx context.Context, args []string) (err error) {
	whole := context.WithoutCancel(ctx) // the cluster comes up, and goes, whole
	u := &deploy.Up{Name: s.Cluster(), Say: say}
	c, err := u.Local(whole, 1, s.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deploy.Down(whole, c, say)) }()
	if err := s.Invite(whole, c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Leave(err == nil)) }()
	n, err := s.Gather(ctx, c)
	if err != nil {
		return err
	}
	if n < s.Tasks {
		say("! %d of %d hosts have joined; going on without the others", n, s.Tasks)
	}
	say("cluster %s has %d hosts of %s's job %s", c.Name, n, s.Launcher, s.Job)
	if s.Launcher == deploy.Kubernetes { // which starts pods again
		defer s.invitesAgain(ctx, c)()
	}
	ctx, stop := s.until(ctx)
	defer stop()
	return s.carryOut(ctx, c, args)
}

// invitesAgain leaves new tokens for pods that are away until the returned function is called; none is
// written behind that, when the job is said to be done.
func (s *gangJoin) invitesAgain(ctx context.Context, c *user.Cluster) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.InviteAgain(ctx, c)
	}()
	return func() {
		end()
		<-ended
	}
}

// until ends in time for a save before the allocation does.
func (s *gangJoin) until(ctx context.Context) (context.Context, func()) {
	if s.End.IsZero() {
		return ctx, func() {}
	}
	at := s.End.Add(-s.margin)
	say("the allocation ends at %s; at %s the run is asked to save and end", s.End.Format(time.DateTime),
		at.Format(time.DateTime))
	return context.WithDeadline(ctx, at)
}

// carryOut runs a command of lfactor on the cluster. The end of ctx asks it to end, as Ctrl-C does.
func (s *gangJoin) carryOut(ctx context.Context, c *user.Cluster, args []string) error {
	if len(args) == 0 {
		<-ctx.Done()
		return nil
	}
	cmd := exec.Command(s.self, append(args, "--cluster", c.Name)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		say("the allocation or its owner wants the run to end")
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
	})()
	var end *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &end) {
		return exit.With(fmt.Errorf("the run ended with exit code %d", end.ExitCode()), end.ExitCode())
	} else if err != nil {
		return err
	}
	return nil
}
