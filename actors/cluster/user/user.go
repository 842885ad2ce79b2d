// Package user is what somebody has of a cluster who uses it: where its head is, and a certificate.
package user

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Cluster is a cluster in the user's home.
type Cluster struct {
	Name  string   `json:"name"`
	Heads []string `json:"heads"`         // addresses
	Hosts []Host   `json:"hosts"`         // that `cluster up` has started agents on
	Head  Host     `json:"head,omitzero"` // where the head is, or the first of several
	// More are the other heads, where there are several; Heads has their addresses in this order.
	More []Host `json:"more_heads,omitempty"`
	// SSHCommand is what `cluster up` was told to use for ssh; nil for ssh itself.
	SSHCommand []string `json:"ssh_command,omitempty"`
	Binary     string   `json:"binary,omitempty"` // lfactor on the head's host
	dir        string
}

// Host is a host that `cluster up` reaches.
type Host struct {
	Name string `json:"name"`
	SSH  string `json:"ssh,omitempty"` // what ssh is given; "" is this machine
	Addr string `json:"addr"`
	Dir  string `json:"dir"` // of its agent, or of the head
	// Binary is where lfactor was pushed to, "" for this machine's own.
	Binary string `json:"binary,omitempty"`
}

const (
	file    = "cluster.json"
	current = "current"
	// EnvHome moves the directory of clusters, which is .lfactor in the user's home.
	EnvHome = "LFACTOR_HOME"
)

// Root is the directory of clusters.
func Root() (string, error) {
	if dir := os.Getenv(EnvHome); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", exit.Usagef("%w: clusters are kept below it, or below %s", err, EnvHome)
	}
	return filepath.Join(home, ".lfactor"), nil
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// Dir is where a cluster of this name is, or would be.
func Dir(name string) (string, error) {
	if !goodName.MatchString(name) {
		return "", exit.Usagef("%.64q is not a name for a cluster: letters, digits and dashes, 32 at most", name)
	}
	root, err := Root()
	return filepath.Join(root, "clusters", name), err
}

// Open finds a cluster by its name; "" or "current" is the one that `cluster up` has made last.
func Open(name string) (*Cluster, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	if name == "" || name == current {
		text, err := os.ReadFile(filepath.Join(root, current))
		if err != nil {
			return nil, exit.With(errors.New("there is no current cluster: `lfactor cluster up` makes "+
				"one"), exit.Unreachable)
		}
		name = strings.TrimSpace(string(text))
	}
	dir, err := Dir(name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.With(fmt.Errorf("there is no cluster %s in %s: `lfactor cluster up --name %s` "+
			"makes it", name, root, name), exit.Unreachable)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, file), err)
	}
	return c, nil
}

// Save writes the cluster to dir.
func (c *Cluster) Save(dir string) error {
	c.dir = dir
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return machine.ReplaceBytes(filepath.Join(dir, file), 0o600, append(text, '\n'))
}

// MakeCurrent lets commands without a name mean this cluster.
func (c *Cluster) MakeCurrent() error {
	root, err := Root()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, current), []byte(c.Name+"\n"), 0o600)
}

// Forget removes what the user has of the cluster.
func (c *Cluster) Forget() error {
	root, err := Root()
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(root, current)); err == nil &&
		strings.TrimSpace(string(text)) == c.Name {
		if err := os.Remove(filepath.Join(root, current)); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.dir)
}

// Path is a file or directory of the cluster's.
func (c *Cluster) Path(name ...string) string {
	return filepath.Join(append([]string{c.dir}, name...)...)
}

// Client asks the cluster's head.
func (c *Cluster) Client() (*control.Client, error) {
	id, err := trust.Load(c.dir, nil)
	if err != nil {
		return nil, exit.With(fmt.Errorf("the certificate for cluster %s: %w", c.Name, err), exit.Unreachable)
	}
	if time.Now().After(id.Expiry()) {
		return nil, exit.With(fmt.Errorf("your certificate for cluster %s ended on %s: an admin makes another with `lfactor cluster user add`",
			c.Name, id.Expiry().Format(time.DateOnly)), exit.Unreachable)
	}
	client := control.NewClient(c.Heads, id)
	if id.Stale(trust.UserLife) {
		renew(client, id)
	}
	return client, nil
}

// renewWithin is how long a command waits for a certificate that begins now: the one that it has is good still.
const renewWithin = 2 * time.Second

// renew asks for such a certificate. Where that fails the next command asks again.
func renew(client *control.Client, id *trust.Identity) {
	ctx, cancel := context.WithTimeout(context.Background(), renewWithin)
	defer cancel()
	var a struct {
		Cert string `json:"cert"`
	}
	if client.Do(ctx, "POST", "/v1/renew", nil, &a) != nil {
		return
	}
	if cert, err := trust.DecodeCert(a.Cert); err == nil {
		_ = id.Replace(cert) // the one that it has is good still
	}
}

// Seats are all heads.
func (c *Cluster) Seats() []Host { return append([]Host{c.Head}, c.More...) }

// Output is a piece of what a job writes, as the head sends it.
type Output struct {
	At     int64           `json:"at"`
	Proc   int             `json:"proc"`
	Host   string          `json:"host"`
	Stream string          `json:"stream"`
	Data   []byte          `json:"data"`
	End    json.RawMessage `json:"end"`
}

// patience is how long a head may be away while somebody follows a job: it starts again by itself.
const patience = 30 * time.Second

// Follow hands what a job writes to see, from its beginning to its end, also over a new head. It
// returns what the head says of the job at its end.
func Follow(ctx context.Context, c *control.Client, job string, see func(Output),
	away func(error)) (json.RawMessage, error) {
	var at int64
	var since time.Time
	for {
		end, err := followOnce(ctx, c, job, &at, func(o Output) { since = time.Time{}; see(o) })
		if end != nil || ctx.Err() != nil {
			return end, ctx.Err()
		}
		var refused *control.Refused
		if errors.As(err, &refused) {
			return nil, err
		}
		if since.IsZero() {
			since = time.Now()
			away(err)
		}
		if time.Since(since) > patience {
			return nil, exit.With(fmt.Errorf("the cluster's head has been away for %v; the job goes on, "+
				"and `lfactor attach %s` shows it when the head is back: "+
				"%w", patience, job, err), exit.Unreachable)
		}
		if machine.Pause(ctx, 100*time.Millisecond) != nil {
			return nil, ctx.Err()
		}
	}
}

// followOnce prints the output of a job from *at on, until the job ends or the connection breaks.
// *at moves along, so that a new connection goes on where this one ended.
func followOnce(ctx context.Context, c *control.Client, job string, at *int64,
	see func(Output)) (json.RawMessage, error) {
	body, err := c.Open(ctx, "GET", fmt.Sprintf("/v1/jobs/%s/output?from=%d", job, *at), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	dec := json.NewDecoder(body)
	for {
		var o Output
		if err := dec.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the head has ended")
			}
			return nil, err
		}
		if o.End != nil {
			return o.End, nil
		}
		*at = o.At
		see(o)
	}
}
