package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Gang is a task of several that a launcher has started at once, one on each of its hosts: of a step of
// Slurm, or the pod of an indexed job of Kubernetes. The first makes a cluster of them.
type Gang struct {
	Launcher string // Slurm or Kubernetes
	Job      string
	Step     string
	Task     int    // 0 brings the head up
	Again    string // of a job that was requeued, "-1" for the first time: what it left before counts no more
	Tasks    int
	Host     string    // name of this one for the launcher
	IP       string    // address of this one, where the launcher says so
	From     string    // address of the host that srun was started on
	Meet     string    // directory that all tasks see
	End      time.Time // of the allocation, zero if it has none
	Note     string    // what the launcher did not say, "" for nothing
}

// Cluster is the name of the cluster that the tasks make.
func (s *Gang) Cluster() string { return strings.ToLower(s.Launcher) + "-" + s.Job + s.Again }

// Addr is the address of this host that the launcher says, or under its name there, or on the way to the
// host that srun was started on.
func (s *Gang) Addr() (string, error) {
	if s.IP != "" {
		return s.IP, nil
	}
	all, err := net.LookupHost(s.Host)
	for _, a := range all {
		if ip := net.ParseIP(a); ip != nil && !ip.IsLoopback() && own(a) == nil {
			return a, nil
		}
	}
	if c, err := net.Dial("udp", net.JoinHostPort(s.From, "9")); err == nil &&
		s.From != "" { // sends nothing
		defer c.Close()
		host, _, err := net.SplitHostPort(c.LocalAddr().String())
		return host, err
	}
	return "", exit.With(fmt.Errorf("%s does not lead to an address of this host (%v, %v): name one with --addr",
		s.Host, all, err), exit.Unreachable)
}

// meeting is what the first task tells the others: a token each.
type meeting struct {
	Tokens []string `json:"tokens,omitempty"` // by task, from the second
	Done   bool     `json:"done,omitempty"`   // there is nothing to join any more
}

func (s *Gang) file() string {
	return filepath.Join(s.Meet, fmt.Sprintf(".lfactor-%s-%s.%s", strings.ToLower(s.Launcher), s.Job, s.Step+s.Again))
}

// Leave takes away what Invite has left. For pods it says that the job is done instead, if it is: one that
// was started again meanwhile has nothing to join.
func (s *Gang) Leave(done bool) error {
	if done && s.Launcher == Kubernetes {
		return s.write(meeting{Done: true})
	}
	if err := os.Remove(s.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// InviteAgain leaves new tokens for tasks whose hosts are away, until ctx ends: their launcher starts them again.
func (s *Gang) InviteAgain(ctx context.Context, c *user.Cluster) {
	client, err := c.Client()
	if err != nil {
		return
	}
	for machine.Pause(ctx, tokensEvery) == nil {
		if n, err := connected(ctx, client); err == nil && n < s.Tasks {
			_ = s.Invite(ctx, c) // the next time may do better
		}
	}
}

// tokensEvery is how often tasks that are away get new tokens.
const tokensEvery = 5 * time.Second

// Invite lets the other tasks join a cluster: it leaves a token for each where they look.
func (s *Gang) Invite(ctx context.Context, c *user.Cluster) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	var m meeting
	for range s.Tasks - 1 {
		var t struct {
			Token string `json:"token"`
		}
		if err := client.Do(ctx, "POST", "/v1/tokens", nil, &t); err != nil {
			return err
		}
		m.Tokens = append(m.Tokens, t.Token)
	}
	return s.write(m)
}

func (s *Gang) write(m meeting) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return machine.ReplaceBytes(s.file(), 0o600, text)
}

// MeetLimit is how long tasks of Slurm wait for each other: they do not start at one moment.
const MeetLimit = 2 * time.Minute

// Limit is how long tasks wait for each other; pods wait for their images first.
func (s *Gang) Limit() time.Duration {
	if s.Launcher == Kubernetes {
		return 15 * time.Minute
	}
	return MeetLimit
}

// ErrDone is what Invited returns to a task of a job that is done.
var ErrDone = errors.New("the job is done")

// Done reports whether the first task has said that nothing is left to do.
func (s *Gang) Done() bool {
	var m meeting
	text, err := os.ReadFile(s.file())
	return err == nil && json.Unmarshal(text, &m) == nil && m.Done
}

// Invited waits for this task's token.
func (s *Gang) Invited(ctx context.Context) (t trust.Token, err error) {
	limit := time.Now().Add(s.Limit())
	for {
		text, err := os.ReadFile(s.file())
		switch {
		case err == nil:
			var m meeting
			if err := json.Unmarshal(text, &m); err == nil && m.Done {
				return t, ErrDone
			} else if err != nil || len(m.Tokens) < s.Task {
				return t, fmt.Errorf("%s is not what the first task writes: %v", s.file(), err)
			}
			return trust.ParseToken(m.Tokens[s.Task-1])
		case !errors.Is(err, fs.ErrNotExist):
			return t, err
		case time.Now().After(limit):
			return t, exit.With(fmt.Errorf("task 0 has left no tokens in %s within %v: all hosts have to see that "+
				"directory; name another with --meet", s.Meet, s.Limit()), exit.Unreachable)
		}
		if machine.Pause(ctx, 100*time.Millisecond) != nil {
			return t, ctx.Err()
		}
	}
}

// Gather waits until all tasks' hosts are members, and returns how many are when it waits no longer.
func (s *Gang) Gather(ctx context.Context, c *user.Cluster) (n int, err error) {
	client, err := c.Client()
	if err != nil {
		return 0, err
	}
	for limit := time.Now().Add(s.Limit()); ; {
		n, err = connected(ctx, client)
		if err != nil || n >= s.Tasks || time.Now().After(limit) {
			return n, err
		}
		if machine.Pause(ctx, 50*time.Millisecond) != nil {
			return n, ctx.Err()
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
