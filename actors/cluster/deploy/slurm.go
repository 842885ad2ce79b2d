package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
)

// Slurm is a task of a step of Slurm that has one task on each of its hosts. The first makes a cluster of
// them.
type Slurm struct {
	Job   string
	Step  string
	Task  int // 0 brings the head up
	Tasks int
	Host  string    // name of this one in Slurm
	From  string    // address of the host that srun was started on
	Meet  string    // directory that all tasks see
	End   time.Time // of the allocation, zero if it has none
}

// ReadSlurm reads a task's environment. Asked is what `scontrol show job` says, for versions of Slurm that
// do not tell the end of the allocation; nil asks nobody.
func ReadSlurm(env func(string) string, asked func(job string) (string, error)) (s Slurm, err error) {
	s = Slurm{Job: env("SLURM_JOB_ID"), Step: env("SLURM_STEP_ID"), Host: env("SLURMD_NODENAME"),
		Meet: env("SLURM_SUBMIT_DIR"), From: env("SLURM_LAUNCH_NODE_IPADDR")}
	number := func(name string) (n int) {
		if err == nil {
			if n, err = strconv.Atoi(env(name)); err != nil || n < 0 {
				err = exit.Usagef("%s=%.32q: this is not a task that srun has started; run `srun lfactor "+
					"cluster join --slurm` inside an allocation", name, env(name))
			}
		}
		return n
	}
	s.Task, s.Tasks = number("SLURM_PROCID"), number("SLURM_NTASKS")
	nodes := number("SLURM_NNODES")
	switch {
	case err != nil:
		return s, err
	case s.Job == "" || s.Host == "":
		return s, exit.Usagef("SLURM_JOB_ID and SLURMD_NODENAME are not set: this is not a task that " +
			"srun has " +
			"started")
	case s.Tasks != nodes:
		return s, exit.Usagef("%d tasks on %d hosts: give srun --ntasks-per-node=1, for lfactor has one "+
			"agent "+
			"a host", s.Tasks, nodes)
	}
	return s, s.readEnd(env("SLURM_JOB_END_TIME"), asked)
}

// readEnd finds the end of the allocation: seconds since 1970, or what scontrol says.
func (s *Slurm) readEnd(seconds string, asked func(job string) (string, error)) error {
	if seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return exit.Usagef("SLURM_JOB_END_TIME=%.32q: want seconds since 1970", seconds)
		}
		s.End = time.Unix(n, 0)
		return nil
	}
	if asked == nil {
		return nil
	}
	text, err := asked(s.Job)
	if err != nil {
		return err
	}
	_, at, ok := strings.Cut(text, "EndTime=")
	if at, _, _ = strings.Cut(at, " "); !ok || at == "Unknown" {
		return nil
	}
	if s.End, err = time.ParseInLocation("2006-01-02T15:04:05", strings.TrimSpace(at),
		time.Local); err != nil {
		return fmt.Errorf("scontrol says EndTime=%.64q, which is not a time: %w", at, err)
	}
	return nil
}

// AskSlurm is what `scontrol show job` says of a job, on one line. A host without scontrol knows no end.
func AskSlurm(job string) (string, error) {
	text, err := exec.Command("scontrol", "-o", "show", "job", job).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	return string(text), err
}

// Cluster is the name of the cluster that the tasks make.
func (s *Slurm) Cluster() string { return "slurm-" + s.Job }

// Addr is the address of this host under its name in Slurm, or on the way to the host that srun was started
// on.
func (s *Slurm) Addr() (string, error) {
	all, err := net.LookupHost(s.Host)
	for _, a := range all {
		if ip := net.ParseIP(a); ip != nil && !ip.IsLoopback() && own(a) == nil {
			return a, nil
		}
	}
	if c, err := net.Dial("udp", net.JoinHostPort(s.From, "9")); err == nil && s.From != "" { // sends nothing
		defer c.Close()
		host, _, err := net.SplitHostPort(c.LocalAddr().String())
		return host, err
	}
	return "", exit.With(fmt.Errorf("%s does not lead to an address of this host (%v, %v): name one "+
		"with --addr",
		s.Host, all, err), exit.Unreachable)
}

// meeting is what the first task tells the others: a token each.
type meeting struct {
	Tokens []string `json:"tokens"` // by task, from the second
}

func (s *Slurm) file() string {
	return filepath.Join(s.Meet, fmt.Sprintf(".lfactor-slurm-%s.%s", s.Job, s.Step))
}

// Invite lets the other tasks join a cluster: it leaves tokens where they look. Remove takes away what is
// left.
func (s *Slurm) Invite(ctx context.Context, c *user.Cluster) (remove func(), err error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	var m meeting
	for range s.Tasks - 1 {
		var t struct {
			Token string `json:"token"`
		}
		if err := client.Do(ctx, "POST", "/v1/tokens", nil, &t); err != nil {
			return nil, err
		}
		m.Tokens = append(m.Tokens, t.Token)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.file()+".new", text, 0o600); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(s.file()) }, os.Rename(s.file()+".new", s.file()) // it may be gone
}

// MeetLimit is how long tasks wait for each other: they do not start at one moment.
const MeetLimit = 2 * time.Minute

// Invited waits for this task's token.
func (s *Slurm) Invited(ctx context.Context) (t trust.Token, err error) {
	limit := time.Now().Add(MeetLimit)
	for {
		text, err := os.ReadFile(s.file())
		switch {
		case err == nil:
			var m meeting
			if err := json.Unmarshal(text, &m); err != nil || len(m.Tokens) < s.Task {
				return t, fmt.Errorf("%s is not what the first task writes: %v", s.file(), err)
			}
			return trust.ParseToken(m.Tokens[s.Task-1])
		case !errors.Is(err, fs.ErrNotExist):
			return t, err
		case time.Now().After(limit):
			return t, exit.With(fmt.Errorf("task 0 has left no tokens in %s within %v: all hosts have "+
				"to see that "+
				"directory; name another with --meet", s.Meet, MeetLimit), exit.Unreachable)
		}
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Gather waits until all tasks' hosts are members, and returns how many are when it waits no longer.
func (s *Slurm) Gather(ctx context.Context, c *user.Cluster) (n int, err error) {
	client, err := c.Client()
	if err != nil {
		return 0, err
	}
	for limit := time.Now().Add(MeetLimit); ; {
		n, err = connected(ctx, client)
		if err != nil || n >= s.Tasks || time.Now().After(limit) {
			return n, err
		}
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// connected counts the hosts that are.
func connected(ctx context.Context, client *control.Client) (n int, err error) {
	var now head.Status
	if err := client.Do(ctx, "GET", "/v1/status", nil, &now); err != nil {
		return 0, err
	}
	for _, h := range now.Hosts {
		if h.State != "away" {
			n++
		}
	}
	return n, nil
}
