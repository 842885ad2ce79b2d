package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Limits bound a program; zero fields have usual values.
type Limits struct {
	Memory    int64 // bytes of address space; 0 takes 1 GiB
	Files     int64 // bytes of the folder in memory, and of a file; 0 takes 64 MiB
	Seconds   int   // of processor time; 0 takes 60
	Processes int   // with their threads, unless the user is root, whose are not bounded; 0 takes 64
}

// usual fills in what is not said.
func (l Limits) usual() Limits {
	for _, x := range []struct {
		at    *int64
		usual int64
	}{{&l.Memory, 1 << 30}, {&l.Files, 64 << 20}} {
		if *x.at == 0 {
			*x.at = x.usual
		}
	}
	if l.Seconds == 0 {
		l.Seconds = 60
	}
	if l.Processes == 0 {
		l.Processes = 64
	}
	return l
}

// word is the first word of a program that is to become another within a sandbox.
const word = "lfactor-sandbox"

// order is what such a program is told.
type order struct {
	Limits Limits
	Words  []string
}

// marker begins what a sandbox says of itself where it could not begin.
const marker = "sandbox: "

// Command is a program that will run in a sandbox, in an empty folder; all of it ends with the context. Its input and
// outputs are the caller's to set. Errors of the sandbox itself are written to its error output, behind "sandbox: ".
func Command(ctx context.Context, l Limits, words ...string) (*exec.Cmd, error) {
	if len(words) == 0 {
		return nil, errors.New("sandbox: there is no program")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if words[0], err = exec.LookPath(words[0]); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	text, err := json.Marshal(order{l.usual(), words})
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	c := exec.CommandContext(ctx, self)
	c.Args = []string{word, string(text)}
	c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8",
		"GOMAXPROCS=1"}
	c.WaitDelay = time.Second
	return c, isolate(c)
}

// Check says why this machine has no sandboxes, nil where it has.
func Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := Command(ctx, Limits{}, "true")
	if err != nil {
		return err
	}
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil {
		why := strings.TrimSpace(said.String())
		if why == "" {
			why = err.Error()
		}
		return fmt.Errorf("this machine lets nobody make sandboxes (%s): allow namespaces of users "+
			"(kernel.unprivileged_userns_clone, user.max_user_namespaces, a container's seccomp profile), or judge elsewhere "+
			"by reward.kind: http", strings.TrimPrefix(why, marker))
	}
	return nil
}
